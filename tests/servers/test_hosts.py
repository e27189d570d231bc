"""`sgldbg hosts`: what it finds on a machine with servers of every kind, and what it says of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.onhost.agent.proc import procfs
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.overview import look_at_all
from orchestrator.spec.project import read_project_inventory
from tests.onhost.process.conftest import wait_for
from tests.onhost.process.test_ports import find_free, listen
from tests.session.command import call

from .conftest import Bench, open_port


def normal(text: str, bench: Bench) -> str:
    """The text without what differs from run to run, and by what runs the tests."""
    text = re.sub(r"^ +child of .*\n", "", text, flags=re.MULTILINE)
    text = text.replace(bench.package, "PKG").replace(str(bench.folder), "FOLDER")
    text = re.sub(r"\bup \d+ s\b", "up N s", text).replace(sys.executable, "PYTHON")
    return re.sub(r"\(Python [\d.]+\)", "(Python N)", re.sub(r"\b(pid|port|on) \d+", r"\1 N", text))


@pytest.fixture
def inventory(bench: Bench, tmp_path: Path, monkeypatch) -> Callable[..., Path]:
    """Writes an inventory of servers of the bench's package by their ports."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def write(**ports: int) -> Path:
        servers = {
            name: {
                "install": "env",
                "hosts": ["here"],
                "launch": "adopt",
                "url": f"http://127.0.0.1:{port}",
            }
            for name, port in ports.items()
        }
        installs = {"env": {"python": sys.executable, "package": bench.package}}
        path = tmp_path / "inventory.yaml"
        hosts = {"here": {"transport": "local"}}
        path.write_text(json.dumps({"hosts": hosts, "installs": installs, "servers": servers}))
        return path

    return write


def test_what_runs_on_a_host(bench: Bench, port, tmp_path: Path, monkeypatch, inventory):
    """The server that is meant, one of another install, one on a pipe, one that does not run."""
    ports = {"kimi": port, "piped": open_port(), "absent": open_port()}
    path = inventory(**ports)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(bench.folder / bench.package, elsewhere / bench.package)
    bench.run("--port", str(port), "--api-key", "hush")
    reading, writing = os.pipe()
    bench.run("--port", str(ports["piped"]), stderr=writing)
    os.close(writing)
    with open(bench.stderr, "ab") as log:
        argv = bench.argv("--port", str(open_port()), "--disaggregation-mode", "decode")
        bench.stage.run(argv, cwd=elsewhere, stderr=log)
    done = call(monkeypatch, "hosts", "--inventory", path)
    os.close(reading)
    user, folder = procfs.user_name(os.getuid()), "  neither a RECORD nor a checkout tells"
    assert normal(done.out, bench) == (
        f"here: {user}@{socket.gethostname()}\n"
        "  install env: PKG of unknown version in FOLDER/PKG (Python N)\n"
        f"  {folder} whether it is pristine\n"
        f"  server kimi, pid N of {user}, port N, up N s: model unknown\n"
        "    logs FOLDER/stderr\n"
        f"  server piped, pid N of {user}, port N, up N s: model unknown\n"
        "    logs to a pipe\n"
        "    cannot be adopted: its stderr goes to a pipe, which cannot be given back\n"
        "    hint: start it with its output in a file\n"
        "    hint: or name a file for the restored server: `launch: {adopt: {output: FILE}}`\n"
        f"  server pid N of {user}, port N, up N s, decode server: model unknown\n"
        "    logs FOLDER/stderr\n"
        "    runs: PKG of unknown version in FOLDER/elsewhere/PKG (Python N)\n"
        f"    {folder} whether it is pristine\n"
        "  server absent: no server of `PKG` runs on port N\n"
    )
    assert (done.code, normal(done.err, bench)) == (
        5,
        "error: server `piped` could not be started again as it is: its stderr goes to a pipe,"
        " which cannot be given back\n"
        " --> host here (FOLDER/inventory.yaml:1)\n"
        f"note: seen: pid N of {user}, listening on N: PYTHON -m PKG.launch_server --port N\n"
        "hint: start it with its output in a file\n"
        "hint: or name a file for the restored server: `launch: {adopt: {output: FILE}}`\n"
        "hosts:\n  here: nothing was written, server was not touched\n",
    )


def test_an_install_of_a_server_that_does_not_run(bench: Bench, tmp_path, monkeypatch, inventory):
    """That some `python3` of the host lacks the package is nothing wrong: no server runs by it."""
    path = inventory(absent=open_port())
    book = json.loads(path.read_text())
    del book["installs"]["env"]["python"]
    path.write_text(json.dumps(book))
    monkeypatch.delenv("PYTHONPATH")
    done = call(monkeypatch, "hosts", "--inventory", path)
    install, absent = normal(done.out, bench).splitlines()[1:]
    assert (done.code, done.err) == (0, "")
    assert install.endswith("finds no package `PKG`: it is not on its path")
    assert absent == "  server absent: no server of `PKG` runs on port N"


ORPHAN = """
import mmap, os, sys, time
with open(sys.argv[1], "w+b") as file:
    file.write(bytes(3 << 20))
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[46])
with open("/proc/self/mem", "r+b", buffering=0) as own:
    own.seek(start)
    own.write(sys.argv[2].encode().ljust(end - start, b"\\0"))
open(os.environ["READY"], "w").close()
time.sleep(60)
"""


def find_orphan(title: str) -> procfs.Stat:
    """The process of that title that is not ours."""

    def find() -> list[procfs.Stat]:
        found = [s for s in procfs.read_all().values() if procfs.read_title(s.pid) == title]
        return [s for s in found if s.ppid != os.getpid()]

    (stat,) = wait_for(find, "the orphan")
    return stat


