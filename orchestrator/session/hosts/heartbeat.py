"""Renews the lease on every host, and ends the session for all when one member falls silent."""

from __future__ import annotations

import threading
import time

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.session.hosts.beside import Beside
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.hosts.pause import Lookout, read_clock

# A beat at least this often, however long the lease: silence is then noticed within two beats.
_LONGEST_BEAT_S = 5.0
_BEATS_PER_LEASE = 4
_MISSES_ALLOWED = 1
# The agent tries two ways to start one, each with 20 s to answer.
_GUARD_S = 60.0


class Heartbeat(Beside):
    """One thread per member while the session holds its leases (a context manager).

    When a member misses two beats, or refuses one, the fleet is asked to stop: half a server must
    not wait in a rendezvous for the other half. The members that still answer keep their leases
    only so that the tail, which then runs at once, can stop and revert them itself. A mute
    member's channel is given up, so that nobody waits for its answers; one that the tail regains
    is renewed again. A guard that has died is replaced, by a thread of its own: that may take
    longer than a beat.
    """

    def __init__(self, fleet: Fleet, lease_s: float) -> None:
        self._beat_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_BEAT_S)
        super().__init__(fleet, "beat", self._beat_s + 1.0)
        self._lease_s = lease_s
        self._lookout = Lookout(fleet, lease_s)
        self._guarding: dict[str, threading.Thread] = {}

    def _run(self, member: Member) -> None:
        misses = 0
        given_up: AgentClient | None = None
        looked_s = renewed_s = read_clock()
        while True:
            held = member.begun
            if self._over.wait(self._beat_s):
                return
            if not (held or member.begun):  # there was no lease to run out
                looked_s = renewed_s = read_clock()
                continue
            looked_s = self._lookout.look(looked_s, renewed_s)
            agent = member.agent
            if not member.begun or agent is None or agent is given_up:
                continue
            try:
                reply = agent.call("renew", {"lease_s": self._lease_s}, timeout_s=self._beat_s)
            except HostError as error:
                misses += 1
                looked_s = self._lookout.look(looked_s, renewed_s)
                if misses > _MISSES_ALLOWED or error.code not in ("timeout", "lost"):
                    given_up, misses = agent, 0
                    self._give_up(member, agent, error)
            else:
                misses, renewed_s = 0, read_clock()
                member.silent_since_s = time.monotonic()
                if reply.value.get("guard") == "dead":
                    self._replace_guard(member, agent)

    def _replace_guard(self, member: Member, agent: AgentClient) -> None:
        """Ask for another guard, one question at a time; what came of it is noted."""
        asking = self._guarding.get(member.name)
        if asking is not None and asking.is_alive():
            return

        def ask() -> None:
            try:
                agent.call("guard", timeout_s=_GUARD_S)
            except HostError as error:
                note = f"its guard has died, and no other could be started: {error.message}"
            else:
                note = "its guard had died, another was started"
            # Nobody is told of an end that the session itself has brought about.
            if not self._over.is_set() and note not in member.notes:
                member.notes.append(note)

        self._guarding[member.name] = self._start(f"guard-{member.name}", ask)

    def _give_up(self, member: Member, agent: AgentClient, error: HostError) -> None:
        # A session that was ended meanwhile, or whose channel was changed, has missed nothing.
        if self._over.is_set() or not member.begun or member.agent is not agent:
            return
        self._fleet.stop.set(
            f"{member.name} missed its heartbeats: {error.message}", interrupted=False
        )
        if error.code == "timeout":
            agent.close()
