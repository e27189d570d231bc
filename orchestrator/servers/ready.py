"""Waiting until a started server is ready, and saying at once when it will never be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Server
from orchestrator.servers.adopt import find_port
from orchestrator.servers.output import NewLines, read_last_words, tell_full, with_outputs
from orchestrator.servers.ports import port_taken
from orchestrator.servers.progress import find_progress
from orchestrator.servers.workers import MEMORY_HINT, Workers, tell_killed, worker_died

POLL_S = 0.2
_PROGRESS_S = 1.0
# SGLang's own health check gives up after 20 s.
_HEALTH_TIMEOUT_S = 25.0
_REAL = "/health_generate"
# For one look at a server that runs; whether it answers in time is no question of ours.
_LOOK_S = 5.0
# What the agent needs beside the request itself.
MARGIN_S = 15.0
_PATH_HINT = "correct `ready: {{path: ...}}` of server `{}`"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """One host's part of a server is ready: after how long, and what showed it."""

    host: str
    seconds: float
    how: str


def require_answer(agent: AgentClient, server: Server, running: Mapping[str, Any]) -> None:
    """Refuse a running server that a new life would be waited for in vain, before it is stopped.

    Raises `HostError`: `http-refused` where it listens, but not at `url` as the agent sees that (a
    container has a network of its own), `port-taken` where somebody else answers there, `not-ready`
    where it does not know `ready.path`. One that starts, or answers nothing any more, may be what
    the session is about.
    """
    port = find_port(server)
    if port not in running["ports"]:
        return
    owner = _ask_life(agent, server, running, port)["owner"]
    # A worker that was forked while the agent looked is not in its tree yet.
    if owner is not None and _ask_life(agent, server, running, port)["owner"] is not None:
        note = f"a request to {server.url} reaches it, and not the server (pid {running['pid']})"
        raise port_taken(agent.host, port, [owner], [note])
    url = server.url.rstrip("/") + server.ready.path
    asked = {"method": "GET", "url": url, "json": None, "timeout_s": _LOOK_S}
    try:
        status = agent.call("http", asked, timeout_s=_LOOK_S + MARGIN_S).value["status"]
    except HostError as error:
        if error.code == "http-refused":
            error.message = f"server `{server.name}` listens, but not there: {error.message}"
            error.hints = (f"correct `url` of server `{server.name}`, as seen from its host",)
            raise
        if not error.code.startswith("http-"):
            raise
        return
    if status == 404:
        raise HostError(
            f"server `{server.name}` would never be ready: {url} answers 404",
            host=agent.host,
            code="not-ready",
            hints=[_PATH_HINT.format(server.name)],
        )


def _ask_life(agent: AgentClient, server: Server, life: Mapping[str, Any], port: int | None) -> Any:
    # Only who would answer at that address is taken for an old server.
    where = {"port": port, "address": urlsplit(server.url).hostname}
    return agent.call("life", {"pid": life["pid"], "start_time": life["start_time"], **where}).value


def wait_ready(
    agent: AgentClient,
    server: Server,
    life: Mapping[str, Any],
    rank: int,
    on_progress: Progress = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
    first_ready: Callable[[], bool] = lambda: False,
    workers: Workers | None = None,
) -> ReadyReport:
    """Wait for one host's part of a server; `life` names its main process.

    Its output files are those of `life`, else the ones that the process has open.

    Rank 0 is ready when `ready.path` answers 200 and the port is owned by this very process tree
    (an old server that still answers is none of ours), and then one real request went through the
    model: `/health` of a server whose workers are dead may answer 200. Other ranks are ready when
    they are alive once `first_ready` says that rank 0 is: their own health server says 200 of
    itself, whatever becomes of their workers. `on_progress` gets a short text whenever the log
    shows a new stage. `workers` is told of those that come, for whoever watches them afterwards.

    Raises `HostError`: `died` at once when the process ends, and a few seconds after one of its
    workers did, where it goes on waiting for it; `port-taken`; `not-ready` after `ready.timeout_s`;
    `cancelled`. The first and the third carry the last lines of its output.
    """
    began = time.monotonic()
    watch = _Watch(agent, server, life, on_progress, workers or Workers())
    while True:
        if cancelled():
            raise HostError(
                f"waiting for server `{server.name}` was given up",
                host=agent.host,
                code="cancelled",
            )
        how = watch.ask_first() if rank == 0 else watch.ask_other(first_ready)
        seconds = time.monotonic() - began
        if how:
            return ReadyReport(agent.host, round(seconds, 3), how)
        if seconds >= server.ready.timeout_s:
            raise watch.not_ready(seconds)
        watch.look_for_progress()
        time.sleep(POLL_S)


