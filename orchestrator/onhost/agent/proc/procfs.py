"""What `/proc` says of processes and of who listens where; nothing here changes anything."""

from __future__ import annotations

import os
import pwd
import re
import socket
import sys
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import commandline, sockdiag

LISTEN = "0A"
V4_ANY, V6_ANY = "0.0.0.0", "::"
# The namespace of processes that the machine boots with: include/linux/proc_ns.h.
_FIRST_PIDS = "pid:[%d]" % 0xEFFFFFFC
_MAPPED = bytes(10) + b"\xff\xff"
# PF_FORKNOEXEC of include/linux/sched.h: set by fork, cleared by exec, and everybody may read it.
_FORKED_NO_EXEC = 0x40
_SOCKET = re.compile(r"socket:\[(\d+)\]$")


class Stat(NamedTuple):
    """The fields of `/proc/PID/stat` that tell one process from another and from the dead."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    threads: int
    start_time: int
    # Forked, and runs what its parent ran: it has executed no program of its own.
    is_copy: bool = False

    @property
    def alive(self) -> bool:
        """A zombie counts as gone, unless only its first thread ended and others still run."""
        return self.state not in "ZXx" or self.threads > 1


class Listener(NamedTuple):
    """One listening TCP socket; `inode` joins it with the descriptor of its owner.

    `address` is an IPv4 one also where a socket of IPv6 was bound to it. Of one bound to `::`
    `takes_v4` says whether requests to addresses of IPv4 reach it; `None` where nobody can tell.
    """

    port: int
    inode: int
    uid: int
    address: str
    takes_v4: Optional[bool] = None

    @property
    def addresses(self) -> Tuple[str, ...]:
        """The address, and that of all IPv4 where it takes that as well."""
        return (self.address, V4_ANY) if self.takes_v4 else (self.address,)


def read_bytes(path: str) -> Optional[bytes]:
    """The whole of a small file, or `None` where it is gone or not ours to read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def read_link(path: str) -> Optional[str]:
    """The target of a link below `/proc`, or `None` where it is gone or not ours to read."""
    try:
        return to_text(os.readlink(path.encode()))
    except OSError:
        return None


def to_text(data: bytes) -> str:
    """Bytes as text that `to_bytes` turns back into the same bytes, whatever the locale is."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode("utf-8", "surrogateescape")


def read_stat(pid: int) -> Optional[Stat]:
    """`None` where there is no such process."""
    data = read_bytes("/proc/%d/stat" % pid)
    if not data:
        return None
    # The name stands in parentheses and may hold anything, parentheses too.
    head, _, rest = data.rpartition(b")")
    fields = rest.split()
    return Stat(
        pid=pid,
        comm=to_text(head.partition(b"(")[2]),
        state=fields[0].decode(),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        threads=int(fields[17]),
        start_time=int(fields[19]),
        is_copy=bool(int(fields[6]) & _FORKED_NO_EXEC),
    )


def sees_machine() -> bool:
    """Whether all processes of the machine are seen, by its own numbers: not in a container."""
    return read_link("/proc/self/ns/pid") == _FIRST_PIDS


def read_clock() -> int:
    """Now, in the unit of start times: clock ticks since the boot."""
    return to_ticks(time.clock_gettime(time.CLOCK_BOOTTIME))


def to_ticks(boottime_s: float) -> int:
    """Seconds of the clock that runs since the boot, in the unit of start times."""
    return int(boottime_s * os.sysconf("SC_CLK_TCK"))


def list_pids() -> List[int]:
    """Every process id that `/proc` shows, in order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def read_all() -> Dict[int, Stat]:
    """The stat of every process, zombies included."""
    found = (read_stat(pid) for pid in list_pids())
    return {stat.pid: stat for stat in found if stat is not None}


