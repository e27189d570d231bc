"""Every way to run a server goes through the same life: stopped, changed, and given back."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from orchestrator.errors import HostError
from orchestrator.model.session import Restart
from orchestrator.onhost.agent.proc import procfs
from orchestrator.servers.adopt import show
from orchestrator.servers.base import Found, Life, debug_life
from tests.onhost.process.conftest import key_of, wait_for

from .conftest import Bench, open_port
from .real_systemd import RealSystemd, find_hindrance
from .ways import UNIT, Driver, Way, open_driver, prepare

WAYS = ("adopt", "command", "systemd", "pair")
CHANGE = Restart(
    add_args=("--api-key", 'a "b" $HOME %n \\ c'), env={"NOTE": 'x "y" $z `q` \\', "LANG": None}
)


HINDRANCE = find_hindrance()
SYSTEMD = f"systemd (stand-in: {HINDRANCE})" if HINDRANCE else "systemd"


@pytest.fixture(params=WAYS, ids=["adopt", "command", SYSTEMD, "pair"])
def way(request, bench: Bench, port, tmp_path: Path, monkeypatch) -> Iterator[Way]:
    """A running server, found in this way."""
    with run_way(request.param, bench, port, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def unit(bench: Bench, port, tmp_path: Path, monkeypatch) -> Iterator[Way]:
    """A running unit of systemd."""
    with run_way("systemd", bench, port, tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def run_way(name: str, bench: Bench, port, tmp_path: Path, monkeypatch) -> Iterator[Way]:
    """A running server in this way; of systemd a real one, or the stand-in where none can run."""
    manager = RealSystemd() if name == "systemd" and not HINDRANCE else None
    try:
        made = Way(name, bench, port, manager)
        prepare(tmp_path, monkeypatch, None if manager else made.root)
        made.start()
        yield made
        note_all(bench)
    finally:
        if manager:
            manager.close()


def note_all(bench: Bench) -> None:
    """Have everything end with the test that runs its package, whoever started it."""
    for pid in procfs.list_pids():
        if bench.package.encode() in procfs.read_cmdline(pid):
            bench.stage.note(pid)


def test_a_whole_life(way: Way):
    """The debug life carries exactly the changes, its output is whole, all is gone afterwards."""
    with open_driver(way) as driver:
        found = driver.begin()
        assert found.description is not None
        pid = way.outer(found.description["pid"])
        before = procfs.read_environ(pid)
        argv = procfs.parse_strings(procfs.read_cmdline(pid))
        driver.stop("original")
        life = driver.start(debug_life(found.original, CHANGE))
        assert driver.wait_ready(life).endswith("/health answered 200")
        process = way.outer(life["pid"])
        debug = procfs.read_environ(process)
        assert debug is not None
        assert before is not None
        assert procfs.parse_strings(procfs.read_cmdline(process)) == [*argv, *CHANGE.add_args]
        assert (debug["NOTE"], debug["SGLDBG_SESSION"]) == (
            CHANGE.env["NOTE"],
            f"{way.bench.package}/gpu01",
        )
        assert "LANG" not in debug
        assert debug["READY"] == before["READY"]
        assert life.get("missing", []) == []
        raw = Path(life["stderr"]).read_bytes()[life["stderr_from"] :]
        assert raw == b"server_args=ServerArgs(api_key='hush-hush')\n"
        assert bool(way.drop_ins()) == (way.name == "systemd")
        driver.stop("debug")
        back = driver.restore()
        assert back["differences"] == []
        driver.wait_ready(back)
        process = way.outer(back["pid"])
        assert procfs.parse_strings(procfs.read_cmdline(process)) == argv
        assert driver.agent.call("finish", timeout_s=30).value == {"left": []}
    assert way.drop_ins() == []
    assert "SGLDBG_SESSION" not in (procfs.read_environ(process) or {})


def test_a_debug_life_that_dies(way: Way):
    """Its end is reported at once with its last lines, and the original comes back."""
    with open_driver(way) as driver:
        found = driver.begin()
        driver.stop("original")
        change = Restart(add_args=("--mode", "die"))
        died: HostError | None = None
        try:
            driver.wait_ready(driver.start(debug_life(found.original, change)))
        except HostError as error:
            died = error
        assert died is not None
        assert died.code in ("died", "start-failed")
        driver.stop("debug")
        back = driver.restore()
        assert back["differences"] == []
        driver.wait_ready(back)
        driver.agent.call("finish", timeout_s=30)
    assert way.drop_ins() == []


def test_an_original_that_dies_when_it_is_given_back(way: Way):
    """Its last lines are of this life, not of the one before, wherever it prints them."""
    with open_driver(way) as driver:
        found = driver.begin()
        driver.stop("original")
        (way.bench.folder / way.bench.package / "launch_server.py").write_text(
            "import os, sys, time\nsys.stderr.write('ImportError: it is broken now\\n')\n"
            "open(os.environ['READY'], 'w').close()\ntime.sleep(0.3)\nsys.exit(1)\n"
        )
        driver.start(Life(found.original.argv, slot=found.original.slot))
        driver.stop("debug")
        with pytest.raises(HostError) as error:
            driver.wait_ready(driver.restore())
        assert error.value.code in ("died", "start-failed")
        # systemd adds its own word of how the unit ended.
        printed = tuple(line for line in error.value.tail if UNIT not in line)
        assert printed == ("ImportError: it is broken now",)


def test_a_controller_that_is_gone(way: Way):
    """The guard gives the server back in its own way when nobody renews the lease."""
    with open_driver(way) as driver:
        found = driver.begin()
        assert found.description is not None
        argv = procfs.parse_strings(procfs.read_cmdline(way.outer(found.description["pid"])))
        driver.stop("original")
        debug = driver.start(debug_life(found.original, CHANGE))
        debug_pid = way.outer(debug["pid"])
        driver.agent.call("renew", {"lease_s": 0.3})
        os.kill(way.outer(driver.agent.hello["pid"]), 9)

    def find_back() -> int | None:
        for pid in procfs.list_pids():
            same = procfs.parse_strings(procfs.read_cmdline(pid)) == argv
            stat = procfs.read_stat(pid)
            if same and stat is not None and stat.alive and pid != debug_pid:
                return pid
        return None

    pid = wait_for(find_back, "the original")
    way.bench.stage.note(pid)
    assert way.drop_ins() == []
    wait_for(lambda: _answers(way.port), "its answer")
    assert "SGLDBG_SESSION" not in (procfs.read_environ(pid) or {})


def _answers(port: int) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


def test_a_foreign_server_is_not_touched(way: Way):
    """A second server of the same user, package and command runs on through all of it."""
    foreign = way.bench.run("--port", "0")
    key = key_of(foreign.pid)
    with open_driver(way) as driver:
        found = driver.begin()
        driver.stop("original")
        life = driver.start(debug_life(found.original, CHANGE))
        driver.wait_ready(life)
        driver.stop("debug")
        driver.wait_ready(driver.restore())
        driver.agent.call("finish", timeout_s=30)
    assert foreign.poll() is None
    assert key_of(foreign.pid) == key


def test_a_stop_command_that_takes_another_server_along(bench: Bench, port, tmp_path, monkeypatch):
    """What a command of the user's ends beside the server can only be told, and is."""
    way = Way("pair", bench, port)
    prepare(tmp_path, monkeypatch, way.root)
    way.start()
    foreign = bench.run("--port", "0")
    watched = bench.run("--port", "0", "--mode", "silent")
    control = bench.folder / "ctl"
    # A child of the tests stays a zombie until they ask for it. Somebody starts one of them anew.
    also = f"""
    kill {foreign.pid} {watched.pid}
    for pid in {foreign.pid} {watched.pid}; do
        until grep -q ') Z' /proc/$pid/stat; do sleep 0.02; done
    done
    READY={bench.folder}/again setsid {shlex.join(bench.argv("--port", "0", "--mode", "silent"))} &
    echo $! >again.pid
    until test -e again; do sleep 0.02; done"""
    control.write_text(control.read_text().replace("stop)\n", f"stop)\n    {also}\n"))
    with open_driver(way) as driver:
        driver.begin()
        value = driver.stop("original")
        note_all(bench)
    note_all(bench)
    again = int((bench.folder / "again.pid").read_text())
    assert set(value["notes"]) == {
        f"process {foreign.pid} ({bench.title}) ended as well, which the session was not about",
        f"process {watched.pid} ({bench.title}) ended as well, which the session was not about;"
        f" process {again} runs in its place",
    }


