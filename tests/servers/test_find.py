"""The one running server that the inventory means, or a refusal that says what was seen."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import LaunchAdopt, LaunchCommand
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe, with_command
from orchestrator.servers.adopt import Sought, choose
from orchestrator.servers.base import Life, find, make_description_args

from .conftest import Bench, open_port

USER = procfs.user_name(os.getuid())
START = "to have it started for the session, write `launch: {command: [...]}`"
CORRECT = "start it, or correct `url` and `hosts` of server `kimi` in the inventory"


def refused(*args) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    with pytest.raises(HostError) as error:
        find(*args)
    assert error.value.host == "gpu01"
    return error.value.code, error.value.message, error.value.notes, error.value.hints


def seen(bench: Bench, pid: int, port: int | None, *args: str) -> str:
    words = " ".join(bench.argv(*args))
    return f"seen: pid {pid} of {USER}, listening on {port or 'none'}: {words}"


def test_adopted_by_its_port(agent, bench: Bench, port):
    """The server that listens on the port of `url`, with its own command line and directory."""
    bench.run("--port", "0")
    child = bench.run("--port", str(port))
    found = find(agent, bench.server(port), bench.install, bench.host, 0, 1)
    assert found.description is not None
    assert found.description["pid"] == child.pid
    argv = tuple(bench.argv("--port", str(port)))
    assert (found.host, found.original) == ("gpu01", Life(argv, cwd=str(bench.folder)))


def test_one_port_at_two_addresses(agent, bench: Bench, port):
    """The address of `url` decides; where no server listens at that, nothing is guessed."""
    children = {
        address: bench.run("--port", str(port), "--host", address)
        for address in ("127.0.0.1", "127.0.0.2")
    }
    server = bench.server(port)
    for host, address in (("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1")):
        meant = replace(server, url=f"http://{host}:{port}")
        found = find(agent, meant, bench.install, bench.host, 0, 1)
        assert found.description is not None
        assert found.description["pid"] == children[address].pid
    elsewhere = replace(server, url=f"http://127.0.0.3:{port}")
    assert refused(agent, elsewhere, bench.install, bench.host, 0, 1)[0] == "server-ambiguous"


def test_adopted_while_it_starts(agent, bench: Bench, port):
    """A server that does not listen yet is known by its `--port`."""
    child = bench.run("--port", str(port), "--mode", "silent")
    bench.run("--port", "1", "--mode", "silent")
    found = find(agent, bench.server(port), bench.install, bench.host, 0, 1)
    assert found.description is not None
    assert found.description["pid"] == child.pid


def test_other_ranks(agent, bench: Bench, port):
    """Found by their node rank, also where several ranks share a machine."""
    nodes = ["--nnodes", "2"]
    first = bench.run("--port", str(port), "--node-rank", "0", *nodes)
    second = bench.run("--node-rank", "1", *nodes)
    server = bench.server(port)
    for rank, child in ((0, first), (1, second)):
        found = find(agent, server, bench.install, bench.host, rank, 2)
        assert found.description is not None
        assert found.description["pid"] == child.pid
    assert refused(agent, server, bench.install, bench.host, 2, 3)[:2] == (
        "server-not-found",
        f"no server of `{bench.package}` runs with `--node-rank 2`",
    )


def test_another_rank_without_a_flag(agent, bench: Bench, port):
    """The only server of a host is its rank where that cannot be read, and not where it is 0."""
    asked = (agent, bench.server(port), bench.install, bench.host, 1, 2)
    alone = bench.run("--mode", "silent")
    assert refused(*asked)[:3] == (
        "server-not-found",
        f"no server of `{bench.package}` runs with `--node-rank 1`",
        (seen(bench, alone.pid, None, "--mode", "silent"),),
    )
    alone.kill()
    alone.wait(30)
    renamed = bench.run("--mode", "title", *["--api-key", "room-for-a-title"])
    (found,) = agent.call("find-servers", {"package": bench.package}).value
    sought = Sought(bench.server(port), bench.install, bench.host, 1, 2)
    assert choose([found], sought)["pid"] == renamed.pid


def test_nothing_runs(agent, bench: Bench, port):
    """The refusal says so, and what to do."""
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "server-not-found",
        f"no server of `{bench.package}` runs on port {port}",
        (f"no server of `{bench.package}` runs there at all",),
        (CORRECT, START),
    )


def test_something_else_runs(agent, bench: Bench, port):
    """What was seen is listed, with secrets masked."""
    child = bench.run("--port", "1", "--mode", "silent", "--api-key", "hush-hush")
    args = ("--port", "1", "--mode", "silent", "--api-key", "[secret]")
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "server-not-found",
        f"no server of `{bench.package}` runs on port {port}",
        (seen(bench, child.pid, None, *args),),
        (CORRECT, START),
    )


def test_more_than_one(agent, bench: Bench, port):
    """Nothing is guessed between two servers that fit."""
    args = ("--port", str(port), "--mode", "silent")
    children = [bench.run(*args), bench.run(*args)]
    bench.run("--port", "1", "--mode", "silent")  # no candidate, and so not listed
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "server-ambiguous",
        f"more than one server of `{bench.package}` runs on port {port}",
        tuple(seen(bench, child.pid, None, *args) for child in children),
        ("stop the one that is not meant, or give each its own port",),
    )


def test_more_than_one_of_a_rank(agent, bench: Bench, port):
    """Parts of servers on other machines are told apart by where they meet rank 0."""
    words = ("--node-rank", "1", "--nnodes", "2", "--mode", "silent")
    flags = {"--dist-init-addr", "--nccl-init-addr"}
    args = [(*words, flag, f"10.0.0.7:{5000 + n}") for n, flag in enumerate(sorted(flags))]
    children = [bench.run(*a) for a in args]
    asked = (agent, bench.server(port), bench.install, bench.host, 1, 2)
    for n, child in enumerate(children):
        found = find(*asked, f"10.0.0.7:{5000 + n}")
        assert found.description is not None
        assert (found.description["pid"], found.meeting) == (child.pid, f"10.0.0.7:{5000 + n}")
    for elsewhere in (None, "10.0.0.8:5000"):
        assert refused(*asked, elsewhere) == (
            "server-ambiguous",
            f"more than one server of `{bench.package}` runs with `--node-rank 1`",
            tuple(seen(bench, c.pid, None, *a) for c, a in zip(children, args, strict=True)),
            ("stop the one that is not meant, or give each its own `--dist-init-addr`",),
        )


def test_output_that_cannot_be_given_back(agent, bench: Bench, port):
    """Refused with the line to write; accepted once the inventory names a file."""
    reading, writing = os.pipe()
    child = bench.run("--port", str(port), stdout=writing)
    os.close(writing)
    reason = "its stdout goes to a pipe, which cannot be given back"
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "not-restorable",
        f"server `kimi` could not be started again as it is: {reason}",
        (seen(bench, child.pid, port, "--port", str(port)),),
        (
            "start it with its output in a file",
            "or name a file for the restored server: `launch: {adopt: {output: FILE}}`",
        ),
    )
    server = bench.server(port, LaunchAdopt("/var/log/kimi.log"))
    found = find(agent, server, bench.install, bench.host, 0, 1)
    os.close(reading)
    assert found.description is not None
    assert found.description["restorable"] is False


def test_a_directory_that_is_gone(agent, bench: Bench, port):
    """Another reason is not cured by a file for the output."""
    gone = bench.folder / "gone"
    gone.mkdir()
    env = {"PYTHONPATH": str(bench.folder)}
    argv = bench.argv("--port", str(port))
    bench.stage.run(argv, cwd=gone, env=env)
    gone.rmdir()
    server = bench.server(port, LaunchAdopt("/var/log/kimi.log"))
    code, message, _, hints = refused(agent, server, bench.install, bench.host, 0, 1)
    reason = f"its working directory, `{gone} (deleted)`, is not there any more"
    assert (code, message, hints) == (
        "not-restorable",
        f"server `kimi` could not be started again as it is: {reason}",
        (START,),
    )


def test_a_command_that_runs(agent, bench: Bench, port):
    """A server of that very command line is treated as found; also behind what execs it."""
    environ = {**os.environ, "A": "0", "B": "2"}
    child = bench.run("--port", str(port), "--node-rank", "0", env=environ)
    command = (*bench.argv("--port", str(port)), "--node-rank", "{rank}")
    for prefix in (
        (),
        ("taskset", "-c", "0"),
        ("/usr/bin/nohup",),
        ("prlimit", "--nofile=99", "--"),
    ):
        server = bench.server(port, LaunchCommand((*prefix, *command), {"A": "0"}))
        found = find(agent, server, bench.install, bench.host, 0, 1)
        assert found.description is not None
        assert found.description["pid"] == child.pid
        argv = tuple(bench.argv("--port", str(port), "--node-rank", "0"))
        assert found.original == Life(argv, cwd=str(bench.folder))
        assert found.original.notes == ()
    env = {"A": "{rank}", "B": "hush", "C": "3"}
    server = bench.server(port, LaunchCommand(command, env, "/srv"))
    assert find(agent, server, bench.install, bench.host, 0, 1).original.notes == (
        f"it runs in {bench.folder}, not in the `cwd` of its command, and will again",
        "it runs without what `env` of its command says of `B`, `C`, and will again",
    )


def test_a_command_that_does_not_run(agent, bench: Bench, port):
    """It will be started as the inventory says, unless somebody else has its port."""
    launch = LaunchCommand(tuple(bench.argv("--port", str(port))), {"A": "{rank}"}, "/srv")
    server = bench.server(port, launch)
    found = find(agent, server, bench.install, bench.host, 0, 1)
    assert found.description is None
    assert found.original == Life(launch.command, {"A": "0"}, (), "/srv")
    child = bench.run("--port", str(port), "--health", "200")
    code, message, _, hints = refused(agent, server, bench.install, bench.host, 0, 1)
    title = bench.title
    assert (code, message, hints) == (
        "port-taken",
        f"port {port} is taken by process {child.pid} ({title}) of {USER}",
        (
            "if that is server `kimi`, give the inventory the command line that it runs by, or"
            " write `launch: adopt`",
            "stop that process, or give the server another port",
        ),
    )


def test_a_command_that_runs_twice(agent, bench: Bench, port):
    """Two processes of one command are not told apart."""
    args = ("--port", str(port), "--mode", "silent")
    children = [bench.run(*args), bench.run(*args)]
    server = bench.server(port, LaunchCommand(tuple(bench.argv(*args))))
    assert refused(agent, server, bench.install, bench.host, 0, 1) == (
        "server-ambiguous",
        "the command of server `kimi` runs 2 times",
        tuple(seen(bench, child.pid, None, *args) for child in children),
        ("stop all but one of them",),
    )


def test_a_renamed_server_that_its_command_names(agent, bench: Bench, port, tmp_path):
    """0.5.2 overwrites its command line: its port tells it, and the inventory's word counts."""
    server = bench.server(port, LaunchCommand(tuple(bench.argv("--port", str(port))), {"A": "1"}))
    argv = bench.argv("--port", str(port), "--mode", "title")
    child = bench.stage.run(argv, cwd=bench.folder)
    found = find(agent, server, bench.install, bench.host, 0, 1)
    assert found.description is not None
    assert found.description["pid"] == child.pid
    assert found.original == Life(tuple(bench.argv("--port", str(port))), {"A": "1"})
    args = make_description_args(found, server)
    assert (args["argv"], args["env"]) == (bench.argv("--port", str(port)), {"A": "1"})
    described = describe(child.pid)
    assert described["restorable"] is False
    given = with_command(described, args["argv"], {**os.environ, "A": "1"}, str(bench.folder))
    assert (given["restorable"], given["python"]) == (True, sys.executable)
    assert given["umask"] == described["umask"]


