"""File systems of every kind, made for one host and broken with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.onhost.transaction.place import make_install

_MIB = 1 << 20
# The smallest that each kind's mkfs takes, in sparse images.
_MKFS: dict[str, tuple[int, Sequence[str]]] = {
    "ext4": (16 * _MIB, ("mkfs.ext4", "-q")),
    "xfs": (300 * _MIB, ("mkfs.xfs", "-q")),
    "btrfs": (128 * _MIB, ("mkfs.btrfs", "-q")),
}
KINDS = ("tmpfs", "ext4", "xfs", "btrfs", "overlay")


def can_mount(kind: str, directory: Path) -> bool:
    """Whether this machine lets us have a file system of that kind, with attributes of users."""
    where = directory / "try"
    where.mkdir(parents=True)
    try:
        mount(kind, where)
        try:
            os.setxattr(where, "user.try", b"")
        finally:
            unmount(where)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        shutil.rmtree(directory)
    return True


def mount(kind: str, where: Path) -> None:
    """Mount a small, fresh file system of that kind; what it is made of lies beside it."""
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", "size=4m", "none", str(where))
    elif kind == "overlay":
        _mount_overlay(where)
    else:
        size, mkfs = _MKFS[kind]
        image = where.with_name(where.name + ".img")
        with open(image, "wb") as file:
            file.truncate(size)
        _run(*mkfs, str(image))
        _run("mount", "-o", "loop", str(image), str(where))
        image.unlink()


def _mount_overlay(where: Path) -> None:
    """As a container has it: the install is in the image below, every change in a layer above."""
    above, below = (where.with_name(f"{where.name}.{name}") for name in ("above", "below"))
    for folder in (above, below):
        folder.mkdir()
    make_install(below / "site", below / "cache")
    mount("tmpfs", above)
    for folder in (above / "upper", above / "work"):
        folder.mkdir()
    options = f"lowerdir={below},upperdir={above / 'upper'},workdir={above / 'work'}"
    _run("mount", "-t", "overlay", "-o", options, "none", str(where))


def unmount(where: Path) -> None:
    """Take it away; whoever still has a file of it open keeps that."""
    _run("umount", "-l", str(where))
    above = where.with_name(f"{where.name}.above")
    if above.exists():
        _run("umount", "-l", str(above))


def remount(where: Path, how: str) -> None:
    """Make it `ro` or `rw`."""
    _run("mount", "-o", f"remount,{how}", str(where))


def fill(where: Path) -> None:
    """Leave no free byte."""
    with open(where / "filler", "wb", buffering=0) as file:
        size, chunk = 0, 512 * _MIB
        while chunk >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, chunk)
                size += chunk
            except OSError:
                chunk //= 2
        with contextlib.suppress(OSError):
            file.seek(size)
            while True:
                file.write(b"#" * 512)


def drain(where: Path) -> None:
    """Give the space back."""
    (where / "filler").unlink(missing_ok=True)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
