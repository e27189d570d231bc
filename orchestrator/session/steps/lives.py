"""The stages that end and start servers: the original, the debug life, and the original again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.inventory import LaunchPair, Server
from orchestrator.servers.base import find_port, make_description_args
from orchestrator.session.hosts.fleet import Act
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.stages import SLACK_S, LifeOf, say_how_to_see

# It may have to bring a stop to its end first.
_RESTORE_S = 120.0
# An interpreter starts there, beside a server that reads its weights.
_LOCATE_S = 60.0
# For a session whose server is not known by name; SGLang takes 8 to 10 s as measured.
_STOP_S = 30.0

DEBUG_LIFE = "this was the debug life: patched, and as `restart` of the session file changes it"
ORIGINAL = "this was the original, started again the way it ran before the session"


def say_which(error: HostError, life: str, unreached: Sequence[str] = ()) -> HostError:
    """The error of a start, with the note that says which of a server's lives it was.

    `unreached` are the hosts whose part of it nobody can see: no more time makes up for them.
    """
    if error.code in ("died", "not-ready"):
        error.notes = (*error.notes, life)
    if unreached and error.code == "not-ready":
        names = ", ".join(unreached)
        error.hints = (f"see to {names} first: a part of the server belongs there",)
    return error


def describe(server: Server) -> Act:
    """Write down on the host how its server runs, so that it can be started again like that."""

    def act(member: Member) -> str:
        assert member.found is not None
        running = member.found.description
        args = make_description_args(member.found, server)
        try:
            member.channel.call("describe-server", args, timeout_s=SLACK_S)
        except HostError as error:
            raise say_how_to_see(error) from None
        member.described = True
        member.ran = running is not None
        return f"pid {running['pid']}" if running else "was not running"

    return act


def announce_stop(server: Server) -> Act:
    """Have every host know that its server is about to end, before the first of them is stopped.

    The parts of one server go down together; a guard that never heard of the stop would take its
    part for untouched.
    """

    def act(member: Member) -> None:
        member.channel.call("stop-server", _stop_args("original", server, member, announce=True))
        member.announced = True

    return act


def stop_server(which: str, server: Server | None) -> Act:
    """Stop the original or the debug life and everything that it started."""

    def act(member: Member) -> str:
        if which == "original":
            member.stopping = True
        args = _stop_args(which, server, member)
        timeout_s = 2 * args["timeout_s"] + SLACK_S
        value = member.channel.call("stop-server", args, timeout_s=timeout_s).value
        if value["left"]:
            raise HostError(
                f"the server could not be stopped: {'; '.join(value['left'])}",
                host=member.name,
                code="not-stopped",
            )
        member.server = "stopped"
        if which == "debug":
            member.life = None
        said = [f"{len(value['stopped'])} processes ended"]
        if value["killed"]:
            said.append(f"{len(value['killed'])} killed")
        if value["shm"]:
            said.append(f"{len(value['shm'])} pieces of shared memory removed")
        return ", ".join([*said, *value["notes"]])

    return act


def _stop_args(
    which: str, server: Server | None, member: Member, *, announce: bool = False
) -> dict[str, Any]:
    port = find_port(server) if server is not None and member.rank == 0 else None
    timeout_s = _STOP_S if server is None else server.stop_timeout_s
    return {"which": which, "timeout_s": timeout_s, "port": port, "announce": announce}


def start(life: LifeOf, server: Server, package: str) -> Act:
    """Start the debug life, its output going to files from the first byte.

    What a command of the user's started has to run the copy of the package that is patched.
    """

    def act(member: Member) -> str:
        wanted = life(member)
        args = {
            "argv": list(wanted.argv),
            "env_set": dict(wanted.env_set),
            "env_unset": list(wanted.env_unset),
            "cwd": wanted.cwd,
        }
        member.started = True
        timeout_s = SLACK_S + _start_patience_s(member)
        member.life = member.channel.call("start-server", args, timeout_s=timeout_s).value
        member.server = "debug life"
        missing = member.life.get("missing")
        if missing:
            member.notes.append(
                f"the start command does not hand on {', '.join(missing)} to the server"
            )
        if isinstance(server.launch, LaunchPair):
            check_copy(member, server, package)
        return f"pid {member.life['pid']}"

    return act


def check_copy(member: Member, server: Server, package: str) -> None:
    """Raises `HostError` `other-copy` where the debug life imports another copy of the package.

    Before it ran only the environment and directory of the former life were known, and a command
    may start it in others. Its own interpreter is asked again; one that cannot be is told.
    """
    assert member.life is not None
    patched = member.install["package_dir"]
    asked = {"python": None, "package": package, "pid": member.life["pid"], "known": patched}
    try:
        found = member.channel.call("locate", asked, timeout_s=_LOCATE_S).value
    except HostError as error:
        if error.code not in ("gone", "no-interpreter", "not-installed"):
            raise
        member.notes.append(
            f"which `{package}` its debug life imports is not known: {error.message}"
        )
        return
    if not found["is_known"]:
        raise HostError(
            f"the debug life of server `{server.name}` imports `{package}` from"
            f" {found['package_dir']}, and {patched} is patched",
            host=member.name,
            code="other-copy",
            notes=[f"the server that ran before imported {patched}"],
            hints=[
                "have the start command lead to the patched copy: its interpreter, PYTHONPATH and"
                " directory decide"
            ],
        )


def _start_patience_s(member: Member) -> float:
    return member.found.start_patience_s if member.found is not None else 0.0


def start_original(member: Member) -> str:
    """Start the server as it was before; whether it gets ready is another stage."""
    member.server, member.life = "not back", None
    timeout_s = _RESTORE_S + _start_patience_s(member)
    value = member.channel.call("restore-server", timeout_s=timeout_s).value
    member.life = value
    if value is None:
        member.server = "not back" if member.ran else "restored"
        return "is gone" if member.ran else "was not running before"
    member.differences = tuple(value["differences"])
    return f"pid {value['pid']}"
