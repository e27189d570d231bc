"""Another host of the session that owns the files of a shared install."""

from __future__ import annotations

import threading
import time

from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.session import begin
from tests.onhost.transaction.place import Place, no_guard, op, stage

_REVERT_S = 60.0


class Owner:
    """Stages before the member comes, swaps when told, and reverts in a thread of its own."""

    def __init__(self, place: Place) -> None:
        self._context = Context(f"{place.state}-owner")
        args = dict(place.begin_args(lease_s=600.0), host="owner")
        self._context.session = begin.begin(self._context.state_dir, args, no_guard)
        stage(place, self._context)
        self._thread = threading.Thread(target=self._revert)

    def swap(self) -> None:
        """Put the planned files in."""
        op(self._context, "swap")

    def start_revert(self) -> None:
        """Begin to revert, as soon as no member is in the way; may be called again."""
        if self._thread.ident is None:
            self._thread.start()

    def _revert(self) -> None:
        end_s = time.monotonic() + _REVERT_S
        while not op(self._context, "revert")["verified"] and time.monotonic() < end_s:
            pass

    def end(self) -> None:
        """Wait for the revert and finish; refused where anything is left."""
        self.start_revert()
        self._thread.join()
        op(self._context, "finish")
