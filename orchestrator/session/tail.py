"""The end of every session: stop, revert, verify, start the originals, ready, finish."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import HostError
from orchestrator.model.inventory import Server
from orchestrator.servers.ready import wait_ready
from orchestrator.session.fleet import Fleet
from orchestrator.session.member import Member
from orchestrator.session.regain import is_lost, regain
from orchestrator.session.stages import stop_server
from orchestrator.transport.base import Transport

_OP_S = 60.0
# A silent host reverts by itself when its lease and grace are over; its guard then has to stop a
# server, which takes 8 to 10 s as measured, before it can say that it is done.
_GUARD_WORK_S = 20.0


@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a session needs to know; `run` may be called once.

    No original server starts before every member is verified, or its lease and grace are over:
    half a server must not wait in a rendezvous for the other half. `collect` takes what the debug
    life printed to its very end.
    """

    fleet: Fleet
    server: Server
    transport: Transport
    session_id: str
    after: str
    port: int
    grace_s: float
    collect: Callable[[Member], object]

    def run(self) -> None:
        """End the session on every host that it began on; each member's fields say how it went.

        Never raises for a host: what failed stands in the member's `error`.
        """
        begun = [m for m in self.fleet.members if m.begun]
        lost = [m for m in begun if is_lost(m)]
        here = [m for m in begun if m not in lost]
        self._stop_and_revert(here)
        if lost:
            self._wait_for(lost)
            back = [m for m in lost if m.begun and m.state != "unknown"]
            self._stop_and_revert(back)
        self._restore([m for m in begun if m.begun])
        self.fleet.attempt("finish", self._finish, [m for m in begun if m.begun and _clean(m)])

    def _stop_and_revert(self, members: list[Member]) -> None:
        """Stop the debug life, rank 0 first, then put every file back and check it."""
        touched = [m for m in members if m.stopping or m.started]
        for group in ([m for m in touched if m.rank == 0], [m for m in touched if m.rank != 0]):
            self.fleet.attempt("stop", self._stop_all, group)
        self.fleet.attempt("revert", _revert, members)
        # The last words of the debug life: after the files are back, so that no log can delay
        # that, and before the session's directory with the logs is filed away.
        self.fleet.attempt("collect", self.collect, [m for m in members if m.started])

    def _stop_all(self, member: Member) -> str:
        timeout_s = self.server.stop_timeout_s
        if member.started:
            return str(stop_server("debug", timeout_s, self.port)(member))
        if member.server != "stopped":
            return str(stop_server("original", timeout_s, self.port)(member))
        return "was stopped"

    def _wait_for(self, lost: list[Member]) -> None:
        """Try to get lost members back until their guards must have acted."""

        def act(member: Member) -> str:
            over_s = member.silent_since_s + member.lease_s + self.grace_s + _GUARD_WORK_S
            until_s = max(over_s, time.monotonic() + 5.0)
            self.fleet.progress.note(
                f"{member.name} is out of reach; its guard reverts it by itself within"
                f" {max(0, int(over_s - time.monotonic()))} s"
            )
            regain(self.transport, self.session_id, member, until_s)
            if member.error is not None:
                raise member.error
            return "; ".join(member.notes)

        self.fleet.attempt("regain", act, lost)

    def _restore(self, members: list[Member]) -> None:
        """Start the original servers where we stopped them, all together."""
        stopped = [m for m in members if m.stopping and m.described]
        if self.after == "stopped":
            for member in stopped:
                member.server = "left stopped" if member.server == "stopped" else "unknown"
            return
        able = [m for m in stopped if m.server == "stopped" and m.state == "reverted"]
        for member in stopped:
            if member not in able:
                member.server = "not back"
        self.fleet.attempt("restore", _start_original, able)
        self.fleet.attempt("ready again", self._wait_ready, [m for m in able if m.life is not None])

    def _wait_ready(self, member: Member) -> None:
        assert member.life is not None
        try:
            wait_ready(
                member.channel,
                self.server,
                member.life,
                member.rank,
                lambda text: self.fleet.progress.stage(member.name, "ready again", "running", text),
                lambda: any(m.error is not None for m in self.fleet.members),
                lambda: self.fleet.members[0].server == "restored",
            )
        except HostError:
            member.server = "not back"
            raise
        member.server = "restored"

    def _finish(self, member: Member) -> None:
        value = member.channel.call("finish", timeout_s=_OP_S).value
        member.begun = False
        if value["left"]:
            raise HostError(
                f"could not remove {', '.join(value['left'])}", host=member.name, code="left"
            )


def _clean(member: Member) -> bool:
    return member.state in ("untouched", "reverted")


def _revert(member: Member) -> str:
    value = member.channel.call("revert", {"force": False}, timeout_s=_OP_S).value
    bad = [f for f in value["files"] if f["state"] == "drift"]
    if bad or not value["verified"]:
        member.state = "drifted"
        raise HostError(
            f"{len(bad)} files were changed by somebody else and were left alone",
            host=member.name,
            code="drift",
            notes=tuple(
                f"{f['path']} has sha256 {f['sha256']}; kept: {', '.join(f['kept'])}" for f in bad
            ),
            hints=(
                "compare the files, then run `sgldbg revert --all --force` to put the original"
                " back, or remove the kept copies",
            ),
        )
    if member.staged or member.swapped:
        member.state = "reverted"
    return f"{len(value['files'])} files"


def _start_original(member: Member) -> str:
    value = member.channel.call("restore-server", timeout_s=_OP_S).value
    member.life = value
    if value is None:
        member.server = "restored"
        return "was not running before"
    member.server = "not back"
    if value["differences"]:
        member.notes.append("restarted, but " + "; ".join(value["differences"]))
    return f"pid {value['pid']}"
