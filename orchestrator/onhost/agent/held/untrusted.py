"""Reads what lies where other users can write: beside an install, or in the directory of `/tmp`.

What stands there under a name of ours may be a pipe, a link, a device, without an end, nested a
million deep, or written by whoever wants root to act on it. So it is opened without waiting and
without following, judged by the descriptor that is read, and used field by field.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any, Callable, NamedTuple, Optional

# More than any lock holds: one file of a plan takes 1 KiB, and a patch names a few.
LIMIT_BYTES = 4 << 20
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Control characters, and those that turn the direction of writing or break a line.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
Fits = Callable[[Any], bool]


class Found(NamedTuple):
    """What was read, whose the file is that it was read from, and which state of which file."""

    data: bytes
    uid: int
    stamp: str = ""

    @property
    def is_trusted(self) -> bool:
        """Whether nobody can have written it who may not do what we may: it is ours, or root's."""
        return self.uid in (os.geteuid(), 0)


def read(path: str, limit_bytes: int = LIMIT_BYTES) -> Found:
    """The whole of a plain file of at most this size; `OSError` for everything else.

    `FileNotFoundError` says that nothing is there; nothing that is there can make this wait.
    """
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise OSError("`%s` is no plain file" % path)
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError("`%s` is larger than %d bytes" % (path, limit_bytes))
    return Found(data, seen.st_uid, "%d.%d" % (seen.st_ino, seen.st_mtime_ns))


def open_to_write(path: str, flags: int = 0, mode: int = 0o644) -> int:
    """A descriptor to write a plain file of ours; `OSError` where something else stands there."""
    fd = os.open(path, os.O_WRONLY | _FLAGS | flags, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("`%s` is no plain file" % path)
    return fd


def parse(data: bytes) -> Any:
    """The JSON in it, or `None` where it is none that can be taken in."""
    try:
        return json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        return None


def plain(text: str) -> str:
    """The text with nothing in it that could act on a terminal or look like another line."""
    return _UNSHOWN.sub("?", text)


def is_text(value: Any) -> bool:
    """Whether it is text that may be part of a path."""
    return isinstance(value, str) and "\0" not in value


def is_path(value: Any) -> bool:
    """Whether it is the absolute path of something."""
    return is_text(value) and os.path.isabs(value)


def is_name(value: Any) -> bool:
    """Whether it is the name of something within a directory."""
    return is_text(value) and value not in ("", ".", "..") and "/" not in value


def is_whole(value: Any) -> bool:
    """Whether it is a whole number that a system call takes."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64


def is_wall_time(value: Any) -> bool:
    """Whether it is a time that can be shown: up to the year 5138."""
    return is_seconds(value) and value < 10**11


def is_seconds(value: Any) -> bool:
    """Whether it is a number of seconds that one can reckon with, on whatever clock."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < 10**15


def maybe(fits: Fits) -> Fits:
    """What is null or fits."""
    return lambda value: value is None or fits(value)


def every(fits: Fits) -> Fits:
    """A list of what fits."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def by_name(fits: Fits) -> Fits:
    """An object whose names are text and whose values fit."""
    return lambda value: (
        isinstance(value, dict) and all(is_text(k) and fits(v) for k, v in value.items())
    )


def fields(exact: bool = False, **shapes: Fits) -> Fits:
    """An object that has these fields, each fitting; no others where it is `exact`."""

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or (exact and len(value) != len(shapes)):
            return False
        return all(name in value and shape(value[name]) for name, shape in shapes.items())

    return fits


def parse_with(data: bytes, fits: Fits) -> Optional[Any]:
    """The JSON in it where it has this shape, else `None`."""
    found = parse(data)
    return found if fits(found) else None
