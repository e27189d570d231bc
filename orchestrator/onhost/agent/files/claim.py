"""What a session says of itself beside the install: enough to undo it where all else is lost."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional, Sequence

from ..held import lease, lock, untrusted
from ..held.dirs import LOCK_NAME
from ..held.holder import Holder
from ..held.state import SessionState
from ..refusal import Refusal
from . import files

# Stands in the probe directory, which the server's user owns: it says where a lock may stand, and
# nothing in it is believed before that lock was read.
_POINTER = "install.json"
_POINTER_LIMIT = 64 << 10
_POINTERS = 8  # an install has two locks at most


def make(
    session: SessionState, held: lease.Lease, pycs: Any = None, server: bool = False
) -> Holder:
    """What the lock says: who, since and until when, and what a revert needs to know.

    `pycs` are the compiled files that are about to be set aside, as of the journal; `server` says
    that a server is about to be stopped or started.
    """
    facts = session.facts
    holder = session.lock_holder(find_end(held), held.deadline_s)
    touched = server or facts.stopping is not None or facts.started is not None
    ran = (facts.server or {}).get("ran", True)
    return dict(
        holder,
        limit_s=held.limit_s(),
        plan=facts.plan,
        pycs=facts.pycs if pycs is None else pycs,
        server="untouched" if not touched else "stopped" if ran else "absent",
    )


def show(session: SessionState, held: lease.Lease, **coming: Any) -> None:
    """Let the lock say what is true by now.

    A failure changes nothing where that is only a time or a guard. What is `coming` is refused
    then: where all else is lost, a server that the lock calls untouched would not be missed.
    """
    for path in session.facts.locks if not session.facts.unlocked else ():
        try:
            lock.update(path, make(session, held, **coming))
        except OSError:
            if coming:
                raise


def beat(session: SessionState, held: lease.Lease) -> None:
    """Let the lock show other machines that this session's lease was renewed, or is being ended.

    A lease that is longer than the lock says is written into it anew, as soon as no step is at
    work on the same. A failure only makes them impatient.
    """
    facts, limit_s = session.facts, held.limit_s()
    mine = session.lock_holder()
    for path in facts.locks if not facts.unlocked else ():
        with contextlib.suppress(OSError, Refusal):
            said = (lock.read(path) or {}).get("limit_s")
            lock.beat(path, mine)
            if said is not None and (limit_s is None or said < limit_s):
                with session.locked(0.0):
                    lock.update(path, make(session, held))


def show_server(session: SessionState) -> None:
    """Let the lock say that a server is about to be stopped or started, where it does not yet."""
    if session.facts.stopping is None and session.facts.started is None:
        with files.refusing("the lock beside the install cannot be written"):
            show(session, session.check(), server=True)


def show_asides(session: SessionState, asides: Dict[str, Any]) -> None:
    """Let the lock say which compiled files are about to be set aside."""
    with files.refusing("the lock beside the install cannot be written"):
        show(session, session.check(), pycs={**session.facts.pycs, **asides})


def find_end(held: lease.Lease) -> Optional[float]:
    """The wall time at which a lease ends, only to be shown; null for one that is kept.

    Who undoes a session has no time of its own: the session ended at the latest when it took over,
    and that long ago is not known any more.
    """
    if held.deadline_s is None:
        return None
    left_s = held.deadline_s - lease.now_s() if held.deadline_s != lease.OVER_S else 0.0
    return round(time.time() + left_s, 3)


def point(probe_dir: str, locks: Sequence[str]) -> None:
    """Leave word where the locks stand, for whoever finds the probe directory and no journal."""
    path = os.path.join(probe_dir, _POINTER)
    data = json.dumps({"locks": list(locks)}).encode("ascii")
    with contextlib.suppress(OSError):
        fd = untrusted.open_to_write(path, os.O_CREAT | os.O_TRUNC)
        with open(fd, "wb") as file:
            file.write(data)


def follow(probe_dir: str) -> List[str]:
    """Where locks may stand, by what was left in a probe directory."""
    try:
        found = untrusted.read(os.path.join(probe_dir, _POINTER), _POINTER_LIMIT)
    except OSError:
        return []
    said = untrusted.parse_with(found.data, untrusted.fields(locks=untrusted.every(_is_lock)))
    return said["locks"][:_POINTERS] if said is not None else []


def _is_lock(path: Any) -> bool:
    is_path = untrusted.is_path(path) and untrusted.plain(path) == path
    return is_path and os.path.basename(path) == LOCK_NAME


def has_let_go(session: SessionState) -> bool:
    """Whether the session gave the install back, proven to be as it was.

    From then on the names beside its files, and what is in them, are the next session's.
    """
    facts = session.facts
    if facts.unlocked or not facts.unlocking:
        return facts.unlocked
    mine = session.lock_holder()  # it ended between the release and the line that says so
    return not any(lock.is_mine(lock.read(path), mine) for path in facts.locks)


def refuse_foreign(session: SessionState) -> None:
    """Refuse to undo what another session holds by now: the names beside its files are that one's.

    So it is where somebody took our lock away by hand and the next one has come.
    """
    facts = session.facts
    if facts.unlocked or not facts.staging:
        return
    mine: Dict[str, Any] = session.lock_holder()
    for path in facts.locks:
        found = lock.read(path) or {}
        if lock.is_handed_over(found, mine):
            message = "`%s` was taken over on the machine `%s`, which puts it back" % (
                os.path.dirname(path),
                found["hostname"],
            )
            raise Refusal("locked", message, path=path)
        if "session" in found and any(
            found.get(n) != mine[n] for n in ("session", "host", "since")
        ):
            message = "`%s` is held by another session by now (`%s` of %s)" % (
                os.path.dirname(path),
                found["session"],
                found.get("holder"),
            )
            raise Refusal("locked", message, path=path)


def is_gone(session: SessionState) -> bool:
    """Whether no lock of the session stands any more though nobody released it: its install was
    made anew, as a container is.
    """
    facts = session.facts
    return not facts.unlocked and all(lock.read(path) is None for path in facts.locks)
