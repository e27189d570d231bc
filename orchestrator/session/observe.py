"""Looks at every host before anything is written: agent, leftovers, server, install, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, LaunchCommand, Server
from orchestrator.model.patch import Patch
from orchestrator.model.plan import Plan
from orchestrator.planning.plan import HostView
from orchestrator.servers.base import find
from orchestrator.session.member import Member
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0
# Recovery of a leftover runs the whole tail there: stop, revert, start.
_RECOVER_S = 300.0


def connect(transport: Transport) -> Callable[[Member], str]:
    """The stage that opens each member's agent."""

    def act(member: Member) -> str:
        member.agent = open_agent(transport, member.host, timeout_s=_CONNECT_S)
        hello = member.agent.hello
        return f"{hello['user']}@{hello['hostname']}"

    return act


def look(
    session_id: str, server: Server, install: Install, patches: Sequence[Patch]
) -> Callable[[Member], str]:
    """The stage that fills in each member's server, install and view of the files."""

    def act(member: Member) -> str:
        nodes = len(server.hosts)
        member.found = find(member.channel, server, install, member.host, member.rank, nodes)
        member.install = locate(member, server, install)
        _end_leftovers(member)
        member.probe_dir = f"{member.channel.hello['tmp_dir']}/sgldbg-{session_id}-{member.name}"
        member.view = _view(member, install, patches)
        return _summary(member)

    return act


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
        args["env"] = dict(server.launch.env)
        args["cwd"] = server.launch.cwd
        args["python"] = install.python or member.found.original.argv[0]
    value: Mapping[str, Any] = member.channel.call("locate", args, timeout_s=60.0).value
    return value


def _end_leftovers(member: Member) -> None:
    """Finish what a dead controller left on this install; a live session is refused."""
    for left in member.channel.call("status", timeout_s=30.0).value["sessions"]:
        if left["root"] != member.install["root"]:
            continue
        if not left["expired"]:
            # The lock beside the install refuses it with holder and deadline when we stage; to
            # look at a patched file now would only give a misleading reason.
            raise HostError(
                f"the install is in use by session `{left['session']}` of {left['holder']}"
                f" since {left['since']}",
                host=member.name,
                code="locked",
                hints=("wait for it, or end it with `sgldbg revert --all`",),
            )
        args = {"session": left["session"], "host": left["host"]}
        value = member.channel.call("recover", args, timeout_s=_RECOVER_S).value
        if not value["verified"]:
            raise HostError(
                f"an earlier session `{left['session']}` left files that cannot be reverted",
                host=member.name,
                code="not-reverted",
                notes=tuple(f"{f['path']}: {f['state']}" for f in value["files"]),
                hints=("see `sgldbg status`",),
            )
        member.notes.append(f"finished the earlier session {left['session']}")


def _view(member: Member, install: Install, patches: Sequence[Patch]) -> HostView:
    wanted = list(dict.fromkeys(f for p in patches for f in p.files()))
    args = {
        "root": member.install["root"],
        "package": install.package,
        "files": wanted,
        "dist_info": member.install["dist_info"],
    }
    reply = member.channel.call("observe", args, timeout_s=60.0)
    files: dict[str, bytes | None] = {}
    at = 0
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


def _summary(member: Member) -> str:
    assert member.found is not None
    version = member.install["package_version"] or "of unknown version"
    running = member.found.description
    what = f"pid {running['pid']}" if running else "no server running"
    return f"sglang {version}, {what}"


def check_code(plan: Plan) -> Callable[[Member], None]:
    """The stage in which each host's own interpreter compiles the planned files."""

    def act(member: Member) -> None:
        files = plan.of_host(member.name)
        args = {
            "python": member.install["python"],
            "files": [{"file": f.file, "size": len(f.after)} for f in files],
        }
        raw = b"".join(f.after for f in files)
        reply = member.channel.call("check-code", args, raw, timeout_s=60.0)
        bad = [f for f in reply.value["files"] if f["error"]]
        if bad:
            raise HostError(
                f"the patched `{bad[0]['file']}` does not compile with"
                f" {member.install['python']}: {bad[0]['error']}",
                host=member.name,
                code="proof",
            )

    return act