def test_a_renamed_server_is_not_adopted(agent, bench: Bench, port):
    """Its command line is gone: the refusal says what to write down instead."""
    argv = bench.argv("--port", str(port), "--mode", "title")
    child = bench.stage.run(argv, cwd=bench.folder)
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: it has overwritten its own command"
        " line with a title",
        (f"seen: pid {child.pid} of {USER}, listening on {port}: {bench.package}::http_server",),
        ("write down the command line that it was started by: `launch: {command: [...]}`",),
    )


def test_a_server_in_a_loop_is_not_adopted(agent, bench: Bench, port):
    """Whoever would start it again has to do that for the session."""
    argv = bench.argv("--port", str(port))
    line = f"while sleep 0; do {shlex.join(argv)}; done"
    with open(bench.stderr, "ab") as log:
        shell = bench.stage.run(["sh", "-c", line], cwd=bench.folder, stderr=log)
    (child,) = [
        stat.pid
        for stat in procfs.find_tree(shell.pid, procfs.read_all())
        if procfs.parse_strings(procfs.read_cmdline(stat.pid)) == argv
    ]
    assert refused(agent, bench.server(port), bench.install, bench.host, 0, 1) == (
        "not-restorable",
        f"server `kimi` could not be started again as it is: a loop of sh -c (pid {shell.pid})"
        " owns it",
        (seen(bench, child, port, "--port", str(port)),),
        ("name the commands that stop and start it: `launch: {stop: [...], start: [...]}`",),
    )


