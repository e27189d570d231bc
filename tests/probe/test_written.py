"""How records leave the process: whole lines on stderr, a copy in the spool, never a hang."""

from __future__ import annotations

import os
import subprocess
import time

from tests.probe.workshop import Workshop

MANY = """
for i in range(300): model.f(i)
"""


def test_writers_on_one_pipe_never_tear_a_record(shop: Workshop) -> None:
    """Four processes and a noisy one share a pipe whose reader is slow; every record is whole."""
    shop.put(capture=["x", "[[x] * 40] * 40", *(f"'{n}' + 'q' * 190" for n in range(25))])
    noise = "for i in range(2000): os.write(2, b'[2026-01-01 00:00:00 TP0] noise' * 4 + b'\\n')\n"
    read, write = os.pipe()
    commands = [shop.command(MANY)] * 4
    noisy = [*shop.command(MANY)[:1], "-c", "import os\n" + noise]
    children = [
        subprocess.Popen(c, stderr=write, env=shop.environment()) for c in [*commands, noisy]
    ]
    os.close(write)
    data = bytearray()
    while chunk := os.read(read, 65536):
        data += chunk
        time.sleep(0.0005)  # the writers wait for room: that is where lines would tear
    os.close(read)
    assert [child.wait(30) for child in children] == [0] * 5
    done = shop.finished(0, "", bytes(data))
    assert done.damaged == 0
    assert len(done.of("hit")) == 1200
    assert {(r.pid, r.seq) for r in done.records} == {(r.pid, r.seq) for r in done.spooled}


def test_a_closed_stderr_loses_nothing_and_stops_nobody(shop: Workshop) -> None:
    """The spool keeps what stderr did not take, and says how many lines that were."""
    shop.put()
    done = shop.run("os.close(2)\nprint(model.f(1), model.f(2))")
    assert (done.code, done.stdout) == (0, "1 2\n")
    assert [r.kind for r in done.records] == ["import"]
    assert [r.note for r in done.spooled] == [
        "sglang.srt.model",
        "",
        "1 lines did not reach stderr",
    ]


def test_a_full_pipe_that_does_not_block_drops_whole_lines(shop: Workshop) -> None:
    """`EAGAIN` costs the line on stderr, never half of it, and the spool has all of them."""
    shop.put()
    read, write = os.pipe()
    os.set_blocking(write, False)
    child = subprocess.Popen(
        shop.command(MANY + MANY), stderr=write, env=shop.environment(), stdout=subprocess.PIPE
    )
    os.close(write)
    assert child.communicate(timeout=30) == (b"", None)
    data = bytearray()
    while chunk := os.read(read, 65536):
        data += chunk
    os.close(read)
    done = shop.finished(child.returncode, "", bytes(data))
    assert (done.code, done.damaged) == (0, 0)
    assert len(done.spooled) == 601
    assert 100 < len(done.records) < 601
    assert "lines did not reach stderr" in done.spooled[-1].note


def test_without_a_directory_there_is_still_stderr(shop: Workshop) -> None:
    """The spool may be on a full or missing file system."""
    shop.put()
    done = shop.run("import shutil; shutil.rmtree(os.path.dirname(TABLE)); model.f(5)")
    assert (done.values(), done.spooled) == ([5], [])


def test_the_spool_is_nobody_elses(shop: Workshop) -> None:
    """Values of a server are not for every user of the machine, and links are not followed."""
    shop.put()
    done = shop.run("os.umask(0); model.f(5)")
    assert [oct(p.stat().st_mode) for p in shop.dir.glob("*.jsonl")] == ["0o100600"]
    target = shop.write("elsewhere", "")
    script = f"""
spool = os.path.join(os.path.dirname(TABLE), f"{{os.getpid()}}.jsonl")
os.unlink(spool); os.symlink({str(target)!r}, spool)
model.f(6)
"""
    done = shop.run(script)
    assert done.values() == [6]
    assert target.read_text() == ""


def test_a_spool_does_not_grow_without_limit(shop: Workshop) -> None:
    """A probe without limits in a hot loop must not fill the file system."""
    shop.put()
    done = shop.run("_sgldbg.SPOOL = 2000\n" + MANY)
    assert len(done.of("hit")) == 300
    assert 2 < len(done.spooled) < 12


def test_who_wrote_it(shop: Workshop) -> None:
    """Session, host, pid, title, times; a title shows the first words of a command line only."""
    shop.put()
    script = shop.command("model.f()")
    child = subprocess.run(
        [*script, "--api-key", "hunter2"],
        env=shop.environment(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    (record,) = shop.finished(0, "", child.stderr).of("hit")
    assert record.title == " ".join(script)[:80]
    assert "hunter2" not in child.stderr.decode()
    assert (record.host, record.phase, record.site) == ("gpu01", "armed", "p.1")
    assert abs(record.wall_s - time.time()) < 60


def test_ranks_come_from_the_title_that_sglang_sets(shop: Workshop) -> None:
    """Titles of all releases carry them; the label of a dimension is never guessed."""
    shop.put()
    done = shop.run(
        "_sgldbg.STATE.title = 'sglang::scheduler_DP0_PP1_ATTN_CP2_MOE_DP3_TP4_EP5'\n"
        "_sgldbg.next_poll = 0.0; model.f()"
    )
    ranks = {"dp": 0, "pp": 1, "attn_cp": 2, "moe_dp": 3, "tp": 4, "ep": 5}
    assert [r.ranks for r in done.of("hit")] == [ranks]
