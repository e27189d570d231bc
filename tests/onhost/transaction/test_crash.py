"""Nothing that ends a session half-way keeps it from being undone, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import journal
from orchestrator.onhost.agent.held.journal import STEPS
from tests.onhost.transaction.place import HOST, NOBODY, Place, op, session_of, stage, whole_session

# Another slice every hour; set it to run a slice again, or with `SLICES=1` everything.
SEED = int(os.environ.get("SGLDBG_SEED", time.strftime("%j%H")))
SLICES = {"line": 9, "call": 18, "recovery": 13, "cleaned": 24, "takeover": 24}
SWEEPS = {"takeover": ("sweep_takeover",)}


@pytest.mark.parametrize("kind", sorted(SLICES))
def test_a_crash_at_any_point(kind, tmp_path):
    """Within the write of a line or at its end, or before a call that changes a file: as before."""
    of = 1 if os.environ.get("SLICES") == "1" else SLICES[kind]
    part = SEED % of + 1
    program, *first = SWEEPS.get(kind, ("sweep", kind))
    words = ["-m", f"tests.onhost.transaction.{program}", *first, part, of, tmp_path / "hosts"]
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
    """Cut anywhere, the journal of a whole session says what its whole lines say."""
    whole_session(place, place.begin(), place.start_server())
    (path,) = Path(place.state, "ended").rglob("journal.jsonl")
    copy, before = tmp_path / "torn", b""
    expected: list[journal.Record] = []
    for line in path.read_bytes().splitlines(keepends=True):
        last = before[before[:-1].rfind(b"\n") + 1 :]
        copy.write_bytes(last + line)  # with all lines before it would take minutes
        for end in reversed(range(len(line) - 1)):
            os.truncate(copy, len(last) + end)
            assert journal.read(str(copy)) == expected[-1:], end
        expected.append({k: v for k, v in json.loads(line).items() if k != "crc"})
        before += line
        for whole in (before[:-1], before):  # without its newline as well: its checksum is there
            copy.write_bytes(whole)
            assert journal.read(str(copy)) == expected


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


def test_a_revert_from_every_cut(tmp_path, monkeypatch):
    """Lines that were lost are read from the lock: no kept original is taken for one not needed."""
    number, whole = 0, 1
    while number < whole:
        number += 1
        place, whole = cut_session(tmp_path / str(number), monkeypatch, number)
        assert place.recover()["left"] == [], number
        assert place.changes() == [], number
        assert place.status() == [], number
    assert number > 20


def cut_session(directory, monkeypatch, number):
    """A swapped session whose journal ends within the line after so many; how many it had."""
    (directory / "tmp").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(directory / "tmp"))
    place = Place(directory)
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    session_of(context).close()
    path = Path(place.directory(), "journal.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:number], *(line[:-9] for line in lines[number:][:1])]))
    return place, len(lines)


def test_a_crash_before_the_first_line(place):
    """A session that died before it wrote anything does not stand in the way of its successor."""
    place.begin()
    directory = Path(place.directory())
    (directory / "journal.jsonl").write_bytes(b"")
    shutil.rmtree(place.top / "tmp" / f"sgldbg-s1-{HOST}")
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
