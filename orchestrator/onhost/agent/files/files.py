"""What is done to one file of an install: look, stage, keep, put in, put back."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat as modes
import struct
import time
from typing import Dict, Iterator, NamedTuple, Optional, Set

from ..held.facts import PlannedFile, beside
from ..held.journal import sync_dir
from ..refusal import Refusal
from ..space import naming, tell_place

_CODES = {
    errno.ENOSPC: "no-space",
    errno.EDQUOT: "no-space",
    errno.EFBIG: "no-space",
    errno.EROFS: "read-only",
    errno.EPERM: "not-permitted",
    errno.EACCES: "not-permitted",
    errno.EXDEV: "unsupported",
    errno.EBUSY: "unsupported",
    errno.EMLINK: "unsupported",
    errno.ENOSYS: "unsupported",
    errno.EOPNOTSUPP: "unsupported",
    errno.ENAMETOOLONG: "unsupported",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
}
# What link(2) answers where the file system, or the kernel's protected_hardlinks, allows no link
# to this file although the directory may be written.
_NO_LINK = (errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)
_FS_IOC_GETFLAGS = 0x80086601
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn an error of the operating system into the protocol's word for it."""
    try:
        yield
    except OSError as error:
        code = _CODES.get(error.errno or 0)
        if code is None:
            raise
        path = error.filename if isinstance(error.filename, str) else ""
        reason = _begin_small(error.strerror or str(error)) + tell_place(error)
        message = "%s: %s" % (what, reason)
        raise Refusal(code, message, path=path) from error


def explain(error: Exception) -> str:
    """An error in words for people: the system's without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    name = error.filename if isinstance(error.filename, str) else ""
    return _begin_small(error.strerror) + (tell_place(error) or (": `%s`" % name if name else ""))


def _begin_small(text: str) -> str:
    """For the middle of a sentence; a name that it holds stays as it is."""
    return text[:1].lower() + text[1:]


class Look(NamedTuple):
    """What stands at a path now: `kind` is `file`, `missing` or `other`."""

    kind: str
    sha256: Optional[str]
    stat: Optional[os.stat_result]

    def is_inode(self, planned: PlannedFile) -> bool:
        """Whether it is the very inode that the plan saw."""
        seen = self.stat
        if seen is None or "inode" not in planned.stat:
            return False
        return (seen.st_ino, seen.st_dev) == (planned.stat["inode"], planned.stat["dev"])


def look(path: str) -> Look:
    """Read what stands at `path`; a link counts as `other`, it is not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return Look("missing", None, None)
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return Look("other", None, os.lstat(path))
        raise
    seen = os.fstat(fd)
    if not modes.S_ISREG(seen.st_mode):  # open() refuses a directory, with a number for a name
        os.close(fd)
        return Look("other", None, seen)
    with open(fd, "rb") as file:
        return Look("file", hashlib.sha256(file.read()).hexdigest(), seen)


def attributes(seen: os.stat_result) -> Dict[str, int]:
    """What a revert must give back, in the form of a plan."""
    return {
        "mode": modes.S_IMODE(seen.st_mode),
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "inode": seen.st_ino,
        "dev": seen.st_dev,
        "mtime_ns": seen.st_mtime_ns,
        "size": seen.st_size,
        "nlink": seen.st_nlink,
    }


def attributes_of_new(folder: str) -> Dict[str, int]:
    """Mode and owner for a file that the session creates: whoever owns the directory reads it."""
    seen = os.stat(folder)
    return {"mode": seen.st_mode & 0o666 | 0o400, "uid": seen.st_uid, "gid": seen.st_gid}


