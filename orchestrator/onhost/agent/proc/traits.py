"""What the kernel notes of a process beside its files: prctl(2), personality(2), capabilities.

What is set here is set in a fork that is about to become the server. Most of it is the agent's own
already: nothing is called then, and no library is loaded in a fork.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Dict, List, Mapping, Sequence

from . import procfs

_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_TIMERSLACK = 29
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_THP_DISABLE = 41
_PR_CAP_AMBIENT = 47
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
# _LINUX_CAPABILITY_VERSION_3 of linux/capability.h: two words of 32 bits for each set.
_CAPABILITIES_3 = 0x20080522

_STATUS = (
    ("cap_bounding", "CapBnd", 16),
    ("cap_inheritable", "CapInh", 16),
    ("cap_ambient", "CapAmb", 16),
    ("no_new_privs", "NoNewPrivs", 10),
    ("huge_pages", "THP_enabled", 10),
)
_FILES = (("personality", 16), ("coredump_filter", 16), ("timerslack_ns", 10))
# Every Python ignores SIGPIPE and SIGXFSZ by itself; 32 and 33 are the C library's, which leaves
# them ignored in what it spawns, and lets nobody change that.
_NOT_ITS_OWN = (13, 25, 32, 33)
_READINGS, _BETWEEN_S = 3, 0.01
# One that has them all blocked is in the middle of a fork, or waits for them one by one.
_ALL_BLOCKED = 60


def read_traits(pid: int) -> Dict[str, Any]:
    """Those that may be read; signals are lists of numbers, capabilities masks.

    `entries` is the environment as it stands, where no table of names and values holds it.
    """
    status = procfs.read_status(pid)
    found: Dict[str, Any] = {n: int(status[f], base) for n, f, base in _STATUS if f in status}
    for name, base in _FILES:
        data = procfs.read_bytes("/proc/%d/%s" % (pid, name))
        if data:
            found[name] = int(data, base)
    for name, field in (("uids", "Uid"), ("gids", "Gid")):
        if field in status:
            found[name] = [int(text) for text in status[field].split()[:3]]
    if "SigIgn" in status:
        ignored = _list_bits(int(status["SigIgn"], 16), 1)
        found["ignored"] = [number for number in ignored if number not in _NOT_ITS_OWN]
    if "SigBlk" in status:
        found["blocked"] = _read_blocked(pid, int(status["SigBlk"], 16))
    environ = procfs.read_bytes("/proc/%d/environ" % pid)
    if environ is not None:
        found["odd_environ"] = find_odd(environ)
        if found["odd_environ"]:
            found["entries"] = procfs.parse_strings(environ)
    return found


def _read_blocked(pid: int, mask: int) -> List[int]:
    """What stays blocked: a library that forks blocks everything for a moment."""
    for _ in range(_READINGS - 1 if mask else 0):
        time.sleep(_BETWEEN_S)
        mask &= int(procfs.read_status(pid).get("SigBlk", "0"), 16)
    blocked = _list_bits(mask, 1)
    return blocked if len(blocked) < _ALL_BLOCKED else []


def find_odd(data: bytes) -> List[str]:
    """What of an environment no table of names and values holds, without a value."""
    entries = [entry.partition("=") for entry in procfs.parse_strings(data)]
    names = [name for name, equals, _ in entries if equals and name]
    odd = ["%s %d times" % (n, names.count(n)) for n in sorted(set(names)) if names.count(n) > 1]
    bare = len(entries) - len(names)
    return odd + (["%d without a name" % bare] if bare else [])


def _list_bits(mask: int, first: int) -> List[int]:
    return [bit + first for bit in range(mask.bit_length()) if mask >> bit & 1]


def restore(description: Mapping[str, Any]) -> None:
    """Put back what our own rights may be needed for; raises nothing, `compare` tells the rest."""
    own = read_traits(os.getpid())
    filter_now = description.get("coredump_filter")
    if filter_now is not None and filter_now != own.get("coredump_filter"):
        _write("/proc/self/coredump_filter", "0x%x" % filter_now)
    # A real-time process has none, and 0 would mean the default.
    if description.get("timerslack_ns") and _differs(description, own, "timerslack_ns"):
        _call("prctl", _PR_SET_TIMERSLACK, description["timerslack_ns"], 0, 0, 0)
    if _differs(description, own, "huge_pages"):
        _call("prctl", _PR_SET_THP_DISABLE, 1 - description["huge_pages"], 0, 0, 0)
    if _differs(description, own, "personality"):
        _call("personality", description["personality"])
    if _differs(description, own, "cap_bounding"):
        for number in _list_bits(own["cap_bounding"] & ~description["cap_bounding"], 0):
            _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    if description.get("cap_ambient"):
        # Else they would go with the change of user.
        _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)


def restore_rights(description: Mapping[str, Any]) -> None:
    """Put back, as the described user, what the change of user would have taken away again."""
    own = read_traits(os.getpid())
    if own.get("cap_ambient") and _differs(description, own, "cap_ambient"):
        _call("prctl", _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    if _differs(description, own, "cap_inheritable"):
        _set_inheritable(description["cap_inheritable"])
    for number in _list_bits(description.get("cap_ambient") or 0, 0):
        _call("prctl", _PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0)
    if description.get("no_new_privs") and not own.get("no_new_privs"):
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _differs(description: Mapping[str, Any], own: Mapping[str, Any], name: str) -> bool:
    return name in description and name in own and description[name] != own[name]


def _set_inheritable(mask: int) -> None:
    permitted = int(procfs.read_status(os.getpid()).get("CapPrm", "0"), 16)
    sets = (permitted, permitted, mask)
    words = [one >> shift & 0xFFFFFFFF for shift in (0, 32) for one in sets]
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)(*words))


def _call(name: str, *args: Any) -> None:
    values: Sequence[Any] = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]
    getattr(ctypes.CDLL(None, use_errno=True), name)(*values)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass
