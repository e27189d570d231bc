"""Another question to a placed probe: a new table for a session that was applied, no restart."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError, OrchestratorError, PatchError, SessionError
from orchestrator.logs.parse import is_scheduler, label_of_title
from orchestrator.logs.records import RecordReader, merge
from orchestrator.model.outcome import Outcome
from orchestrator.model.patch import Capture, Probe
from orchestrator.model.record import Record
from orchestrator.session.engine import Engine
from orchestrator.session.hosts.contact import Contact, join_errors, tell_files, tell_server
from orchestrator.session.hosts.renewal import renewing
from orchestrator.session.left.parts import Left, Part, Wanted, group_sessions

_ATTACH_S = 20.0
_POLL_S = 0.1
TABLE = "table.json"
_END_THEM = "end them, and apply it anew: `sgldbg revert SESSION`"


@dataclass(frozen=True, slots=True)
class Question:
    """What a site is to be asked from now on; `limit` are records per process."""

    site: str
    capture: tuple[Capture, ...]
    when: Capture | None = None
    once_per: tuple[Capture, ...] = ()
    limit: int | None = None

    def probe(self) -> Probe:
        """The question as a patch would have it."""
        return Probe(self.capture, self.once_per, limit=self.limit, when=self.when)

    def entry(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The site's row of the table; place and limits by rank stay, predictions go."""
        return {
            **old,
            "capture": [{"name": c.name, "code": c.expression} for c in self.capture],
            "once_per": [c.expression for c in self.once_per],
            "max_keys": self.limit or self.probe().max_keys,
            "limit": self.limit,
            "every": 1,
            "rate_per_s": None,
            "when": self.when.expression if self.when else None,
            "emit_if": None,
            "expect": {},
        }


@dataclass
class Asked:
    """One host of an applied session: its channel, its table, and what came from it since."""

    name: str
    agent: AgentClient
    left: Left
    probe_dir: str
    table: dict[str, Any]
    offsets: dict[str, int] = field(default_factory=dict)
    readers: dict[str, RecordReader] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


def open_asked(contacts: Sequence[Contact], wanted: Wanted) -> list[Asked]:
    """The hosts of the one applied session, taken over; `let_go` must follow.

    Raises `SessionError` where nothing is applied, and `HostError` or `FleetError` where several
    sessions are, or one is driven by a live controller.
    """
    sessions = group_sessions(contacts, wanted)
    if not sessions:
        raise SessionError(
            "nothing of this session is applied", hints=("apply it first: `sgldbg apply SESSION`",)
        )
    if len(sessions) > 1:
        several = [part for parts in sessions.values() for part in parts]
        raise _refuse(several, f"several sessions are applied: {', '.join(sessions)}", _END_THEM)
    (parts,) = sessions.values()
    busy = [p for p in parts if p.left["controller"] == "alive"]
    if busy:
        left = busy[0].left
        message = f"session `{left['session']}` is driven by {left['holder']} right now"
        raise _refuse(busy, message, "ask when it has detached")
    asked: list[Asked] = []
    try:
        for part in parts:
            assert part.contact.agent is not None
            asked.append(_attach(part.name, part.contact.agent, part.left))
    except BaseException:
        let_go(asked, None)
        raise
    return asked


def _refuse(parts: Sequence[Part], message: str, hint: str) -> OrchestratorError:
    """These hosts have the session in a way in which nobody can be asked."""
    names = dict.fromkeys(part.name for part in parts)
    errors = [HostError(message, host=name, code="busy", hints=(hint,)) for name in names]
    error = join_errors(errors, "nobody can be asked on", "unknown")
    assert error is not None
    return error


def tell_states(
    contacts: Sequence[Contact], wanted: Wanted, lost: Collection[str] = ()
) -> tuple[Outcome, ...]:
    """What state every host was in when it was contacted, in order; asking changes no files.

    Nothing is known of those that were `lost` since.
    """
    sessions = group_sessions(contacts, wanted).values()
    lefts = {part.name: part.left for parts in sessions for part in parts}
    outcomes = []
    for contact in contacts:
        name, left = contact.host.name, lefts.get(contact.host.name)
        if contact.error is not None or name in lost:
            outcomes.append(Outcome(name, "ask", False, "unknown", "unknown"))
        elif left is None:
            outcomes.append(Outcome(name, "ask", False))
        else:
            outcomes.append(Outcome(name, "ask", False, tell_files(left), tell_server(left)))
    return tuple(outcomes)


def _attach(name: str, agent: AgentClient, left: Left) -> Asked:
    # What was kept stays so, even if this controller dies over its question.
    mine = {"session": left["session"], "host": left["host"], "keep": True}
    value = agent.call("attach", mine, timeout_s=_ATTACH_S).value
    one = Asked(name, agent, left, value["probe_dir"], {})
    try:
        one.table = read_table(name, agent, one.probe_dir)
    except BaseException:
        let_go([one], None)
        raise
    return one


