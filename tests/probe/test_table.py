"""The table says what the runtime does; without a valid one it does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.probe.workshop import SESSION, Workshop, make_site

QUIET = {
    "missing": "os.unlink(TABLE)",
    "another session's": "put(session='other')",
    "over": "put(over=True, generation=2)",
    "not JSON": "open(TABLE, 'w').write('{')",
    "a list": "open(TABLE, 'w').write('[]')",
    "without sites": "put(generation=2); t = json.load(open(TABLE)); del t['sites'];"
    " json.dump(t, open(TABLE, 'w'))",
    "writable by others": "put(generation=2); os.chmod(TABLE, 0o666); os.utime(TABLE, (1, 1))",
    "a directory": "os.unlink(TABLE); os.mkdir(TABLE)",
}


@pytest.mark.parametrize("spoil", QUIET.values(), ids=QUIET.keys())
def test_no_valid_table_no_record(shop: Workshop, spoil: str) -> None:
    """The site is off, the server goes on, and a valid table wakes it again."""
    shop.put()
    script = f"{spoil}\n_sgldbg.next_poll = 0.0\nprint(model.f(), _sgldbg.off('p.1'))"
    done = shop.run(script)
    assert (done.code, done.stdout) == (0, "1 True\n")
    assert [r.kind for r in done.records] == ["import"]


def test_without_a_table_from_the_start(shop: Workshop) -> None:
    """A file left behind by a dead session costs a look every 0.2 s and says nothing."""
    script = "from sglang.srt import model; print(model.f())"
    done = shop.run("")
    assert done.stderr == b""
    placed = shop.root / "sglang/_sgldbg.py"
    shop.write("sglang/_sgldbg.py", placed.read_text().rsplit("_start(", 1)[0])
    child = subprocess.run(
        [shop.command("")[0], "-c", script],
        env=shop.environment(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert (child.stdout, child.stderr) == (b"1\n", b"")


def test_a_running_process_follows_the_table(shop: Workshop) -> None:
    """Start, arming, another question and the end reach it within a poll, with no restart."""
    script = """
sys.stdin.close()
while not os.path.exists(os.path.join(os.path.dirname(TABLE), "stop")): model.f(7)
"""
    shop.put("start", 1)
    log = shop.root / "stderr"
    with open(log, "wb") as stderr:
        child = subprocess.Popen(shop.command(script), stderr=stderr, env=shop.environment())
    try:
        seen = []
        wait_for(shop, log, "hit", 1)
        shop.put("armed", 2, limit=1)
        seen.append(wait_for(shop, log, "hit", 2))
        shop.put("armed", 3, limit=1, capture=["x * 6"])
        seen.append(wait_for(shop, log, "hit", 3))
        shop.put_sites({"p.1": make_site()}, generation=4, over=True)
    finally:
        (shop.dir / "stop").touch()
        assert child.wait(30) == 0
    assert max(seen) < 5  # 0.2 s on an idle machine
    done = shop.finished(0, "", log.read_bytes())
    assert [(r.phase, dict(r.values)) for r in done.of("hit")] == [
        ("start", {"x": 7}),
        ("armed", {"x": 7}),
        ("armed", {"x * 6": 42}),
    ]


def wait_for(shop: Workshop, log: Path, kind: str, count: int) -> float:
    """Poll until so many records of a kind are there; the seconds that took."""
    start = time.monotonic()
    while time.monotonic() < start + 30:
        if len(shop.finished(0, "", log.read_bytes()).of(kind)) >= count:
            return time.monotonic() - start
        time.sleep(0.02)
    raise AssertionError(f"no {count} records of kind {kind}")


def test_a_forked_child_counts_for_itself(shop: Workshop) -> None:
    """Locks and counters are its own, and it reports its own import."""
    script = """
model.f(1)
_sgldbg.STATE.lock.acquire(); _sgldbg.STATE.poll_lock.acquire()
if os.fork() == 0:
    model.f(2); os._exit(0)
