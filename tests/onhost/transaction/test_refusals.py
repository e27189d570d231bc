"""What cannot be restored exactly is refused, and then nothing of ours is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.held.journal import read
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import recover
from tests.onhost.transaction.lost import lose_patched, undo_orphan
from tests.onhost.transaction.place import HOST, op, sha256, stage
from tests.onhost.tree import differences

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mount and chattr")


def refusal_of(place, context, **kw):
    """Stage, expect a refusal, and the install as it was; the refusal."""
    with pytest.raises(Refusal) as refused:
        stage(place, context, **kw)
    assert place.changes() == []
    return refused.value


def test_a_file_that_changed_since_the_plan(place):
    """The checksum that the plan saw decides, before anything is written."""
    context = place.begin()
    args, raw = place.stage_args()
    args["files"][2]["before_sha256"] = "0" * 64
    with pytest.raises(Refusal) as refused:
        op(context, "stage", raw, **args)
    path = str(place.root / LAYERS)
    assert (refused.value.code, refused.value.message) == (
        "changed",
        f"`{path}` is not what the plan saw",
    )
    assert refused.value.data == {
        "file": LAYERS,
        "path": path,
        "expected": "0" * 64,
        "found": sha256((place.root / LAYERS).read_bytes()),
    }
    assert place.changes() == []


def test_damaged_bytes(place):
    """Planned bytes that came damaged are not staged, and what was staged before is taken back."""
    context = place.begin()
    args, raw = place.stage_args()
    with pytest.raises(Refusal) as refused:
        op(context, "stage", raw[:-1] + b"?", **args)
    assert refused.value.message == f"the bytes of `{LAYERS}` came damaged"
    assert place.changes() == []
    stage(place, context)  # the session may try again
    op(context, "swap")
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert place.changes() == []


@pytest.mark.parametrize("name", ["sglang/../../etc.py", "/etc/passwd", "sglang/evil/x.py"])
def test_a_path_that_leaves_the_install(place, name):
    """Neither dots nor absolute names nor links lead out of the install."""
    outside = place.top / "outside"
    outside.mkdir()
    (outside / "x.py").write_bytes(b"")
    (place.package_dir / "evil").symlink_to(outside)
    context = place.begin()
    args, _ = place.stage_args(edits={})
    args["files"] = [{"file": name, "before_sha256": None, "after_sha256": sha256(b""), "size": 0}]
    with pytest.raises(Refusal) as refused:
        op(context, "stage", b"", **args)
    assert refused.value.code == "outside"
    real = os.path.realpath(os.path.join(place.root, name))
    assert refused.value.message == f"`{name}` leaves the install (it is `{real}`)"


def test_a_file_to_create_that_exists(place):
    """A file that the plan would create is never written over."""
    (place.package_dir / "_sgldbg.py").write_bytes(b"mine")
    place.before = place.tree()
    refused = refusal_of(place, place.begin())
    path = place.package_dir / "_sgldbg.py"
    assert (refused.code, refused.message) == (
        "exists",
        f"`{path}` should be created but is there already",
    )


def test_a_file_that_appears_before_the_swap(place):
    """One that somebody creates between stage and swap refuses the swap and survives the revert."""
    context = place.begin()
    stage(place, context)
    (place.package_dir / "_sgldbg.py").write_bytes(b"mine")
    with pytest.raises(Refusal) as refused:
        op(context, "swap")
    assert refused.value.code == "exists"
    value = op(context, "revert")
    assert value["verified"]
    assert value["files"][0]["state"] == "untouched"
    op(context, "finish")
    assert (place.package_dir / "_sgldbg.py").read_bytes() == b"mine"


@needs_root
def test_an_immutable_file(place):
    """An immutable file is refused by name, before the lock is taken."""
    target = str(place.root / LAYERS)
    subprocess.run(["chattr", "+i", target], check=True)
    try:
        refused = refusal_of(place, place.begin())
    finally:
        subprocess.run(["chattr", "-i", target], check=True)
    assert (refused.code, refused.message) == (
        "not-permitted",
        f"`{target}` is immutable or append-only (lsattr)",
    )


@needs_root
def test_an_immutable_directory(place):
    """The same for the directory that holds the file."""
    target = str(place.root / "sglang/srt")
    subprocess.run(["chattr", "+i", target], check=True)
    try:
        refused = refusal_of(place, place.begin())
    finally:
        subprocess.run(["chattr", "-i", target], check=True)
    assert (refused.code, refused.message) == (
        "not-permitted",
        f"`{target}` is immutable or append-only (lsattr)",
    )


@pytest.fixture
def mounted(place):
    """A small file system of its own around a copy of the install."""
    where = place.top / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(where)]
    subprocess.run(mount, check=True)
    try:
        subprocess.run(["cp", "-a", str(place.root), str(where)], check=True)
        place.root = where / "site"
        place.package_dir = place.root / "sglang"
        place.before = place.tree()
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@needs_root
def test_a_full_disk(place, mounted):
    """No space at any point of the stage: what was staged is taken back, the lock released."""
    free = os.statvfs(mounted).f_bavail * 4096
    refused = refusal_of(place, place.begin(), edits={LLAMA: b"#" * 8, LAYERS: b"#" * (free)})
    assert (refused.code, refused.message) == (
        "no-space",
        f"cannot stage `{LAYERS}`: no space left on device (folder `{place.package_dir}/srt`,"
        f" file system `{mounted}`)",
    )
    context = place.begin(session="s2")
    (mounted / "full").write_bytes(b"#" * free)
    refused = refusal_of(place, context)
    assert (refused.code, refused.message) == (
        "no-space",
        f"the install cannot be locked: no space left on device (folder `{place.package_dir}`,"
        f" file system `{mounted}`)",
    )


@needs_root
def test_a_full_disk_and_a_session_that_cannot_begin(place, mounted):
    """Nothing is left that would pass for a session; those of other hosts in one home stay."""
    place.state = str(mounted / "state")
    other = mounted / "state" / "sessions" / "s1" / "other"
    other.mkdir(parents=True)
    (mounted / "full").write_bytes(b"#" * os.statvfs(mounted).f_bavail * 4096)
    for name, left in [("s1", ["other"]), ("s2", None)]:
        with pytest.raises(Refusal) as refused:
            place.begin(session=name)
        where = mounted / "state" / "sessions" / name / HOST
        assert (refused.value.code, refused.value.message) == (
            "no-space",
            f"the session's directory could not be made: no space left on device (folder `{where}`,"
            f" file system `{mounted}`)",
        )
        folder = mounted / "state" / "sessions" / name
        assert ([path.name for path in folder.iterdir()] if folder.exists() else None) == left
    os.unlink(mounted / "full")
    place.begin()


@needs_root
def test_a_full_disk_does_not_hinder_a_revert(place, mounted):
    """Taking back needs no space, neither beside the install nor for the journal."""
    place.state = str(mounted / "state")
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    fill = f"head -c 1M /dev/zero > {mounted}/full"
    assert subprocess.run(fill, shell=True, stderr=subprocess.DEVNULL).returncode == 1
    value = op(context, "revert")
    assert value["verified"], value
    os.unlink(mounted / "full")
    op(context, "finish")
    assert place.changes() == []


@needs_root
def test_a_full_disk_and_the_lock(place, mounted):
    """The lock is the last that knows: what it cannot be told of is not done."""
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    before = (place.package_dir / ".sgldbg-lock").read_bytes()
    staged = place.tree()
    fill = f"head -c 1M /dev/zero > {mounted}/full"
    assert subprocess.run(fill, shell=True, stderr=subprocess.DEVNULL).returncode == 1
    stop = {"which": "original", "timeout_s": 5, "port": None}
    for name, args in [
        ("stop-server", stop),
        ("stop-server", {**stop, "announce": True}),
        ("swap", {}),
        ("start-server", {"argv": ["sleep", "1"], "env_set": {}, "env_unset": [], "cwd": None}),
    ]:
        with pytest.raises(Refusal) as refused:
            op(context, name, **args)
        assert (refused.value.code, refused.value.message) == (
            "no-space",
            "the lock beside the install cannot be written: no space left on device (folder"
            f" `{place.package_dir}`, file system `{mounted}`)",
        )
    assert (context.session.facts.stopping, context.session.facts.started) == (None, None)
    assert (place.package_dir / ".sgldbg-lock").read_bytes() == before
    changed = differences(staged, place.tree())
    assert [line for line in changed if ": mtime_ns was" not in line] == []
    assert place.servers() == place.originals() == [main.pid]
    op(context, "renew", lease_s=60.0)
    op(context, "detach", lease_s=60.0)  # a time that cannot be shown is no matter
    os.unlink(mounted / "full")
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert place.changes() == []


@needs_root
def test_a_full_disk_and_a_journal_that_lost_lines(place, mounted):
    """What the lock knows more is used also where the journal takes no line of it."""
    place.state = str(mounted / "state")
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    context.session.close()
    journal = mounted / "state" / "sessions" / "s1" / context.session.host / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(True)[:2]))
    place.expire()
    fill = f"head -c 1M /dev/zero > {mounted}/full"
    assert subprocess.run(fill, shell=True, stderr=subprocess.DEVNULL).returncode == 1
    session = recover.take_over(place.directory(), lease.RECOVER, 5.0)
    on_disk = Facts(read(str(journal)))
    assert len(on_disk.swapping) < len(session.facts.swapping) == 3
    value = recover.run_tail(session)
    session.close()
    assert (value["left"], value["verified"]) == ([], True)
    assert place.changes() == []


@needs_root
def test_a_full_disk_and_a_lost_directory(place, mounted):
    """Without room for a journal nothing is undone yet, and the next try has all that it needs."""
    place.state = str(mounted / "state")
    lose_patched(place)
    patched = place.tree()
    fill = f"head -c 1M /dev/zero > {mounted}/full"
    assert subprocess.run(fill, shell=True, stderr=subprocess.DEVNULL).returncode == 1
    with pytest.raises(Refusal) as refused:
        undo_orphan(place)
    assert (refused.value.code, refused.value.message) == (
        "no-space",
        "the session's directory could not be made again: no space left on device",
    )
    assert place.tree() == patched
    os.unlink(mounted / "full")
    assert undo_orphan(place)["left"] == []
    assert place.changes() == []


@needs_root
def test_a_read_only_file_system(place, mounted):
    """A read-only mount is refused; one that becomes read-only later is reverted afterwards."""
    context = place.begin()
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    refused = refusal_of(place, context)
    assert (refused.code, refused.message) == (
        "read-only",
        f"`{place.package_dir}` is on a read-only file system",
    )
    subprocess.run(["mount", "-o", "remount,rw", str(mounted)], check=True)
    stage(place, context)
    op(context, "swap")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    value = op(context, "revert")
    assert not value["verified"]
    assert {item["state"] for item in value["files"]} == {"failed"}
    with pytest.raises(Refusal) as late:
        op(context, "finish")
    assert late.value.code == "not-reverted"
    subprocess.run(["mount", "-o", "remount,rw", str(mounted)], check=True)
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert place.changes() == []


@needs_root
def test_a_file_that_is_a_mount_point(place):
    """A single file mounted into the install cannot be renamed over: refused."""
    target = str(place.root / LAYERS)
    source = place.top / "mounted.py"
    source.write_bytes((place.root / LAYERS).read_bytes())
    subprocess.run(["mount", "--bind", str(source), target], check=True)
    try:
        with pytest.raises(Refusal) as refused:
            stage(place, place.begin())
    finally:
        subprocess.run(["umount", target], check=True)
    assert (refused.value.code, refused.value.message) == (
        "unsupported",
        f"`{target}` is a mount point of its own, it cannot be replaced",
    )
    assert place.changes() == []


def test_a_session_that_is_there_already(place):
    """The same session cannot begin twice on a host."""
    place.begin()
    with pytest.raises(Refusal) as refused:
        place.begin()
    assert (refused.value.code, refused.value.message) == (
        "exists",
        f"session `s1` is on this host (`{HOST}`) already",
    )


def test_secrets_stay_in_one_file(place):
    """The environment is in `server.json` (0600), in no journal, trace or reply."""
    main = place.start_server()
    context = place.begin(with_guard=True)
    stage(place, context)
    value = op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    assert "s3cret" not in repr(value)
    holders = [
        path.name
        for path in Path(place.state).rglob("*")
        if path.is_file() and b"s3cret" in path.read_bytes()
    ]
    assert holders == ["server.json"]
    kept = Path(place.directory(), "server.json")
    assert oct(kept.stat().st_mode) == "0o100600"
    assert oct(os.stat(place.state).st_mode) == "0o40700"
    op(context, "revert")
    op(context, "finish")
    assert not any(b"s3cret" in p.read_bytes() for p in Path(place.state).rglob("*") if p.is_file())


def test_a_server_that_cannot_be_given_its_output_back(place):
    """Output to a pipe is refused, unless a file is named for it."""
    with subprocess.Popen(["sleep", "86391"], stdout=subprocess.PIPE, cwd="/") as child:
        main = lease.find_process(child.pid)
        context = place.begin()
        args = {"pid": main.pid, "start_time": main.start_time}
        with pytest.raises(Refusal) as refused:
            op(context, "describe-server", **args)
        assert refused.value.code == "not-restorable"
        output = str(place.top / "out.log")
        described = op(context, "describe-server", **args, output=output)
        assert described["restorable"]
        assert described["stdout"] == {"kind": "file", "path": output}
        child.kill()