def read_table(name: str, agent: AgentClient, probe_dir: str) -> dict[str, Any]:
    """The probe table as it stands on a host, whatever its length; `tail` would cut it."""
    args = {"root": probe_dir, "package": "", "files": [TABLE], "dist_info": None}
    reply = agent.call("observe", args)
    if not reply.value["files"][0]["exists"]:
        raise HostError("its probe table is gone", host=name, code="table")
    table: dict[str, Any] = json.loads(reply.raw)
    return table


def hold_leases(asked: Sequence[Asked], lease_s: float) -> AbstractContextManager[None]:
    """Inside the block no lease runs out, however long answers take; what was kept stays so."""
    return renewing([o.agent for o in asked if o.left["controller"] != "kept"], lease_s)


def let_go(asked: Sequence[Asked], lease_s: float | None) -> list[HostError]:
    """Leave every host to its guard again, or kept as it was; `None`: with the time it had left."""
    errors = []
    for one in asked:
        try:
            if one.left["controller"] == "kept":
                one.agent.call("keep")
                continue
            rest_s = float(one.left["deadline_s"]) - float(one.left["now_s"])
            one.agent.call("detach", {"lease_s": lease_s or max(rest_s, 1.0)})
        except HostError as error:
            errors.append(error)
    return errors


def check_question(engine: Engine, one: Asked, question: Question, package: str) -> tuple[str, ...]:
    """Warnings; raises `PatchError` where the site is not there or an expression cannot work.

    A site that no host has is a question that does not fit, like a place that no source has.
    """
    entry = one.table["sites"].get(question.site)
    if entry is None:
        known = ", ".join(f"`{name}`" for name in sorted(one.table["sites"]))
        raise PatchError(
            f"there is no site `{question.site}`",
            state="not found",
            hints=(f"the sites there: {known}",),
            hosts=(one.name,),
        )
    args = {
        "root": one.left["root"],
        "package": package,
        "files": [entry["file"]],
        "dist_info": None,
    }
    data = one.agent.call("observe", args).raw
    return engine.check_question(data, entry["file"], question.site, question.probe())


@dataclass(frozen=True, slots=True)
class Posed:
    """A question that was put: the `generation` that its answers bear, and who knows the site.

    `known` are the processes that have reached it before, as host and pid, with their labels; as
    long as none has, the schedulers that imported it. An import alone does not make one a worker:
    SGLang's main process imports the scheduler's module and never runs it. Nor does it count whose
    rank is not asked.
    """

    site: str
    generation: int
    known: Mapping[tuple[str, int], str]

    def is_answered(self, records: Sequence[Record]) -> bool:
        """Whether all of them have answered; where none is known, whether anybody has."""
        return any(_is_answer(r) for r in records) and not self.missing(records)

    def missing(self, records: Sequence[Record]) -> list[str]:
        """Those of them without an answer, like `demo-0 TP1`."""
        answered = {(r.host, r.pid) for r in records if _is_answer(r) or r.is_left_out}
        return [f"{k[0]} {label}" for k, label in sorted(self.known.items()) if k not in answered]


def _is_answer(record: Record) -> bool:
    return record.kind in ("hit", "error")


def put_question(asked: Sequence[Asked], question: Question) -> Posed:
    """Write the new table everywhere."""
    before: list[Record] = []
    generation = 1 + max(int(one.table["generation"]) for one in asked)
    for one in asked:
        _read_spool(one)  # what was there before is not an answer, but tells who can give one
        before += [r for r in one.records if r.site == question.site]
        one.records.clear()
        sites = dict(one.table["sites"])
        sites[question.site] = question.entry(sites[question.site])
        one.table |= {"generation": generation, "phase": "armed", "over": False, "sites": sites}
        one.agent.call("probe-table", {"table": one.table})
    return Posed(question.site, generation, _find_known(before))


def _find_known(before: Sequence[Record]) -> dict[tuple[str, int], str]:
    left_out = {(r.host, r.pid) for r in before if r.is_left_out}
    asked = [r for r in before if (r.host, r.pid) not in left_out]
    there = [r for r in asked if r.kind != "import"]
    if not there:
        there = [r for r in asked if is_scheduler(label_of_title(r.title))]
    known: dict[tuple[str, int], str] = {}
    for r in there:  # of a process that has just begun the title is not known yet
        key = (r.host, r.pid)
        known[key] = label_of_title(r.title) or known.get(key, f"pid {r.pid}")
    return known


def wait_for_answers(asked: Sequence[Asked], posed: Posed, timeout_s: float) -> list[Record]:
    """Records of the site under the new table, until all have answered or the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        for one in asked:
            _read_spool(one)
        found = [
            r
            for r in merge(*(one.records for one in asked))
            if r.site == posed.site and r.generation == posed.generation
        ]
        if posed.is_answered(found) or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_S)


def _read_spool(one: Asked) -> None:
    args = {"dir": one.probe_dir, "offsets": dict(one.offsets)}
    reply = one.agent.call("read-spool", args)
    at = 0
    for row in reply.value["files"]:
        data = reply.raw[at : at + row["size"]]
        at += row["size"]
        one.offsets[row["name"]] = row["offset"] + row["size"]
        reader = one.readers.setdefault(
            row["name"], RecordReader(one.name, str(one.left["session"]))
        )
        one.records += reader.feed(data)
