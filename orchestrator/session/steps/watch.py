"""Watches the debug life while it is observed, so that one that dies ends the session at once."""

from __future__ import annotations

import time
from collections.abc import Mapping

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Server
from orchestrator.servers import workers
from orchestrator.servers.ready import died
from orchestrator.servers.workers import Workers, worker_died
from orchestrator.session.hosts.beside import Beside
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.lives import DEBUG_LIFE, say_which

_LOOK_S = 1.0
_ANSWER_S = 10.0


class Watch(Beside):
    """One thread per member while its ready server is asked and waited for (a context manager).

    The requests go to the first host alone, and they wait for every worker of all hosts: one that
    ended in silence would only be noticed when their time is over. When a member's main process
    is gone, or one of its workers, for longer than the patience, the fleet is asked to stop, and
    the error says which, with its last words. A request that fails of it is given that time to
    say so itself. Hosts that do not answer are the heartbeat's to judge.
    """

    def __init__(self, fleet: Fleet, server: Server, known: Mapping[str, Workers]) -> None:
        super().__init__(fleet, "watch", _ANSWER_S + 1.0)
        self._server = server
        self._known = known

    def _run(self, member: Member) -> None:
        look = _Look(self._server, member, self._known[member.name])
        while not self._over.wait(_LOOK_S):
            try:
                error = look.find_death()
            except HostError:
                continue
            # What ends after this is ended by the session itself.
            if error is not None and not self._over.is_set():
                say_which(error, DEBUG_LIFE)
                self._fleet.stop.set(error.message, interrupted=False, error=error)
                return


class _Look:
    """What is known of one member's part of the server."""

    def __init__(self, server: Server, member: Member, known: Workers) -> None:
        self._server = server
        self._member = member
        self._workers = known
        self._gone_at_s: float | None = None

    def find_death(self) -> HostError | None:
        """The error of a server that ended, whole or in part, longer than the patience ago."""
        agent, life = self._member.channel, self._member.life
        assert life is not None
        asked = {"pid": life["pid"], "start_time": life["start_time"], "port": None}
        state = agent.call("life", asked, timeout_s=_ANSWER_S).value
        now_s = time.monotonic()
        if state["alive"]:
            self._workers.note(state["processes"], now_s)
            return self._find_lost(agent, life, now_s)
        if self._gone_at_s is None:
            self._gone_at_s = now_s
        if now_s - self._gone_at_s < workers.PATIENCE_S:
            return None
        return died(agent, self._server, life, state, workers=self._workers)

    def _find_lost(
        self, agent: AgentClient, life: Mapping[str, object], now_s: float
    ) -> HostError | None:
        lost = self._workers.find_lost(now_s)
        if not lost:
            return None
        return worker_died(agent, self._server, life, lost, self._workers.list_running())