_sgldbg.STATE.lock.release(); _sgldbg.STATE.poll_lock.release()
os.wait()
"""
    shop.put(limit=1)
    done = shop.run(script)
    by_pid = {
        pid: [r for r in done.records if r.pid == pid] for pid in {r.pid for r in done.records}
    }
    assert [[(r.kind, r.seq) for r in records] for records in by_pid.values()] == [
        [("import", 1), ("hit", 2), ("spent", 3)]
    ] * 2
    assert sorted(done.values()) == [1, 2]


def test_each_patched_module_is_reported_once_when_it_is_imported(shop: Workshop) -> None:
    """Also one that imports the runtime second, and one whose site is never reached."""
    shop.write("sglang/srt/late/__init__.py", "from sglang import _sgldbg\n")
    shop.write("sglang/srt/never.py", "from sglang import _sgldbg\n")
    sites = {
        "p.1": make_site(),
        "p.2": make_site(file="sglang/srt/late/__init__.py"),
        "q.1": make_site(file="sglang/srt/never.py"),
    }
    shop.put_sites(sites)
    done = shop.run("print('first'); import sglang.srt.late; put(generation=2); model.f()")
    assert [(r.site, r.note) for r in done.of("import")] == [
        ("p.1", "sglang.srt.model"),
        ("p.2", "sglang.srt.late"),
    ]
    assert [r.kind for r in done.records] == ["import", "import", "hit"]


def test_an_import_before_the_table_is_reported_with_it(shop: Workshop) -> None:
    """The runtime does not forget what it saw while there was no table."""
    table = {"session": SESSION, "generation": 1, "phase": "start", "over": False}
    text = json.dumps({**table, "sites": {"p.1": make_site()}})
    script = f"open(TABLE, 'w').write({text!r}); os.chmod(TABLE, 0o600); put(); model.f()"
    assert [r.kind for r in shop.run(script).records] == ["import", "hit"]


def test_a_site_reached_while_a_site_is_evaluated_is_passed_over(shop: Workshop) -> None:
    """Captures may call patched code; that neither recurses nor counts."""
    shop.put(capture=["f(5)"])
    done = shop.run("print(model.f(1))")
    assert (done.values("f(5)"), done.stdout) == ([5], "1\n")


def test_a_signal_handler_may_reach_a_site(shop: Workshop) -> None:
    """It interrupts the runtime anywhere, also where it holds a lock, and must not wait for it."""
    script = """
import signal
def handler(*_):
    _sgldbg.next_poll = 0.0
    model.f(-1)
    signal.setitimer(signal.ITIMER_REAL, 0.0003)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0003)
for i in range(1200): model.f(i)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""
    shop.put(every=3)
    done = shop.run(script)
    assert (done.code, done.damaged) == (0, 0)
    assert len(done.of("hit")) >= 400  # those that a handler made come on top


def test_ctrl_c_still_ends_the_server(shop: Workshop) -> None:
    """It passes through, since it is not ours to swallow."""
    shop.put(capture=["sys.stdout"], when="__import__('os').kill(__import__('os').getpid(), 2)")
    done = shop.run("model.f()")
    assert done.code in (-2, 130, 1)
    assert b"KeyboardInterrupt" in done.stderr


HANDLERS = {
    "function": "def handler(*_): sys.exit(41)",
    "nested": """
def leave(): raise SystemExit(41)
handler = lambda *_: leave()""",
    "partial": """
import functools
def leave(code, *_): sys.exit(code)
handler = functools.partial(leave, 41)""",
    "method": """
class Server:
    def leave(self, *_): sys.exit(41)
handler = Server().leave""",
    "object": """
class Handler:
    def __call__(self, *_): sys.exit(41)
handler = Handler()""",
}


@pytest.mark.parametrize("place", ["capture", "when", "once_per"])
@pytest.mark.parametrize("name", HANDLERS)
def test_an_exit_of_the_servers_own_signal_handler_ends_it(
    shop: Workshop, name: str, place: str
) -> None:
    """It only met an expression; a server that is told to end must not go on."""
    kill = "__import__('os').kill(__import__('os').getpid(), 15)"
    shop.put(**{place: kill if place == "when" else [kill]})
    done = shop.run(f"import signal\n{HANDLERS[name]}\nsignal.signal(15, handler)\nmodel.f()")
    assert done.code == 41


def test_an_exit_of_an_expression_is_an_entry(shop: Workshop) -> None:
    """A handler that is there, but not the cause, changes nothing."""
    shop.put(capture=["sys.exit(41)"])
    done = shop.run("import signal\nsignal.signal(15, lambda *_: sys.exit(42))\nmodel.f()")
    assert (done.code, [list(r.errors) for r in done.of("hit")]) == (0, [["sys.exit(41)"]])


def test_the_runtime_sits_quietly_in_the_import_system(shop: Workshop) -> None:
    """Missing modules stay missing, and everything else is found as before."""
    shop.put()
    script = """
try:
    import sglang.missing
except ModuleNotFoundError as error:
    print(error)
import colorsys, importlib; importlib.invalidate_caches()
print(importlib.reload(colorsys).__name__)
"""
    assert shop.run(script).stdout == "No module named 'sglang.missing'\ncolorsys\n"
    assert os.environ.get("PYTHONPATH") is None or "probe" not in os.environ["PYTHONPATH"]
