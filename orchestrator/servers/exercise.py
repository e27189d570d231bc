"""Sending a session's requests to its server, from the server's first host itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Server
from orchestrator.model.session import Request
from orchestrator.servers.ready import MARGIN_S, POLL_S, died
from orchestrator.servers.workers import Workers

HEAD_CHARACTERS = 2000
# A connection breaks when a worker dies; its main process follows 0.2 s later, unless crash
# diagnostics are on (then 65 s, which are not waited for).
_DEATH_S = 2.0


@dataclass(frozen=True, slots=True)
class Response:
    """What became of one request. `status` is `None` where no answer came, `error` says why.

    `request` is the index in the session's `exercise`, `turn` counts from 1; `head` is the
    beginning of the body.
    """

    request: int
    turn: int
    method: str
    path: str
    status: int | None
    seconds: float | None
    head: str
    error: str = ""
    tail: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the server answered, and not with a fault of its own."""
        return not self.error


def exercise(
    agent: AgentClient,
    server: Server,
    requests: Sequence[Request],
    life: Mapping[str, Any],
    on_response: Callable[[Response], None] = lambda response: None,
    cancelled: Callable[[], bool] = lambda: False,
    workers: Workers | None = None,
) -> tuple[Response, ...]:
    """Send all requests one after another; a failure is a `Response` with `error`.

    Where the server died of a request, that is the error, with its last lines in `tail`, and
    nothing more is sent; `notes` and `hints` say more of it.
    `workers` are those of the server, of which one may have taken it along. Raises `HostError` only
    where the host itself is lost.
    """
    responses: list[Response] = []
    for index, request in enumerate(requests):
        for turn in range(1, request.times + 1):
            if cancelled():
                return tuple(responses)
            response, gone = _send(agent, server, request, life, workers, index, turn)
            responses.append(response)
            on_response(response)
            if gone:
                return tuple(responses)
    return tuple(responses)


def _send(
    agent: AgentClient,
    server: Server,
    request: Request,
    life: Mapping[str, Any],
    workers: Workers | None,
    index: int,
    turn: int,
) -> tuple[Response, bool]:
    """The response, and whether the server is gone."""
    asked = {
        "method": request.method.upper(),
        "url": server.url.rstrip("/") + request.path,
        "json": request.json,
        "timeout_s": request.timeout_s,
    }
    status, seconds, head, error, patience_s = None, None, "", "", 0.0
    try:
        reply = agent.call("http", asked, timeout_s=request.timeout_s + MARGIN_S)
    except HostError as refused:
        if not refused.code.startswith("http-"):
            raise
        error = refused.message
        patience_s = 0.0 if refused.code == "http-timeout" else _DEATH_S
    else:
        status, seconds = reply.value["status"], reply.value["seconds"]
        head = reply.raw.decode("utf-8", "backslashreplace")[:HEAD_CHARACTERS]
        if status >= 500:
            error = f"{asked['method']} {asked['url']} answered {status}"
    gone = _find_death(agent, server, life, workers, patience_s) if error else None
    response = Response(index, turn, request.method, request.path, status, seconds, head, error)
    if gone is None:
        return response, False
    return replace(
        response,
        error=f"{error}: {gone.message}",
        tail=gone.tail,
        notes=tuple(gone.notes),
        hints=tuple(gone.hints),
    ), True


def _find_death(
    agent: AgentClient,
    server: Server,
    life: Mapping[str, Any],
    workers: Workers | None,
    patience_s: float,
) -> HostError | None:
    """Whether the server's main process ended, or does so within `patience_s`."""
    asked = {"pid": life["pid"], "start_time": life["start_time"], "port": None}
    deadline = time.monotonic() + patience_s
    while True:
        state = agent.call("life", asked).value
        if not state["alive"]:
            return died(agent, server, life, state, workers=workers)
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_S)
