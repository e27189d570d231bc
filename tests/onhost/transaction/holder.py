"""An agent for tests: takes a session to its debug life, then renews the lease until it is ended.

`python -m tests.onhost.transaction.holder DIRECTORY LEASE_S PID START_TIME`; says `patched` on
stdout, and treats the end of stdin as the agent's loop does.
"""

from __future__ import annotations

import select
import sys
import tempfile
from pathlib import Path

from orchestrator.onhost.agent import ops_session
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.session.guard import KNOWS_SERVER
from tests.onhost.transaction.place import DEBUG, HOST, SESSION, Place, op, stage, wait_for


def main(directory: str, lease_s: float, pid: int, start_time: int) -> None:
    """Patch, then renew."""
    tempfile.tempdir = f"{directory}/tmp"
    place = Place.at(directory)
    context = Context(place.state)
    args = place.begin_args(lease_s=60.0)  # on a busy machine the way there takes its time
    ops_session.OPS["begin"](context, args, b"")
    stage(place, context)
    op(context, "describe-server", pid=pid, start_time=start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    op(context, "start-server", argv=list(DEBUG), env_set={}, env_unset=[], cwd=None)
    op(context, "renew", lease_s=lease_s)
    # Until then only the directory knows it, which tests may take away next.
    trace = Path(place.directory(), "guard.trace")
    wait_for(lambda: KNOWS_SERVER in trace.read_text())
    print(f"patched {SESSION} {HOST}", flush=True)
    while not select.select([0], [], [], lease_s / 4)[0]:
        op(context, "renew", lease_s=lease_s)
    context.on_eof()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
