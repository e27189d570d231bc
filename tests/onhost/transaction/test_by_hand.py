"""The guide for a revert that failed: its commands, run as they stand there."""

from __future__ import annotations

import json
import os
import py_compile
import re
import shutil
import subprocess
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orchestrator.agent.ship import make_zipapp
from tests.onhost.transaction.place import HOST, NOBODY, op, stage
from tests.onhost.transaction.users import another_user, give_away
from tests.servers.real_systemd import RealSystemd, find_hindrance

NOBODY_UID = 65534  # a user that every system has, and with a name
GUIDE = Path(__file__).parents[3] / "docs/guides/when-a-revert-fails.md"
LAYERS = "sglang/srt/layers.py"


def block(heading, kind="sh", number=0):
    """A command block below a heading."""
    section = GUIDE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)[number]


def run(place, *scripts):
    """Run command blocks one after another in one shell, as somebody at a terminal would."""
    done = subprocess.run(
        ["sh", "-eu"],
        input="\n".join(scripts),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SGLDBG_STATE": place.state, "package": str(place.package_dir)},
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def left(place):
    """A host whose controller and guard are gone, with patched files and a stopped server."""
    zipapp = make_zipapp()
    agent = Path(place.state, "agent", f"{zipapp.sha256}.pyz")
    main = place.start_server()
    context = place.begin()
    agent.parent.mkdir(mode=0o700)
    agent.write_bytes(zipapp.data)
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    context.session.close()
    place.expire(agent=NOBODY)
    return place


def test_status_and_revert(left):
    """Two blocks end everything: files, server, session."""
    code, said = run(left, block("What is changed here"), block("Undo it"))
    assert code == 0, said
    assert f"s1 on {HOST}: patched\n" in said
    assert said.endswith(f"s1 on {HOST}: reverted and verified\n")
    assert left.changes() == []
    assert len(left.originals()) == 1
    assert run(left, block("What is changed here"))[1].startswith("nothing is changed")


def test_a_lost_state_directory(left):
    """Named and undone from the lock; 7, since nobody knows how the server ran."""
    kept = left.top / "agent.pyz"
    (agent,) = Path(left.state, "agent").glob("*.pyz")
    agent.rename(kept)
    shutil.rmtree(left.state)
    agent.parent.mkdir(parents=True, mode=0o700)
    kept.rename(agent)  # as a contact puts it there
    shutil.rmtree(left.top / "tmp" / f"sgldbg-s1-{HOST}")
    find = block("What is changed here").split("python3")[0]
    code, said = run(left, find, block("Where the state directory is lost"))
    assert code == 7, said
    assert f"s1 on {HOST}: patched, its directory is lost\n" in said
    assert said.endswith(
        f"s1 on {HOST}: how its server ran was lost with it, so it was not started\n"
        f"s1 on {HOST}: reverted and verified\n"
    )
    assert left.changes() == []


def test_root_in_another_users_place(open_place):
    """Who holds the install is out of reach: the block ends it in their name, and as they."""
    place = open_place
    give_away(place, NOBODY_UID)
    place.state = str(place.top / "second")
    zipapp = make_zipapp()
    with another_user(NOBODY_UID):
        agent = Path(place.state, "agent", f"{zipapp.sha256}.pyz")
        agent.parent.mkdir(mode=0o700, parents=True)
        agent.write_bytes(zipapp.data)
        stage(place, context := place.begin())
        op(context, "swap")
        context.session.close()
    place.expire(agent=NOBODY)
    code, said = run(place, block("Where another user holds the install"))
    assert code == 0, said
    assert said.endswith(f"s1 on {HOST}: reverted and verified\n")
    assert place.changes() == []
    assert {path.stat().st_uid for path in Path(place.state).rglob("*")} == {NOBODY_UID}


def test_force(left):
    """What somebody changed is left alone, then taken out by force and kept."""
    (left.root / LAYERS).write_bytes(b"# mine\n")
    agent = block("What is changed here").split("python3")[0]
    code, said = run(left, agent, block("Undo it"))
    assert code == 7, said
    assert "drift, it was changed after the swap" in said
    code, said = run(left, agent, block("Files that somebody changed"))
    assert code == 0, said
    assert left.changes() == []
    (kept,) = Path(left.state).glob("kept/*/*/*")
    assert kept.read_bytes() == b"# mine\n"


def test_without_the_agent(left):
    """With nothing but a shell the very same files stand there again, and nothing beside them."""
    # What an agent leaves that dies in the middle of a stage, and another host of the install.
    os.link(left.root / LAYERS, left.root / "sglang/srt/.layers.py.sgldbg-probe")
    (left.package_dir / ".sgldbg-member-s1-gpu1").write_text("1")
    runtime = str(left.package_dir / "_sgldbg.py")
    for level in ("", "1"):  # what a server compiled of it
        py_compile.compile(runtime, cfile=cache_from_source(runtime, optimization=level))
    code, said = run(left, block("By hand, without the agent"))
    assert code == 0, said
    times = [line for line in left.changes() if ": mtime_ns was" not in line]
    assert times == []


def test_processes_of_the_debug_life_are_named(left):
    """Whoever puts files back by hand is told who still has patched code in memory."""
    debug = subprocess.Popen(["sleep", "86411"], env={**left.environ(), "SGLDBG_SESSION": "s1"})
    left.children.append(debug)
    code, said = run(left, block("By hand, without the agent", number=1))
    assert code == 0, said
    assert f"{debug.pid} sleep 86411" in [line.strip() for line in said.splitlines()]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_is_one(tmp_path):
    """systemd itself has nothing to say against the unit of the guide."""
    unit = tmp_path / "sgldbg-revert.service"
    unit.write_text(block("At boot", "ini"))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit(left):
    """What the unit runs at boot is a shell command that ends what was left."""
    line = re.search(r"ExecStart=/bin/sh -c '(.*)'", block("At boot", "ini"))
    code, said = run(left, line.group(1).replace("$$", "$"))
    assert code == 0, said
    assert left.changes() == []


def test_the_server_outlives_the_unit(left):
    """In a real systemd: what the unit starts is not ended with it."""
    hindrance = find_hindrance()
    if hindrance:
        pytest.skip(f"no real systemd: {hindrance}")
    known = Path(left.directory(), "server.json")
    server = json.loads(known.read_text())
    server["description"]["cgroups"] = ["0::/user.slice/session-gone-since-the-boot.scope"]
    known.write_text(json.dumps(server))
    systemd = RealSystemd()
    try:
        unit = block("At boot", "ini").replace("%h/.local/state/sgldbg", left.state)
        (systemd.units / "sgldbg-revert.service").write_text(unit)
        for words in (["daemon-reload"], ["start", "sgldbg-revert"]):
            command = [*systemd.enter, "systemctl", *words]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=60)
        show = [*systemd.enter, "systemctl", "is-active", "sgldbg-revert"]
        done = subprocess.run(show, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        assert done.stdout == b"inactive\n"
        assert len(left.originals()) == 1
    finally:
        systemd.close()
    assert left.changes() == []