def test_a_unit_takes_others_along(unit: Way):
    """Refused where systemd would stop another unit with it, which would stay down."""
    other = f"[Unit]\nPartOf={UNIT}\n[Service]\nExecStart=/bin/sleep 600\n"
    (unit.units / "watcher.service").write_text(other)
    unit.run(["systemctl", "daemon-reload"], None)
    unit.run(["systemctl", "start", "watcher.service"], None)
    with open_driver(unit) as driver, pytest.raises(HostError) as error:
        driver.begin()
    unit.run(["systemctl", "stop", "watcher.service"], None)
    assert (error.value.code, error.value.message, error.value.hints) == (
        "not-restorable",
        f"stopping unit `{UNIT}` would stop watcher.service as well, which would not be started"
        " again with it",
        ("stop them for the time of the session",),
    )


def test_a_unit_with_a_tmp_of_its_own(unit: Way):
    """The usual hardening hides the probes' folder from it; the drop-in lets that one through."""
    if unit.manager is None:
        pytest.skip(f"the stand-in for systemd makes no namespaces: {HINDRANCE}")
    bench, ready = unit.bench, f"{unit.bench.package}/hard.ready"
    unit.run(["systemctl", "stop", UNIT], None)
    (unit.units / "hard.service").write_text(
        "[Service]\nPrivateTmp=yes\nProtectSystem=strict\nNoNewPrivileges=yes\n"
        f"BindPaths={bench.folder}/{bench.package}\nWorkingDirectory={bench.folder}\n"
        # The interpreter may lie below `/tmp` as well, where the checkout does.
        f"BindReadOnlyPaths={sys.prefix} {sys.base_prefix}\n"
        f"Environment=READY={bench.folder}/{ready}\nExecStart={shlex.join(unit.argv)}\n"
    )
    unit.unit = "hard.service"
    unit.run(["systemctl", "daemon-reload"], None)
    unit.run(["systemctl", "start", unit.unit], ready)
    with open_driver(unit) as driver:
        found = driver.begin()
        driver.stop("original")
        driver.wait_ready(driver.start(debug_life(found.original, CHANGE)))
        # Refused where the server does not see what is written.
        driver.agent.call("probe-table", {"table": {"session": "s"}})
        driver.stop("debug")
        back = driver.restore()
        assert back["differences"] == []
        driver.agent.call("finish", timeout_s=30)
    assert unit.drop_ins() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_a_pair_that_sees_another_tmp(bench: Bench, port, tmp_path, monkeypatch):
    """What would only come to light after two restarts is told before the first."""
    (tmp_path / "hide.sh").write_text(f'mount -t tmpfs none {tmp_path}/tmp && exec "$@"\n')
    way = Way("pair", bench, port)
    prepare(tmp_path, monkeypatch, way.root)
    way.argv = ["unshare", "--mount", "sh", f"{tmp_path}/hide.sh", *way.argv]
    way.start()
    with open_driver(way) as driver:
        with pytest.raises(HostError) as error:
            driver.begin()
        (main,) = driver.agent.call("find-servers", {"package": bench.package}).value
    note_all(bench)
    folder = f"{tmp_path}/tmp/sgldbg-{bench.package}-gpu01"
    assert (error.value.code, error.value.message) == (
        "not-visible",
        f"the server (process {main['pid']}) does not see `{folder}`",
    )


