"""Wall clocks that jump: the guard counts the seconds of the boot, whatever they say."""

from __future__ import annotations

import glob
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import lease
from tests.onhost.transaction.place import op, stage, wait_for
from tests.onhost.transaction.test_guard import patched, wait_for_the_guard

LIBRARY = "/usr/lib/*/faketime/libfaketime.so.1"
# Looks at the lease that must pass under the wrong time, ten of them a second.
_LOOKS = 5


class Clock:
    """The wall clock of every process that is started from now on; libfaketime in the real world.

    Only the wall clock: that of the boot is nobody's to set.
    """

    def __init__(self, monkeypatch, folder: Path) -> None:
        (library,) = glob.glob(LIBRARY)  # Debian: libfaketime
        self._file = folder / "faketime"
        self.set("+0d")
        monkeypatch.setenv("LD_PRELOAD", library)
        monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(self._file))
        monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
        monkeypatch.setenv("DONT_FAKE_MONOTONIC", "1")

    def set(self, offset: str) -> None:
        """Let the time jump, also for processes that run."""
        draft = self._file.with_suffix(".new")
        draft.write_text(offset)
        draft.rename(self._file)


def looks(pid: int) -> int:
    """How often a process has waited; a guard does it once for each look at the lease."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


@pytest.mark.parametrize("offset", ["+1d", "-1d"])
def test_a_wall_clock_that_jumps(place, monkeypatch, offset):
    """A day ahead ends no lease, a day back makes none longer."""
    clock = Clock(monkeypatch, place.top)
    context = place.begin(with_guard=True)
    stage(place, context)
    op(context, "swap")
    (pid,) = place.guards()
    clock.set(offset)
    before = looks(pid)
    wait_for(lambda: looks(pid) >= before + _LOOKS)
    assert patched(place)
    deadline_s = op(context, "renew", lease_s=1.0)["deadline_s"]
    context.session.close()
    place.expire(agent=lease.Process(2**22 - 1, 1), deadline_s=deadline_s)
    session = wait_for_the_guard(place)
    assert 0 <= lease.now_s() - deadline_s < 10.0
    assert session["state"] == "reverted by guard"
    assert place.changes() == []
    said = Path(place.directory(), "guard.trace").read_text().splitlines()
    wrong_s = time.time() + 86400 * int(offset[:-1])
    days = {time.strftime("%Y-%m-%d", time.gmtime(s)) for s in (wrong_s - 60, wrong_s)}
    assert said[0].endswith(f"watching as process {pid}")
    assert {line[:10] for line in said[1:] if line[:4].isdigit()} <= days  # its clock was wrong
    assert len(said) > 1
