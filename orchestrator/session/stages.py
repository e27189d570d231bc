"""The stages that change a host, each one agent op, from the first staged byte to the arming."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.inventory import LaunchAdopt, Server
from orchestrator.model.plan import Plan
from orchestrator.planning.table import probe_table
from orchestrator.servers.base import Life
from orchestrator.session.member import Member

# Time for an op beyond what the op itself may wait: the wire and a busy host.
_SLACK_S = 30.0

Act = Callable[[Member], object]


def begin(session_id: str, holder: str, lease_s: float, grace_s: float) -> Act:
    """Journal, lease and guard, before anything else of the host is touched."""

    def act(member: Member) -> str:
        args = {
            "session": session_id,
            "host": member.name,
            "holder": holder,
            "lease_s": lease_s,
            "grace_s": grace_s,
        }
        value = member.channel.call("begin", args, timeout_s=_SLACK_S).value
        member.begun = True
        member.lease_s, member.silent_since_s = lease_s, time.monotonic()
        member.deadline_s = value["deadline_s"]
        if value["probe_dir"] != member.probe_dir:
            raise HostError(
                f"the agent keeps probes in {value['probe_dir']}, the plan says {member.probe_dir}",
                host=member.name,
                code="crash",
            )
        return f"guard pid {value['guard']['pid']}"

    return act


def stage(plan: Plan, package: str) -> Act:
    """Lock the install and lay every file beside its target; nothing is visible yet."""

    def act(member: Member) -> str:
        files = plan.of_host(member.name)
        args = {
            "root": member.install["root"],
            "package": package,
            "pycache_prefix": member.install["pycache_prefix"],
            "tag": member.install["tag"],
            "files": [
                {
                    "file": f.file,
                    "before_sha256": f.before_sha256,
                    "after_sha256": f.after_sha256,
                    "size": len(f.after),
                }
                for f in files
            ],
        }
        raw = b"".join(f.after for f in files)
        value = member.channel.call("stage", args, raw, timeout_s=_SLACK_S).value
        member.staged = True
        member.state = "staged"
        copies = [f["file"] for f in value["files"] if f["kept"] == "copy"]
        if copies:
            member.notes.append(f"kept as a copy, so the inode will differ: {', '.join(copies)}")
        return f"{len(files)} files"

    return act


def describe(server: Server) -> Act:
    """Write down on the host how its server runs, so that it can be started again like that."""

    def act(member: Member) -> str:
        assert member.found is not None
        running, original = member.found.description, member.found.original
        output = server.launch.output if isinstance(server.launch, LaunchAdopt) else None
        args: dict[str, Any] = {"pid": None, "output": output}
        if running is not None:
            args.update(pid=running["pid"], start_time=running["start_time"])
        else:
            args.update(argv=list(original.argv), env=dict(original.env_set), cwd=original.cwd)
        member.channel.call("describe-server", args, timeout_s=_SLACK_S)
        member.described = True
        return f"pid {running['pid']}" if running else "was not running"

    return act


def stop_server(which: str, timeout_s: float, port: int) -> Act:
    """Stop the original or the debug life and everything that it started."""

    def act(member: Member) -> str:
        if which == "original":
            member.stopping = True
        args = {"which": which, "timeout_s": timeout_s, "port": port if member.rank == 0 else None}
        value = member.channel.call("stop-server", args, timeout_s=2 * timeout_s + _SLACK_S).value
        if value["left"]:
            raise HostError(
                f"processes outlived SIGKILL: {value['left']}", host=member.name, code="not-stopped"
            )
        member.server = "stopped"
        if which == "debug":
            member.life = None
        killed = f", {len(value['killed'])} killed" if value["killed"] else ""
        return f"{len(value['stopped'])} processes ended{killed}"

    return act


def swap(member: Member) -> str:
    """Put the planned files in place, the probe runtime first."""
    member.swapped = True
    member.state = "patched"
    value = member.channel.call("swap", timeout_s=_SLACK_S).value
    return f"{len(value['files'])} files"


def check_effective(plan: Plan, life: Callable[[Member], Life]) -> Act:
    """Ask the host's import system whether it would run the patched code."""

    def act(member: Member) -> None:
        needles = [
            {"file": f.file, "needle": s.site} for f in plan.of_host(member.name) for s in f.sites
        ]
        args = {
            "python": member.install["python"],
            "needles": needles,
            "env_set": dict(life(member).env_set),
        }
        value = member.channel.call("effective", args, timeout_s=60.0).value
        for row in value["files"]:
            if not row["found"]:
                raise HostError(
                    f"the patched `{row['file']}` is not what Python would run: {row['why']}",
                    host=member.name,
                    code="not-effective",
                )

    return act


def detach(lease_s: float) -> Act:
    """Leave the host to its guard: it reverts by itself when `lease_s` are over."""

    def act(member: Member) -> str:
        member.channel.call("detach", {"lease_s": lease_s}, timeout_s=_SLACK_S)
        return f"reverts by itself in {lease_s:g} s"

    return act


def write_table(plan: Plan, generation: int, phase: str, *, over: bool = False) -> Act:
    """Tell the probes of this host what to do from now on."""

    def act(member: Member) -> None:
        table: Mapping[str, Any] = probe_table(plan, generation, phase, over=over)
        member.channel.call("probe-table", {"table": table}, timeout_s=_SLACK_S)

    return act


def start(life: Callable[[Member], Life]) -> Act:
    """Start the debug life, its output going to files from the first byte."""

    def act(member: Member) -> str:
        wanted = life(member)
        args = {
            "argv": list(wanted.argv),
            "env_set": dict(wanted.env_set),
            "env_unset": list(wanted.env_unset),
            "cwd": wanted.cwd,
        }
        member.started = True
        member.life = member.channel.call("start-server", args, timeout_s=_SLACK_S).value
        member.server = "debug life"
        return f"pid {member.life['pid']}"

    return act
