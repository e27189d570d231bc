"""What is left of a session whose state directory is gone: its lock, and what is asked of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.onhost.agent.held.state import Context
from tests.onhost.transaction.place import DEBUG, HOST, SERVER, Place, op, session_of, stage


def lose_all(place: Place) -> None:
    """What `rm -rf ~/.local/state/sgldbg` leaves."""
    shutil.rmtree(place.state)


def lose_in_debug_life(place: Place) -> None:
    """Patched files, a debug life, and neither a guard nor a state directory."""
    leave_debug_life(place)
    lose_all(place)


def leave_debug_life(
    place: Place,
    argv: tuple[str, ...] = SERVER,
    is_up: Callable[[Any], Any] = lambda main: None,
) -> None:
    """Patched files and a debug life that nobody holds and no guard watches.

    `is_up` waits until the original of this command line is as it is to be described.
    """
    main = place.start_server(argv)
    is_up(main)
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    op(context, "start-server", argv=list(DEBUG), env_set={}, env_unset=[], cwd=None)
    session_of(context).close()


def lose_patched(place: Place) -> None:
    """Patched files and no state directory; the server was left alone."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    session_of(context).close()
    lose_all(place)


def lose_copies(place: Place) -> None:
    """The session's own copies of its originals are gone."""
    shutil.rmtree(Path(place.directory(), "originals"))


def lock_of(place: Place) -> Path:
    """The lock beside the install."""
    return place.package_dir / ".sgldbg-lock"


def change_lock(place: Place, **changes: Any) -> None:
    """Somebody else's words in the lock; `None` takes a field away."""
    path = lock_of(place)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def undo_orphan(place: Place, force: bool = False) -> Any:
    """What `revert --all` asks the host for; its value."""
    (seen,) = place.status()
    lock = {"lock": seen["lock"]} if "lock" in seen else {}
    return op(Context(place.state), "recover", session="s1", host=HOST, force=force, **lock)
