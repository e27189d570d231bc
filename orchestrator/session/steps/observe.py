"""Looks at every host before anything is written: agent, leftovers, server, install, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.agent.ship import open_agent
from orchestrator.diagnostics import outcome_text
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, LaunchAdopt, LaunchCommand, LaunchPair, Server
from orchestrator.model.outcome import Outcome
from orchestrator.model.patch import Patch
from orchestrator.model.plan import Plan
from orchestrator.model.session import Restart
from orchestrator.planning.view import HostView
from orchestrator.servers.base import Found, Life, debug_life, find, find_port, for_host
from orchestrator.servers.ports import require_port
from orchestrator.session.hosts.contact import show_time, tell_files, tell_server
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.regain import tell_recovered
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0
# All files of a package are read, an interpreter starts from a slow disk, and drivers of GPUs that
# sleep take seconds to answer.
LOOK_S = 60.0
# What the inventory's entry of the server may be wrong about.
_ABOUT_SERVER = (
    *("server-not-found", "server-ambiguous", "server-in-part", "not-restorable", "port-taken"),
)
# Recovery of a leftover runs the whole tail there: stop, revert, start.
_RECOVER_S = 300.0
_STATUS_S = 30.0


def connect(transport: Transport) -> Callable[[Member], str]:
    """The stage that opens each member's agent."""

    def act(member: Member) -> str:
        member.agent = open_agent(transport, member.host, timeout_s=_CONNECT_S)
        hello = member.agent.hello
        return f"{hello['user']}@{hello['hostname']}"

    return act


def in_turns(server: Server, members: Sequence[Member]) -> list[Sequence[Member]]:
    """Who is looked at together: rank 0 first where it tells which of several parts is whose."""
    if isinstance(server.launch, LaunchAdopt | LaunchPair):
        return [members[:1], members[1:]]
    return [members]


def look(
    session_id: str,
    server: Server,
    install: Install,
    patches: Sequence[Patch],
    restart: Restart,
    first: Member,
) -> Callable[[Member], str]:
    """The stage that fills in each member's server, install and view of the files.

    `first` is the member of rank 0; what is known of it already tells the others' parts.
    """

    def act(member: Member) -> str:
        nodes = len(server.hosts)
        meeting = first.found.meeting if first.found is not None else None
        try:
            member.found = find_life(member, server, install, nodes, restart, meeting)
            member.install = locate(member, server, install)
        except HostError as error:
            raise blame_session(member, server, install, nodes, error) from None
        _refuse_leftovers(member)
        member.probe_dir = f"{member.channel.hello['tmp_dir']}/sgldbg-{session_id}-{member.name}"
        member.view = _view(member, install, patches)
        return summarize(member, install.package)

    return act


def find_life(
    member: Member,
    server: Server,
    install: Install,
    nodes: int,
    restart: Restart | None = None,
    meeting: str | None = None,
) -> Found:
    """Find the member's part of the server; errors name the inventory's line of the server.

    Its port must be free for it once it is stopped, also with what `restart` changes.
    """
    try:
        found = find(member.channel, server, install, member.host, member.rank, nodes, meeting)
        if member.rank == 0:
            life = found.original if restart is None else debug_life(found.original, restart)
            require_port(member.channel, find_port(server), found.description, life)
        return found
    except HostError as error:
        if error.code in _ABOUT_SERVER:
            error.span = server.span
        raise


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


def _sessions_here(member: Member) -> list[Mapping[str, Any]]:
    """What sessions left or do on this host; those of machines that share its home are not its.

    Also one of which only the lock beside the install is left, once it is known where that is.
    """
    return [left for left in _sessions_seen(member) if not left.get("elsewhere")]


def _sessions_seen(member: Member) -> list[Mapping[str, Any]]:
    packages = [member.install["package_dir"]] if member.install else []
    value = member.channel.call("status", {"packages": packages}, timeout_s=_STATUS_S).value
    sessions: list[Mapping[str, Any]] = value["sessions"]
    return sessions


def end_leftovers(member: Member) -> str:
    """Finish what dead controllers left on this host: their leases are over, nobody holds them.

    Before anything else is looked at, since a debug life that was left has the server's port. What
    cannot be finished is refused later, where it is on the install that matters. So is a session
    whose server is not back: how it ran would be forgotten with it, and that it does not run would
    count as how it was.
    """
    ended = []
    for left in _sessions_here(member):
        if not left["expired"] or tell_server(left) == "not back":
            continue
        args = {name: left[name] for name in ("session", "host", "lock") if name in left}
        try:
            value = member.channel.call("recover", args, timeout_s=_RECOVER_S).value
        except HostError as error:
            if error.code in ("lost", "timeout"):
                raise
            member.notes.append(error.message)
            continue
        if not value["left"]:
            ended.append(left["session"])
            member.notes.append(f"ended the earlier session `{left['session']}` first")
            if "lost" in value:  # what else would look like a server that did not run before
                member.notes += tell_recovered(value)
    return f"ended {', '.join(ended)}" if ended else "none"


def _refuse_leftovers(member: Member) -> None:
    """Refuse an install that a session holds: a patched file must not pass for the original.

    One that its guard has brought to its end, with only its report left, holds nothing any more;
    one of another machine holds it where its lock stands beside it.
    """
    for left in _sessions_seen(member):
        is_abroad = bool(left.get("elsewhere"))
        if is_abroad and not left.get("lock"):
            continue
        if left["root"] == member.install["root"] and not left.get("over"):
            raise (_in_use_abroad if is_abroad else _in_use)(member.name, left)