def test_a_unit_that_runs_more_than_the_server(unit: Way):
    """Another server of the unit would go down with it: refused. Any other program is told."""
    bench, other = unit.bench, open_port()
    unit.run(["systemctl", "stop", UNIT], None)
    words = [shlex.join(bench.argv("--port", str(port))) for port in (other, unit.port)]
    # One that left its parent is in the unit still, of which only a real systemd keeps account.
    away = "" if unit.manager is None else "setsid --fork "
    words[0] = away + words[0]
    ready = [f"READY={bench.folder}/more{n}.ready {line} &" for n, line in enumerate(words)]
    lines = ["#!/bin/sh", "sleep 600 &", *ready, "wait"]
    (bench.folder / "more.sh").write_text("\n".join(lines))
    (unit.units / "more.service").write_text(
        f"[Service]\nExecStart=/bin/sh {bench.folder}/more.sh\nWorkingDirectory={bench.folder}\n"
    )
    unit.unit = "more.service"
    unit.run(["systemctl", "daemon-reload"], None)
    unit.run(["systemctl", "start", unit.unit], "more0.ready")
    wait_for((bench.folder / "more1.ready").exists, "the server that is meant")
    with open_driver(unit) as driver:
        with pytest.raises(HostError) as error:
            driver.begin()
        mains = driver.agent.call("find-servers", {"package": bench.package}).value
        (second,) = [found for found in mains if other in found["ports"]]
        assert (error.value.code, error.value.message, error.value.notes, error.value.hints) == (
            "not-restorable",
            "stopping unit `more.service` would stop more than server `kimi`: it runs 2 servers of"
            f" `{bench.package}`",
            (f"seen: {show(second)}",),
            ("give each server a unit of its own",),
        )
        os.kill(unit.outer(second["pid"]), 9)
        found = wait_for(lambda: _begin(driver), "the end of the other server")
        (note,) = found.original.notes
        assert re.sub(r"\d+", "N", note) == (
            "unit `more.service` runs sleep (pid N) as well, which is down while the debug life"
            " runs"
        )
    unit.run(["systemctl", "stop", unit.unit], None)


