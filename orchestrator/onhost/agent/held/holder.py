"""What a lock beside an install may say: every field's type, before anything uses it."""

from __future__ import annotations

import re
from typing import Any, Dict

from .untrusted import (
    Fits,
    by_name,
    every,
    fields,
    is_name,
    is_path,
    is_seconds,
    is_text,
    is_wall_time,
    is_whole,
    maybe,
    parse,
    plain,
)

Holder = Dict[str, Any]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")
SERVER = ("untouched", "stopped", "absent")


def _is_own_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.match(value) is not None


# Who it is: without these nobody can be named.
_WHO = fields(
    session=_is_own_name,
    host=_is_own_name,
    holder=is_text,
    hostname=is_text,
    since=is_wall_time,
    state_dir=is_path,
)
# What older agents did not say yet.
_MORE: Dict[str, Fits] = {
    "until": maybe(is_wall_time),
    "deadline_s": maybe(is_seconds),
    "boot_id": is_text,
    "machine": maybe(is_text),
    "processes": is_text,
    "moved": lambda value: isinstance(value, bool),
    "limit_s": maybe(is_seconds),
    "taken_from": maybe(is_text),
}
_DIR = maybe(fields(mtime_ns=is_whole, listing=is_text))
_FILE = fields(
    exact=True,
    file=is_text,
    path=is_path,
    shown=is_path,
    before_sha256=maybe(is_text),
    after_sha256=is_text,
    size=is_whole,
    stat=by_name(is_whole),
)
_ASIDE = fields(dir=is_path, before=_DIR, files=every(fields(name=is_name, inode=is_whole)))
# What a revert acts on: it is there as a whole or not at all.
_UNDO = ("plan", "pycs", "server", "guard")
_CAN_UNDO = fields(
    plan=fields(
        root=is_path,
        package=is_text,
        pycache_prefix=maybe(is_text),
        files=every(_FILE),
        dirs=by_name(_DIR),
        locks=every(is_path),
    ),
    pycs=by_name(every(_ASIDE)),
    server=lambda value: value in SERVER,
    guard=maybe(fields(pid=is_whole, start_time=is_whole)),
)


def parse_holder(data: bytes) -> Holder:
    """Who holds a lock that says this; empty where that cannot be taken in.

    Where what a revert needs is not all there, or not of its type, none of it is.
    """
    found = parse(data)
    if not _WHO(found):
        return {}
    holder: Holder = dict(found, holder=plain(found["holder"]), hostname=plain(found["hostname"]))
    for name, fits in _MORE.items():
        if name in holder and not fits(holder[name]):
            return {}
    if holder.get("taken_from") is not None:
        holder["taken_from"] = plain(holder["taken_from"])
    if not _CAN_UNDO(holder):
        for name in _UNDO:
            holder.pop(name, None)
    return holder
