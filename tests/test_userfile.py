"""Files that users name: regular ones are read, anything else is refused without waiting."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import FileErrors
from orchestrator.onhost.agent.files.files import explain
from orchestrator.spec.kinds import read_file
from orchestrator.transport import channel, sockets, ssh
from orchestrator.userfile import read_user_file, reason_of


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the address of a socket has room for 108 characters
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "it is a pipe, not a file"),
    "a link to a pipe": (
        lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")),
        "it is a pipe, not a file",
    ),
    "a socket": (_socket, "it is a socket, not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
    "a terminal": (lambda path: path.symlink_to("/dev/ptmx"), "it is a device, not a file"),
    "a folder": (Path.mkdir, "is a directory"),
    "a file of 2 GiB": (_huge, "it is larger than 1 MiB"),
    "a link to nothing": (
        lambda path: path.symlink_to("nowhere"),
        "no such file or directory",
    ),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    """Nothing is waited for, nothing without an end is read, and the message says what it is."""
    make, reason = NO_FILES[kind]
    path = tmp_path / "x.yaml"
    make(path)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileErrors) as caught:
        read_file(path)
    assert render(caught.value) == f"error: cannot read `{path}`: {reason}\n\n1 problem"
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "say",
    [
        reason_of,
        lambda error: explain(error).removesuffix(": `/Data/X`"),
        ssh._text,
        channel._reason,
        lambda error: sockets._reason(error, 1),
    ],
    ids=["controller", "host", "ssh", "channel", "tcp"],
)
def test_an_error_of_the_system_keeps_the_names_in_it(say: Callable[[OSError], str]) -> None:
    """Its words begin small in the middle of a sentence; a name in capitals stays one."""
    error = OSError(errno.EIO, "Volume `DATA` is gone", "/Data/X")
    assert say(error) == "volume `DATA` is gone"


def test_files_are_read_through_links(tmp_path: Path) -> None:
    """Links are followed, the limit itself is allowed, and /dev/null is an empty file."""
    (tmp_path / "x").write_bytes(b"12345678")
    (tmp_path / "link").symlink_to("x")
    assert read_user_file(tmp_path / "link", 8) == b"12345678"
    assert read_user_file("/dev/null", 8) == b""
