"""Two controllers, a third party and the end of anything at any line, as a state machine."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.onhost.agent.held import journal, lock
from tests.chaos.agent import Agent, Forked, OpRefused, ReachedPoint, start_recovery
from tests.chaos.witness import Witness
from tests.onhost.transaction.place import HOST, PACKAGE, RUNTIME, Place

_LAYERS, _LLAMA = f"{PACKAGE}/srt/layers.py", f"{PACKAGE}/srt/models/llama.py"
_CREATED = f"{PACKAGE}/_sgldbg.py"
_NAMES = (_LAYERS, _LLAMA, _CREATED)
_PLANNED = {
    c: {_LAYERS: b"X = 'by %s'\n" % c.encode(), _LLAMA: b"WIDTH = 64 # %s\n" % c.encode()}
    for c in "ab"
}
# What an agent may say to a controller that comes too late, or second.
_REFUSALS = {
    "fenced",
    "exists",
    "locked",
    "changed",
    "missing",
    "not-reverted",
    "busy",
    "gone",
    "staged",
    "not-kept",
}
_NEVER = 10**9
# Most processes live; a few end at one of their next lines.
points = st.one_of(st.just(_NEVER), st.integers(1, 40))
which = st.integers(0, 1)
# Of the process: Hypothesis makes a machine for each round by itself.
tally = {"steps": 0, "rounds": 0, "kills": 0, "trees": 0, "patched": 0, "refused": 0}
where: list[Path] = []


def planned(name: str) -> set[bytes | None]:
    """Whatever a session may put into a file."""
    return {*(p.get(name) for p in _PLANNED.values()), RUNTIME} - {None}


def somebody_lives(machine: Sessions) -> bool:
    """Whether a controller has an agent to talk to."""
    return bool(machine.living())


def something_is_open(machine: Sessions) -> bool:
    """Whether a session is there that was not filed away."""
    return bool(machine.open())


class Sessions(RuleBasedStateMachine):
    """One install, sessions `a` and `b` on it, and somebody who edits its files."""

    def __init__(self) -> None:
        super().__init__()
        tally["rounds"] += 1
        self.directory = where[0] / str(tally["rounds"])
        (self.directory / "tmp").mkdir(parents=True)
        tempfile.tempdir = str(self.directory / "tmp")
        self.place = Place(self.directory)
        self.agents: dict[str, Agent | None] = {"a": None, "b": None}
        self.witness = Witness(self.place, _NAMES)
        self.versions = itertools.count(1)

    def living(self) -> list[str]:
        """Controllers with an agent that answers."""
        return [c for c, agent in self.agents.items() if agent is not None and agent.code is None]

    def open(self) -> list[str]:
        """Sessions that were not filed away."""
        found = {c: os.path.join(self.place.directory(c), "journal.jsonl") for c in "ab"}
        return [c for c, path in found.items() if os.path.exists(path)]

    def call(self, c: str, op: str, raw: bytes = b"", **args: Any) -> bool:
        """One op; whether it was done. An agent at its point is killed there."""
        agent = self.agents[c]
        if agent is None:
            return False
        try:
            agent.call(op, args, raw)
        except ReachedPoint:
            self.kill(agent)
            return False
        except OpRefused as refused:
            if refused.code not in _REFUSALS:
                raise
            tally["refused"] += 1
            return False
        return True

    def kill(self, process: Forked) -> None:
        """SIGKILL."""
        tally["kills"] += process.code is None
        process.kill()

    def new_agent(self, c: str, point: int) -> None:
        """In the place of the one before, whose channel ends."""
        before = self.agents[c]
        if before is not None:
            before.close()
        self.agents[c] = Agent(self.place, point, guarded=False)

    @rule(n=which, point=points)
    def begin(self, n: int, point: int) -> None:
        """A controller comes."""
        self._begin("ab"[n], point)

    def _begin(self, c: str, point: int) -> None:
        self.new_agent(c, point)
        self.call(c, "begin", **self.place.begin_args(session=c, lease_s=600.0))

    @precondition(something_is_open)
    @rule(n=which)
    def come_back(self, n: int) -> None:
        """The same controller on a new connection, whether the one before is gone or not."""
        c = one_of(self.open(), n)
        self.new_agent(c, _NEVER)
        self.call(c, "attach", session=c, host=HOST)

    @precondition(somebody_lives)
    @rule(n=which)
    def stage(self, n: int) -> None:
        """From what stands there now."""
        self._stage(one_of(self.living(), n))

    def _stage(self, c: str) -> None:
        edits = {n: d for n, d in _PLANNED[c].items() if self.witness.read(n) not in (None, d)}
        if edits:
            if any(self._died_at_release(other) for other in self.open()):
                # We come before the contact that would give the lock's directory its time back.
                self.witness.stir(PACKAGE)
            args, raw = self.place.stage_args(edits)
            self.call(c, "stage", raw, **args)

    def _died_at_release(self, c: str) -> bool:
        path = os.path.join(self.place.directory(c), "journal.jsonl")
        steps = [(r["kind"], r.get("step")) for r in journal.read(path)]
        released = steps.index(("intent", "unlock")) if ("intent", "unlock") in steps else None
        return released is not None and ("done", "revert:dirs") not in steps[released:]

    @precondition(somebody_lives)
    @rule(n=which, op=st.sampled_from(["swap", "swap", "revert", "finish"]))
    def change(self, n: int, op: str) -> None:
        """The ops that change files."""
        self.call(one_of(self.living(), n), op)

    @rule(n=which, point=points)
    def apply(self, n: int, point: int) -> None:
        """The way of most sessions."""
        c = "ab"[n]
        if c not in self.open():
            self._begin(c, point)
        self._stage(c)
        self.call(c, "swap")
        self.call(c, "detach", lease_s=600.0)

    @precondition(somebody_lives)
    @rule(n=which)
    def undo(self, n: int) -> None:
        """The end of most sessions."""
        c = one_of(self.living(), n)
        self.call(c, "revert")
        self.call(c, "finish")

    @precondition(somebody_lives)
    @rule(n=which)
    def ask(self, n: int) -> None:
        """New questions for the probes, after a heartbeat."""
        c = one_of(self.living(), n)
        self.call(c, "renew", lease_s=600.0)
        self.call(c, "probe-table", table={"asked": next(self.versions)})

    @precondition(somebody_lives)
    @rule(n=which)
    def force(self, n: int) -> None:
        """The user wants the originals back, whatever somebody did."""
        self.call(one_of(self.living(), n), "revert", force=True)
        self.forced()

    @precondition(somebody_lives)
    @rule(n=which, how=st.sampled_from(["kill", "cut", "reboot"]))
    def end(self, n: int, how: str) -> None:
        """Of an agent, of its channel, or of every process and the boot."""
        c = one_of(self.living(), n)
        agent = self.agents[c]
        assert agent is not None
        if how == "reboot":
            self.reboot()
        elif how == "kill":
            self.kill(agent)
        else:
            agent.cut()
            agent.wait()

    def reboot(self) -> None:
        """No process is left, and every lease is of another boot."""
        for c in self.living():
            agent = self.agents[c]
            assert agent is not None
            self.kill(agent)
        for c in self.open():
            self.place.expire(c, deadline_s=1e12, boot_id="another boot")

    @precondition(something_is_open)
    @rule(n=which, point=points, force=st.booleans())
    def lease_ends(self, n: int, point: int, force: bool) -> None:
        """Guard or next contact, with or without force, perhaps killed as well."""
        c = one_of(self.open(), n)
        self.place.expire(c)
        self.recover(c, point, force)

    def recover(self, c: str, point: int, force: bool) -> int | None:
        """Undo one session by its journal."""
        tail = start_recovery(self.place, self.place.directory(c), point, force)
        try:
            if tail.reached():
                self.kill(tail)
            else:
                tail.wait()
            assert tail.code in (0, 1, 2, -9), tail.code
        finally:
            tail.close()
        if force:
            self.forced()
        return tail.code

    def forced(self) -> None:
        """Force takes nobody's version away that it does not keep."""
        kept = [path.read_bytes() for path in Path(self.place.state).glob("kept/*/*/*")]
        for name in _NAMES:
            self.witness.force(name, planned(name), kept)

    @rule(
        n=st.integers(0, 6),
        how=st.sampled_from(["anew", "anew", "in place", "in place", "gone"]),
        ours=st.booleans(),
    )
    def edit(self, n: int, how: str, ours: bool) -> None:
        """Somebody works on a file, as editors and package managers do; on a patched one if any."""
        patched = [name for name in _NAMES if self.witness.read(name) in planned(name)]
        # A file where we mean to create one keeps every session out, so that is rare and passes.
        names = patched if ours and patched else [*_NAMES[:2] * 3, _CREATED]
        name = one_of(names, n)
        if self.witness.base[_CREATED] is not None:
            name, how = _CREATED, "gone"
        gone = how == "gone" and self.witness.read(name) is not None
        theirs = None if gone else b"# version %d\n" % next(self.versions)
        self.witness.edit(name, theirs, how == "in place")

    @invariant()
    def holds(self) -> None:
        """Never torn, never lost, never planned bytes as an original."""
        tally["steps"] += 1
        cache = (self.place.disk / "cache" / "llama.py").read_bytes()
        assert cache == b"WIDTH = 64\n", "the cache was written"
        sessions = self.place.status()
        tally["patched"] += any(s["state"].startswith(("patched", "drift")) for s in sessions)
        for name in _NAMES:
            self.file_holds(name, bool(sessions))
        held = lock.read(str(self.place.package_dir / ".sgldbg-lock"))
        assert held is None or held["session"] in {s["session"] for s in sessions}
        if not sessions:
            self.nothing_is_left()

    def file_holds(self, name: str, has_session: bool) -> None:
        """What is promised of one file at any time."""
        found = self.witness.read(name)
        if name in self.witness.drift:
            theirs = self.witness.drift[name]
            assert found == theirs, f"{name}: somebody's version was overwritten"
        elif found != self.witness.base[name]:
            assert found in planned(name), f"{name} holds {found!r}"
            assert has_session, f"{name} is patched and no session knows"
        kept = self.witness.path(name)
        kept = kept.with_name(f".{kept.name}.sgldbg-orig")
        if kept.exists():
            assert kept.read_bytes() not in planned(name), f"{name}: planned bytes kept"

    def nothing_is_left(self) -> None:
        """Without a session the install is what others made of it, to the last attribute."""
        tally["trees"] += 1
        assert not self.witness.drift
        left = [str(p) for p in self.place.disk.rglob(".*sgldbg*")]
        assert not left, left
        assert self.witness.changes() == []

    def teardown(self) -> None:
        """Whatever happened, a contact with force ends every session."""
        try:
            for agent in filter(None, self.agents.values()):
                agent.close()
            for session in {s["session"] for s in self.place.status()}:
                self.place.expire(session)
                assert self.recover(session, _NEVER, True) == 0, f"{session} could not be ended"
            self.holds()
            self.nothing_is_left()
        finally:
            shutil.rmtree(self.directory)


def one_of(found: list[str], n: int) -> str:
    """One of those that there are."""
    return found[n % len(found)]
