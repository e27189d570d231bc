"""Which machine a session is of: a home on the network shows its state to several."""

from __future__ import annotations

import hashlib
import os
from typing import Optional

from ..refusal import Refusal
from . import journal
from .facts import Facts
from .journal import Record

# The second is where D-Bus keeps the same number on systems without systemd.
_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def read_id() -> str:
    """What tells this machine from others. With the name, since cloned disks share the number."""
    known = "%s\n%s" % (_read_number(), read_name())
    return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:32]


def read_name() -> str:
    """This machine's own name, which another one shows to people."""
    return os.uname().nodename


def _read_number() -> str:
    for path in _MACHINE_ID:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                return file.read().strip()
        except OSError:
            continue
    return ""


def find_other(begun: Optional[Record]) -> Optional[str]:
    """The name of the machine whose session this is, where it is another one than this.

    Its files are on that one's disk, under the same paths as ours, and its processes and its boot
    are that one's: nothing here says anything about them.
    """
    if not begun or begun.get("machine") in (None, read_id()):
        return None
    return str(begun.get("hostname"))


def refuse_other(path: str) -> None:
    """Refuse with `elsewhere` where the journal at `path` is of another machine's session."""
    other = find_other(Facts(journal.read(path)).begun)
    if other is not None:
        message = "the session is of the machine `%s`, which shares this state directory" % other
        raise Refusal("elsewhere", message, hostname=other)
