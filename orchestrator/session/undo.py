"""Ends sessions outside of a run: after `apply`, and after a controller that died."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.inventory import Inventory, Server
from orchestrator.model.outcome import Outcome, is_as_before, tell_differences
from orchestrator.session.hosts.contact import (
    Contact,
    find_new_machines,
    is_abroad,
    is_of_earlier_machine,
    tell_files,
    tell_server,
)
from orchestrator.session.hosts.fleet import Fleet, Progress
from orchestrator.session.hosts.heartbeat import Heartbeat
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import stages
from orchestrator.session.steps.regain import (
    START_BY_HAND,
    find_differences,
    name_server,
    tell_recovered,
)
from orchestrator.session.steps.tail import Tail
from orchestrator.transport.base import Transport

_THREADS = 32
_ATTACH_S = 20.0
# The whole tail, on the host: stop, revert, start.
_RECOVER_S = 300.0
# While the session is ours; a controller that dies over it leaves the rest to the guards.
_LEASE_S = 60.0
_GRACE_S = 15.0
_GONE = "if `%s` never comes back: `sgldbg revert --all --gone %s`"

Left = Mapping[str, Any]
Wanted = Callable[[Left], bool]


def is_of(session_name: str) -> Wanted:
    """Chooses the sessions that were made from the session file of this name."""
    # An id is `<date>-<time>-<name>-<8 hex digits>`, and names may hold dashes as well.
    return lambda left: str(left["session"]).split("-", 2)[-1].rpartition("-")[0] == session_name


def all_sessions(left: Left) -> bool:
    """Chooses every session."""
    return True


@dataclass(frozen=True, slots=True)
class Part:
    """One session on one host."""

    contact: Contact
    left: Left

    @property
    def name(self) -> str:
        return self.contact.host.name

    @property
    def mine(self) -> dict[str, str]:
        """How the agent names it."""
        return {"session": self.left["session"], "host": self.left["host"]}


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
        reached = _reached(self.contacts)
        known = _list_owners(self.contacts) & set(self.gone)
        return [
            _sum_up(c, found[c.host.name], reached | set(self.gone))
            for c in self.contacts
            if c.agent is not None or c.host.name not in known
        ]

    def _end_session(self, parts: Sequence[Part]) -> list[Outcome]:
        """One session on all its hosts together: its server is one."""
        if not self.take_live and any(p.left["controller"] == "alive" for p in parts):
            return [_busy(part) for part in parts]
        server = find_server(self.inventory, [part.name for part in parts])
        # Of a server of which a part has ended already, the others keep their own ranks.
        ranks = [server.hosts.index(p.name) for p in parts] if server else range(len(parts))
        fleet = Fleet([_member(r, p) for r, p in zip(ranks, parts, strict=True)], self.progress)
        part_of = {member.rank: part for member, part in zip(fleet.members, parts, strict=True)}
        fleet.attempt("attach", lambda m: _attach(m, part_of[m.rank]))
        over = [m for m in fleet.members if not m.begun]
        ended: dict[int, Outcome] = {}

        def recover(member: Member) -> None:
            ended[member.rank] = outcome = self._recover(part_of[member.rank])
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

    def _recover(self, part: Part) -> Outcome:
        """A session whose lease is over: its host ends it by itself, from its journal."""
        assert part.contact.agent is not None
        lock = {"lock": part.left["lock"]} if part.left.get("lock") else {}
        more = {"force": self.force, "gone": list(self.gone)}
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
        if value["left"] and owner not in (None, *self.gone, *_reached(self.contacts)):
            hints = (_GONE % (owner, owner),)
        ok = not value["left"] and server != "not back"
        return Outcome(part.name, "revert", ok, state, server, said, hints, value["server"])


def _ended(outcome: Outcome, member: Member) -> Outcome:
    """What became of a recovered host once its server was waited for."""
    said = [outcome.message, *member.notes]
    failed = member.error is not None and outcome.ok
    if member.error is not None and failed:
        said.append(member.error.message)
    final = replace(
        outcome,
        ok=outcome.ok and not failed,
        server=member.server,
        message="; ".join(dict.fromkeys(text for text in said if text)),
        hints=outcome.hints or (member.error.hints if member.error is not None else ()),
        value=None,
    )
    return tell_differences(final, find_differences({"server": outcome.value}))


def find_server(inventory: Inventory, hosts: Sequence[str]) -> Server | None:
    """The server that runs on all these hosts, if only one of the inventory does."""
    found = [s for s in inventory.servers.values() if set(hosts) <= set(s.hosts)]
    return found[0] if len(found) == 1 else None


def group_sessions(contacts: Sequence[Contact], wanted: Wanted) -> dict[str, list[Part]]:
    """The wanted sessions by id, each with its hosts in order.

    Two hosts of an inventory that share a state directory both tell of both; each session is then
    ended through the host that it is of, and never through another machine. What a host has taken
    over from another one is a session of its own, and comes after those that it may wait for.
    """
    names = {c.host.name for c in contacts}
    sessions: dict[str, list[Part]] = {}
    taken: dict[str, list[Part]] = {}
    seen: set[tuple[str, str, bool]] = set()
    for contact in contacts:
        for left in contact.sessions:
            is_taken = bool(left.get("taken_from"))
            key = (left["session"], left["host"], is_taken)
            other = left["host"] in names and left["host"] != contact.host.name and not is_taken
            if wanted(left) and not other and key not in seen and not left.get("elsewhere"):
                seen.add(key)
                kind = taken if is_taken else sessions
                kind.setdefault(left["session"], []).append(Part(contact, left))
    return sessions | {f"{name}, taken over": parts for name, parts in taken.items()}


def find_gone(contacts: Sequence[Contact], gone: Sequence[str], wanted: Wanted) -> list[Part]:
    """What hosts that are gone left in installs that others see, each through one of these.

    Never through another host where that one answers, also where its machine is a new one.
    """
    reached = _reached(contacts)
    found: dict[tuple[str, str], Part] = {}
    for contact in contacts:
        for left in contact.sessions:
            host = left["host"]
            through = host == contact.host.name or host not in reached
            if is_abroad(left) and host in gone and through and wanted(left):
                found.setdefault((left["session"], host), Part(contact, left))
    return list(found.values())


def find_answering(contacts: Sequence[Contact], gone: Sequence[str]) -> list[str]:
    """Those of the hosts that are said to be gone that answer, on the machine that they were."""
    return [name for name in gone if name in _reached(contacts) - find_new_machines(contacts)]


def _reached(contacts: Sequence[Contact]) -> set[str]:
    return {c.host.name for c in contacts if c.agent is not None}


def _list_owners(contacts: Sequence[Contact]) -> set[str]:
    """Hosts of whose part in a shared install another host can tell."""
    every = [left for contact in contacts for left in contact.sessions]
    owners = {str(left["shared_with"]) for left in every if left.get("shared_with")}
    return owners | {str(left["host"]) for left in every if is_abroad(left)}


def _member(rank: int, part: Part) -> Member:
    """What the session had come to there, from what the host says of it."""
    server = tell_server(part.left)
    return Member(
        replace(part.contact.host, name=part.left["host"]),
        rank,
        agent=part.contact.agent,
        staged=bool(part.left["files"]),
        swapped=_state_of(part.left) == "patched",
        described=server != "untouched",
        stopping=server != "untouched",
        started=server == "debug life",
        ran=bool(part.left["ran"]),
        state=_state_of(part.left),
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


def _busy(part: Part) -> Outcome:
    left = part.left
    message = (
        f"session `{left['session']}` of {left['holder']} is at work; end it there, or take it"
        " with --take"
    )
    return Outcome(part.name, "revert", False, tell_files(left), tell_server(left), message)


def _state_of(left: Left) -> str:
    """The word of `Outcome` for what the host says of the files."""
    if any(f["state"] == "patched" for f in left["files"]):
        return "patched"
    return "staged" if left["files"] else "untouched"


def _outcome(member: Member, part: Part) -> Outcome:
    outcome = member.outcome("revert")
    notes = outcome.message
    if member.error is not None and member.error.notes:
        notes = "; ".join([notes, *member.error.notes])
    return replace(outcome, host=part.name, message=notes)


def _sum_up(contact: Contact, outcomes: Sequence[Outcome], reached: set[str]) -> Outcome:
    name = contact.host.name
    if contact.agent is None:
        return _unreached(contact, "revert")
    alone = [
        left
        for left in contact.sessions
        if (is_abroad(left) and left["host"] not in reached) or is_of_earlier_machine(contact, left)
    ]
    if alone and not outcomes:
        return _left_alone(contact, alone[0])
    if not outcomes:
        others = [
            f"session `{left['session']}` is of the machine `{left['elsewhere']}`, end it there"
            for left in contact.sessions
            if left.get("elsewhere") and left["host"] not in reached
        ]
        return Outcome(name, "revert", True, message="; ".join(["nothing was left", *others]))
    bad = [o for o in outcomes if not o.ok or not is_as_before([o])]
    return (bad or list(outcomes))[0]


def _left_alone(contact: Contact, left: Left) -> Outcome:
    """What a host that did not answer, or an earlier machine of one that did, holds there."""
    message = (
        f"session `{left['session']}` is of `{left['host']}` (machine `{left['elsewhere']}`), which"
        " did not answer"
    )
    if is_of_earlier_machine(contact, left):
        message = (
            f"session `{left['session']}` is of the machine `{left['elsewhere']}`, not of this"
        )
    hint = _GONE % (left["host"], left["host"])
    state = _state_of(left)
    return Outcome(contact.host.name, "revert", False, state, "untouched", message, (hint,))


def _unreached(contact: Contact, stage: str) -> Outcome:
    error = contact.error
    message, hints = (error.message, error.hints) if error else ("", ())
    return Outcome(contact.host.name, stage, False, "unknown", "unknown", message, hints)


def keep_sessions(contacts: Sequence[Contact], wanted: Wanted) -> list[Outcome]:
    """End the leases of the wanted sessions; the files stay patched until a later revert.

    Only what `apply` left behind whole: a host refuses what is half-way, and one that is at work
    for a controller is left to that one.
    """

    def keep(part: Part) -> Outcome:
        assert part.contact.agent is not None
        left = part.left
        if left["controller"] == "alive":
            return replace(_busy(part), stage="keep")
        state, server = tell_files(left), tell_server(left)
        if (state, server) != ("patched", "debug life"):
            said = f"only a whole debug life can be kept: {left['state']}, server {server}"
            return Outcome(part.name, "keep", False, state, server, said)
        try:
            part.contact.agent.call("attach", part.mine | {"keep": True}, timeout_s=_ATTACH_S)
            part.contact.agent.call("keep")
        except HostError as error:
            return Outcome(part.name, "keep", False, state, server, error.message)
        return Outcome(part.name, "keep", True, state, server, str(left["session"]))

    unreached = [_unreached(c, "keep") for c in contacts if c.agent is None]
    parts = [part for session in group_sessions(contacts, wanted).values() for part in session]
    with ThreadPoolExecutor(_THREADS, "sgldbg-keep") as pool:
        return unreached + list(pool.map(keep, parts))