def find_tree(root: int, processes: Dict[int, Stat]) -> List[Stat]:
    """The process `root` and everything below it, parents before children."""
    children: Dict[int, List[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.ppid, []).append(stat.pid)
    tree: List[Stat] = []
    waiting = [root]
    seen: Set[int] = set()
    while waiting:
        pid = waiting.pop(0)
        if pid in seen or pid not in processes:
            continue
        seen.add(pid)
        tree.append(processes[pid])
        waiting.extend(sorted(children.get(pid, [])))
    return tree


def find_ancestors(pid: int, processes: Dict[int, Stat]) -> List[Stat]:
    """The parent of `pid`, its parent, and so on."""
    found: List[Stat] = []
    stat = processes.get(pid)
    while stat is not None and stat.ppid in processes and len(found) < 1000:
        stat = processes[stat.ppid]
        found.append(stat)
    return found


def parse_strings(data: bytes) -> List[str]:
    """The strings of an argv or environ block, each ended by a NUL."""
    if data.endswith(b"\0"):
        data = data[:-1]
    return [to_text(part) for part in data.split(b"\0")] if data else []


def read_cmdline(pid: int) -> bytes:
    """The raw argument block; empty for kernel threads and for the dead."""
    return read_bytes("/proc/%d/cmdline" % pid) or b""


def read_environ(pid: int) -> Optional[Dict[str, str]]:
    """The environment as the process was started with; `None` where it is not ours to read."""
    data = read_bytes("/proc/%d/environ" % pid)
    if data is None:
        return None
    environ: Dict[str, str] = {}
    for entry in parse_strings(data):
        name, equals, value = entry.partition("=")
        if equals and name:
            environ.setdefault(name, value)  # getenv() answers with the first of two as well
    return environ


def read_title(pid: int) -> str:
    """What a process calls itself, or which program it runs: never its arguments.

    Those may hold secrets (`--api-key`), and this text is shown.
    """
    argv = parse_strings(read_cmdline(pid).rstrip(b"\0"))
    if argv:
        return commandline.name_program(argv)
    stat = read_stat(pid)
    return stat.comm if stat else ""


def read_status(pid: int) -> Dict[str, str]:
    """`/proc/PID/status` as name to text; empty where the process is gone."""
    data = read_bytes("/proc/%d/status" % pid) or b""
    pairs = (line.partition(":") for line in to_text(data).splitlines())
    return {name: value.strip() for name, _, value in pairs}


def read_sockets(pid: int) -> Set[int]:
    """The inodes of all sockets that the process holds; empty where it is not ours to read."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return set()
    targets = (read_link("%s/%s" % (folder, name)) for name in names)
    matches = (_SOCKET.match(target) for target in targets if target)
    return {int(match.group(1)) for match in matches if match}


def list_listeners(pid: Optional[int] = None) -> List[Listener]:
    """All listening TCP sockets of the network namespace of `pid`, or of our own."""
    found: List[Listener] = []
    for name in ("tcp", "tcp6"):
        data = read_bytes("/proc/%s/net/%s" % ("self" if pid is None else pid, name)) or b""
        for line in data.decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                address, _, port = fields[1].rpartition(":")
                inode, uid = int(fields[9]), int(fields[7])
                found.append(Listener(int(port, 16), inode, uid, _parse_address(address)))
    if any(item.address == V6_ANY for item in found) and is_own_network(pid):
        only = sockdiag.read_v6_only()
        found = [_complete(item, only) for item in found]
    return found


def _complete(item: Listener, v6_only: Mapping[int, bool]) -> Listener:
    if item.address != V6_ANY or item.inode not in v6_only:
        return item
    return item._replace(takes_v4=not v6_only[item.inode])


def is_own_network(pid: Optional[int]) -> bool:
    """Whether a process, or nobody in particular, is in our own network."""
    if pid is None:
        return True
    return read_link("/proc/%d/ns/net" % pid) == read_link("/proc/self/ns/net")


def _parse_address(text: str) -> str:
    """An address as the kernel prints it: words of 32 bits in the machine's own order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    data = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    if len(data) == 4 or data.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, data[-4:])
    return socket.inet_ntop(socket.AF_INET6, data)


def find_listening(pid: int) -> List[Listener]:
    """The sockets of our own network on which this very process listens.

    Behind another network's equal number stands a server that no address of ours means.
    """
    sockets = read_sockets(pid)
    return [item for item in list_listeners() if item.inode in sockets]


def find_ports(pid: int) -> List[int]:
    """The ports of our own network on which this very process listens."""
    return sorted({item.port for item in find_listening(pid)})


def find_owner(inodes: Iterable[int], pids: Iterable[int]) -> Optional[int]:
    """The first of `pids` that holds one of these sockets."""
    wanted = set(inodes)
    return next((pid for pid in pids if wanted & read_sockets(pid)), None)


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
