"""Finding a member's server, and the install that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import HostError, OrchestratorError
from orchestrator.model.inventory import Install, LaunchCommand, Server
from orchestrator.model.session import Restart
from orchestrator.servers.base import Found, Life, debug_life, find, find_port, restart_for_host
from orchestrator.servers.ports import require_port
from orchestrator.servers.ready import require_answer
from orchestrator.session.hosts.member import Member

# All files of a package are read, an interpreter starts from a slow disk, and drivers of GPUs that
# sleep take seconds to answer.
LOOK_S = 60.0
# What the inventory's entry of the server may be wrong about.
ABOUT_SERVER = (
    *("server-not-found", "server-ambiguous", "server-in-part", "not-restorable", "port-taken"),
    *("http-refused", "not-ready"),
)


def find_life(
    member: Member,
    server: Server,
    install: Install,
    nodes: int,
    restart: Restart | None = None,
    meeting: str | None = None,
) -> Found:
    """Find the member's part of the server; errors name the inventory's line of the server.

    Its port must be free for it once it is stopped, also with what `restart` changes; where a
    session is about to stop it, it must answer at its address. An error about a server that runs
    carries its public description: `data["found"]`.
    """
    found = None
    try:
        found = find(member.channel, server, install, member.host, member.rank, nodes, meeting)
        life = _find_next(member, found, nodes, restart)
        if member.rank == 0:
            require_port(member.channel, find_port(server), found.description, life)
            if restart is not None and found.description is not None:
                require_answer(member.channel, server, found.description)
        return found
    except HostError as error:
        if error.code in ABOUT_SERVER:
            error.span = server.span
        if found is not None:
            error.data = {**error.data, "found": found.description}
        raise


def _find_next(member: Member, found: Found, nodes: int, restart: Restart | None) -> Life:
    """The life that is to follow the running one."""
    if restart is None:
        return found.original
    changes = restart_for_host(restart, member.host, member.rank, nodes)
    try:
        return debug_life(found.original, changes)
    except OrchestratorError as error:
        raise HostError(
            error.message, host=member.name, code="arguments-unclear", hints=error.hints
        ) from None


def locate(member: Member, server: Server, install: Install) -> Mapping[str, Any]:
    """Ask the interpreter that serves (or would serve) where the package stands."""
    assert member.found is not None
    running = member.found.description
    args: dict[str, Any] = {
        "python": install.python,
        "package": install.package,
        "pid": running["pid"] if running else None,
        "env": {},
        "cwd": None,
    }
    if running is None and isinstance(server.launch, LaunchCommand):
        args["env"] = dict(member.found.original.env_set)
        args["cwd"] = member.found.original.cwd
        args["program"] = member.found.original.argv[0]
        args["python"] = install.python or args["program"]
    value: Mapping[str, Any]
    try:
        value = member.channel.call("locate", args, timeout_s=LOOK_S).value
    except HostError as error:
        raise with_place(error, install) from None
    if value["other"] is not None:
        raise _other_copy(member.name, server, install, value)
    return value


def tell_copies(found: Found, package: str, at: Mapping[str, Any]) -> Found:
    """With a note where the package stands at several places of the server's path.

    Who edits the other copy sees nothing of it in the server.
    """
    if not at["hidden"]:
        return found
    others = " and ".join(at["hidden"])
    note = f"the server imports `{package}` from {at['package_dir']}, which hides {others}"
    original = replace(found.original, notes=(*found.original.notes, note))
    return replace(found, original=original)


def _other_copy(host: str, server: Server, install: Install, value: Mapping[str, Any]) -> HostError:
    other = value["other"]
    error = HostError(
        f"server `{server.name}` imports `{install.package}` from {other['package_dir']}, and"
        f" `python` of install `{install.name}` from {value['package_dir']}",
        host=host,
        code="other-copy",
        notes=[f"the server is run by {other['python']}, and `python` is {value['python']}"],
        hints=[f"write `python: {other['python']}`, or leave `python` out for a server that runs"],
    )
    error.span = install.span
    return error


def with_place(error: HostError, install: Install) -> HostError:
    """The error of a look for this install, with the line of the inventory to correct."""
    key = {"no-interpreter": "python", "not-installed": "package"}.get(error.code)
    if key is not None:
        error.span = install.span
        error.hints = (
            *error.hints,
            f"correct `python` of install `{install.name}` in the inventory"
            if key == "python"
            else f"install `{install.package}` for that interpreter, or correct `python` or"
            f" `package` of install `{install.name}` in the inventory",
        )
    return error