class _Watch:
    """What is known of one starting process."""

    def __init__(
        self,
        agent: AgentClient,
        server: Server,
        life: Mapping[str, Any],
        on_progress: Progress,
        workers: Workers,
    ) -> None:
        self.agent = agent
        self.server = server
        self.life = with_outputs(agent, life)
        self.on_progress = on_progress
        self.answer = "nobody listens on its port yet"
        self._began = time.monotonic()
        self._shown = ""
        self._looked = 0.0
        self._workers = workers
        self._log = NewLines(agent, self.life, whole="stderr" in life)

    def ask_first(self) -> str:
        """How the first rank shows that it is ready, or an empty text."""
        port = find_port(self.server)
        state = self._read_life(port)
        if state["owner"] is not None:
            # A worker that was forked while the agent looked is not in its tree yet.
            state = self._read_life(port)
        if state["owner"] is not None:
            raise port_taken(self.agent.host, port, [state["owner"]])
        if not state["owns_port"]:
            return ""
        base = self.server.url.rstrip("/")
        how = self._ask(base + self.server.ready.path)
        if not how or self.server.ready.path == _REAL or not self._may_generate():
            return how
        # SGLang has the model generate one token there, whatever its environment says of /health.
        real = self._ask(base + _REAL)
        if not real and self.answer.endswith(" 404"):
            return how
        return f"{how}, {_REAL} as well" if real else ""

    def _may_generate(self) -> bool:
        """Whether the user lets a request of somebody else's be the first that the model sees.

        Who starts a server with `--skip-server-warmup` wants to send it.
        """
        asked = {"pid": self.life["pid"], "start_time": self.life["start_time"]}
        given = self.agent.call("describe", asked).value["given"]["values"]
        return bool(given.get("skip_warmup") != "true")

    def ask_other(self, first_ready: Callable[[], bool]) -> str:
        """How another rank shows that it is ready, or an empty text."""
        self._read_life(None)
        self.answer = "it runs, but rank 0 is not ready"
        return "it runs, and rank 0 is ready" if first_ready() else ""

    def look_for_progress(self) -> None:
        """Tell what the log says of the start, at most once a second and never twice."""
        now = time.monotonic()
        if now - self._looked < _PROGRESS_S:
            return
        self._looked = now
        text = find_progress(self._log.read())
        if text and text != self._shown:
            self._shown = text
            self.on_progress(text)

    def not_ready(self, seconds: float) -> HostError:
        """The error of a start that took too long."""
        return HostError(
            f"server `{self.server.name}` was not ready after {seconds:.0f} s: {self.answer}",
            host=self.agent.host,
            code="not-ready",
            notes=tell_full(self.agent, self.life),
            tail=read_last_words(self.agent, self.life),
            hints=[self._what_to_change()],
        )

    def _what_to_change(self) -> str:
        # A server that serves but does not know the path would not know it later either.
        if self.answer.endswith(" answered 404"):
            return _PATH_HINT.format(self.server.name)
        return f"allow it more time: `ready: {{timeout: ...}}` of server `{self.server.name}`"

    def _read_life(self, port: int | None) -> Any:
        state = _ask_life(self.agent, self.server, self.life, port)
        if not state["alive"]:
            seconds = time.monotonic() - self._began
            raise died(self.agent, self.server, self.life, state, seconds, self._workers)
        self._require_workers(state)
        return state

    def _require_workers(self, state: Mapping[str, Any]) -> None:
        self._workers.note(state["processes"], time.monotonic())
        lost = self._workers.find_lost(time.monotonic())
        if lost:
            running = self._workers.list_running()
            seconds = time.monotonic() - self._began
            raise worker_died(self.agent, self.server, self.life, lost, running, seconds)

    def _ask(self, url: str) -> str:
        asked = {"method": "GET", "url": url, "json": None, "timeout_s": _HEALTH_TIMEOUT_S}
        try:
            reply = self.agent.call("http", asked, timeout_s=_HEALTH_TIMEOUT_S + MARGIN_S)
        except HostError as error:
            if not error.code.startswith("http-"):
                raise
            self.answer = error.message
            return ""
        self.answer = f"{url} answered {reply.value['status']}"
        return self.answer if reply.value["status"] == 200 else ""


def died(
    agent: AgentClient,
    server: Server,
    life: Mapping[str, Any],
    state: Mapping[str, Any],
    seconds: float | None = None,
    workers: Workers | None = None,
) -> HostError:
    """The error of a server that ended by itself, with its last lines.

    Mostly it is one of its `workers` that the kernel ends for want of memory, and the main process
    follows it without knowing why.
    """
    main = (life["pid"], life["start_time"])
    said = tell_killed(agent, [main, *(workers.list_all() if workers else [])])
    when = "" if seconds is None else f" {seconds:.1f} s after its start"
    how = f" with {state['exit']}" if state.get("exit") else ""
    return HostError(
        f"server `{server.name}` ended{when}{how}",
        host=agent.host,
        code="died",
        notes=[*said, *tell_full(agent, life)],
        hints=[MEMORY_HINT] if said else [],
        tail=read_last_words(agent, life),
    )