def test_a_pair_behind_a_router(agent, bench: Bench, port):
    """Prefill and decode are told apart by their ports; the router's port is neither's."""
    router = bench.folder / "sglang_router"
    router.mkdir()
    (router / "__init__.py").touch()
    (router / "launch_router.py").write_text(
        f"import os, socket, time\ns = socket.create_server(('127.0.0.1', {port}))\n"
        "open(os.environ['READY'], 'w').close()\ntime.sleep(60)\n"
    )
    argv = [sys.executable, "-m", "sglang_router.launch_router"]
    child = bench.stage.run(argv, cwd=bench.folder)
    workers = [
        bench.run("--port", str(open_port()), "--disaggregation-mode", mode)
        for mode in ("prefill", "decode")
    ]
    for worker in workers:
        (own,) = describe(worker.pid)["ports"]
        found = find(agent, bench.server(own), bench.install, bench.host, 0, 1)
        assert found.description is not None
        assert found.description["pid"] == worker.pid
    code, message, notes, hints = refused(
        agent, bench.server(port), bench.install, bench.host, 0, 1
    )
    title = f"{os.path.basename(sys.executable)} -m sglang_router.launch_router"
    assert (code, message) == (
        "server-not-found",
        f"no server of `{bench.package}` runs on port {port}",
    )
    for worker, note in zip(workers, notes, strict=False):
        assert note.startswith(f"seen: pid {worker.pid} of ")
    assert notes[2:] == (f"port {port} is held by process {child.pid} ({title}) of {USER}",)
    assert hints == (
        "a router's port is not a server's: give `url` the port of the worker itself",
        CORRECT,
        START,
    )
