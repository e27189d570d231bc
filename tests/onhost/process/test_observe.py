"""Files of an install: their bytes, their attributes, and nothing outside of it."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess

import pytest

from orchestrator.onhost.agent.look import observe as observe_module
from orchestrator.onhost.agent.look import volume
from orchestrator.onhost.agent.look.observe import observe, resolve
from orchestrator.onhost.agent.look.origin import matches_record
from orchestrator.onhost.agent.refusal import Refusal


def entry(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"


@pytest.fixture
def site(tmp_path):
    """An install with a RECORD that knows of three files."""
    (tmp_path / "pkg" / "srt").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_bytes(b"")
    (tmp_path / "pkg" / "srt" / "a.py").write_bytes(b"a = 1\r\n\xff")
    (tmp_path / "pkg" / "srt" / "b.py").write_bytes(b"changed")
    info = tmp_path / "pkg-1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        f'"pkg/srt/a.py",{entry(b"a = 1" + bytes([13, 10, 255]))}\n'
        f"pkg/srt/b.py,{entry(b'original')}\n"
        f"pkg/srt/gone.py,{entry(b'')}\n"
        "pkg/__init__.py,,\n"
    )
    return tmp_path


def test_everything_about_a_file(site):
    """The entry of the protocol, with the bytes of all files one after another."""
    path = site / "pkg" / "srt" / "a.py"
    path.chmod(0o640)
    os.link(path, site / "cache")
    names = ["pkg/srt/a.py", "pkg/srt/new.py", "pkg/srt/b.py"]
    files, data = observe(str(site), "pkg", names, str(site / "pkg-1.dist-info"))
    assert data == b"a = 1\r\n\xff" + b"changed"
    stat = path.stat()
    assert files[0] == {
        "file": "pkg/srt/a.py",
        "path": str(path),
        "exists": True,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "size": 8,
        "mode": 0o640,
        "uid": os.getuid(),
        "gid": os.getgid(),
        "nlink": 2,
        "inode": stat.st_ino,
        "compiled": None,
        "place": volume.name_place(str(path.parent)),
        "mtime_ns": stat.st_mtime_ns,
        "pristine": True,
        "why": "equals RECORD",
    }
    assert set(files[1]) == set(files[0])
    assert {k: v for k, v in files[1].items() if v is not None} == {
        "file": "pkg/srt/new.py",
        "path": str(site / "pkg" / "srt" / "new.py"),
        "exists": False,
        "why": "",
    }
    assert (files[2]["pristine"], files[2]["why"]) == (False, "differs from RECORD")


def test_what_a_record_cannot_tell(site):
    """No checksum, no entry, no RECORD: not known rather than guessed."""
    info = str(site / "pkg-1.dist-info")
    names = ["pkg/__init__.py", "pkg/srt/gone.py"]
    files, _ = observe(str(site), "pkg", names, info)
    assert [f["why"] for f in files] == ["RECORD has no checksum of it", "RECORD lists it"]
    files, _ = observe(str(site), "pkg", ["pkg/srt/a.py"], None)
    assert (files[0]["pristine"], files[0]["why"]) == (
        None,
        "neither a RECORD nor a checkout tells",
    )
    assert matches_record("md5=x", b"") is None
    digest = base64.urlsafe_b64encode(hashlib.sha512(b"x").digest()).decode()
    assert matches_record("sha512=" + digest, b"x") is True


def git(folder, *words: str) -> str:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a"}
    env = {**os.environ, **names, "GIT_COMMITTER_EMAIL": "a", "HOME": str(folder)}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_checkout(site, kind):
    """Compared with HEAD, whatever the index says; index and working tree stay untouched."""
    git(site, "init", "-q", f"--object-format={kind}")
    git(site, "add", "pkg")
    git(site, "commit", "-q", "-m", "x")
    head = git(site, "rev-parse", "--short", "HEAD").strip()
    (site / "pkg" / "srt" / "b.py").write_bytes(b"changed\nmore\n")
    (site / "pkg" / "srt" / "c.py").write_bytes(b"")
    (site / "pkg" / "srt" / "d.py").write_bytes(b"")
    git(site, "add", "pkg/srt/d.py")
    marker = site / "ran"
    git(site, "config", "core.fsmonitor", f"touch {marker}")
    before = (site / ".git" / "index").stat().st_mtime_ns
    names = [f"pkg/srt/{letter}.py" for letter in "abcd"]
    files, _ = observe(str(site), "pkg", names, None)
    assert [(f["pristine"], f["why"]) for f in files] == [
        (True, f"equals HEAD {head}"),
        (False, f"has local changes against HEAD {head}: 1 lines added, 0 removed"),
        (None, "not part of the checkout's HEAD"),
        (None, "not part of the checkout's HEAD"),
    ]
    assert (site / ".git" / "index").stat().st_mtime_ns == before
    assert not marker.exists()


def test_a_checkout_of_somebody_else(site):
    """A checkout that belongs to another user is read as well; without git nothing is known."""
    git(site, "init", "-q")
    git(site, "add", "pkg")
    git(site, "commit", "-q", "-m", "x")
    if os.geteuid() == 0:
        for path in [site, *site.rglob("*")]:
            os.chown(path, 65534, 65534)
    files, _ = observe(str(site), "pkg", ["pkg/srt/a.py"], None)
    assert files[0]["pristine"] is True


def test_git_is_not_there(site, monkeypatch):
    """A checkout on a host without git is not known, not dirty."""
    git(site, "init", "-q")
    monkeypatch.setenv("PATH", str(site))
    files, _ = observe(str(site), "pkg", ["pkg/srt/a.py"], None)
    assert (files[0]["pristine"], files[0]["why"]) == (None, "in a checkout that git cannot read")


def test_links_inside_an_install(site, tmp_path_factory):
    """A tree of links into a checkout is the package; its files are named by their real path."""
    source = tmp_path_factory.mktemp("src") / "python" / "pkg"
    (source / "srt").mkdir(parents=True)
    for name in ("__init__.py", "srt/x.py"):
        (source / name).write_text(name)
    tree = site / "links"
    (tree / "pkg" / "srt").mkdir(parents=True)
    for name in ("__init__.py", "srt/x.py"):
        (tree / "pkg" / name).symlink_to(source / name)
    assert resolve(str(tree), "pkg", "pkg/srt/x.py") == str(source / "srt" / "x.py")
    whole = site / "whole"
    whole.mkdir()
    (whole / "pkg").symlink_to(source)
    assert resolve(str(whole), "pkg", "pkg/srt/new.py") == str(source / "srt" / "new.py")


@pytest.mark.parametrize(
    "name", ["../x.py", "pkg/../../x.py", "/etc/passwd", "pkg//x.py", "pkg/./x.py", "", "a\0b"]
)
def test_paths_that_leave(site, name):
    """Refused by their words alone."""
    with pytest.raises(Refusal) as refused:
        observe(str(site), "pkg", [name], None)
    expected = ("outside", f"`{name}` is no path inside an install")
    assert (refused.value.code, refused.value.message) == expected


def test_links_that_leave(site, tmp_path_factory):
    """A link out of the install is refused, with the place it leads to."""
    other = tmp_path_factory.mktemp("other") / "x.py"
    other.touch()
    (site / "pkg" / "srt" / "x.py").symlink_to(other)
    with pytest.raises(Refusal) as refused:
        observe(str(site), "pkg", ["pkg/srt/x.py"], None)
    expected = f"`pkg/srt/x.py` leads to `{other}`, outside the install `{site}`"
    assert (refused.value.code, refused.value.message) == ("outside", expected)


def test_what_is_no_file(site, monkeypatch):
    """Pipes and directories are refused at once, a file that is too large by its size."""
    os.mkfifo(site / "pkg" / "pipe.py")
    for name, code, message in [
        ("pkg/pipe.py", "unsupported", f"`{site}/pkg/pipe.py` is no regular file"),
        ("pkg/srt", "unsupported", f"`{site}/pkg/srt` is no regular file"),
    ]:
        with pytest.raises(Refusal) as refused:
            observe(str(site), "pkg", [name], None)
        assert (refused.value.code, refused.value.message) == (code, message)
    monkeypatch.setattr(observe_module, "_FILE_LIMIT", 3)
    with pytest.raises(Refusal) as refused:
        observe(str(site), "pkg", ["pkg/srt/a.py"], None)
    assert refused.value.message == f"`{site}/pkg/srt/a.py` has 8 bytes, the limit is 3"


MOUNTS = (
    b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    b"35 22 0:51 / /opt/ml\\040env rw shared:1 master:2 - nfs4 nas:/export/ml rw,vers=4.2\n"
    b"36 22 0:52 / /mnt rw - fuse.sshfs ann@nas:/srv rw\n"
)


@pytest.mark.parametrize(
    ("device", "source"),
    [
        ((0, 51), "nfs4 nas:/export/ml"),
        ((0, 52), "fuse.sshfs ann@nas:/srv"),
        ((8, 1), None),
        ((0, 5), None),
    ],
)
def test_where_a_network_file_system_is_from(device, source):
    """The same on every client; a disk of one's own has no such name."""
    assert volume.find_source(MOUNTS, os.makedev(*device)) == source


def test_places_are_equal_where_a_directory_is(tmp_path):
    """By whatever path; another directory, and the same number on another volume, are others."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(one)
    assert volume.name_place(str(tmp_path / "link")) == volume.name_place(str(one))
    assert volume.name_place(str(one)) != volume.name_place(str(other))
    assert volume.name_place("/proc") != volume.name_place("/sys")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), None),
        (("new.pyc",), "new.pyc"),
        (("new.cpython-311-x86_64-linux-gnu.so",), "new.cpython-311-x86_64-linux-gnu.so"),
        (("newer.pyc", "new.txt", "__pycache__"), None),
    ],
)
def test_what_stands_there_without_a_source(site, names, found):
    """A module that can be imported and not be patched is told from one that is not there."""
    for name in names:
        (site / "pkg" / "srt" / name).write_bytes(b"")
    (entry,), _ = observe(str(site), "pkg", ["pkg/srt/new.py"], None)
    assert (entry["exists"], entry["compiled"]) == (False, found)
    (entry,), _ = observe(str(site), "pkg", ["pkg/nowhere/new.py"], None)
    assert (entry["exists"], entry["compiled"]) == (False, None)
