"""Ending a server: all of it, and nothing but it."""

from __future__ import annotations

import os
import signal
import sys
import time

from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.server import process

from .conftest import HEAD, TAIL, Stage, key_of, wait_for

# A child in a process session of its own, as `nohup setsid` makes it.
CHILD = """
def child(code, **options):
    words = [sys.executable, '-c', 'import os, signal, sys, time\\n' + code + '\\ntime.sleep(60)']
    made = subprocess.Popen(words, start_new_session=True, **options)
    while open('/proc/%d/cmdline' % made.pid).read().find('time.sleep(60)') < 0:
        time.sleep(0.01)
    return made
"""


def tree_of(pid: int) -> list[int]:
    return [stat.pid for stat in procfs.find_tree(pid, procfs.read_all())]


def test_a_server_that_ends_by_itself(stage: Stage):
    """SIGTERM goes to the main process alone; what it ends itself counts as stopped."""
    code = CHILD + (
        "made = child('')\n"
        "signal.signal(signal.SIGTERM, lambda *a: (made.kill(), made.wait(), sys.exit(0)))"
    )
    child = stage.spawn(code)
    pids = tree_of(child.pid)
    assert len(pids) == 2
    done = process.stop(key_of(child.pid), None, 20, None)
    assert (done["stopped"], done["killed"], done["left"]) == (sorted(pids), [], [])
    assert done["seconds"] < 10


def test_a_child_that_ignores_the_signal(stage: Stage, tmp_path):
    """A worker that outlives its main process is killed, though it is nobody's child by then."""
    ready = tmp_path / "deaf"
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(ready)!r}, 'w').close()"
    child = stage.spawn(CHILD + f"made = child({deaf!r})")
    wait_for(ready.exists, "the deaf child")
    main, worker = tree_of(child.pid)
    done = process.stop(key_of(main), None, 20, None)
    assert (done["stopped"], done["killed"], done["left"]) == ([main], [worker], [])
    assert done["seconds"] < 10


def test_a_main_process_that_hangs(stage: Stage):
    """A stopped main process gets its time and is killed then, with its children."""
    child = stage.spawn(CHILD + "made = child('')")
    pids = tree_of(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    done = process.stop(key_of(child.pid), None, 0.5, None)
    assert (done["stopped"], done["killed"], done["left"]) == ([], sorted(pids), [])
    assert 0.5 <= done["seconds"] < 10


def test_a_child_that_appears_while_stopping(stage: Stage, tmp_path):
    """What a server starts after the signal belongs to it too."""
    late = tmp_path / "late"
    code = CHILD + (
        "def stop(*a):\n"
        "    made = child('signal.signal(15, signal.SIG_IGN)')\n"
        f"    open({str(late)!r}, 'w').write(str(made.pid))\n"
        "    time.sleep(0.3)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)"
    )
    child = stage.spawn(code)
    done = process.stop(key_of(child.pid), None, 20, None)
    assert (done["killed"], done["left"]) == ([int(late.read_text())], [])


def test_a_foreign_twin_is_not_touched(stage: Stage):
    """A process with the same command line, user and environment lives on."""
    code = CHILD + "made = child('')"
    child, twin = stage.spawn(code), stage.spawn(code)
    others = tree_of(twin.pid)
    process.stop(key_of(child.pid), None, 10, None)
    assert [pid for pid in others if process.is_alive(**key_of(pid))] == others


def test_a_pid_that_was_given_away(stage: Stage):
    """Nothing is sent to a process that only has the number of the one to stop."""
    child = stage.spawn("")
    key = key_of(child.pid)
    done = process.stop({**key, "start_time": key["start_time"] - 1}, None, 5, None)
    assert (done["stopped"], done["killed"], done["left"]) == ([], [], [])
    assert process.is_alive(**key)


def test_orphans_of_a_session(stage: Stage):
    """Workers of a debug life that lost their main process are found by its session."""
    wipe = (
        "fields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "start, end = int(fields[47]), int(fields[48])\n"
        "memory = open('/proc/self/mem', 'r+b', buffering=0)\n"
        "memory.seek(start); memory.write(bytes(end - start)); memory.close()\n"
    )
    made = (
        HEAD
        + "subprocess.Popen([sys.executable, '-c', sys.argv[1]])\n"  # same process session
        + "subprocess.Popen([sys.executable, '-c', sys.argv[2]], start_new_session=True)\n"
        + "time.sleep(60)"
    )
    titled = "import time\n" + wipe + "time.sleep(60)"
    argv = [sys.executable, "-c", made, titled, "import time; time.sleep(60)"]
    main = process.start({"argv": argv}, None, None, session="s-orphans")
    stage.note(main["pid"])
    _, *workers = wait_for(lambda: len(t := tree_of(main["pid"])) == 3 and t, "two workers")
    for pid in workers:
        stage.note(pid)
    wait_for(lambda: sorted(_marked(pid) for pid in workers) == [False, True], "a wiped environ")
    os.kill(main["pid"], signal.SIGKILL)
    wait_for(lambda: not process.is_alive(**main), "the end of the main process")
    other = stage.spawn("", env={"SGLDBG_SESSION": "s-other"})
    done = process.stop(main, "s-orphans", 5, None)
    assert (done["stopped"], done["killed"], done["left"]) == (sorted(workers), [], [])
    assert done["seconds"] < 5  # they were asked, not only waited for
    assert process.is_alive(**key_of(other.pid))


def _marked(pid: int) -> bool:
    return (procfs.read_environ(pid) or {}).get("SGLDBG_SESSION") == "s-orphans"


LISTEN = """
server = socket.create_server(('127.0.0.1', 0))
open(sys.argv[1], 'w').write(str(server.getsockname()[1]))
"""


def test_the_port_is_free_afterwards(stage: Stage, tmp_path):
    """Stop returns when nobody listens there any more."""
    child = stage.spawn(LISTEN, str(tmp_path / "port"))
    port = int((tmp_path / "port").read_text())
    assert process.describe(child.pid)["ports"] == [port]
    done = process.stop(key_of(child.pid), None, 5, port)
    assert (done["stopped"], done["left"]) == ([child.pid], [])
    assert port not in [item.port for item in procfs.list_listeners()]


def test_a_port_of_another_network(stage: Stage, tmp_path):
    """A server of a container with a network of its own is none of those that a URL here means."""
    enter = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--net"]
    path = str(tmp_path / "port")
    code = HEAD + LISTEN + TAIL
    child = stage.run([*enter, sys.executable, "-c", code, path])
    assert process.describe(child.pid)["ports"] == []
    assert int((tmp_path / "port").read_text()) in [
        item.port for item in procfs.list_listeners(child.pid)
    ]


def test_a_port_that_somebody_else_holds(stage: Stage, tmp_path):
    """A foreign listener is named at once, neither waited for nor touched."""
    other = stage.spawn(LISTEN, str(tmp_path / "port"))
    port = int((tmp_path / "port").read_text())
    child = stage.spawn("")
    began = time.monotonic()
    done = process.stop(key_of(child.pid), None, 5, port)
    assert time.monotonic() - began < 4
    title = os.path.basename(sys.executable) + " -c"
    user = procfs.user_name(os.getuid())
    expected = f"port {port} is still held by process {other.pid} ({title}) of {user}"
    assert done["left"] == [expected]
    assert process.is_alive(**key_of(other.pid))
