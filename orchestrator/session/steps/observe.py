"""Looks at every host before anything is written: agent, server, install, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, LaunchAdopt, LaunchPair, Server
from orchestrator.model.patch import Patch
from orchestrator.model.session import Restart
from orchestrator.planning.view import HostView
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.leftovers import blame_session, refuse_leftovers
from orchestrator.session.steps.locating import LOOK_S, find_life, locate, tell_copies
from orchestrator.session.steps.orphans import name_orphans, note_orphans
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0


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
            member.found = note_orphans(member, server, install)
            member.install = locate(member, server, install)
            member.found = tell_copies(member.found, install.package, member.install)
        except HostError as error:
            if error.code == "server-not-found":
                name_orphans(error, member, install)
            raise blame_session(member, server, install, nodes, error) from None
        refuse_leftovers(member)
        member.probe_dir = f"{member.channel.hello['tmp_dir']}/sgldbg-{session_id}-{member.name}"
        member.view = _view(member, install, patches)
        return summarize(member, install.package)

    return act


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