def test_what_a_server_left(bench: Bench, port, monkeypatch, inventory):
    """Workers whose main process is gone are named, with what they hold and what to do."""
    bench.run("--port", str(port))
    path = f"/dev/shm/sgl_shm_hosts_{os.getpid()}_1"
    try:
        title = f"{bench.package}::scheduler_TP0"
        argv = [sys.executable, "-c", ORPHAN, path, title, "padding" * 9]
        bench.stage.run(argv, cwd=bench.folder)  # a trainer's worker, which has a parent
        child = bench.stage.run(["setsid", "--fork", *argv], cwd=bench.folder)
        child.wait(30)
        left = find_orphan(title)
        bench.stage.note(left.pid)
        if left.ppid != 1:
            pytest.skip("orphans go to a subreaper here, which not everybody may know")
        done = call(monkeypatch, "hosts", "--inventory", inventory(kimi=port))
    finally:
        os.unlink(path)
    user = procfs.user_name(os.getuid())
    assert (done.code, done.err) == (0, "")
    assert normal(done.out, bench).splitlines()[-2:] == [
        f"  left of a server that is gone: pid N (PKG::scheduler_TP0) of {user}, up N s, holds 3 MB"
        " of shared memory",
        f"    hint: nobody else will end them: `kill -9 {left.pid}`",
    ]


def test_a_port_that_somebody_shares(bench: Bench, monkeypatch, inventory):
    """What stands in the way of a session is told of the server; the survey is none the worse."""
    port = find_free()
    bench.run("--port", str(port), "--mode", "share")
    with listen("127.0.0.1", port, share=True):
        done = call(monkeypatch, "hosts", "--inventory", inventory(kimi=port))
    user, me = procfs.user_name(os.getuid()), procfs.read_title(os.getpid())
    assert (done.code, done.err) == (0, "")
    assert normal(done.out, bench).splitlines()[-5:] == [
        f"  server kimi, pid N of {user}, port N, up N s: model unknown",
        "    logs FOLDER/stderr",
        f"    no session could take it: port N is taken by process {os.getpid()} ({me}) of {user}",
        "    both listen on N.0.0.1 (SO_REUSEPORT): nobody knows whom a request reaches",
        "    hint: stop that process, or give the server another port",
    ]


def test_a_package_is_checked_once(bench: Bench, agent, inventory, monkeypatch):
    """Every file of it is read for that, so not again for every server of a host."""
    book = read_project_inventory(inventory(a=open_port(), b=open_port(), c=open_port()))
    asked = []
    call_before = agent.call

    def count(op: str, *args, **kwargs):
        asked.append(op)
        return call_before(op, *args, **kwargs)

    monkeypatch.setattr(agent, "hello", {"user": "me", "hostname": "there"}, raising=False)
    monkeypatch.setattr(agent, "call", count)
    ((row, errors),) = look_at_all([Contact(book.hosts["here"], agent, None)], book)
    assert (asked.count("locate"), asked.count("pristine")) == (3, 1)
    assert [install["name"] for install in row["installs"]] == ["env"]
    assert ([missing["server"] for missing in row["not_found"]], errors) == (["a", "b", "c"], [])


def test_an_install_that_somebody_holds(bench: Bench, agent, inventory, monkeypatch):
    """Nothing but the lock beside it tells of that, be it another user's or one nobody can read."""
    (bench.folder / bench.package / ".sgldbg-lock").write_text("{}")
    book = read_project_inventory(inventory(a=open_port()))
    monkeypatch.setattr(agent, "hello", {"user": "me", "hostname": "there"}, raising=False)
    ((row, errors),) = look_at_all([Contact(book.hosts["here"], agent, None)], book)
    assert (row["unfinished"], errors) == (["of an unknown name"], [])


def test_a_host_that_is_lost_meanwhile(bench: Bench, agent, inventory, monkeypatch):
    """What was seen before stays, with the reason."""
    lost = HostError("the link broke", host="here", code="lost")

    def call_op(op: str, *args, **kwargs):
        if op == "survey":
            raise lost
        return call_before(op, *args, **kwargs)

    call_before = agent.call
    book = read_project_inventory(inventory(a=open_port()))
    monkeypatch.setattr(agent, "hello", {"user": "me", "hostname": "there"}, raising=False)
    monkeypatch.setattr(agent, "call", call_op)
    ((row, errors),) = look_at_all([Contact(book.hosts["here"], agent, None)], book)
    assert (row["host"], row["error"], row["code"]) == ("here", "the link broke", "lost")
    assert ([install["name"] for install in row["installs"]], errors) == (["env"], [lost])


def test_as_data(bench: Bench, port, monkeypatch, inventory):
    """The same as JSON; no secret of a command line is part of it."""
    bench.run("--port", str(port), "--api-key", "hush", "--nnodes", "1")
    done = call(monkeypatch, "hosts", "--json", "--inventory", inventory(kimi=port))
    assert (done.code, done.err) == (0, "")
    (row,) = json.loads(done.out)
    (server,) = row["servers"]
    assert (server["server"], server["runs"], row["not_found"]) == ("kimi", None, [])
    assert server["argv"] == bench.argv(
        "--port", str(port), "--api-key", "[secret]", "--nnodes", "1"
    )
    assert (server["seen"]["port"], server["seen"]["node"]) == (port, [0, 1])
    (install,) = row["installs"]
    assert install["package_dir"] == str(bench.folder / bench.package)
    assert "hush" not in done.out
