"""A debug session: which server, which patches, what traffic, and when enough was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.model.source import Span


@dataclass(frozen=True, slots=True)
class Restart:
    """What differs between the server as it was and its debug life.

    `add_args` go to the end of the command line; `remove_args` drop a flag with its value;
    `env` values of `None` unset a variable.
    """

    add_args: tuple[str, ...] = ()
    remove_args: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One kind of HTTP request, sent `times` times, one after another, from the first host."""

    method: str
    path: str
    json: Any = None
    times: int = 1
    timeout_s: float = 120.0
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Until:
    """When enough was seen: `records` of this patch from `from_workers`, or the time-out.

    `from_workers` is `every worker` or `any worker`.
    """

    records: str
    from_workers: str = "every worker"
    count: int = 1
    timeout_s: float = 300.0
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Session:
    """All of one session file. `after` is `restore` or `stopped`."""

    name: str
    question: str
    server: str
    patches: tuple[str, ...]
    restart: Restart = Restart()
    exercise: tuple[Request, ...] = ()
    until: Until | None = None
    lease_s: float = 120.0
    after: str = "restore"
    path: str = ""
    span: Span | None = field(default=None, compare=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False)