def blame_session(
    member: Member, server: Server, install: Install, nodes: int, error: HostError
) -> HostError:
    """The reason why a server cannot be looked at where a session is at work with it.

    It is stopped, or a debug life with other arguments has its port; what the inventory says of
    the install tells whether the session is on this one.
    """
    left = [session for session in _sessions_here(member) if not session.get("over")]
    if not left or error.code in ("lost", "timeout"):
        return error
    life = Life(argv=(install.python or "",))
    if isinstance(server.launch, LaunchCommand):
        life = for_host(server.launch, member.host, member.rank, nodes)
    member.found = Found(member.name, None, life)
    try:
        member.install = locate(member, server, install)
        _refuse_leftovers(member)
    except HostError as refused:
        if refused.code in ("locked", "not-reverted"):
            return refused
    error.notes = (*error.notes, *map(_say_whose, left))
    ends = dict.fromkeys(_driven(session)[1] for session in left)
    # Nothing is wrong with the inventory's entry of a server that a session has taken away.
    error.hints = (*([] if error.code in _ABOUT_SERVER else error.hints), *ends)
    return error


def _say_whose(left: Mapping[str, Any]) -> str:
    who = f"session `{left['session']}` of {left['holder']}"
    if left["controller"] == "alive" and not left["expired"]:
        return f"{who} is at work on this host"
    return f"{who} is not ended on this host, {_driven(left)[0]}: {_what_is_left(left)}"


def _what_is_left(left: Mapping[str, Any]) -> str:
    return outcome_text(Outcome(left["host"], "look", False, tell_files(left), tell_server(left)))


def _driven(left: Mapping[str, Any]) -> tuple[str, str]:
    """By whom the session is driven now, and how it is ended."""
    if left["expired"]:
        return "its lease is over", _SEE_STATUS
    # What `revert --all` passes over, or takes from somebody who may still want it, is said.
    return {
        "alive": (
            "it is at work",
            "wait for it; `sgldbg revert --all --take` ends it all the same",
        ),
        "detached": ("left so by `sgldbg apply`", _ASK_FIRST),
        "kept": ("left so by `sgldbg keep`", _ASK_FIRST),
    }.get(left["controller"], ("its controller is gone", _SEE_STATUS))


_SEE_STATUS = "see `sgldbg status`; `sgldbg revert --all` ends it"
_GONE = "`sgldbg revert --all --gone"
_ASK_FIRST = "if its owner does not need it any more, `sgldbg revert --all` ends it"


def _in_use_abroad(host: str, left: Mapping[str, Any]) -> HostError:
    who = f"session `{left['session']}` of {left['holder']} since {show_time(left['since'])}"
    return HostError(
        f"the install is in use by {who}",
        host=host,
        code="locked",
        notes=(f"it is of `{left['host']}` (machine `{left['elsewhere']}`), which shares it",),
        hints=(f"it ends there; should that never come back: {_GONE} {left['host']}`",),
    )


def _in_use(host: str, left: Mapping[str, Any]) -> HostError:
    who = f"session `{left['session']}` of {left['holder']} since {show_time(left['since'])}"
    if left["expired"]:
        return HostError(
            f"the install still holds {who}, whose lease is over",
            host=host,
            code="not-reverted",
            notes=(_what_is_left(left), *(f"{f['path']}: {f['state']}" for f in left["files"])),
            hints=(_SEE_STATUS,),
        )
    until = "kept without an end"
    if left["deadline_s"] is not None:
        until = f"reverts by itself in {max(0, round(left['deadline_s'] - left['now_s']))} s"
    driven, hint = _driven(left)
    left_so = () if left["controller"] == "alive" else (_what_is_left(left),)
    return HostError(
        f"the install is in use by {who}",
        host=host,
        code="locked",
        notes=(f"{driven}, {until}", *left_so),
        hints=(hint,),
    )


def _view(member: Member, install: Install, patches: Sequence[Patch]) -> HostView:
    # A runtime that stands there already is somebody's: the plan says so, before staging would.
    runtimes = (f"{p.package.replace('.', '/')}/_sgldbg.py" for p in patches)
    wanted = list(dict.fromkeys((*(f for p in patches for f in p.files()), *runtimes)))
    args = {
        "root": member.install["root"],
        "package": install.package,
        "files": wanted,
        "dist_info": member.install["dist_info"],
    }
    reply = member.channel.call("observe", args, timeout_s=LOOK_S)
    files: dict[str, bytes | None] = {}
    at = 0
    member.files = {row["file"]: row for row in reply.value["files"]}
    for row in reply.value["files"]:
        if not row["exists"]:
            files[row["file"]] = None
            continue
        files[row["file"]] = reply.raw[at : at + row["size"]]
        at += row["size"]
    return HostView(
        host=member.name,
        package_version=member.install["package_version"],
        files=files,
        probe_dir=member.probe_dir,
    )


def summarize(member: Member, package: str) -> str:
    """What was found there, in few words."""
    assert member.found is not None
    version = member.install["package_version"] or "of unknown version"
    running = member.found.description
    what = f"pid {running['pid']}" if running else "no server running"
    return f"{package} {version}, {what}"


def check_code(plan: Plan) -> Callable[[Member], None]:
    """The stage in which each host's own interpreter compiles the planned files."""

    def act(member: Member) -> None:
        files = plan.of_host(member.name)
        args = {
            "python": member.install["python"],
            "files": [{"file": f.file, "size": len(f.after)} for f in files],
        }
        raw = b"".join(f.after for f in files)
        reply = member.channel.call("check-code", args, raw, timeout_s=LOOK_S)
        bad = [f for f in reply.value["files"] if f["error"]]
        if bad:
            raise HostError(
                f"the patched `{bad[0]['file']}` does not compile with"
                f" {member.install['python']}: {bad[0]['error']}",
                host=member.name,
                code="proof",
            )

    return act
