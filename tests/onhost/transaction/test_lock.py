"""The lock of an install: one session at a time, and what the second one is told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import plan
from orchestrator.onhost.agent.held import lease, lock
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, recover
from tests.onhost.transaction.lost import lose_copies
from tests.onhost.transaction.place import EDITED, SESSION, apply, no_guard, op, sha256, stage

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"


def test_the_lock(place):
    """A second session on the install is refused with who, since when and until when."""
    first = place.begin()
    stage(place, first)
    second = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, second)
    found = refused.value
    held = lease.read(place.directory())
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.data["since"]))
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.data["until"]))
    assert (found.code, found.message) == (
        "locked",
        f"`{place.package_dir}` is held by ann@desk (session `s1`) since {since} until {until}",
    )
    assert abs(found.data["until"] - time.time() - (held.deadline_s - lease.now_s())) < 1.0
    op(first, "swap")
    assert op(first, "revert")["verified"]
    op(first, "finish")
    stage(place, second)
    op(second, "revert")
    op(second, "finish")
    assert place.changes() == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_race_for_the_lock(place, monkeypatch, dies):
    """Who planned first and locked second, and what undoes it, leaves the other's names alone."""
    winner, loser = place.begin(), place.begin(session="s2")
    planned = plan.journal_plan

    def overtaken(session, args, files):
        planned(session, args, files)
        if session is loser.session:
            stage(place, winner)
            if dies:
                raise SystemExit

    monkeypatch.setattr(plan, "journal_plan", overtaken)
    if dies:
        with pytest.raises(SystemExit):
            stage(place, loser)
        loser.session.close()
        assert place.recover(session="s2")["left"] == []
    else:
        with pytest.raises(Refusal, match="is held by ann@desk"):
            stage(place, loser)
        op(loser, "finish")
    op(winner, "swap")
    assert op(winner, "revert")["verified"]
    op(winner, "finish")
    assert place.changes() == []


def test_a_kept_session_holds_its_lock(place):
    """`keep` is no end: the next session is refused."""
    first = place.begin()
    apply(place, first)
    op(first, "keep")
    second = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, second)
    assert refused.value.message.endswith(", kept without an end")


def test_what_cannot_be_recovered_is_said_to_be_over(place):
    """Not when its lease was to end, long ago, but who can end it now."""
    first = place.begin()
    apply(place, first)
    first.session.close()
    for kept in place.package_dir.rglob(".llama.py.sgldbg-orig"):
        kept.unlink()
    lose_copies(place)
    place.expire()
    second = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, second)
    assert refused.value.message.endswith(
        ", its lease is over: `sgldbg revert --all`, as who began it, ends it"
    )
    # When a revert took it over, and not the time of boot: who undoes has no deadline of its own.
    data = refused.value.data
    said = lock.read(str(place.package_dir / ".sgldbg-lock"))
    assert data["since"] <= said["until"] <= data["until"] <= time.time()


def test_an_expired_lock_is_recovered_first(place):
    """A dead session's files are put back before ours are looked at; its report is handed on."""
    first = place.begin()
    stage(place, first)
    op(first, "swap")
    first.session.close()
    place.expire()
    second = place.begin(session="s2")
    args, _ = place.stage_args(edits={})  # as a plan made of the original bytes would be
    args["files"] = [
        {**item, "before_sha256": place.before[f"site/{item['file']}"]["sha256"]}
        for item in [
            {"file": name, "after_sha256": sha256(data), "size": len(data)}
            for name, data in EDITED.items()
        ]
    ]
    value = op(second, "stage", b"".join(EDITED.values()), **args)
    (recovered,) = value["recovered"]
    assert (recovered["session"], recovered["verified"]) == (SESSION, True)
    op(second, "swap")
    op(second, "revert")
    op(second, "finish")
    assert place.changes() == []


def test_locks_of_others_are_left_alone(place):
    """A lock whose session is not to be found on this host is never removed."""
    path = place.package_dir / lock.LOCK_NAME
    path.write_text('{"session": "x"')
    context = place.begin()
    with pytest.raises(Refusal) as refused:
        stage(place, context)
    assert refused.value.message == (
        f"`{place.package_dir}` is locked, but `{path}` cannot be read"
    )
    assert path.exists()
    with pytest.raises(Refusal) as busy:
        recover.recover(place.directory())
    assert busy.value.code == "busy"


def test_two_installs_do_not_disturb_each_other(place, tmp_path):
    """Sessions on different installs of one host run side by side."""
    other = type(place)(tmp_path / "other")
    other.state = place.state
    first, second = place.begin(), other.begin(session="s2")
    stage(place, first)
    stage(other, second)
    op(first, "swap")
    op(second, "swap")
    op(first, "revert")
    op(first, "finish")
    assert place.changes() == []
    assert (other.root / LAYERS).read_bytes() == EDITED[LAYERS]
    op(second, "revert")
    op(second, "finish")
    assert other.changes() == []


@pytest.mark.parametrize("lost", [0, 1])
def test_a_session_that_gave_the_install_back_leaves_the_next_one_alone(place, lost):
    """Reverted by its guard and not filed away: whoever ends it finds the next session's names.

    It is the same where it died right after the release, before the line that says so.
    """
    first = place.begin()
    stage(place, first)
    op(first, "swap")
    first.session.close()
    place.expire()
    guarded = recover.take_over(place.directory(), lease.GUARD, 5.0)
    assert recover.run_tail(guarded)["left"] == []
    guarded.close()
    journal = Path(place.directory(), "journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    unlocked = next(n for n, line in enumerate(lines) if b'"done"' in line and b'"unlock"' in line)
    journal.write_bytes(b"".join(lines[: unlocked + 1 - lost]))

    second = Context(f"{place.state}-of-bob")
    second.session = begin.begin(second.state_dir, place.begin_args(session="s2"), no_guard)
    stage(place, second)
    op(second, "swap")
    assert place.recover(force=True)["left"] == []
    assert (place.root / "sglang/srt/layers.py").read_bytes() == EDITED["sglang/srt/layers.py"]
    assert op(second, "revert")["verified"]
    op(second, "finish")
    assert place.changes() == []
