"""Keeps leases from running out while a question waits for its answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError

# Two beats may be lost before a lease ends, and none is further off than a heartbeat's.
_BEATS_PER_LEASE = 4
_LONGEST_BEAT_S = 5.0


@contextmanager
def renewing(agents: Sequence[AgentClient], lease_s: float) -> Iterator[None]:
    """Renew the leases that these agents hold for `lease_s`, again and again, inside the block.

    A host that does not answer is left to its guard: whoever asks it something next is told.
    """
    over = threading.Event()
    beat_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_BEAT_S)
    threads = [
        threading.Thread(
            target=_renew, args=(agent, lease_s, beat_s, over), name="sgldbg-renewal", daemon=True
        )
        for agent in agents
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(beat_s + 1.0)


def _renew(agent: AgentClient, lease_s: float, beat_s: float, over: threading.Event) -> None:
    while not over.wait(beat_s):
        try:
            agent.call("renew", {"lease_s": lease_s}, timeout_s=beat_s)
        except HostError as error:
            if error.code != "timeout":
                return
