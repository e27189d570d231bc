"""Which of the servers that run on a host is the one that the inventory means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Install, LaunchAdopt, Server
from orchestrator.servers.life import Life, join, shown

# What `sglang.launch_server` listens on when it is not told.
DEFAULT_PORT = 30000
_SHOWN_CHARACTERS = 200
_TOLD_BY = ("port", "`--dist-init-addr`")
_PAIR = "{{stop: [{0}, stop, NAME], start: [{0}, start, NAME]}}"
_OUTSIDE = (
    "name the commands that stop and start it, outside of the container:"
    " `launch: {stop: [...], start: [...]}`"
)
_APART = (
    "have the agent work where the server does: `enter` of the host, such as"
    " `[ip, netns, exec, NAME]`, `[nsenter, --net=/run/netns/NAME]` or"
    " `[apptainer, exec, instance://NAME]`",
    "or name the commands that stop and start it: `launch: {stop: [...], start: [...]}`",
)
_CONNECT = "connect as that user, or as root: `user` of the host, or `enter: [sudo, -n]`"
_UNIT = "launch: {{systemd: {0}}}"
# The units of root's agent are the machine's: of root's own manager two commands tell.
_ROOT = "root"
_OWN_UNIT = "{{stop: [systemctl, --user, stop, {0}], start: [systemctl, --user, start, {0}]}}"
_WRITE_DOWN = "write down the command line that it was started by: `launch: {command: [...]}`"

Public = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sought:
    """A server's part on one host: the one of this node rank, of so many.

    `meeting` is the address where rank 0 waits for the others, if it is known: several parts of one
    rank are told apart by it.
    """

    server: Server
    install: Install
    host: Host
    rank: int
    nodes: int
    meeting: str | None = None


def find_port(server: Server) -> int:
    """The port of a server's address."""
    parts = urlsplit(server.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def choose(candidates: Sequence[Public], sought: Sought) -> Public:
    """The one main process that is meant.

    Raises `HostError` `server-not-found` or `server-ambiguous`, which list what was seen.
    """
    server, rank, host = sought.server, sought.rank, sought.host.name
    port = find_port(server)
    if rank == 0:
        wanted = f"on port {port}"
        fitting = [c for c in candidates if _node_rank(c) in (None, 0)]
        found = _prefer_at(urlsplit(server.url).hostname or "", port, fitting) or prefer_ours(
            [c for c in fitting if _port_argument(c) == port]
        )
    else:
        wanted = f"with `--node-rank {rank}`"
        ranked = [c for c in candidates if _node_rank(c) == rank]
        found = prefer_ours([c for c in ranked if _nodes(c) in (None, sought.nodes)])
        # A rank may stand where we cannot read it; one that is not given is 0, and not ours.
        unread = [c for c in candidates if "node_rank" in c["given"]["unknown"]]
        if not found and len(candidates) == len(unread) == 1:
            found = unread
        if len(found) > 1:
            found = [c for c in found if find_meeting(c) == sought.meeting] or found
    if len(found) == 1:
        return found[0]
    what = f"of `{sought.install.package}` runs {wanted}"
    # Of several that fit, those that do not are nothing to choose from.
    notes = [f"seen: {show(c)}" for c in found or candidates]
    if found:
        raise HostError(
            f"more than one server {what}",
            host=host,
            code="server-ambiguous",
            notes=notes,
            hints=[f"stop the one that is not meant, or give each its own {_TOLD_BY[rank > 0]}"],
        )
    notes = notes or [f"no server of `{sought.install.package}` runs there at all"]
    raise _not_found(host, server, f"no server {what}", notes)


def _prefer_at(host: str, port: int, candidates: Sequence[Public]) -> list[Public]:
    """Those that listen on the port; of several, whom a request to this address would reach.

    Two servers may share a port at two addresses.
    """
    found = [c for c in candidates if port in c["ports"]]
    wanted = {"127.0.0.1", "::1"} if host == "localhost" else {host}
    there = [c for c in found if any(a in wanted and p == port for a, p in c["listening"])]
    return there if len(found) > 1 and there else found


def prefer_ours(candidates: Sequence[Public]) -> list[Public]:
    """Those in the agent's own namespaces, or where there are none, all of them.

    A container's server may have the same command line as the one beside it.
    """
    return [c for c in candidates if not c.get("namespaces")] or list(candidates)


def _not_found(host: str, server: Server, message: str, notes: Sequence[str]) -> HostError:
    return HostError(
        message,
        host=host,
        code="server-not-found",
        notes=notes,
        hints=[
            f"start it, or correct `url` and `hosts` of server `{server.name}` in the inventory",
            "to have it started for the session, write `launch: {command: [...]}`",
        ],
    )


def require_restorable(found: Public, host: str, server: Server) -> None:
    """Raises `HostError` `not-restorable` where a server could not be given back as it is."""
    output = server.launch.output if isinstance(server.launch, LaunchAdopt) else None
    if found["restorable"] or (found["needs_output"] and output):
        return
    raise HostError(
        f"server `{server.name}` could not be started again as it is: {found['why']}",
        host=host,
        code="not-restorable",
        notes=[f"seen: {show(found)}"],
        hints=suggest(found, adopting=isinstance(server.launch, LaunchAdopt)),
        data={"found": found},
    )


def require_readable(found: Public, host: str, server: Server) -> None:
    """Raises `HostError` `not-restorable` where its sockets and files are not ours to see.

    Whoever runs it: that it is ready, and that it ended, shows in them.
    """
    if found["readable"]:
        return
    raise HostError(
        f"server `{server.name}` belongs to {found['user']}, whose processes we may not read",
        host=host,
        code="not-restorable",
        notes=[f"seen: {show(found)}"],
        hints=[_CONNECT],
        data={"found": found},
    )


def require_whole(found: Public, host: str, server: Server, nodes: int) -> None:
    """Raises `HostError` `server-in-part` where the server has more, or fewer, hosts than named.

    Those that are not named would end with this one, and nobody would start them again.
    """
    told = _nodes(found)
    if told is None or told == nodes:
        return
    hosts = f"{nodes} host{'s' if nodes != 1 else ''}"
    raise HostError(
        f"server `{server.name}` runs with `--nnodes {told}`, and the inventory gives it {hosts}",
        host=host,
        code="server-in-part",
        notes=[f"seen: {show(found)}"],
        hints=[f"name the host of every node rank, in order: `hosts` of server `{server.name}`"],
    )


def suggest(found: Public, *, adopting: bool) -> list[str]:
    """What to write into the inventory instead, from what stands in the way."""
    if not found["readable"]:
        return [_CONNECT]
    if found["needs_output"]:
        hints = ["start it with its output in a file"]
        if adopting:
            hints.append(
                "or name a file for the restored server: `launch: {adopt: {output: FILE}}`"
            )
        return hints
    return _suggest_for(found["owner"], found) if found["owner"] else _suggest(found)


def _suggest_for(owner: Mapping[str, Any], found: Public) -> list[str]:
    """What to write where somebody else would start the server again or ends with it."""
    kind, unit, manager = owner["kind"], owner["unit"], owner["manager"]
    if unit and manager == found["user"] == _ROOT:
        return ["have its manager stop and start it: `launch: " + _OWN_UNIT.format(unit) + "`"]
    if manager:
        return [f"connect as that user, and have systemd stop and start it: `{_UNIT.format(unit)}`"]
    if unit:
        return [f"have systemd stop and start it: `{_UNIT.format(unit)}`"]
    if owner["program"] == "supervisord":
        return ["have it stopped and started: `launch: " + _PAIR.format("supervisorctl") + "`"]
    if kind == "container":
        return [
            "reach it from inside, with the container's name: `enter: [docker, exec, -i, NAME]` of"
            " the host; where it is the container's main process, have the container stopped and"
            " started: `launch: " + _PAIR.format("docker") + "`",
        ]
    if found["pid"] == 1 or kind == "init":
        return [_OUTSIDE]
    if is_title(found):
        return [_WRITE_DOWN]
    hints = ["name the commands that stop and start it: `launch: {stop: [...], start: [...]}`"]
    if kind == "unsure":
        hints.append(
            "or start the server so that nothing waits for it: by `exec`, as the last command of a"
            " script, or with `setsid nohup ... &`"
        )
    return hints


def _suggest(found: Public) -> list[str]:
    """What to write where nobody owns the server."""
    if found["pid"] == 1:
        return [_OUTSIDE]
    if found.get("namespaces"):
        return list(_APART)
    if is_title(found):
        return [_WRITE_DOWN]
    if found.get("strangers"):
        return [
            "name the commands that stop and start all of them:"
            " `launch: {stop: [...], start: [...]}`",
            "or start them apart: what a script has put into the background is below the server"
            " that it becomes by `exec`",
        ]
    return ["to have it started for the session, write `launch: {command: [...]}`"]


def is_title(found: Public) -> bool:
    """Whether a main process has overwritten its own command line."""
    argv = found["argv"]
    return len(argv) == 1 and "::" in argv[0]


def show(found: Public) -> str:
    """One line about a main process, with secrets masked."""
    ports = ", ".join(str(port) for port in found["ports"]) or "none"
    line = join(shown(Life(tuple(found["argv"]))))
    if len(line) > _SHOWN_CHARACTERS:
        line = line[: _SHOWN_CHARACTERS - 3] + "..."
    return f"pid {found['pid']} of {found['user']}, listening on {ports}: {line}"


def read_number(found: Public, name: str) -> int | None:
    """A number of a server's arguments, by its name in the agent's `given`."""
    text = found["given"]["values"].get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def find_meeting(found: Public) -> str | None:
    """The address where a server's node 0 waits for the other nodes, as it was told."""
    given: Mapping[str, str] = found["given"]["values"]
    return given.get("meeting")


def _node_rank(found: Public) -> int | None:
    return read_number(found, "node_rank")


def _nodes(found: Public) -> int | None:
    return read_number(found, "nnodes")


def _port_argument(found: Public) -> int | None:
    given = read_number(found, "port")
    if given is None and "port" not in found["given"]["unknown"]:
        return DEFAULT_PORT
    return given
