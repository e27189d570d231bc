"""NUMA memory policies, read and set in the words in which `/proc/PID/numa_maps` shows them."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import List, Optional, Tuple

from . import procfs

# <linux/mempolicy.h>; the words are those of mpol_to_str() in mm/mempolicy.c.
_MODES = {
    "default": 0,
    "prefer": 1,
    "bind": 2,
    "interleave": 3,
    "local": 4,
    "prefer (many)": 5,
    "weighted interleave": 6,
}
_FLAGS = {"static": 1 << 15, "relative": 1 << 14}
_SYSCALLS = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "s390x": 270}
_WORD_BITS = 64


def read_policy(pid: int) -> Optional[str]:
    """The policy of a process, as it is shown for its stack, which has none of its own."""
    for line in (procfs.read_bytes("/proc/%d/numa_maps" % pid) or b"").splitlines():
        fields = line.decode("utf-8", "replace").split()
        if "stack" in fields[2:]:
            return " ".join(fields[1 : fields.index("stack")])
    return None


def parse_policy(text: str) -> Optional[Tuple[int, List[int]]]:
    """The mode and the nodes of `bind=static:0-1`; `None` for a word that we do not know."""
    head, _, nodes = text.partition(":")
    word, _, flags = head.partition("=")
    if word not in _MODES:
        return None
    mode = _MODES[word]
    for flag in flags.split("|") if flags else ():
        mode |= _FLAGS.get(flag, 0)
    return mode, parse_list(nodes)


def parse_list(text: str) -> List[int]:
    """The numbers of a kernel list such as `0-2,5`."""
    numbers: List[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def set_policy(text: str) -> None:
    """Give the calling thread this policy; raises `OSError` where the kernel refuses."""
    parsed = parse_policy(text)
    number = _SYSCALLS.get(platform.machine())
    if parsed is None or number is None:
        raise OSError("no way to set the memory policy `%s` here" % text)
    mode, nodes = parsed
    words = max(nodes, default=0) // _WORD_BITS + 1
    mask = (ctypes.c_uint64 * words)()
    for node in nodes:
        mask[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is told.
    if libc.syscall(number, mode, mask if nodes else None, words * _WORD_BITS + 1) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
