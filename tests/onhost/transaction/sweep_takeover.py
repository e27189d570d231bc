"""End a take-over at every call that changes a file; whoever comes next ends it, then the owner.

`python -m tests.onhost.transaction.sweep_takeover PART OF DIRECTORY` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onhost.agent.held import lease, machine
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, recover, status
from tests.onhost.transaction.place import HOST, Place, no_guard, op, session_of, stage
from tests.onhost.transaction.sweep import Countdown, in_child, sweep

_REAL_NOW_S = lease.now_s


class Machines:
    """Two machines on one install: `alpha` has patched it and is gone, `beta` is left."""

    def __init__(self, directory: Path) -> None:
        self._top = directory
        self.be("alpha")
        self.place = Place(directory)
        self.owner = Context(self.state)
        self.owner.session = begin.begin(self.state, self.place.begin_args(), no_guard)
        stage(self.place, self.owner)
        op(self.owner, "swap")
        session_of(self.owner).close()

    def be(self, name: str, later_s: float = 0.0) -> None:
        """Go on as that machine, so much later by its own clock."""
        machine.read_name = lambda: name
        lease.now_s = lambda: _REAL_NOW_S() + later_s
        self.state = str(self._top / f"state-{name}")
        self.tmp = self._top / f"tmp-{name}"
        self.tmp.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(self.tmp)

    def take_over(self) -> dict[str, Any]:
        """What the lock leads to, undone by the machine that we are; it has to be there."""
        (seen,) = status.sessions(self.state, [str(self.place.package_dir)])
        mine = {name: seen[name] for name in ("session", "host", "lock") if name in seen}
        value: dict[str, Any] = op(Context(self.state), "recover", gone=[HOST], **mine)
        return value

    def return_owner(self) -> list[str]:
        """`alpha` after all, its lease over: what is left of its session."""
        self.be("alpha")
        directory = session_of(self.owner).directory
        with lease.exclusive(directory):
            held = lease.read(directory)
            assert held is not None
            lease.write(directory, lease.over(held))
        left: list[str] = recover.recover(directory)["left"]
        return left

    def judge(self) -> list[str]:
        """What is not as it was on either machine once both have done their part."""
        problems = []
        if self.place.changes():  # else the first try came to its end
            problems += [f"left: {text}" for text in self.take_over()["left"]]
            problems += self.place.changes()
        elif status.sessions(self.state, [str(self.place.package_dir)]):
            problems += [f"left: {text}" for text in self.take_over()["left"]]
        left = self._names()
        problems += [f"the owner has left: {text}" for text in self.return_owner()]
        problems += self.place.changes() + left + self._names()
        return problems

    def _names(self) -> list[str]:
        left = status.sessions(self.state, [str(self.place.package_dir)])
        names = [f"tmp: {name}" for name in os.listdir(self.tmp)]
        return names + [f"status: {one['state']}" for one in left]


def try_point(directory: Path, kind: str, number: int) -> tuple[dict[str, int], list[str]]:
    """One point on two fresh machines, as `sweep.try_point`."""
    two = Machines(directory)

    def work(countdown: Countdown) -> None:
        countdown.watch_calls()
        assert two.take_over()["left"] == []

    try:
        two.be("beta")
        with pytest.raises(Refusal, match="no sign of life for"):
            two.take_over()
        two.be("beta", later_s=1e6)
        seen = in_child(work, ("call", number))
        return seen, two.judge()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    part, of, where = sys.argv[1:]
    print(json.dumps(sweep("call", int(part), int(of), Path(where), try_point)))
