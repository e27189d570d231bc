"""Ends sessions outside of a run: after `apply`, and after a controller that died."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from orchestrator.errors import HostError
from orchestrator.model.inventory import Inventory, Server
from orchestrator.model.outcome import Outcome, tell_differences
from orchestrator.session.hosts.contact import Contact, tell_server
from orchestrator.session.hosts.fleet import Fleet, Progress
from orchestrator.session.hosts.heartbeat import Heartbeat
from orchestrator.session.hosts.member import Member
from orchestrator.session.left.parts import (
    Part,
    Wanted,
    find_gone,
    find_held,
    find_reached,
    group_sessions,
    list_owners,
)
from orchestrator.session.left.telling import GONE, busy, held, state_of, sum_up
from orchestrator.session.steps import stages
from orchestrator.session.steps.regain import (
    START_BY_HAND,
    find_differences,
    name_server,
    tell_recovered,
)
from orchestrator.session.steps.tail import Tail
from orchestrator.transport.base import Transport

_ATTACH_S = 20.0
# The whole tail, on the host: stop, revert, start.
_RECOVER_S = 300.0
# While the session is ours; a controller that dies over it leaves the rest to the guards.
_LEASE_S = 60.0
_GRACE_S = 15.0
ONCE_MORE = "mend what its log says, then `sgldbg revert --all` starts it once more"


@dataclass(frozen=True, slots=True)
class Undo:
    """Ends every wanted session on the hosts that answered.

    A session that a live controller is working on is only taken from it with `take_live`. `force`
    puts the original back over a file that somebody else has changed meanwhile; that version is
    kept beside it. What a host that is `gone` for good left in an install that others share is
    ended through one of these; then nothing is said of that host itself.
    """

    contacts: Sequence[Contact]
    inventory: Inventory
    transport: Transport
    progress: Progress
    force: bool = False
    take_live: bool = False
    gone: Sequence[str] = ()

    def end(self, wanted: Wanted) -> list[Outcome]:
        """One outcome per host, in order: the worst of its sessions."""
        found: dict[str, list[Outcome]] = {c.host.name: [] for c in self.contacts}
        for session in group_sessions(self.contacts, wanted).values():
            for outcome in self._end_session(session):
                found[outcome.host].append(outcome)
        for part in find_gone(self.contacts, self.gone, wanted):
            outcome = self._recover(part)
            differences = find_differences({"server": outcome.value})
            found[part.name].append(tell_differences(outcome, differences))
        for part in find_held(self.contacts, wanted):
            found[part.name].append(held(part))
        reached = find_reached(self.contacts)
        known = list_owners(self.contacts) & set(self.gone)
        return [
            sum_up(c, found[c.host.name], reached | set(self.gone))
            for c in self.contacts
            if c.agent is not None or c.host.name not in known
        ]

    def _end_session(self, parts: Sequence[Part]) -> list[Outcome]:
        """One session on all its hosts together: its server is one."""
        if not self.take_live and any(p.left["controller"] == "alive" for p in parts):
            return [busy(part) for part in parts]
        server = find_server(self.inventory, [part.name for part in parts])
        # Of a server of which a part has ended already, the others keep their own ranks.
        ranks = [server.hosts.index(p.name) for p in parts] if server else range(len(parts))
        fleet = Fleet([_member(r, p) for r, p in zip(ranks, parts, strict=True)], self.progress)
        part_of = {member.rank: part for member, part in zip(fleet.members, parts, strict=True)}
        fleet.attempt("attach", lambda m: _attach(m, part_of[m.rank]))
        over = [m for m in fleet.members if not m.begun]
        ended: dict[int, Outcome] = {}

        def recover(member: Member) -> None:
            ended[member.rank] = outcome = self._recover(part_of[member.rank], hold=True)
            member.held = outcome.ok and outcome.value is not None
            member.state, member.server, member.life = outcome.state, outcome.server, outcome.value
            if not outcome.ok:
                raise HostError(outcome.message, host=member.name, code="not-reverted")

        def recover_over() -> None:
            fleet.attempt("recover", recover, over)

        with Heartbeat(fleet, _LEASE_S) if len(over) < len(parts) else nullcontext():
            self._tail(fleet, server, parts[0].left["session"], recover_over).run()
        return [
            _ended(ended[m.rank], m) if m.rank in ended else _outcome(m, part_of[m.rank])
            for m in fleet.members
        ]

    def _tail(
        self,
        fleet: Fleet,
        server: Server | None,
        session_id: str,
        recover_over: Callable[[], None],
    ) -> Tail:
        return Tail(
            fleet,
            server,
            self.transport,
            session_id,
            "restore",
            _GRACE_S,
            force=self.force,
            recover_others=recover_over,
        )

    def _recover(self, part: Part, hold: bool = False) -> Outcome:
        """A session whose lease is over: its host ends it by itself, from its journal."""
        assert part.contact.agent is not None
        lock = {"lock": part.left["lock"]} if part.left.get("lock") else {}
        more = {"force": self.force, "gone": list(self.gone)}
        more |= {"hold": True} if hold else {}
        try:
            value = part.contact.agent.call(
                "recover", part.mine | lock | more, timeout_s=_RECOVER_S
            ).value
        except HostError as error:
            if error.code == "missing" and error.data.get("ended"):
                return Outcome(part.name, "revert", True, message="it was ended meanwhile")
            state = "patched" if part.left["files"] else "untouched"
            return Outcome(part.name, "revert", False, state, "unknown", error.message)
        server, state = name_server(value, part.left), stages.name_state(value)
        said = "; ".join(tell_recovered(value))
        if not part.left["files"] and not value["left"]:
            state = "untouched"
        hints = (START_BY_HAND,) if "lost" in value else ()
        hints = (*hints, stages.COMPARE) if state == "drifted" else hints
        owner = part.left.get("shared_with")
        if value["left"] and owner not in (None, *self.gone, *find_reached(self.contacts)):
            hints = (GONE % (owner, owner),)
        ok = not value["left"] and server != "not back"
        return Outcome(part.name, "revert", ok, state, server, said, hints, value["server"])


def _ended(outcome: Outcome, member: Member) -> Outcome:
    """What became of a recovered host once its server was waited for."""
    said = [outcome.message, *member.notes]
    failed = member.error is not None and outcome.ok
    if member.error is not None and failed:
        said.append(member.error.message)
    hints = outcome.hints or (member.error.hints if member.error is not None else ())
    if failed and member.held:
        hints = (*hints, ONCE_MORE)
    final = replace(
        outcome,
        ok=outcome.ok and not failed,
        server=member.server,
        message="; ".join(dict.fromkeys(text for text in said if text)),
        hints=hints,
        value=None,
    )
    return tell_differences(final, find_differences({"server": outcome.value}))


def find_server(inventory: Inventory, hosts: Sequence[str]) -> Server | None:
    """The server that runs on all these hosts, if only one of the inventory does."""
    found = [s for s in inventory.servers.values() if set(hosts) <= set(s.hosts)]
    return found[0] if len(found) == 1 else None


def _member(rank: int, part: Part) -> Member:
    """What the session had come to there, from what the host says of it."""
    # Of a debug life whose main process has gone there may be workers and shared memory left.
    started = part.left["server"].startswith("debug life")
    server = "debug life" if started else tell_server(part.left)
    return Member(
        replace(part.contact.host, name=part.left["host"]),
        rank,
        agent=part.contact.agent,
        staged=bool(part.left["files"]),
        swapped=state_of(part.left) == "patched",
        described=server != "untouched",
        stopping=server != "untouched",
        started=started,
        ran=bool(part.left["ran"]),
        state=state_of(part.left),
        server=server,
        lease_s=_LEASE_S,
    )


def _attach(member: Member, part: Part) -> str:
    if part.left["expired"]:
        return "its lease is over"
    try:
        value = member.channel.call("attach", part.mine, timeout_s=_ATTACH_S).value
    except HostError as error:
        if error.code not in ("fenced", "missing"):
            member.begun = error.code in ("lost", "timeout")
            raise
        return "its lease is over"
    member.begun, member.epoch = True, value["epoch"]
    member.silent_since_s = time.monotonic()
    member.channel.call("renew", {"lease_s": _LEASE_S})
    return f"took {part.left['session']}"


def _outcome(member: Member, part: Part) -> Outcome:
    outcome = member.outcome("revert")
    notes = outcome.message
    if member.error is not None and member.error.notes:
        notes = "; ".join([notes, *member.error.notes])
    return replace(outcome, host=part.name, message=notes)
