"""An owner of a shared install that never comes back: undone by another machine, and only then."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.ship import make_zipapp
from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.held import lease, lock, machine
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, orphan, recover, status, takeover
from tests.onhost.transaction.lost import lock_of
from tests.onhost.transaction.place import (
    EDITED,
    HOST,
    NOBODY,
    SESSION,
    no_guard,
    op,
    session_of,
    stage,
)
from tests.onhost.transaction.test_by_hand import block
from tests.onhost.transaction.test_shared import expire

MEMBER = f"{HOST}b"
LAYERS = "sglang/srt/layers.py"


class Two:
    """Two machines on one install, with a home and a clock each; this process is on one of them."""

    def __init__(self, monkeypatch, place):
        self._patch, self.place = monkeypatch, place
        self._clocks = {"alpha": 5e6, "beta": 1e3}
        self.be("alpha")

    def be(self, name):
        """Go on as that machine."""
        self._patch.setattr(machine, "read_name", lambda: name)
        self._patch.setattr(lease, "read_boot_id", lambda: f"boot of {name}")
        self._patch.setattr(lease, "now_s", lambda: self._clocks[name])
        self.state = f"{self.place.state}-{name}"
        self._patch.setenv("SGLDBG_STATE", self.state)
        tmp = self.place.top / f"tmp-{name}"
        tmp.mkdir(exist_ok=True)
        self._patch.setattr("tempfile.tempdir", str(tmp))

    def begin(self, host):
        """A session of the machine that we are."""
        context = Context(self.state)
        args = dict(self.place.begin_args(), host=host)
        context.session = begin.begin(self.state, args, no_guard)
        return context

    def packages(self):
        """Where somebody says that the install is."""
        return [str(self.place.package_dir)]

    def grow_silent(self, by_s=1e6):
        """Let that much of our own time pass without a sign of life."""
        self._clocks["beta"] += by_s

    def undo(self, **more):
        """What `revert --all --gone` asks for what `status` told of."""
        (seen,) = status.sessions(self.state, self.packages())
        mine = {name: seen[name] for name in ("session", "host", "lock") if name in seen}
        return op(Context(self.state), "recover", **{"gone": [HOST], **mine, **more})


@pytest.fixture
def two(monkeypatch, place):
    """A session of `alpha` has its files patched, and that machine is gone; we are on `beta`."""
    monkeypatch.setattr("orchestrator.onhost.agent.files.shared._WAIT_S", 0.1)
    two = Two(monkeypatch, place)
    two.context, two.wanted = two.begin(HOST), place.stage_args()
    stage(place, two.context)
    op(two.context, "swap")
    two.be("beta")
    return two


def whose(two):
    """Who holds the install, in the words of a refusal."""
    held = takeover.describe(takeover.find(str(lock_of(two.place))))
    start = (
        f"session `s1` of ann@desk holds `{two.place.package_dir}` from `{HOST}` (machine `alpha`)"
    )
    assert held.startswith(start + " since 20"), held
    return held


def refuse(two, **more):
    """Why it is not undone now."""
    with pytest.raises(Refusal) as refused:
        two.undo(**more)
    return refused.value.code, refused.value.message


def come_back(two):
    """The other machine after all, whose lease is over: what it does about its session."""
    two.be("alpha")
    two.context.session.close()
    expire(two.context)
    return recover.recover(two.context.session.directory)


def test_it_is_shown(two):
    """With its files as they are; it is neither ours nor over."""
    (seen,) = status.sessions(two.state, two.packages())
    told = ("session", "host", "holder", "state", "expired", "guard", "elsewhere", "lock")
    assert {name: seen[name] for name in told} == {
        "session": SESSION,
        "host": HOST,
        "holder": "ann@desk",
        "state": "on another machine: alpha",
        "expired": False,
        "guard": "unknown",
        "elsewhere": "alpha",
        "lock": str(lock_of(two.place)),
    }
    assert [f["state"] for f in seen["files"]] == ["patched"] * 3
    assert status.sessions(two.state) == []  # nobody named the package


def test_not_while_it_may_be_alive(two):
    """Refused with holder, since and until; every sign of life starts the wait anew."""
    held = whose(two)
    assert refuse(two, gone=[]) == ("elsewhere", f"{held}: it ends there")
    may = "seen from here, it may be taken over after 125 s"
    assert refuse(two) == ("busy", f"{held}: no sign of life for 0 s {may}")
    two.grow_silent(100.0)
    assert refuse(two)[1].endswith(f": no sign of life for 100 s {may}")
    two.be("alpha")
    op(two.context, "renew", lease_s=60.0)
    two.be("beta")
    assert refuse(two)[1].endswith(f": no sign of life for 0 s {may}")
    two.grow_silent()
    two.be("alpha")
    op(two.context, "renew", lease_s=600.0)  # longer than the lock said
    two.be("beta")
    assert refuse(two)[1].endswith("it may be taken over after 665 s")
    for name, data in EDITED.items():
        assert (two.place.root / name).read_bytes() == data


def test_a_session_of_ours_meets_its_lock(two):
    """Refused with who holds the install, from where, since and until."""
    other = Context(two.state)
    args = dict(two.place.begin_args(session="s2"), host=MEMBER)
    other.session = begin.begin(two.state, args, no_guard)
    with pytest.raises(Refusal) as refused:
        stage(two.place, other)
    start = f"`{two.place.package_dir}` is held by ann@desk (session `s1`) from `{HOST}` (machine"
    assert refused.value.code == "locked"
    assert refused.value.message.startswith(f"{start} `alpha`) since 20")


def test_a_restart_of_ours_starts_the_count_anew(two, monkeypatch):
    """What was seen before counts on a clock that is not there any more."""
    refuse(two)
    two.grow_silent()
    monkeypatch.setattr(lease, "read_boot_id", lambda: "the next boot of beta")
    assert "no sign of life for 0 s" in refuse(two)[1]


def test_one_that_was_kept(two):
    """Nothing tells that it is gone; it is left to that machine, or to somebody by hand."""
    two.be("alpha")
    lease.change(two.context.session.directory, 1, lease.me(), deadline_s=None)
    op(two.context, "renew", lease_s=60.0)
    two.be("beta")
    code, message = refuse(two)
    assert (code, message) == (
        "busy",
        f"{whose(two)}: it was kept, so only that machine can end it, or somebody by hand",
    )
    assert ", kept without an end: it was kept" in message


def test_taken_over(two):
    """Files, inodes, compiled files and times are as before; the machine that returns does nothing.

    Its own journal ends, and nothing of the session is left on either.
    """
    refuse(two)
    two.grow_silent()
    value = two.undo()
    assert (value["left"], value["verified"], value["server"]) == ([], True, None)
    assert value["report"] == [
        f"taken over from the machine `alpha`: undone from `{lock_of(two.place)}`"
    ]
    assert "lost" not in value
    assert two.place.changes() == []
    assert status.sessions(two.state, two.packages()) == []
    assert not list(Path(two.state).glob("taken/*/s*/*"))
    value = come_back(two)
    assert (value["left"], value["verified"]) == ([], True)
    assert two.place.changes() == []
    assert status.sessions(two.state, two.packages()) == []


def test_one_that_returns_too_early(two):
    """As long as something is left, the files are those of the machine that took them over."""
    (two.place.root / LAYERS).write_bytes(b"# mine\n")
    refuse(two)
    two.grow_silent()
    drift = f"{two.place.root / LAYERS}: drift, it was changed after the swap"
    assert two.undo()["left"] == [drift]
    value = come_back(two)
    taken = f"`{two.place.package_dir}` was taken over on the machine `beta`, which puts it back"
    assert value["left"] == [
        f"staged files: {taken}",
        f"the files: {taken}",
        "the files were not reverted",
    ]
    with pytest.raises(Refusal):  # nor can it be renewed, or go on
        op(two.context, "swap")
    two.be("beta")
    value = op(Context(two.state), "recover", session=SESSION, host=HOST, force=True)
    assert value["left"] == []
    assert two.place.changes() == []
    two.be("alpha")
    assert recover.recover(two.context.session.directory)["left"] == []
    assert two.place.changes() == []


@pytest.mark.parametrize("when", ["handed over", "journal written"])
def test_cut_off(two, monkeypatch, when):
    """Whoever dies over it leaves a session of this machine, which needs no word any more."""
    refuse(two)
    two.grow_silent()
    broken = (orphan, "recover_orphan") if when == "handed over" else (recover, "recover")

    def die(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(*broken, die)
        with pytest.raises(KeyboardInterrupt):
            two.undo()
    assert two.place.changes() != []
    (seen,) = status.sessions(two.state, two.packages())
    assert (seen["elsewhere"], seen["expired"]) == (None, True)
    assert two.undo(gone=[])["left"] == []
    assert two.place.changes() == []


def test_only_one_of_two_takes_it(two):
    """Who saw the lock before somebody else had it is refused."""
    refuse(two)
    two.grow_silent()
    one = takeover.find(str(lock_of(two.place)))
    changed = dict(one.holder, hostname="gamma", taken_from="alpha")
    assert lock.hand_over(one.path, one.seen, changed)
    assert not lock.hand_over(one.path, one.seen, changed)
    assert refuse(two)[1].startswith("session `s1` of ann@desk holds")


def test_a_home_that_both_share(two):
    """The directory of the other machine is there and stays: its server is described in it."""
    shutil.copytree(f"{two.place.state}-alpha", two.state)
    refuse(two)
    two.grow_silent()
    assert two.undo()["left"] == []
    assert two.place.changes() == []
    (seen,) = status.sessions(two.state, two.packages())
    assert seen["elsewhere"] == "alpha"
    two.be("alpha")
    shutil.rmtree(two.state)
    shutil.move(f"{two.place.state}-beta", two.state)
    assert come_back(two)["left"] == []
    assert status.sessions(two.state) == []


def test_by_hand(two, capsys):
    """Named with what to do; undone in one go with the session of the host that shares it."""
    member = two.begin(MEMBER)
    args, raw = two.wanted
    assert op(member, "stage", raw, **args)["shared_with"] == HOST
    op(member, "swap")
    member.session.close()
    expire(member)
    held = lease.read(member.session.directory)
    lease.write(member.session.directory, lease.replace(held, agent=NOBODY))
    package = str(two.place.package_dir)
    name = f"{SESSION} on {MEMBER}"
    assert by_hand.main(["revert", "--all", "--gone", HOST]) == by_hand.NOT_RESTORED
    said = capsys.readouterr().out
    assert f"{name}: left: {whose(two)}: no sign of life for 0 s" in said
    assert f": failed, {HOST} has not put it back\n" in said
    two.grow_silent()
    assert by_hand.main(["revert", "--all", package]) == by_hand.NOT_RESTORED
    assert capsys.readouterr().out.endswith(
        f"{name}: not finished\n{SESSION} on {HOST}: not reverted (busy): {whose(two)}: it ends"
        f" there, or with `--gone {HOST}` if that never comes back\n"
    )
    assert by_hand.main(["revert", "--all", "--gone", HOST]) == 0
    assert capsys.readouterr().out.endswith(f"{name}: reverted and verified\n")
    assert two.place.changes() == []
    assert by_hand.main(["revert", "--all", "--gone", HOST, package]) == by_hand.USAGE_WRONG


def test_a_tree_of_links_in_another_place(two):
    """Refused at once, with where it has to be mounted; nothing is written."""
    path = lock_of(two.place)
    said = json.loads(path.read_text())
    plan = {**said["plan"], "locks": ["/tree/sglang/.sgldbg-lock", "/src/sglang/.sgldbg-lock"]}
    path.write_text(json.dumps({**said, "plan": plan}))
    before = two.place.tree()
    assert refuse(two) == (
        "missing",
        f"{whose(two)}: a tree of links is only undone where it is mounted as over there:"
        " `/tree/sglang` and `/src/sglang`",
    )
    assert two.place.tree() == before


def test_somebody_elses_lock(two):
    """Not acted upon, whoever is named as gone."""
    if os.geteuid() != 0:
        pytest.skip("needs root: another user")
    refuse(two)
    two.grow_silent()
    os.chown(lock_of(two.place), 1234, 1234)
    code, message = refuse(two)
    assert code == "missing"
    assert message.endswith("the lock is another user's (uid 1234), who alone can undo it")
    session_of(two.context).close()


def test_another_machine_with_another_mount_point(place):
    """Two real ones, as far as a kernel has two: another name, and the install in another place."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a namespace with a name and a mount of its own")
    context = Context(f"{place.state}-alpha")
    context.session = begin.begin(context.state_dir, place.begin_args(), no_guard)
    stage(place, context)
    op(context, "swap")
    agent, other = place.top / "agent.pyz", place.top / "seen from beta"
    agent.write_bytes(make_zipapp().data)
    other.mkdir()

    def run():
        """The guide's commands on the other machine."""
        guide = block("Where the other host never comes back").replace("gpu0", HOST)
        steps = f'hostname beta && mount --bind "$1" "$2" && {{ {guide} }}'
        command = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-euc"]
        environ = {**os.environ, "SGLDBG_STATE": f"{place.state}-beta"}
        environ |= {"agent": str(agent), "package": str(other / "sglang")}
        done = subprocess.run(
            [*command, steps, "sh", str(place.root), str(other)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    code, said = run()
    assert f"{SESSION} on {HOST}: on another machine: {os.uname().nodename}\n" in said
    assert f"  {other / LAYERS}: patched\n" in said
    assert code == 7, said
    assert re.search(r": no sign of life for \d+ s seen from here, it may be taken", said)
    (path,) = Path(f"{place.state}-beta").glob("taken/*/seen/*.json")
    words = json.loads(path.read_text())
    path.write_text(json.dumps({**words, "since_s": 0.0, "boot_id": lease.read_boot_id()}))
    code, said = run()
    assert code == 0, said
    assert said.endswith(f"{SESSION} on {HOST}: reverted and verified\n")
    assert str(other / LAYERS) in said
    assert place.changes() == []
    context.session.close()
    expire(context)
    assert recover.recover(context.session.directory)["left"] == []
    assert place.changes() == []
