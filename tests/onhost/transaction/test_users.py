"""Several users on one host: who may do what, and what the second one is told."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.files import claim
from orchestrator.onhost.agent.held import lease, lock
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import status
from tests.onhost.transaction.lost import change_lock, lock_of
from tests.onhost.transaction.place import HOST, apply, op, stage, wait_for
from tests.onhost.transaction.users import ANOTHER, another_user, give_away

LAYERS = "sglang/srt/layers.py"


def second(place):
    """A session of the other user, in a state directory of their own."""
    place.state = str(place.top / "second")
    return place.begin(session="s2")


def show(seconds):
    """A time as messages show it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def test_the_lock_of_another_user(open_place):
    """The second user learns holder, since and until, though the first one's state is closed."""
    place = open_place
    first = place.begin()
    stage(place, first)
    before = place.tree()
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context)
        op(context, "finish")
    data = refused.value.data
    assert refused.value.message == (
        f"`{place.package_dir}` is held by ann@desk (session `s1`) since {show(data['since'])}"
        f" until {show(data['until'])}"
    )
    assert 0 < data["until"] - time.time() <= 60
    assert place.tree() == before
    op(first, "revert")
    op(first, "finish")
    assert place.changes() == []


def test_the_lock_of_another_user_whose_time_is_over(open_place):
    """Whether it was renewed stands where only its user looks: so it is the lock's word alone."""
    place = open_place
    first = place.begin()
    op(first, "renew", lease_s=2.0)
    stage(place, first)
    until = lock.read(str(place.package_dir / ".sgldbg-lock"))["until"]
    wait_for(lambda: time.time() > until)
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context)
        op(context, "finish")
    assert refused.value.message.endswith(f" until {show(until)} by its last word")


def renew_over(place, first):
    """A lease that ended a moment ago by the lock's own word, with nobody left to see to it."""
    with lease.exclusive(place.directory()):
        held = replace(lease.read(place.directory()), deadline_s=lease.now_s() - 1.0)
        lease.write(place.directory(), held)
    claim.show(first.session, held)


def leave_silent(place, first):
    """The same, for longer than anybody who renews it could have been silent."""
    renew_over(place, first)
    long_ago = time.time() - 1000
    os.utime(lock_of(place), (long_ago, long_ago))


def cut_off(place, first):
    """A revert that did not get to its end."""
    (place.root / LAYERS).write_bytes(b"# mine\n")
    first.session.close()
    assert place.recover()["left"]


LOOKS = {
    "live": (lambda place, first: None, False, "until %s by its last word"),
    "a moment ago": (renew_over, False, "until %s by its last word"),
    "long ago": (leave_silent, True, "the lease is over"),
    "kept": (
        lambda place, first: op(first, "keep"),
        False,
        "kept until somebody reverts it, no guard watches it",
    ),
    "another boot": (
        lambda place, first: change_lock(place, boot_id="another"),
        True,
        "the lease is over",
    ),
    "a revert that was cut off": (cut_off, True, "the lease is over"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_who_holds_an_install_is_told(open_place, name, monkeypatch, capsys):
    """Another user who asks learns holder, since, until, files and who ends it; not 0, ever."""
    happen, is_over, until = LOOKS[name]
    place, package = open_place, str(open_place.package_dir)
    monkeypatch.setenv("SGLDBG_STATE", str(place.top / "second"))
    apply(place, first := place.begin())
    happen(place, first)
    before = place.tree()
    with another_user():
        (seen,) = status.sessions(str(place.top / "second"), [package])
        assert by_hand.main(["status", package]) == by_hand.NOT_RESTORED
        said = capsys.readouterr().out.splitlines()
        assert by_hand.main(["revert", "--all", package]) == by_hand.NOT_RESTORED
        (refused,) = capsys.readouterr().out.splitlines()
    assert place.tree() == before
    why_not = "the lock is another user's (root, uid 0), who alone can undo it"
    assert (seen["session"], seen["host"], seen["holder"]) == ("s1", HOST, "ann@desk")
    assert (seen["user"], seen["ends"], seen["why_not"]) == ("root", "user", why_not)
    assert (seen["expired"], seen["server"], "over" in seen) == (is_over, "unknown", False)
    by_file = {os.path.relpath(f["path"], place.root): f["state"] for f in seen["files"]}
    mine = {LAYERS: "drift"} if happen is cut_off else {}
    if happen is cut_off:
        mine.update({"sglang/srt/models/llama.py": "original", "sglang/_sgldbg.py": "original"})
    assert by_file == dict.fromkeys(by_file, "patched") | mine
    assert said[2:4] == [
        f"  known from `{lock_of(place)}`",
        "  " + (until % by_hand._day(seen["until"]) if "%" in until else until) + GUARD[name],
    ]
    assert said[-1] == f"  not undone from here: {why_not}"
    assert refused.startswith(
        f"not reverted (missing): session `s1` of ann@desk holds `{package}` since"
        f" {show(seen['since'])}"
    )
    assert refused.endswith(f": {why_not}")


GUARD = dict.fromkeys(LOOKS, ", the guard is dead") | {"kept": ""}


def test_root_is_told_of_a_users_session(open_place):
    """By the lease that only root may read as well; and a guard that runs is seen to run."""
    place = open_place
    give_away(place)
    with another_user():
        first = second(place)
        stage(place, first, edits={}, runtime=True)
        guard = lease.find_process(os.getpid()).as_json()
        first.session.note("guard", guard=guard)
        op(first, "renew", lease_s=500.0)
        claim.show(first.session, first.session.check())
        op(first, "renew", lease_s=900.0)
    (seen,) = status.sessions(str(place.top / "roots"), [str(place.package_dir)])
    assert (seen["user"], seen["guard"], seen["state"]) == (str(ANOTHER), "alive", "staged")
    assert 890 < seen["until"] - time.time() <= 900
    with lease.exclusive(place.directory("s2")):  # a time that nobody could show
        held = lease.read(place.directory("s2"))
        lease.write(place.directory("s2"), replace(held, deadline_s=1e14))
    (seen,) = status.sessions(str(place.top / "roots"), [str(place.package_dir)])
    assert seen["until"] == lock.read(str(lock_of(place)))["until"]
    with lease.exclusive(place.directory("s2")):
        lease.write(place.directory("s2"), held)
    with another_user():
        op(first, "revert")
        op(first, "finish")
    assert status.sessions(str(place.top / "roots"), [str(place.package_dir)]) == []
    assert place.changes() == []


def test_files_of_another_owner(open_place):
    """Who cannot give a file back to its owner is refused, although links and renames work."""
    place = open_place
    for path in [place.package_dir, *place.package_dir.rglob("*")]:
        if path.is_dir():
            os.chown(path, ANOTHER, ANOTHER)
    place.before = place.tree()
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context, edits={LAYERS: b"X = 2\n"}, runtime=False)
        op(context, "finish")
    assert (refused.value.code, refused.value.message) == (
        "not-permitted",
        f"cannot stage `{LAYERS}`: operation not permitted",
    )
    assert place.changes() == []


def test_a_link_that_the_kernel_protects(open_place):
    """fs.protected_hardlinks: an owner's own file is linked, a foreign one is refused, never half.

    The planned bytes of a foreign file cannot get its owner, which is found before it is kept.
    """
    place = open_place
    give_away(place)
    with another_user():
        context = second(place)
        value = stage(place, context)
        assert [item["kept"] for item in value["files"]] == [None, "link", "link"]
        op(context, "swap")
        assert op(context, "revert")["verified"]
        op(context, "finish")
    assert place.changes() == []
