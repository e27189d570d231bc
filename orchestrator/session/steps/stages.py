"""The stages that change a host's files, each one agent op, from the lease to the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.plan import Plan
from orchestrator.planning.table import probe_table
from orchestrator.servers.base import Life
from orchestrator.session.hosts.fleet import Act
from orchestrator.session.hosts.member import Member

# Time for an op beyond what the op itself may wait: the wire and a busy host.
SLACK_S = 30.0
# Every file is read and checked, and a busy disk has its say in each fsync.
_REVERT_S = 60.0
# An interpreter starts there, maybe from a cold network disk.
_EFFECTIVE_S = 60.0
# What ends a session with a file that somebody changed; without `--force` nothing does.
COMPARE = (
    "compare the versions; `sgldbg revert --all --force` puts back the original that is kept, or"
    " where the install was made anew, leaves it as it is"
)
# The words of the agent for a file that is as it was.
_BACK = ("reverted", "removed", "untouched")

_ENDS_AT_LOGOUT = (
    "the last logout of `{user}` ends every process of theirs, the guard as well"
    " (KillUserProcesses=yes): `loginctl enable-linger {user}` lets it stay"
)

LifeOf = Callable[[Member], Life]


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
        member.lease_s, member.silent_since_s = lease_s, time.monotonic()
        try:
            value = member.channel.call("begin", args, timeout_s=SLACK_S).value
        except HostError as error:
            # Nobody knows whether it began there; the tail finds out.
            member.begun = error.code in ("lost", "timeout")
            raise
        member.begun = True
        member.epoch = value["epoch"]
        if value["probe_dir"] != member.probe_dir:
            raise HostError(
                f"the agent keeps probes in {value['probe_dir']}, the plan says {member.probe_dir}",
                host=member.name,
                code="crash",
            )
        said = f"guard pid {value['guard']['pid']}"
        user = value.get("ends_at_logout")
        return said if user is None else f"{said}; {_ENDS_AT_LOGOUT.format(user=user)}"

    return act


_STAGE_HINTS = {
    "changed": ("somebody changed it after the plan was made: run this again to plan anew",),
    "no-space": ("make room on that file system",),
    "read-only": ("the install must be writable: sgldbg swaps files in place",),
    "not-permitted": ("log in as a user who may write to the install: `user` of the host",),
}


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
        try:
            value = member.channel.call("stage", args, raw, timeout_s=SLACK_S).value
        except HostError as error:
            error.hints = (*error.hints, *_STAGE_HINTS.get(error.code, ()))
            raise
        member.staged = True
        member.state = "staged"
        if value["shared_with"]:
            member.notes.append(f"shares its install with {value['shared_with']}, which patches it")
            return f"shared with {value['shared_with']}"
        copies = [f["file"] for f in value["files"] if f["kept"] == "copy"]
        if copies:
            member.notes.append(f"kept as a copy, so the inode will differ: {', '.join(copies)}")
        return f"{len(files)} files"

    return act


def swap(member: Member) -> str:
    """Put the planned files in place, the probe runtime first."""
    member.swapped = True
    member.state = "patched"
    value = member.channel.call("swap", timeout_s=SLACK_S).value
    return f"{len(value['files'])} files"


def check_effective(plan: Plan, life: LifeOf) -> Act:
    """Ask the host's import system whether it would run the patched code."""

    def act(member: Member) -> None:
        # Code of the user's carries no mark: there the whole file's code is compared.
        needles = [
            {"file": f.file, "needle": s.site if s.site in plan.table else ""}
            for f in plan.of_host(member.name)
            for s in f.sites
        ]
        wanted = life(member)
        args = {
            "python": member.install["python"],
            "needles": needles,
            "env_set": dict(wanted.env_set),
            "env_unset": list(wanted.env_unset),
            "cwd": wanted.cwd,
        }
        value = member.channel.call("effective", args, timeout_s=_EFFECTIVE_S).value
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
        member.channel.call("detach", {"lease_s": lease_s}, timeout_s=SLACK_S)
        return f"reverts by itself in {lease_s:g} s"

    return act


_VISIBLE_HINTS = (
    "its `/tmp` is not the host's: have systemd stop and start a unit, `launch: {systemd: UNIT}`",
    "for a server in a container, `enter` of the host runs the agent in there as well",
)


def say_how_to_see(error: HostError) -> HostError:
    """The error with what to do about a server that does not see what the agent does."""
    if error.code == "not-visible":
        error.hints = (*error.hints, *_VISIBLE_HINTS)
    return error


def write_table(plan: Plan, generation: int, phase: str) -> Act:
    """Tell the probes of this host what to do from now on."""

    def act(member: Member) -> None:
        table: Mapping[str, Any] = probe_table(plan, generation, phase, host=member.name)
        try:
            member.channel.call("probe-table", {"table": table}, timeout_s=SLACK_S)
        except HostError as error:
            raise say_how_to_see(error) from None

    return act


def revert(*, force: bool = False) -> Act:
    """Put the originals back, in reverse order, and prove it."""

    def act(member: Member) -> str:
        value = member.channel.call("revert", {"force": force}, timeout_s=_REVERT_S).value
        if not value["verified"]:
            member.state = name_state(value)
            raise _not_reverted(member.name, value["files"])
        if member.staged or member.swapped:
            member.state = name_state(value)
        member.notes += [*tell_kept(value), *tell_apart(value)]
        return f"{len(value['files'])} files"

    return act


def name_state(value: Mapping[str, Any]) -> str:
    """The word of `Outcome` for the files after a `revert` or `recover` with this value.

    Only what somebody else put there is drift; where planned bytes may still stand, or nobody
    could look, the host counts as patched.
    """
    if value["verified"]:
        return "let go" if any(f.get("let_go") for f in value["files"]) else "reverted"
    bad = {f["state"] for f in value["files"]} - set(_BACK)
    return "drifted" if bad == {"drift"} else "patched"


def tell_kept(value: Mapping[str, Any]) -> list[str]:
    """Where the other version of each file is that somebody changed."""
    what = {"drift": "the original of", "untouched": "the original of"}
    return [
        f"{what.get(f['state'], 'what stood in')} {f['path']} is kept as {', '.join(f['kept'])}"
        for f in value["files"]
        if f["kept"]
    ]


def tell_apart(value: Mapping[str, Any]) -> list[str]:
    """The files that need no more work and are not in all as they were, each with why: what is
    somebody else's by now, and what came back with another inode.
    """
    apart = [f for f in value["files"] if f.get("let_go") or f["state"] == "reverted"]
    return [f"{f['path']}: {f['why']}" for f in apart if f["why"]]


def _not_reverted(host: str, files: Sequence[Mapping[str, Any]]) -> HostError:
    """What stands in the way: a file that could not be written back outranks somebody's edit."""
    bad = [f for f in files if f["state"] not in _BACK]
    failed = [f for f in bad if f["state"] != "drift"]
    if bad and not failed:
        what, code = "left alone", "drift"
        hint = COMPARE
    else:
        what, code = "not put back", "not-reverted"
        hint = "mend what stands in the way, then run `sgldbg revert --all`"
    count = len(failed or bad)
    return HostError(
        f"{count} file{'s were' if count != 1 else ' was'} {what}" if bad else "not verified",
        host=host,
        code=code,
        notes=tuple(map(_tell_file, bad)),
        hints=(hint,),
    )


def _tell_file(file: Mapping[str, Any]) -> str:
    kept = f"; kept: {', '.join(file['kept'])}" if file["kept"] else ""
    state = "could not be put back" if file["state"] == "failed" else file["state"]
    return f"{file['path']}: {state}, {file['why']}{kept}"
