"""Two hosts on one install: staged, swapped and reverted once, and never under a server."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import shared
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, guard, recover, status
from tests.onhost.transaction.place import (
    DEBUG,
    EDITED,
    HOST,
    SESSION,
    no_guard,
    op,
    stage,
    wait_for,
)

OWNER, MEMBER = HOST, f"{HOST}b"
# What a member may take to stop its server counts on top of its lease.
LONG_AGO = -1e6


def begin_on(place, host, start=no_guard, lease_s=60.0):
    """A context on one of the two hosts, each with a state directory of its own."""
    context = Context(f"{place.state}-{host}")
    args = dict(place.begin_args(lease_s=lease_s), host=host)
    context.session = begin.begin(context.state_dir, args, start)
    return context


def beside(place):
    """Names of ours in the package's directory."""
    return sorted(n for n in os.listdir(place.package_dir) if n.startswith(".sgldbg-"))


def revert_both(owner, member):
    """As a fleet does: both at once, since each waits for the other."""
    values = {}
    threads = [
        threading.Thread(target=lambda n=n, c=c: values.update({n: op(c, "revert")}))
        for n, c in (("owner", owner), ("member", member))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return values["owner"], values["member"]


def expire(context):
    """Let a lease be over, as if its time had passed."""
    directory = context.session.directory
    with lease.exclusive(directory):
        lease.write(directory, lease.replace(lease.read(directory), deadline_s=0.0))


@pytest.fixture
def pair(place):
    """Owner and member, both staged."""
    owner, member = begin_on(place, OWNER), begin_on(place, MEMBER)
    assert stage(place, owner)["shared_with"] is None
    value = stage(place, member)
    assert (value["files"], value["shared_with"]) == ([], OWNER)
    return owner, member


def test_once_for_both(place, pair):
    """One lock, one swap, one revert; the member reads both states itself, nothing is left."""
    owner, member = pair
    assert beside(place) == [".sgldbg-lock", f".sgldbg-member-{SESSION}-{MEMBER}"]
    op(owner, "swap")
    assert op(member, "swap") == {"files": []}
    for name, data in EDITED.items():
        assert (place.root / name).read_bytes() == data
    reverted, waited = revert_both(owner, member)
    assert reverted["verified"], reverted
    assert waited["verified"], waited
    assert {f["why"] for f in waited["files"]} == {f"shared with {OWNER}"}
    op(owner, "finish")
    op(member, "finish")
    assert place.changes() == []


def test_what_a_member_shows(place):
    """Its files are patched and not drift, though the runtime in place is that of their owner."""
    owner, member = begin_on(place, OWNER), begin_on(place, MEMBER)
    stage(place, owner)
    args, raw = place.stage_args()
    args["files"][0]["after_sha256"] = "0" * 64  # each names its own host's probe directory
    op(member, "stage", raw, **args)

    def show():
        seen = status.read_session(member.session.directory)
        return [seen["state"], *(f["state"] for f in seen["files"])]

    assert show() == ["staged", *["original"] * 3]
    op(owner, "swap")
    assert show() == ["patched"] * 4
    revert_both(owner, member)
    assert show() == ["reverted", *["original"] * 3]
    op(owner, "finish")
    op(member, "finish")


def test_files_stay_under_a_live_server(place, pair, monkeypatch):
    """The owner reverts nothing while the member's server may run, and says whom it waits for."""
    owner, member = pair
    op(owner, "swap")
    op(member, "swap")
    monkeypatch.setattr("orchestrator.onhost.agent.files.shared._WAIT_S", 0.1)
    value = op(owner, "revert")
    assert not value["verified"]
    whys = {f["why"] for f in value["files"]}
    (why,) = whys
    assert why.startswith(f"a server on {MEMBER} may still run from it (its lease has 1")
    assert place.changes() != []
    value = op(member, "revert")
    assert {f["why"] for f in value["files"]} == {f"{OWNER} has not put it back"}
    assert not value["verified"]
    assert op(owner, "revert")["verified"]
    assert op(member, "revert")["verified"]
    op(member, "finish")
    op(owner, "finish")
    assert place.changes() == []


def test_guards_without_a_controller(place):
    """Both leases over: each guard ends its server, the owner's reverts, then both start again."""
    contexts = [begin_on(place, host, guard.start) for host in (OWNER, MEMBER)]
    # Two hosts of an inventory on one machine: their parts differ at least in their rank.
    mains = [place.start_server(("sleep", f"8639{rank}")) for rank in (4, 5)]
    for context, main in zip(contexts, mains, strict=True):
        stage(place, context)
        op(context, "describe-server", pid=main.pid, start_time=main.start_time)
        op(context, "stop-server", which="original", timeout_s=5, port=None)
    for context in contexts:
        op(context, "swap")
        op(context, "start-server", argv=list(DEBUG), env_set={}, env_unset=[], cwd=None)
    directories = [context.session.directory for context in contexts]
    for context in contexts:
        # The guard ends the holder of a lease that is over, which is this test.
        held = lease.read(context.session.directory)
        lease.write(
            context.session.directory,
            lease.replace(held, agent=lease.Process(2**22 - 1, 1), deadline_s=0.0),
        )
        context.session.close()
    wait_for(lambda: not place.guards())
    for directory in directories:
        assert recover.recover(directory)["left"] == []
    assert place.changes() == []
    assert len(place.originals()) == 2
    assert place.servers() == place.originals()


def test_a_member_that_fell_silent(place, pair):
    """A member whose host is gone is waited for as long as its lease, on our own clock."""
    owner, member = pair
    op(owner, "swap")
    member.session.close()
    owner.session.close()
    expire(owner)
    directory = owner.session.directory
    (path,) = place.package_dir.glob(".sgldbg-member-*")
    beat = json.loads(path.read_text())["beat"]
    with open(os.path.join(directory, "members.json"), "w") as file:
        seen = {str(path): [beat, lease.now_s() + LONG_AGO]}
        json.dump({"boot_id": lease.read_boot_id(), "seen": seen}, file)
    assert recover.recover(directory)["left"] == []
    assert place.changes() == []


def test_a_silent_member_and_a_full_disk(place, pair, monkeypatch):
    """Since when it is silent is known without a line of it on the disk."""
    owner, member = pair

    def full(*args):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(shared, "write_private", full)
        assert len(shared.wait_for_members(owner.session, 0.0)) == 1
        now_s = lease.now_s() + 1e6
        patch.setattr(lease, "now_s", lambda: now_s)
        assert shared.wait_for_members(owner.session, 0.0) == []
        Path(owner.session.directory, "members.json").write_text("[1]")  # nor by what is no such
        assert shared.wait_for_members(owner.session, 0.0) == []
    for context in (member, owner):
        assert op(context, "revert")["verified"]
        op(context, "finish")


def test_another_session_is_refused(place, pair):
    """Sharing is for hosts of one session; anybody else meets the lock."""
    other = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, other)
    assert refused.value.code == "locked"
    for context in reversed(pair):
        op(context, "revert")
        op(context, "finish")


def test_a_member_that_does_not_see_the_swap(place, pair, monkeypatch):
    """Its server is not started on files that it does not read as planned."""
    owner, member = pair
    monkeypatch.setattr("orchestrator.onhost.agent.files.shared._WAIT_S", 0.1)
    with pytest.raises(Refusal) as refused:
        op(member, "swap")
    assert (refused.value.code, refused.value.message) == (
        "changed",
        f"the planned files that {OWNER} put in are not seen here",
    )
    for context in (member, owner):
        assert op(context, "revert")["verified"]
        op(context, "finish")
    assert place.changes() == []
