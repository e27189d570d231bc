"""What a session is told of whose controller stood still for longer than its lease."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from orchestrator.errors import FleetError, HostError, OrchestratorError, SessionError
from orchestrator.session.hosts.contact import show_time
from orchestrator.session.hosts.fleet import Fleet

# Unlike the monotonic clock it goes on while the machine sleeps, as those of the hosts do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# What a channel says whose far end a guard has ended, or that was given up for it.
_LOSSES = ("lost", "timeout", "fenced", "cancelled")
_HINT = "a longer `lease` outlives a longer pause; until it is over the hosts stay patched"


@dataclass(slots=True)
class Lookout:
    """Notices that this program stood still: stopped (Ctrl-Z, SIGSTOP) or on a machine that slept.

    For a thread that looks far more often than once per lease. The first one to notice tells.
    """

    fleet: Fleet
    lease_s: float
    _telling: threading.Lock = field(default_factory=threading.Lock)

    def look(self, before_s: float, renewed_s: float) -> float:
        """The time now; `before_s` is that of the last look, `renewed_s` of the last renewal."""
        now_s = read_clock()
        if now_s - before_s > self.lease_s:
            over_at = show_time(time.time() - (now_s - renewed_s) + self.lease_s)
            self._tell(
                f"the lease ran out at {over_at}: sgldbg stood still for {now_s - before_s:.0f} s,"
                f" and a lease lasts {self.lease_s:g} s"
            )
        return now_s

    def _tell(self, text: str) -> None:
        # Whoever noticed it as well waits: what it does next stops the session, whose end is
        # blamed on the pause.
        with self._telling:
            if not self.fleet.pause:
                self.fleet.pause = text
                self.fleet.progress.note(text)


def read_clock() -> float:
    """Seconds on a clock that never stands still and never jumps."""
    return time.clock_gettime(_CLOCK)


def blame_pause(cause: OrchestratorError | None, fleet: Fleet) -> OrchestratorError | None:
    """The cause of a session's end; the pause, where all else follows from that.

    The guards have ended the agents by then, which looks like the loss of every host.
    """
    errors = cause.errors if isinstance(cause, FleetError) else (cause,)
    lost = all(isinstance(e, HostError) and e.code in _LOSSES for e in errors)
    # Given up by a heartbeat that found the same loss first.
    given_up = isinstance(cause, SessionError) and fleet.stop.is_set()
    if not fleet.pause or not (lost or given_up):
        return cause
    return SessionError(fleet.pause, hints=[_HINT])
