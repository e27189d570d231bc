"""Of processes that look like the described server only one of its next life is taken for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.server import pair, process, twin

from .conftest import HEAD, TAIL, Stage, key_of, wait_for

APART = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "--net", "--"]


def spawn(stage: Stage, folder, before=()) -> subprocess.Popen[bytes]:
    """The same server whenever it is called, READY included; started by the words `before`."""
    ready = folder / "up"
    ready.unlink(missing_ok=True)
    env = {**os.environ, "READY": str(ready)}
    words = [*before, sys.executable, "-c", HEAD + TAIL]
    child = subprocess.Popen(words, env=env, cwd=folder, stdin=subprocess.DEVNULL)
    wait_for(lambda: ready.exists() or child.poll() is not None, "the server")
    stage.adopt(child)
    return child


@pytest.mark.parametrize("way", [None, {"kind": "pair"}])
def test_what_ran_before_or_elsewhere_is_no_twin(stage: Stage, tmp_path, way):
    """Neither one from before the stop, nor one of another network; the one that came after is."""
    spawn(stage, tmp_path)
    spawn(stage, tmp_path, APART)
    main = spawn(stage, tmp_path)
    found = twin.stamp(describe(main.pid))
    if way is not None:
        found = process.with_way(found, way)
    described = twin.find_since(found, Facts())
    process.stop(key_of(main.pid), None, 10, None)
    main.wait(30)
    facts = Facts([{"kind": "announced", "timeout_s": 1, "port": None, "now_s": lease.now_s()}])
    since = twin.find_since(found, facts)
    assert since >= described
    spawn(stage, tmp_path, APART)
    for earliest in (described, since):
        assert twin.find_twin(found, earliest) is None
        assert twin.find_successors(found, set(), earliest) == []
    again = spawn(stage, tmp_path)
    for earliest in (described, since):
        assert twin.find_twin(found, earliest) == key_of(again.pid)
    (said,) = twin.find_successors(found, set(), since)
    assert said.startswith(f"process {again.pid} was started in its place by ")


def test_a_twin_in_namespaces_of_its_own(stage: Stage, tmp_path):
    """What a unit or a container runs is known by the kinds: each life has others."""
    main = spawn(stage, tmp_path, APART)
    found = process.with_way(twin.stamp(describe(main.pid)), {"kind": "systemd"})
    process.stop(key_of(main.pid), None, 10, None)
    main.wait(30)
    since = procfs.read_clock()
    again = spawn(stage, tmp_path, APART)
    spawn(stage, tmp_path)
    assert twin.find_twin(found, since) == key_of(again.pid)
    assert process.compare(found, again.pid) == []


def test_since_when_a_twin_counts(tmp_path):
    """From the first word of the stop on; after a reboot, or where nobody knows, from its start."""
    boot, first, later = lease.read_boot_id(), {"now_s": 20.0}, {"now_s": 30.0}
    announced = {"kind": "announced", **first}
    stopping = {"kind": "intent", "step": "stop:original", **later}
    ticks = procfs.to_ticks(1.0)
    described = {"described_at": {"boot_id": boot, "clock": 10 * ticks}}
    assert [
        twin.find_since(description, Facts(records))
        for description, records in (
            (described, []),
            (described, [announced, stopping]),
            (described, [stopping]),
            (described, [{"kind": "intent", "step": "stop:original"}]),
            ({"described_at": {"boot_id": "another", "clock": 10 * ticks}}, [stopping]),
            ({}, [stopping]),
        )
    ] == [10 * ticks, 20 * ticks, 30 * ticks, 10 * ticks, 0, 0]


def test_which_one_a_start_command_brought_up():
    """Of two with the same port the one in the namespaces of the original, else any that fits."""

    def found(pid: int, port: str, *kinds: str) -> dict[str, object]:
        given = {"values": {"port": port}, "unknown": [], "why": None}
        return {"pid": pid, "given": given, "namespaces": list(kinds)}

    ours, theirs, other = found(1, "30000"), found(2, "30000", "net"), found(3, "30001")
    assert [
        [row["pid"] for row in pair.find_fitting(mains, ["up"], description)]
        for mains, description in (
            ([ours, theirs, other], found(9, "30000")),
            ([ours, theirs, other], found(9, "30000", "net")),
            ([theirs, other], found(9, "30000")),
            ([other], found(9, "30000")),
        )
    ] == [[1], [2], [2], []]
