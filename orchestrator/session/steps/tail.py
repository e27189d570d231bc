"""The end of every session: stop, revert, verify, start the originals, ready, finish."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from orchestrator.errors import HostError
from orchestrator.model.inventory import LaunchCommand, Server
from orchestrator.servers.base import for_host, join, shown
from orchestrator.servers.ready import wait_ready
from orchestrator.session.hosts.fleet import Act, Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import lives, stages
from orchestrator.session.steps.regain import is_lost, regain
from orchestrator.transport.base import Transport

# A silent host reverts by itself when its lease and grace are over; its guard then has to stop a
# server, which takes 8 to 10 s as measured, before it can say that it is done.
_GUARD_WORK_S = 20.0
# At least this long it is tried to get a lost host back, however little time its lease had left.
_PATIENCE_S = 5.0
# Between two tries to put files back that could not be.
_RETRY_S = 2.0
# A server whose other half is out of reach may be waiting for it in a rendezvous.
_HALF_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a session needs to know; `run` may be called once.

    No original server starts before every member is verified, or its lease and grace are over:
    half a server must not wait in a rendezvous for the other half. Only somebody else's edit is
    not waited for, since time does not better it. Every step may be repeated, so that a host which
    is lost in the middle and comes back goes on with the one it was at.

    `collect` takes what the debug life printed to its very end. Without a `server` nobody waits
    until it is ready. `recover_others` ends the session on the hosts where its lease is over; it
    is called once the members are reverted, and before their servers start.
    """

    fleet: Fleet
    server: Server | None
    transport: Transport
    session_id: str
    after: str
    grace_s: float
    collect: Callable[[Member], object] | None = None
    force: bool = False
    recover_others: Callable[[], object] | None = None

    def run(self) -> None:
        """End the session on every host that it began on; each member's fields say how it went.

        Never raises: what failed stands in the member's `error`.
        """
        begun = [m for m in self.fleet.members if m.begun]
        lost = _find_lost(begun)
        # The parts of one server go down together, wherever the first of them was stopped.
        if any(m.stopping or m.started for m in begun) or any(m.announced for m in lost):
            for member in begun:
                member.stopping = member.stopping or member.described
        else:
            for member in begun:
                member.announced = False
        self._stop_and_revert([m for m in begun if m not in lost])
        # Also those that were lost just now.
        lost = [m for m in begun if m in lost or _is_cut(m)]
        if lost:
            self._wait_for(lost)
            self._stop_and_revert(_within_reach(lost))
        if self.recover_others is not None:
            self.recover_others()
        self._await_files(begun)
        self._restore(begun)
        # What a host has ended by itself stays open as well until its server is seen to run.
        done = [*_within_reach(begun), *(m for m in self.fleet.members if m.held)]
        self._attempt("finish", _finish, [m for m in done if _may_finish(m)])

    def _stop_and_revert(self, members: Sequence[Member]) -> None:
        """Stop the debug life, rank 0 first, then put every file back and check it."""
        down = [m for m in members if m.is_down]
        stop = self._stop_life
        self.fleet.attempt("stop", stop, [m for m in down if m.rank == 0])
        self.fleet.attempt("stop", stop, [m for m in down if m.rank != 0 and not _is_cut(m)])
        able = [m for m in members if not _is_cut(m)]
        self.fleet.attempt("revert", stages.revert(force=self.force), able)

    def _stop_life(self, member: Member) -> str:
        if member.started:
            return str(lives.stop_server("debug", self.server)(member))
        if member.server == "restored":
            return "is the original again"
        if member.server != "stopped":
            return str(lives.stop_server("original", self.server)(member))
        return "was stopped"

    def _attempt(self, stage: str, act: Act, members: Sequence[Member]) -> None:
        """As the fleet's; a host that is lost in it and comes back does the stage once more."""
        self.fleet.attempt(stage, act, members)
        cut = [m for m in members if _is_cut(m)]
        if cut:
            self._wait_for(cut)
            self.fleet.attempt(stage, act, _within_reach(cut))

    def _wait_for(self, lost: Sequence[Member]) -> None:
        """Try to get lost members back until their guards must have acted."""

        def act(member: Member) -> str:
            over_s = member.silent_since_s + member.lease_s + self.grace_s + _GUARD_WORK_S
            until_s = max(over_s, time.monotonic() + _PATIENCE_S)
            self.fleet.progress.note(
                f"{member.name} is out of reach; its guard reverts it by itself within"
                f" {max(0, round(over_s - time.monotonic()))} s"
            )
            regain(self.transport, self.session_id, member, until_s)
            if member.error is not None:
                raise member.error
            return member.notes[-1]

        self.fleet.attempt("regain", act, lost)

    def _await_files(self, begun: Sequence[Member]) -> None:
        """Revert again where files could not be put back, for as long as a guard would have to."""
        here = [m for m in _within_reach(begun) if m.is_down]
        failed = [m for m in here if m.state == "patched"]
        if not failed or len(failed) == len(here) or self.after == "stopped":
            return
        limit_s = max(m.lease_s for m in failed) + self.grace_s
        names = ", ".join(m.name for m in failed)
        others = f"the original server of {', '.join(m.name for m in here if m not in failed)}"
        self.fleet.progress.note(
            f"{names} is still patched; it is tried for {limit_s:g} s more before {others} starts"
        )
        until_s = time.monotonic() + limit_s
        while failed and time.monotonic() < until_s:
            time.sleep(min(_RETRY_S, max(0.0, until_s - time.monotonic())))
            failed = [m for m in failed if not self._revert_again(m)]
        for member in here:
            if failed and member.state != "patched":
                member.notes.append(f"started again though {names} may still be patched")

    def _revert_again(self, member: Member) -> bool:
        """Whether nothing is left to wait for on this host."""
        again: HostError | None = None
        try:
            stages.revert(force=self.force)(member)
        except HostError as error:
            again = error
        if member.error is not None and member.error.code == "not-reverted":
            member.error = again
        return member.state != "patched" or _is_cut(member)

    def _restore(self, begun: Sequence[Member]) -> None:
        """Start the original servers where we stopped them, all together."""
        here = _within_reach(begun)
        down = [m for m in here if m.is_down and m.described]
        if self.after == "stopped":
            for member in down:
                member.server = "left stopped" if member.server == "stopped" else "not back"
            down = []
        runs_on = self._find_unstopped(down)
        for member in [m for m in down if m not in runs_on]:
            # One that an earlier end has started again is asked for its process, and waited for.
            if member.server not in ("stopped", "restored") or member.state == "patched":
                member.server, member.life = "not back", None
        able = [m for m in down if m.server in ("stopped", "restored")]
        self._attempt("restore", lives.start_original, able)
        # The last words of the debug life: after the server is on its way back, so that no log
        # can delay that, and before the session's directory with the logs is filed away.
        if self.collect is not None:
            self.fleet.attempt("collect", self.collect, [m for m in here if m.started])
        waiting = [m for m in down if m.life is not None and m.server == "not back"]
        if self.server is None:
            for member in waiting:
                member.server = "restored"
            return
        # Those whose lease was over were started by their host, or by its guard long ago.
        elsewhere = [m for m in self.fleet.members if not m.begun and _is_up(m)]
        for member in elsewhere:
            member.server = "not back"
        waiting += elsewhere
        absent = [m for m in self.fleet.members if m not in waiting and _is_absent(m)]
        if absent:
            names = ", ".join(m.name for m in absent)
            for member in waiting:
                member.notes.append(f"started again, but not ready without {names}")
                member.notes += [text for m in absent if (text := self._tell_start(m))]
            return
        self._attempt("ready again", self._wait_ready(self.server, begun), waiting)

    def _find_unstopped(self, down: Sequence[Member]) -> list[Member]:
        """Those whose original runs on because nothing could stop it, each with its process.

        None where another part of the same server was stopped: the rest is no server any more.
        """
        if any(m.started or m.server in ("stopped", "restored") for m in down):
            return []
        found = [m for m in down if m.state != "patched" and _runs(m)]
        if len(found) < len(down):
            return []
        for member in found:
            assert member.found is not None
            assert member.found.description is not None
            known = member.found.description
            member.life = {"pid": known["pid"], "start_time": known["start_time"]}
            member.server = "not back"
            member.notes.append("its server could not be stopped and runs on")
        return found

    def _tell_start(self, member: Member) -> str:
        """How the part of a server that is missing is started by hand, as far as it is known."""
        life = member.found.original if member.found is not None else None
        server = self.server
        if life is None and server is not None and isinstance(server.launch, LaunchCommand):
            rank, nodes = server.hosts.index(member.name), len(server.hosts)
            life = for_host(server.launch, member.host, rank, nodes)
        if life is None:
            return ""
        folder = f"cd {shlex.quote(life.cwd)} && " if life.cwd else ""
        return f"by hand on {member.name}: `{folder}{join(shown(life))}`"

    def _wait_ready(self, server: Server, begun: Sequence[Member]) -> Act:
        unreached = [m.name for m in begun if m.state == "unknown"]
        if unreached:
            limit_s = min(server.ready.timeout_s, _HALF_READY_S)
            server = replace(server, ready=replace(server.ready, timeout_s=limit_s))
        # A first part that is not of this session is none that we stopped: it runs, or not.
        firsts = [m for m in self.fleet.members if m.rank == 0]
        failed = threading.Event()

        def act(member: Member) -> None:
            assert member.life is not None
            try:
                wait_ready(
                    member.channel,
                    server,
                    member.life,
                    member.rank,
                    lambda text: self.fleet.progress.stage(
                        member.name, "ready again", "running", text
                    ),
                    # One part that dies ends the wait of the others at once.
                    failed.is_set,
                    lambda: all(m.server == "restored" for m in firsts),
                )
            except HostError as error:
                lives.say_which(error, lives.ORIGINAL, unreached)
                failed.set()
                raise
            member.server = "restored"

        return act


def _find_lost(members: Sequence[Member]) -> list[Member]:
    """Ask all of them at once: each mute one takes its time."""
    with ThreadPoolExecutor(max(1, len(members)), "sgldbg-answer") as pool:
        return [m for m, lost in zip(members, pool.map(is_lost, members), strict=True) if lost]


def _is_cut(member: Member) -> bool:
    """Whether the channel is known to be gone, while the session there is not."""
    gone = member.agent is None or not member.agent.is_open
    return gone and member.begun and member.state != "unknown"


def _within_reach(members: Sequence[Member]) -> list[Member]:
    return [m for m in members if m.begun and m.state != "unknown" and not _is_cut(m)]


def _runs(member: Member) -> bool:
    """Whether the process that the session found when it began is still there."""
    known = member.found.description if member.found is not None else None
    if known is None:
        return False
    asked = {"pid": known["pid"], "start_time": known["start_time"], "port": None}
    try:
        return bool(member.channel.call("life", asked).value["alive"])
    except HostError:
        return False


def _is_absent(member: Member) -> bool:
    """Whether the server is known to lack this host's part."""
    return member.is_down and member.described and member.server in ("stopped", "not back")


def _is_up(member: Member) -> bool:
    """Whether a host that ended by itself has started its part of the server again."""
    return member.life is not None and member.server == "restored"


def _may_finish(member: Member) -> bool:
    """Whether nothing is left that the host's guard, or a later contact, could still better."""
    clean = member.state in ("untouched", "reverted", "let go")
    return clean and member.server in ("untouched", "restored", "left stopped")


def _finish(member: Member) -> None:
    value = member.channel.call("finish", timeout_s=stages.SLACK_S).value
    member.begun = member.held = False
    if value["left"]:
        raise HostError(
            f"could not remove {', '.join(value['left'])}", host=member.name, code="left"
        )
