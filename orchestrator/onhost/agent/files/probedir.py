"""The directory in which the probe runtime finds its table and leaves its spools."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from typing import Any, Optional

from ..held.lease import Process, is_alive
from ..refusal import Refusal
from ..space import naming

TABLE = "table.json"


def find_path(session: str, host: str) -> str:
    """Where it stands: the same for the same names, since it is written into planned bytes."""
    return os.path.join(tempfile.gettempdir(), "sgldbg-%s-%s" % (session, host))


def make(path: str) -> None:
    """Make it for ourselves alone; refuses what somebody else put there first."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        message = "`%s` is there already and not this session's" % path
        raise Refusal("exists", message, path=path) from None
    os.chmod(path, 0o700)


def give(path: str, uid: Optional[int]) -> None:
    """Hand it to the server's user, who reads the table and writes the spools."""
    if uid is None or uid == os.stat(path).st_uid:
        return
    try:
        os.chown(path, uid, -1, follow_symlinks=False)
    except PermissionError:
        message = "`%s` cannot be given to the server's user (uid %d)" % (path, uid)
        raise Refusal("not-permitted", message, path=path) from None


def write_table(path: str, table: Any) -> None:
    """Put the table in place, whole or not at all, readable by the directory's owner.

    The server's user owns the directory: nothing in it is followed or written into.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with naming(os.path.join(path, TABLE)):
            _write_table(fd, table)
    finally:
        os.close(fd)


def _write_table(fd: int, table: Any) -> None:
    owner = os.fstat(fd)
    draft = ".table.%d.draft" % os.getpid()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=fd)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600, dir_fd=fd), "wb") as file:
        file.write(json.dumps(table).encode("ascii"))
        file.flush()
        if owner.st_uid != os.geteuid():
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    os.rename(draft, TABLE, src_dir_fd=fd, dst_dir_fd=fd)


def require_visible(path: str, server: Process, name: str = TABLE) -> None:
    """Refuse where the running server sees another table, or none, under the same name.

    Before there is a table, with an empty `name`, it is the directory that has to be the same.

    A systemd unit with `PrivateTmp`, or a container, has a `/tmp` of its own, and its probes would
    be silent for no reason that anybody could see. Where we may not look nothing is refused.
    """
    table = os.path.join(os.path.realpath(path), name).rstrip("/")
    try:
        here = os.stat(table)
        try:
            there = os.stat("/proc/%d/root%s" % (server.pid, table))
            if os.path.samestat(here, there):
                return
        except FileNotFoundError:
            pass
    except OSError:
        return
    if is_alive(server):
        message = "the server (process %d) does not see `%s`" % (server.pid, table)
        raise Refusal("not-visible", message, path=table, pid=server.pid)


def remove(path: str, uid: Optional[int] = None) -> None:
    """Remove it with all that is in it, if it is ours or the server's user's."""
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(seen.st_mode) and seen.st_uid in (os.geteuid(), uid):
        shutil.rmtree(path)
