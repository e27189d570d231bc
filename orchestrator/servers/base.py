"""How a server is found on a host, and what its life there is, whatever started it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import (
    Host,
    Install,
    LaunchAdopt,
    LaunchCommand,
    LaunchPair,
    LaunchSystemd,
    Server,
)
from orchestrator.servers.adopt import (
    Sought,
    choose,
    find_meeting,
    find_port,
    is_title,
    prefer_ours,
    require_readable,
    require_restorable,
    require_whole,
    show,
)
from orchestrator.servers.life import (
    Life,
    debug_life,
    for_host,
    join,
    restart_for_host,
    shown,
)
from orchestrator.servers.ports import require_port
from orchestrator.servers.supervised import Supervised, find_pair, find_unit

__all__ = [
    "Found",
    "Life",
    "debug_life",
    "find",
    "find_port",
    "for_host",
    "join",
    "make_description_args",
    "restart_for_host",
    "shown",
]

# They replace themselves by the rest of their command line.
_EXEC_WRAPPERS = frozenset(
    [
        *("chrt", "env", "ionice", "nice", "nohup", "numactl", "prlimit", "setarch", "setpriv"),
        *("setsid", "stdbuf", "taskset"),
    ]
)


@dataclass(frozen=True, slots=True)
class Found:
    """A server's main process on one host.

    `description` is its public description, or `None` where it does not run; `original` is the
    life that a session starts from and that is given back. `way` says how somebody else runs it,
    in the words of the agent's `describe-server`.
    """

    host: str
    description: Mapping[str, Any] | None
    original: Life
    way: Mapping[str, Any] | None = None

    @property
    def meeting(self) -> str | None:
        """The address where its node 0 waits for the others, if it runs and was told one."""
        return None if self.description is None else find_meeting(self.description)

    @property
    def start_patience_s(self) -> float:
        """How long a start of this server may take until there is a process at all.

        A supervisor may queue it, or pull an image first; a command of ours starts at once.
        """
        return float(self.way["start_timeout_s"]) if self.way is not None else 0.0


def find(
    agent: AgentClient,
    server: Server,
    install: Install,
    host: Host,
    rank: int,
    nodes: int,
    meeting: str | None = None,
) -> Found:
    """Find the server on the host that has this node rank; nothing is changed there.

    `meeting` is that of rank 0's `Found`, where the server is taken as it runs.

    Raises `HostError`: `server-not-found`, `server-ambiguous`, `not-restorable`, `port-taken`
    (it does not run, and somebody else listens where it would), `no-systemd`, `no-unit`,
    `server-in-part`.
    """
    found = _find(agent, Sought(server, install, host, rank, nodes, meeting))
    if found.description is not None:
        require_readable(found.description, host.name, server)
        require_whole(found.description, host.name, server, nodes)
    return found


def _find(agent: AgentClient, sought: Sought) -> Found:
    server, host = sought.server, sought.host
    match server.launch:
        case LaunchSystemd():
            return _supervised(host, find_unit(agent, sought))
        case LaunchPair():
            with _naming_owner(agent, server, sought.rank):
                pair = find_pair(agent, sought)
            return _supervised(host, pair)
        case LaunchAdopt():
            candidates = agent.call("find-servers", {"package": sought.install.package}).value
            with _naming_owner(agent, server, sought.rank):
                chosen = choose(candidates, sought)
            require_restorable(chosen, host.name, server)
            return Found(host.name, chosen, _life_of(chosen))
        case LaunchCommand() as launch:
            return _find_command(agent, sought, launch)


def make_description_args(found: Found, server: Server) -> dict[str, Any]:
    """What the agent's `describe-server` takes for this server."""
    running, original = found.description, found.original
    inventory = {
        "argv": list(original.argv),
        "env": dict(original.env_set),
        "cwd": original.cwd,
    }
    if running is None:
        return {"pid": None, **inventory}
    args = {"pid": running["pid"], "start_time": running["start_time"], "way": found.way}
    if is_title(running) and found.way is None:
        args.update(inventory)
    return {**args, "output": _find_output(server)}