def check_writable(folder: str, file: str) -> None:
    """Refuse a directory in which nothing can be renamed because of how it is mounted."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        message = "`%s` is on a read-only file system" % folder
        raise Refusal("read-only", message, file=file, path=folder)


def check_replaceable(planned: PlannedFile, mounts: Set[str]) -> None:
    """Refuse what could not be renamed over later: mount points, fixed files, sticky folders."""
    folder = os.path.dirname(planned.path)
    if planned.path in mounts:
        message = "`%s` is a mount point of its own, it cannot be replaced" % planned.path
        raise Refusal("unsupported", message, file=planned.file)
    for path in (planned.path, folder):
        if _flags(path) & (_IMMUTABLE | _APPEND_ONLY):
            message = "`%s` is immutable or append-only (lsattr)" % path
            raise Refusal("not-permitted", message, file=planned.file)
    above = os.stat(folder)
    owners = (0, above.st_uid, planned.stat["uid"])
    if above.st_mode & modes.S_ISVTX and os.geteuid() not in owners:
        message = "`%s` is sticky and the file belongs to another user" % folder
        raise Refusal("not-permitted", message, file=planned.file)


def read_mounts() -> Set[str]:
    """Every mount point that this process sees."""
    with open("/proc/self/mountinfo", "rb") as file:
        names = [line.split()[4] for line in file]
    # The kernel writes blanks and backslashes in names as \040 and the like.
    return {os.fsdecode(name.decode("unicode_escape").encode("latin-1")) for name in names}


def _flags(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(struct.unpack("L", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, b"\0" * 8))[0])
    except OSError:  # this file system has no such flags
        return 0
    finally:
        os.close(fd)


def write_new(planned: PlannedFile, data: bytes) -> None:
    """Put the planned bytes beside the target, durable, with the original's mode and owner."""
    fd = os.open(planned.new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with naming(planned.new), open(fd, "wb") as file:
        file.write(data)
        file.flush()
        _give_attributes(planned, fd)
        os.fsync(fd)
    sync_dir(os.path.dirname(planned.new))


def _give_attributes(planned: PlannedFile, fd: int) -> None:
    seen = os.fstat(fd)
    if (seen.st_uid, seen.st_gid) != (planned.stat["uid"], planned.stat["gid"]):
        os.fchown(fd, planned.stat["uid"], planned.stat["gid"])
    os.fchmod(fd, planned.stat["mode"])
    if planned.before_sha256 is None:
        return
    _copy_xattrs(planned.path, fd, strict=False)
    # A `.pyc` is judged by size and second: planned bytes of equal size must differ in the second.
    now_ns = time.time_ns()
    if now_ns // 10**9 == planned.stat["mtime_ns"] // 10**9:
        os.utime(fd, ns=(now_ns, now_ns + 10**9))


def _copy_xattrs(source: str, target: int, strict: bool) -> None:
    """Copy extended attributes; those of the security modules are the system's to give."""
    try:
        names = os.listxattr(source)
    except OSError:
        return
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError:
            if strict or not name.startswith(("security.", "trusted.")):
                raise


def probe_path(planned: PlannedFile) -> str:
    """The third name beside a target, there only while `probe_names` runs."""
    return beside(planned.path, "sgldbg-probe")


def probe_names(planned: PlannedFile) -> None:
    """Prove with our own staged file that link, rename and unlink work in that directory.

    Raises `OSError` where rename does not; a missing link(2) is found when the original is kept.
    """
    probe = probe_path(planned)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(probe)
    os.rename(planned.new, probe)
    os.rename(probe, planned.new)


def keep(planned: PlannedFile) -> str:
    """Keep the original as a second link to its inode, else as a copy; says which.

    With a copy the revert restores bytes, mode, owner, times and attributes but not the inode. A
    link that made the file another one counts as a copy: an overlay copies a file of its image up.
    """
    try:
        os.link(planned.path, planned.orig)
        kind = "link" if look(planned.path).is_inode(planned) else "copy"
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _keep_copy(planned)
        kind = "copy"
    sync_dir(os.path.dirname(planned.orig))
    return kind


def _keep_copy(planned: PlannedFile) -> None:
    fd = os.open(planned.orig, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(planned.path, "rb") as source, open(fd, "wb") as target, naming(planned.orig):
        shutil.copyfileobj(source, target)
        target.flush()
        _make_original(planned, fd, strict=True)


def _make_original(planned: PlannedFile, fd: int, strict: bool) -> None:
    """Give a copy of the original all that the original had but its inode, durably."""
    seen = os.fstat(fd)
    if (seen.st_uid, seen.st_gid) != (planned.stat["uid"], planned.stat["gid"]):
        os.fchown(fd, planned.stat["uid"], planned.stat["gid"])
    os.fchmod(fd, planned.stat["mode"])
    _copy_xattrs(planned.path, fd, strict)
    os.utime(fd, ns=(planned.stat["mtime_ns"], planned.stat["mtime_ns"]))
    os.fsync(fd)


def write_original(planned: PlannedFile, data: bytes) -> None:
    """Make a kept original anew, whole or not at all, by way of a name that every revert removes.

    Not that of the staged bytes, which a late swap would take for them. Its extended attributes are
    those of what stands at its place.
    """
    draft = probe_path(planned)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with naming(draft), open(fd, "wb") as file:
        file.write(data)
        file.flush()
        _make_original(planned, fd, strict=False)
    os.rename(draft, planned.orig)
    sync_dir(os.path.dirname(planned.orig))


def put_in(planned: PlannedFile) -> None:
    """Make the planned bytes visible, durably; never over a file that the plan did not know.

    A late call of an agent that was fenced fails: the guard has unlinked the staged file.
    """
    if planned.before_sha256 is None:
        _link_into_place(planned)
        os.unlink(planned.new)
    else:
        os.replace(planned.new, planned.path)
    sync_dir(os.path.dirname(planned.path))


def _link_into_place(planned: PlannedFile) -> None:
    try:
        os.link(planned.new, planned.path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        # No links on this file system, so no atomic "only if absent" either; O_EXCL is, and the
        # one reader that could see the file half-written is a server that is stopped now.
        with open(planned.new, "rb") as source, open(planned.path, "xb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fchmod(target.fileno(), planned.stat["mode"])
            os.fsync(target.fileno())


def remove(path: str) -> bool:
    """Unlink, durably; false where there was nothing."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_dir(os.path.dirname(path))
    return True


def put_back(planned: PlannedFile) -> None:
    """Rename the kept original into its place, durably."""
    os.replace(planned.orig, planned.path)
    sync_dir(os.path.dirname(planned.path))


def describe_differences(planned: PlannedFile, seen: Look) -> str:
    """How a reverted file differs from what the plan saw, apart from its bytes; empty if not."""
    if seen.stat is None:
        return "it is gone"
    now = attributes(seen.stat)
    names = [name for name in ("mode", "uid", "gid", "mtime_ns") if now[name] != planned.stat[name]]
    if not seen.is_inode(planned):
        names.append("inode")
    return ("other than before: " + ", ".join(names)) if names else ""
