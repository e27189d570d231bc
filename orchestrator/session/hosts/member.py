"""What one session knows of one host, and how far it has come there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.model.outcome import Outcome, tell_differences
from orchestrator.planning.view import HostView
from orchestrator.servers.base import Found


@dataclass(slots=True)
class Member:
    """One host of a fleet. The flags only ever go forward; the tail reads them to know its work.

    `held`: the session is over there, but its journal is open until its server is seen to run.
    `begun`: journal, lease and guard are or may be there. `staged`: the lock and staged files are
    there. `described`: `server.json` is there. `announced`: the host knows that its server is to
    be given back, though it may still run. `stopping`: the original server was told to stop.
    `swapped`: files were or may be swapped. `started`: the debug life was or may be started.
    `ran`: the server was running before the session. `lease_s` is the lease's length, `epoch` its
    number, `silent_since_s` the monotonic time of the last renewal. `files` is what the host said
    of each file that it was asked for. `state` and `server` are the words of `Outcome`;
    `differences` say in what the server, where it is back, is not as it was.
    """

    host: Host
    rank: int
    agent: AgentClient | None = None
    install: Mapping[str, Any] = field(default_factory=dict)
    found: Found | None = None
    view: HostView | None = None
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    probe_dir: str = ""
    begun: bool = False
    held: bool = False
    staged: bool = False
    described: bool = False
    announced: bool = False
    stopping: bool = False
    swapped: bool = False
    started: bool = False
    ran: bool = True
    life: Mapping[str, Any] | None = None
    lease_s: float = 0.0
    epoch: int | None = None
    silent_since_s: float = 0.0
    state: str = "untouched"
    server: str = "untouched"
    error: HostError | None = None
    differences: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.host.name

    @property
    def is_down(self) -> bool:
        """Whether its server may have been ended by the session, here or through another part."""
        return self.announced or self.stopping or self.started

    @property
    def channel(self) -> AgentClient:
        """The agent; only valid after connecting."""
        if self.agent is None:
            raise HostError("not connected", host=self.name, code="lost")
        return self.agent

    def outcome(self, stage: str) -> Outcome:
        """This host's state as a value."""
        message = self.error.message if self.error else ""
        outcome = Outcome(
            host=self.name,
            stage=stage,
            ok=self.error is None,
            state=self.state,
            server=self.server,
            message="; ".join(dict.fromkeys(m for m in [message, *self.notes] if m)),
            hints=self.error.hints if self.error else (),
        )
        return tell_differences(outcome, self.differences)
