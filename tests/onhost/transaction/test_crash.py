"""Nothing that ends a session half-way keeps it from being undone, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import journal
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.held.journal import STEPS
from tests.onhost.transaction.place import NOBODY, op, stage, whole_session

# Another slice every hour; set it to run a slice again, or with `SLICES=1` everything.
SEED = int(os.environ.get("SGLDBG_SEED", time.strftime("%j%H")))
SLICES = {"line": 3, "call": 16, "recovery": 12}


@pytest.mark.parametrize("kind", sorted(SLICES))
def test_a_crash_at_any_point(kind, tmp_path):
    """After each journal line, or before each call that changes a file: recovered bit for bit."""
    of = 1 if os.environ.get("SLICES") == "1" else SLICES[kind]
    part = SEED % of + 1
    words = ["-m", "tests.onhost.transaction.sweep", kind, part, of, tmp_path / "hosts"]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], stdout=subprocess.PIPE, env=environ, check=True
    )
    found = json.loads(done.stdout)
    print(f"SGLDBG_SEED={SEED}: {kind}: {found['tried']} of {found['points']} points")
    assert found["failures"] == {}
    assert found["points"] > 50
    assert found["tried"] >= found["points"] // of


def test_every_step_is_in_the_sweep(place):
    """A whole session takes every step of the code's own list, so the sweep ends it at each."""
    whole_session(place, place.begin(), place.start_server())
    lines = place.journal()
    for kind in ("intent", "done"):
        taken = {line["step"] for line in lines if line["kind"] == kind}
        # These are a recovery's and a shared install's: the kill matrix takes them.
        assert taken == set(STEPS) - {"revert:staged", "share", "unshare"}


def test_a_journal_torn_at_every_byte(place, tmp_path):
    """Cut within its last line, a journal says what it said before that line."""
    context = place.begin()
    stage(place, context)
    path = Path(place.directory(), "journal.jsonl")
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    copy = tmp_path / "torn"
    copy.write_bytes(whole[:start])
    expected = journal.read(str(copy))
    for end in range(start, len(whole) - 1):
        copy.write_bytes(whole[:end])
        assert journal.read(str(copy)) == expected
    copy.write_bytes(whole[:-1])  # only the newline is missing
    assert journal.read(str(copy)) == journal.read(str(path))
    assert Facts(expected).files == Facts(journal.read(str(path))).files


def test_what_follows_a_torn_line_is_read(place, tmp_path):
    """A torn line spoils only itself: the next writer begins a line of its own."""
    path = tmp_path / "journal.jsonl"
    opened = journal.Journal.create(str(path))
    opened.append({"kind": "a"})
    opened.close()
    path.write_bytes(path.read_bytes() + b'{"kind":"b","n":2,"cr')
    opened = journal.Journal(str(path))
    opened.append({"kind": "c"})
    opened.close()
    assert [(r["kind"], r["n"]) for r in journal.read(str(path))] == [("a", 1), ("c", 2)]


def test_recovery_from_torn_journals(place):
    """A revert works from a journal that was cut in the middle of each of its lines."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    context.session.close()
    place.expire()
    path = Path(place.directory(), "journal.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    # Lines that follow the last effect may be lost in part; earlier ones were durable before it.
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    assert place.recover()["left"] == []
    assert place.changes() == []


def test_a_crash_before_the_first_line(place):
    """A session that died before it wrote anything does not stand in the way of its successor."""
    place.begin()
    directory = Path(place.directory())
    (directory / "journal.jsonl").write_bytes(b"")
    shutil.rmtree(place.top / "tmp" / "sgldbg-s1-gpu0")
    place.expire(agent=NOBODY)
    context = place.begin()
    assert context.session.facts.begun["session"] == "s1"
    op(context, "finish")


def test_another_boot(place):
    """After a restart of the host every lease is over, and recovery needs no process of before."""
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    place.expire(deadline_s=1e12, boot_id="another boot")
    (session,) = place.status()
    assert session["state"] == "patched, the host was restarted since"
    assert session["expired"]
    assert place.recover()["left"] == []
    assert place.changes() == []
    assert len(place.originals()) == 1
