"""Who else listens where a server does, or would: the same port at another address is another."""

from __future__ import annotations

import errno
import socket
from typing import Any, Collection, Iterable, List, Mapping, NamedTuple, Optional, Set

from ..proc import arguments, below, procfs
from ..proc.describe import describe
from ..proc.tree import is_alive

_ANY = (procfs.V4_ANY, procfs.V6_ANY)


class Rival(NamedTuple):
    """A socket of somebody else's on the port: where, where the server would listen, and whose.

    `pid` is `None` where nobody can see its owner. `wanted` is `None` where nobody knows it.
    """

    address: str
    wanted: Optional[str]
    pid: Optional[int]


def find_rivals(
    port: int,
    wanted: Optional[Collection[str]],
    ours: Collection[int],
    network: Optional[int] = None,
) -> List[Rival]:
    """Sockets on the port that stand in the way of a server at these addresses.

    Those that the processes `ours` hold do not. Of a server at unknown addresses (`None`) all
    others do. `network` is a process whose network is meant, where that may be another than ours.
    """
    listeners = [item for item in procfs.list_listeners(network) if item.port == port]
    held = {inode for pid in ours for inode in procfs.read_sockets(pid)} if listeners else set()
    own = [item.address for item in listeners if item.inode in held]
    is_here = procfs.is_own_network(network)
    rivals = []
    for item in [item for item in listeners if item.inode not in held]:
        met = None if wanted is None else _find_met(item, wanted, own, is_here)
        if wanted is None or met is not None:
            owner = procfs.find_owner([item.inode], procfs.list_pids())
            rivals.append(Rival(item.address, met, owner))
    return rivals


def find_addresses(port: int, pids: Iterable[int], network: Optional[int] = None) -> Set[str]:
    """Where these processes listen on the port."""
    listeners = [item for item in procfs.list_listeners(network) if item.port == port]
    held = {inode for pid in pids for inode in procfs.read_sockets(pid)} if listeners else set()
    return {address for item in listeners if item.inode in held for address in item.addresses}


def do_answer(
    port: int, host: Optional[str], pids: Collection[int], network: Optional[int] = None
) -> bool:
    """Whether these processes listen on the port, and a request to `host` reaches nobody else.

    Of several sockets the kernel takes the one of the very address; of equal ones any.
    """
    listeners = [item for item in procfs.list_listeners(network) if item.port == port]
    held = {inode for pid in pids for inode in procfs.read_sockets(pid)} if listeners else set()
    if not any(item.inode in held for item in listeners):
        return False
    for address in _list_addresses(host) if host is not None else ():
        ranks = [(_rank(item, address), item.inode in held) for item in listeners]
        best = max(rank for rank, _ in ranks)
        if best:
            return (best, False) not in ranks
    return True


def _rank(item: procfs.Listener, address: str) -> int:
    """How near a socket is to an address, as the kernel has it; 0 where it does not take it."""
    if item.address == address:
        return 3
    if _is_v4(address):
        return 2 if item.address == procfs.V4_ANY else int(bool(item.takes_v4))
    return 2 if item.address == procfs.V6_ANY else 0


def resolve(host: str) -> Optional[Set[str]]:
    """The addresses that a name or a written address stands for here; `None` where unknown."""
    return set(_list_addresses(host)) or None


def _list_addresses(host: str) -> List[str]:
    """In the order in which they are tried; none where the name is unknown."""
    if host in ("", "*"):
        return list(_ANY)
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [_plain(str(item[4][0])) for item in found]


def find_wanted(known: Mapping[str, Any], port: int) -> Optional[Set[str]]:
    """Where a described server listens on the port, else where its arguments say that it will."""
    seen = {address for address, at in known.get("listening") or () if at == port}
    if seen or "given" not in known:
        return seen or None
    host = arguments.find_host(known["given"])
    return None if host is None else resolve(host)


def find_in_the_way(
    port: int, pid: Optional[int], start_time: Optional[int], argv: List[str], cwd: Optional[str]
) -> List[Rival]:
    """Who would be in the way of a life with this command line, once that process is gone.

    Where it runs, what it listens on now is wanted again, and what the command line names beyond
    its own arguments; a start command names nothing where it says nothing.
    """
    given = arguments.find_given(argv, cwd or "/")._asdict()
    if pid is None or start_time is None or not is_alive(pid, start_time):
        return find_rivals(port, find_wanted({"given": given}, port), ())
    family = below.find_family(pid, below.find_package(pid), procfs.read_all())
    tree = [stat.pid for stat in family]
    known = describe(pid, start_time)
    wanted = find_addresses(port, tree, pid) or find_wanted(known, port)
    host = given["values"].get("host")
    if wanted is not None and host is not None and host != known["given"]["values"].get("host"):
        wanted = wanted | (resolve(host) or set())
    return find_rivals(port, wanted, tree, pid)


def _plain(address: str) -> str:
    """Without its zone; an IPv4 address that is written as one of IPv6 as what it is."""
    address = address.partition("%")[0]
    mapped = address.lower().startswith("::ffff:") and "." in address
    return address[7:] if mapped else address


def _find_met(
    item: procfs.Listener, wanted: Collection[str], own: List[str], here: bool
) -> Optional[str]:
    """The first of the addresses at which nobody else can listen beside this socket."""
    return next((a for a in sorted(wanted) if _do_meet(item, a, own, here)), None)


def _do_meet(item: procfs.Listener, address: str, own: List[str], here: bool) -> bool:
    """A socket of `::` that asyncio makes, as SGLang does, never takes IPv4 as well."""
    if _is_v4(item.address) == _is_v4(address):
        return item.address == address or item.address in _ANY or address in _ANY
    if item.address != procfs.V6_ANY or item.takes_v4 is not None:
        return bool(item.takes_v4) and _is_v4(address)
    # What stands beside one of ours leaves IPv4 to it; `/proc` does not tell.
    return not any(map(_is_v4, own)) and (not here or _is_refused(address, item.port))


def _is_refused(address: str, port: int) -> bool:
    """Whether nobody could listen there now; binds for a moment, and accepts nothing.

    Whoever takes the port just then as servers do, with SO_REUSEADDR, is not in its way.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return False


def _is_v4(address: str) -> bool:
    return ":" not in address
