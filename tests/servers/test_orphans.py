"""Workers that an earlier server left, before a session starts or takes one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Install
from orchestrator.onhost.agent.proc import procfs
from orchestrator.servers.base import Found, Life
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.orphans import name_orphans, note_orphans
from tests.servers.conftest import Bench, DirectAgent
from tests.servers.test_hosts import ORPHAN, find_orphan

NVIDIA_SMI = """#!{python}
import sys
asked = " ".join(sys.argv)
if "query-compute-apps" in asked:
    print("{pid}, GPU-aa, 70000")
else:
    print("0, GPU-aa, NVIDIA H100 80GB HBM3, 70000, 81559")
"""


@pytest.fixture
def left(bench: Bench) -> Iterator[procfs.Stat]:
    """A worker whose main process is gone."""
    path = f"/dev/shm/sgl_shm_orphans_{os.getpid()}_1"
    argv = [sys.executable, "-c", ORPHAN, path, f"{bench.package}::scheduler_TP0", "padding" * 9]
    try:
        bench.stage.run(["setsid", "--fork", *argv], cwd=bench.folder).wait(30)
        found = find_orphan(f"{bench.package}::scheduler_TP0")
        bench.stage.note(found.pid)
        if found.ppid != 1:
            pytest.skip("orphans go to a subreaper here, which not everybody may know")
        yield found
    finally:
        os.unlink(path)


def member_of(bench: Bench, agent: DirectAgent) -> tuple[Member, Install]:
    """A host whose server does not run."""
    member = Member(Host("gpu01"), 0, agent=agent)
    member.found = Found("gpu01", None, Life(("python3", "-m", bench.package)))
    return member, Install("env", package=bench.package)


def test_what_is_left_is_noted(bench: Bench, port: int, agent: DirectAgent, left: procfs.Stat):
    """Told beside what `plan` says of the server, which may run or start all the same."""
    member, install = member_of(bench, agent)
    notes = note_orphans(member, bench.server(port), install).original.notes
    about, end = (note.replace(f"pid {left.pid}", "pid N") for note in notes)
    assert about.startswith(
        f"left of a server that is gone: pid N ({bench.package}::scheduler_TP0)"
    )
    assert about.endswith("s, holds 3 MB of shared memory")
    assert end == f"nobody else will end them: `kill -9 {left.pid}`"


def test_nothing_is_started_beside_who_holds_a_gpu(
    bench: Bench, port: int, agent: DirectAgent, left: procfs.Stat, tmp_path: Path, monkeypatch
):
    """It would end for want of memory, which would look like the patch's fault."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(NVIDIA_SMI.format(python=shutil.which("python3"), pid=left.pid))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    member, install = member_of(bench, agent)
    with pytest.raises(HostError) as caught:
        note_orphans(member, bench.server(port), install)
    assert (caught.value.code, caught.value.message, caught.value.hints) == (
        "orphans",
        f"workers that an earlier server of `{bench.package}` left hold GPUs that server"
        f" `{bench.server(port).name}` needs",
        (f"nobody else will end them: `kill -9 {left.pid}`",),
    )
    assert "holds GPU 0" in caught.value.notes[0]


def test_a_server_that_is_not_found_names_what_is_left(
    bench: Bench, agent: DirectAgent, left: procfs.Stat
):
    """Nobody has to guess why its port or its GPUs are taken."""
    error = HostError("no server runs", host="gpu01", code="server-not-found", hints=["start it"])
    name_orphans(error, *member_of(bench, agent))
    assert len(error.notes) == 1
    assert error.hints == ("start it", f"nobody else will end them: `kill -9 {left.pid}`")


def test_a_worker_that_is_ending_is_not_told(
    bench: Bench, port: int, agent: DirectAgent, left: procfs.Stat, monkeypatch
):
    """Those of a main process that has just ended end by themselves."""
    real, looks = agent.call, []

    def call(op: str, *args: Any, **options: Any) -> Reply:
        reply = real(op, *args, **options)
        looks.append(len(reply.value))
        if len(looks) == 1:
            os.kill(left.pid, signal.SIGKILL)
        return reply

    monkeypatch.setattr(agent, "call", call)
    member, install = member_of(bench, agent)
    assert note_orphans(member, bench.server(port), install) is member.found
    assert (looks[0], looks[-1]) == (1, 0)
