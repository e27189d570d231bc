"""What the kernel's log says of processes that it ended for want of memory."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from ..proc import procfs

LOG = "/dev/kmsg"
# The line of the whole machine and that of a memory cgroup; the kernel cuts names at 15 characters.
_KILLED = re.compile(r"[Oo]ut of memory.*: Kill(?:ed)? process (\d+) ")
# One record, as documented in Documentation/ABI/testing/dev-kmsg; longer ones are refused whole.
_RECORD = 8192
# Start times count ticks of 10 ms, the log counts from a moment later in the boot.
_SLACK_S = 2.0


def find_killed(processes: Sequence[Mapping[str, Any]], path: str = LOG) -> Dict[str, str]:
    """The kernel's line for each of these (`pid`, `start_time`) that it killed, by the pid as text.

    Empty where its log may not be read, and in a container, whose numbers are others.
    """
    if not procfs.sees_machine():  # one that may read the log would take it for its own numbers
        return {}
    lines: Dict[int, Tuple[float, str]] = {}
    for at_s, text in _read_records(path):
        match = _KILLED.search(text)
        if match:
            lines[int(match.group(1))] = (at_s, text)
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for process in processes:
        at_s, text = lines.get(process["pid"], (0.0, ""))
        if text and at_s >= process["start_time"] / ticks - _SLACK_S:
            found[str(process["pid"])] = text
    return found


def _read_records(path: str) -> Iterator[Tuple[float, str]]:
    """Seconds since the boot and text of each record; continuations are left out."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for data in _read_pieces(fd):
            for line in data.decode("utf-8", "replace").split("\n"):
                head, _, text = line.partition(";")
                fields: List[str] = head.split(",")
                if len(fields) >= 3 and fields[2].isdigit():
                    yield int(fields[2]) / 1e6, text
    finally:
        os.close(fd)


def _read_pieces(fd: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(fd, _RECORD)
        except BrokenPipeError:
            continue  # what came next was overwritten; the read after it goes on behind the gap
        except OSError:
            return  # EAGAIN: the end of the log
        if not data:
            return
        yield data
