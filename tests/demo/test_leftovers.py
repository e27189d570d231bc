"""A demonstration that is killed: its server ends with it, and the next one removes the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.demo.leftovers import own_prefix, remove_leftovers
from orchestrator.demo.processes import read_processes
from tests.demo.poll import wait_for

# A cluster as the command makes it, by a process that waits to be killed.
MAKER = """
import sys, tempfile
from pathlib import Path
from orchestrator.demo.cluster import open_cluster
from orchestrator.demo.leftovers import own_prefix
folder = Path(tempfile.mkdtemp(prefix=own_prefix()))
with open_cluster(folder / "cluster", hosts=2):
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_killed_demonstration(tmp_path: Path) -> None:
    """Its workers too are gone without anybody's doing; the folder is removed by the next one."""
    root = Path(__file__).resolve().parents[2]
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(root)},
    )
    with maker:
        assert maker.stdout is not None
        folder = Path(maker.stdout.readline().rstrip("\n"))
        homes = sorted(folder.glob("cluster/hosts/*/home"))
        assert len(homes) == 2
        assert len(read_processes(homes)) >= 6  # two main processes, two workers of each
        assert remove_leftovers(tmp_path) == []
        maker.send_signal(signal.SIGKILL)
    wait_for(lambda: not read_processes(homes), "the end of the server")
    forgotten = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "HOME": str(homes[0])},
    )
    with forgotten:
        assert remove_leftovers(tmp_path) == [folder]
    assert forgotten.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_what_may_live_or_is_not_ours_stays(tmp_path: Path) -> None:
    """A live maker's folder, another machine's, a link and a stranger's name are left alone."""
    own = own_prefix()
    machine, pid = own.split("-")[2:4]
    dead = f"sgldbg-demo-{machine}-{pid}-1-x"
    kept = [f"{own}x", f"sgldbg-demo-00000000-{pid}-1-x", "sgldbg-demo-x", f"{dead}2"]
    for name in kept[:3]:
        (tmp_path / name).mkdir()
    (tmp_path / kept[3]).symlink_to(tmp_path / kept[0])
    (tmp_path / dead).mkdir()
    assert remove_leftovers(tmp_path) == [tmp_path / dead]
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
