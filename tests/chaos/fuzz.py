"""Two controllers, a third party and the end of anything at any line, in random order.

`python -m tests.chaos.fuzz SEED STEPS DIRECTORY` takes that many steps and prints one JSON object.
A program of its own: it forks.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from orchestrator.onhost.agent.held import lock
from tests.chaos.agent import Agent, Forked, OpRefused, ReachedPoint, start_recovery
from tests.onhost.transaction.place import PACKAGE, RUNTIME, Place

_LAYERS, _LLAMA = f"{PACKAGE}/srt/layers.py", f"{PACKAGE}/srt/models/llama.py"
_CREATED = f"{PACKAGE}/_sgldbg.py"
_NAMES = (_LAYERS, _LLAMA, _CREATED)
_PLANNED = {
    c: {_LAYERS: b"X = 'by %s'\n" % c.encode(), _LLAMA: b"WIDTH = 64 # %s\n" % c.encode()}
    for c in "ab"
}
# What an agent may say to a controller that comes too late, or second.
_REFUSALS = {"fenced", "exists", "locked", "changed", "missing", "not-reverted", "busy", "gone"}
_STEPS_EACH = 40
controllers = st.sampled_from("ab")
# Most processes live; a few end at one of their next lines.
points = st.one_of(st.just(10**9), st.integers(1, 40))
tally = {"steps": 0, "rounds": 0, "kills": 0, "trees": 0}
where: list[Path] = []


class Sessions(RuleBasedStateMachine):
    """One install, sessions `a` and `b` on it, and somebody who edits its files.

    `base` is what a file must hold without us, `drift` what somebody put over planned bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        tally["rounds"] += 1
        self.directory = where[0] / str(tally["rounds"])
        (self.directory / "tmp").mkdir(parents=True)
        tempfile.tempdir = str(self.directory / "tmp")
        self.place = Place(self.directory)
        self.agents: dict[str, Agent | None] = {"a": None, "b": None}
        self.base = {name: self.read(name) for name in _NAMES}
        self.drift: dict[str, bytes] = {}
        self.versions = itertools.count(1)
        self.is_edited = False

    def read(self, name: str) -> bytes | None:
        """What stands in a file now."""
        path = self.place.root / name
        return path.read_bytes() if path.exists() else None

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
            return False
        return True

    def kill(self, process: Forked) -> None:
        """SIGKILL."""
        tally["kills"] += 1
        process.kill()

    def new_agent(self, c: str, point: int) -> None:
        """In the place of the one before, whose channel ends."""
        before = self.agents[c]
        if before is not None:
            before.close()
        self.agents[c] = Agent(self.place, point, guarded=False)

    @rule(c=controllers, point=points)
    def begin(self, c: str, point: int) -> None:
        """A controller comes."""
        self.new_agent(c, point)
        self.call(c, "begin", **self.place.begin_args(session=c, lease_s=600.0))

    @rule(c=controllers)
    def come_back(self, c: str) -> None:
        """The same controller on a new connection."""
        self.new_agent(c, 10**9)
        self.call(c, "attach", session=c, host="gpu0")

    @rule(c=controllers)
    def stage(self, c: str) -> None:
        """From what stands there now."""
        edits = {n: d for n, d in _PLANNED[c].items() if self.read(n) not in (None, d)}
        if edits and self.agents[c] is not None:
            args, raw = self.place.stage_args(edits)
            self.call(c, "stage", raw, **args)

    @rule(c=controllers, op=st.sampled_from(["swap", "swap", "revert", "finish"]))
    def change(self, c: str, op: str) -> None:
        """The ops that change files."""
        self.call(c, op)

    @rule(c=controllers)
    def apply(self, c: str) -> None:
        """The way of most sessions."""
        self.begin(c, 10**9)
        self.stage(c)
        self.call(c, "swap")
        self.call(c, "detach", lease_s=600.0)

    @rule(c=controllers)
    def ask(self, c: str) -> None:
        """New questions for the probes."""
        self.call(c, "probe-table", table={"asked": next(self.versions)})

    @rule(c=controllers)
    def renew(self, c: str) -> None:
        """A heartbeat."""
        self.call(c, "renew", lease_s=600.0)

    @rule(c=controllers)
    def force(self, c: str) -> None:
        """The user wants the originals back, whatever somebody did."""
        if self.call(c, "revert", force=True):
            self.forced()

    @rule(c=controllers)
    def die(self, c: str) -> None:
        """SIGKILL to an agent."""
        agent = self.agents[c]
        if agent is not None:
            self.kill(agent)

    @rule(c=controllers)
    def cut(self, c: str) -> None:
        """The channel ends."""
        agent = self.agents[c]
        if agent is not None:
            agent.cut()
            agent.wait()

    @rule(c=controllers, point=points, force=st.booleans())
    def lease_ends(self, c: str, point: int, force: bool) -> None:
        """Guard or next contact, with or without force, perhaps killed as well."""
        if not os.path.exists(os.path.join(self.place.directory(c), "journal.jsonl")):
            return
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
        """What drifted may be gone from its place by force, if it was kept."""
        kept = [path.read_bytes() for path in Path(self.place.state).glob("kept/*/*/*")]
        for name, theirs in list(self.drift.items()):
            if self.read(name) != theirs:
                assert theirs in kept, f"{name}: somebody's version is lost"
                del self.drift[name]

    @rule(name=st.sampled_from(_NAMES))
    def edit(self, name: str) -> None:
        """Somebody writes a file anew, as editors and package managers do."""
        theirs = b"# version %d\n" % next(self.versions)
        if self.read(name) == self.base[name]:
            self.base[name] = theirs
        else:
            self.drift[name] = theirs
        draft = self.place.top / "draft"
        draft.write_bytes(theirs)
        draft.rename(self.place.root / name)
        self.is_edited = True

    @invariant()
    def holds(self) -> None:
        """Never torn, never lost, never planned bytes as an original."""
        tally["steps"] += 1
        cache = (self.place.disk / "cache" / "llama.py").read_bytes()
        assert cache == b"WIDTH = 64\n", "the cache was written"
        sessions = self.place.status()
        for name in _NAMES:
            found = self.read(name)
            planned = {*(p.get(name) for p in _PLANNED.values()), RUNTIME} - {None}
            if name in self.drift:
                assert found == self.drift[name], f"{name}: somebody's version was overwritten"
            elif found != self.base[name]:
                assert found in planned, f"{name} holds {found!r}"
                assert sessions, f"{name} is patched and no session knows"
            kept = self.place.root / name
            kept = kept.with_name(f".{kept.name}.sgldbg-orig")
            if kept.exists():
                assert kept.read_bytes() not in planned, f"{name}: planned bytes as an original"
        held = lock.read(str(self.place.package_dir / ".sgldbg-lock"))
        assert held is None or held["session"] in {s["session"] for s in sessions}
        if not sessions:
            self.nothing_is_left()

    def nothing_is_left(self) -> None:
        """Without a session the install is what others made of it, to the last attribute."""
        tally["trees"] += 1
        assert not self.drift
        left = [str(p) for p in self.place.disk.rglob(".*sgldbg*")]
        assert not left, left
        if not self.is_edited:
            assert self.place.changes() == []

    def teardown(self) -> None:
        """Whatever happened, a contact with force ends every session."""
        try:
            for agent in filter(None, self.agents.values()):
                agent.close()
            for session in {s["session"] for s in self.place.status()}:
                self.place.expire(session)
                assert self.recover(session, 10**9, True) == 0, f"{session} could not be ended"
            self.holds()
            self.nothing_is_left()
        finally:
            shutil.rmtree(self.directory)


def run(number: int, steps: int, directory: Path) -> dict[str, Any]:
    """Rounds of at most `_STEPS_EACH` steps until there were enough, or one went wrong."""
    began, failure = time.monotonic(), ""
    where[:] = [directory]
    while tally["steps"] < steps and not failure:
        chosen = settings(
            max_examples=min(200, max(1, (steps - tally["steps"]) // _STEPS_EACH)),
            stateful_step_count=_STEPS_EACH,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        machine = seed(number + tally["rounds"])(type("Sessions", (Sessions,), {}))
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except Exception as error:
            failure = "\n".join([str(error), *getattr(error, "__notes__", [])])
    seconds = round(time.monotonic() - began, 1)
    return {**tally, "seconds": seconds, "failure": failure}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