def _begin(driver: Driver) -> Found | None:
    try:
        return driver.begin()
    except HostError:
        return None


def test_a_foreign_server_that_starts_at_the_same_time(bench: Bench, port, tmp_path, monkeypatch):
    """A main process that is new is not ours yet: port and node rank have to be, too."""
    way = Way("pair", bench, port)
    prepare(tmp_path, monkeypatch, way.root)
    monkeypatch.setenv("TOKEN", "hush")
    way.start()
    monkeypatch.delenv("TOKEN")  # what a start command hands on is its own affair, but is told
    control = bench.folder / "ctl"
    foreign = " ".join(bench.argv("--port", "0"))
    ready = bench.folder / "foreign.ready"
    extra = (
        f"start)\n    READY={ready} env -u SGLDBG_SESSION setsid {foreign} >/dev/null 2>&1 &\n"
        f"    while [ ! -e {ready} ]; do sleep 0.05; done\n"
    )
    control.write_text(control.read_text().replace("start)\n", extra))
    with open_driver(way) as driver:
        found = driver.begin()
        driver.stop("original")
        life = driver.start(debug_life(found.original, CHANGE))
        driver.wait_ready(life)
        ready.unlink()
        driver.stop("debug")
        note_all(bench)
        back = driver.restore()
        assert back["differences"] == ["environ: TOKEN is missing"]
        again = driver.restore()  # also told to whoever asks later
        assert (again["pid"], again["differences"]) == (back["pid"], back["differences"])
        driver.wait_ready(back)
        driver.agent.call("finish", timeout_s=30)
    note_all(bench)
    argv = bench.argv("--port", "0")
    lines = [procfs.parse_strings(procfs.read_cmdline(pid)) for pid in procfs.list_pids()]
    assert lines.count(argv) == 2  # one was started with each start, none was ended
