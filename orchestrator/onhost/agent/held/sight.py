"""What this machine has seen of another one's lock, and since when on its own clock."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Dict

from . import lease, machine, untrusted
from .state import write_private

_SEEN = untrusted.fields(
    boot_id=untrusted.is_text, stamp=untrusted.is_text, since_s=untrusted.is_seconds
)


def own_dir(state_dir: str) -> str:
    """Where this machine keeps what it does for others, also in a home that it shares with them.

    It is laid out as a state directory: what began on another one has its names there.
    """
    return os.path.join(state_dir, "taken", machine.read_id())


def _path(state_dir: str, lock_path: str) -> str:
    name = hashlib.sha256(os.fsencode(lock_path)).hexdigest()[:32]
    return os.path.join(own_dir(state_dir), "seen", name + ".json")


def watch(state_dir: str, lock_path: str, stamp: str) -> float:
    """For how many seconds of our own clock a lock has been as this `stamp` says.

    The first look at it, and the first after a restart of this machine, starts the count. Where it
    cannot be kept it starts anew each time, so a lock is never taken for older than it is.
    """
    now_s, boot_id = lease.now_s(), lease.read_boot_id()
    path = _path(state_dir, lock_path)
    known = _read(path)
    if (known.get("boot_id"), known.get("stamp")) == (boot_id, stamp):
        return max(0.0, now_s - float(known["since_s"]))
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        write_private(path, {"boot_id": boot_id, "stamp": stamp, "since_s": now_s})
    return 0.0


def forget(state_dir: str, lock_path: str) -> None:
    """Remove what was kept of a lock that is not another machine's any more."""
    path = _path(state_dir, lock_path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    for _ in range(3):  # `seen`, the machine's own, `taken`: as long as nothing else is there
        path = os.path.dirname(path)
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _read(path: str) -> Dict[str, Any]:
    try:
        found = untrusted.parse_with(untrusted.read(path).data, _SEEN)
    except OSError:
        return {}
    return found or {}