def _find_output(server: Server) -> str | None:
    return server.launch.output if isinstance(server.launch, LaunchAdopt) else None


def _supervised(host: Host, found: Supervised) -> Found:
    return Found(host.name, found.description, found.original, found.way)


def _find_command(agent: AgentClient, sought: Sought, launch: LaunchCommand) -> Found:
    server, host, rank = sought.server, sought.host, sought.rank
    candidates = agent.call("find-servers", {"package": sought.install.package}).value
    life = for_host(launch, host, rank, sought.nodes)
    running = prefer_ours([c for c in candidates if _is_run_by(life.argv, tuple(c["argv"]))])
    if not running and rank == 0:
        # 0.5.2 writes a title over its command line: its port tells, and the inventory knows it.
        running = [c for c in candidates if is_title(c) and find_port(server) in c["ports"]]
    if not running:
        if rank == 0:
            _require_port(agent, server, life, candidates)
        return Found(host.name, None, life)
    if len(running) > 1:
        raise HostError(
            f"the command of server `{server.name}` runs {len(running)} times",
            host=host.name,
            code="server-ambiguous",
            notes=[f"seen: {show(c)}" for c in running],
            hints=["stop all but one of them"],
        )
    if is_title(running[0]):
        return Found(host.name, running[0], life)
    require_restorable(running[0], host.name, server)
    found = _life_of(running[0])
    notes = _tell_differences(agent, life, running[0])
    return Found(host.name, running[0], replace(found, notes=(*found.notes, *notes)))


def _tell_differences(agent: AgentClient, life: Life, running: Mapping[str, Any]) -> Iterator[str]:
    """In what a running server differs from its command in the inventory: it is given back so."""
    if life.cwd is not None and life.cwd != running["cwd"]:
        yield f"it runs in {running['cwd']}, not in the `cwd` of its command, and will again"
    if life.env_set:
        key = {name: running[name] for name in ("pid", "start_time")}
        names = agent.call("differing", {**key, "env": dict(life.env_set)}).value
        if names:
            listed = ", ".join(f"`{name}`" for name in names)
            yield f"it runs without what `env` of its command says of {listed}, and will again"


def _require_port(
    agent: AgentClient, server: Server, life: Life, candidates: Sequence[Mapping[str, Any]]
) -> None:
    """Most often it is the server meant that has the port, started by another command line."""
    port = find_port(server)
    try:
        require_port(agent, port, None, life)
    except HostError as error:
        owners = [c for c in candidates if port in c["ports"]]
        error.notes = (*error.notes, *(f"seen: {show(c)}" for c in owners))
        if owners:
            error.hints = (
                f"if that is server `{server.name}`, give the inventory the command line that it"
                " runs by, or write `launch: adopt`",
                *error.hints,
            )
        raise


@contextmanager
def _naming_owner(agent: AgentClient, server: Server, rank: int) -> Iterator[None]:
    """Say who listens on the server's port where that is no main process of a server."""
    try:
        yield
    except HostError as error:
        if error.code == "server-not-found" and rank == 0:
            port = find_port(server)
            state = agent.call("life", {"pid": None, "start_time": None, "port": port}).value
            if state["owner"]:
                error.notes = (*error.notes, f"port {port} is held by {state['owner']}")
            if "router" in (state["owner"] or ""):
                hint = "a router's port is not a server's: give `url` the port of the worker itself"
                error.hints = (hint, *error.hints)
        raise


def _life_of(description: Mapping[str, Any]) -> Life:
    notes: tuple[str, ...] = ()
    # Of programs of other kinds nobody can tell whether they do more than wait.
    if description["is_script"]:
        script = description["wrapper"]
        notes = (f"`{script}` waits for the server and is not started again with it",)
    return Life(tuple(description["argv"]), cwd=description["cwd"], notes=notes)


def _is_run_by(command: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    """Whether this command line became that process, itself or through wrappers that exec."""
    if command == argv:
        return True
    head = command[: -len(argv)] if argv else ()
    if not head or command[-len(argv) :] != argv:
        return False
    return PurePosixPath(head[0]).name in _EXEC_WRAPPERS
