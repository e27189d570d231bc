"""The agent's state: which session it holds, and the one way in which a session changes things."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from ..refusal import Refusal
from ..space import naming
from . import journal, lease
from .facts import Facts
from .holder import NAME, Holder
from .journal import Journal, Record
from .lease import Lease, Process

JOURNAL = "journal.jsonl"
# Longer than any step: what holds the lock is working, or was ended by whoever wants it next.
STEP_WAIT_S = 900.0


class Context:
    """What an agent process knows between requests; `writer` is set by the loop that serves it."""

    def __init__(self, state_dir: str) -> None:
        self.state_dir = os.path.abspath(state_dir)
        self.session: Optional[SessionState] = None
        self.writer: Any = None
        self._is_cut = False

    def hold(self, session: SessionState) -> None:
        """Make it this agent's session, also where the channel ended before it had begun."""
        self.session = session
        if self._is_cut:
            session.shorten()

    def on_eof(self) -> None:
        """The controller's channel ended: leave it only the grace to come back in."""
        self._is_cut = True
        if self.session is not None:
            self.session.shorten()


def session_dir(state_dir: str, session: str, host: str) -> str:
    """Where a session keeps its journal on this host; refuses names that are no plain names."""
    for name in (session, host):
        if not isinstance(name, str) or not NAME.match(name):
            raise Refusal("bad-name", "`%s` cannot be the name of a session or host" % name)
    return os.path.join(state_dir, "sessions", session, host)


def was_ended(directory: str) -> bool:
    """Whether the session of this directory was filed away, which takes a proven revert.

    A directory that is simply gone proves nothing: somebody may have cleaned up too much.
    """
    folder, host = os.path.split(directory)
    sessions, name = os.path.split(folder)
    return os.path.exists(os.path.join(os.path.dirname(sessions), "ended", name, host))


class SessionState:
    """A session on this host, held by this process under one epoch of its lease."""

    def __init__(
        self,
        directory: str,
        epoch: int,
        holder: Process,
        on_line: Optional[Callable[[Record], None]] = None,
    ) -> None:
        self.directory = directory
        self.epoch = epoch
        self.holder = holder
        self.journal = Journal(os.path.join(directory, JOURNAL), on_line)
        self.facts = Facts(self.journal.records)
        self.beat = 0
        self.seen: Dict[str, Any] = {}  # the other hosts of a shared install, since when
        self._threads = threading.RLock()
        self._depth = 0

    @property
    def name(self) -> str:
        """The session's name."""
        return os.path.basename(os.path.dirname(self.directory))

    @property
    def host(self) -> str:
        """The inventory's name of this host."""
        return os.path.basename(self.directory)

    @property
    def state_dir(self) -> str:
        """The directory of all sessions, agents and ended journals."""
        return os.path.dirname(os.path.dirname(os.path.dirname(self.directory)))

    @property
    def is_moved(self) -> bool:
        """Whether its directory was lost where it began, and was made anew in another place."""
        begun = self.facts.begun or {}
        first = os.path.realpath(begun.get("state_dir", self.state_dir))
        return bool(begun.get("moved")) or first != os.path.realpath(self.state_dir)

    @property
    def mark(self) -> str:
        """What the debug life carries as SGLDBG_SESSION.

        With the host's name: two hosts of an inventory may be one machine, and what is found by
        this mark is killed.
        """
        return "%s/%s" % (self.name, self.host)

    def path(self, name: str) -> str:
        """A file of the session's directory."""
        return os.path.join(self.directory, name)

    @contextlib.contextmanager
    def locked(self, wait_s: float = STEP_WAIT_S) -> Iterator[None]:
        """Keep every other process and thread out of this session's steps; may be nested."""
        if not self._threads.acquire(timeout=wait_s):
            raise Refusal("busy", "another step of this session is running")
        try:
            if self._depth:
                yield
                return
            with lease.flocked(self.path("step.lock"), wait_s) as held:
                if not held:
                    raise Refusal("busy", "another process is at work on this session")
                self._depth = 1
                try:
                    yield
                finally:
                    self._depth = 0
        finally:
            self._threads.release()

    def check(self) -> Lease:
        """Refuse with `fenced` unless the lease is still ours."""
        found = lease.read(self.directory)
        if found is None or not lease.is_ours(found, self.epoch, self.holder):
            raise Refusal("fenced", lease.explain(found, self.epoch, self.holder))
        return found

    @contextlib.contextmanager
    def step(self, name: str, **detail: Any) -> Iterator[Dict[str, Any]]:
        """Run one effect between its intent line and its done line, under lock and lease.

        The dict that it yields goes into the done line. A step that fails leaves a line as well:
        its effect may have happened in part. Steps that take back do not need the lines to be
        written: what they do follows from the disk, not from them.
        """
        if name not in journal.STEPS:
            raise ValueError("`%s` is not one of the journaled steps" % name)
        with self.locked():
            self.check()
            now_s = round(lease.now_s(), 3)
            self._append(name, dict(detail, kind="intent", step=name, now_s=now_s))
            outcome: Dict[str, Any] = {}
            try:
                yield outcome
            except Exception as error:
                with contextlib.suppress(OSError):
                    text = "%s: %s" % (type(error).__name__, error)
                    self.append({"kind": "failed", "step": name, "error": text[:500]})
                raise
            file = {"file": detail["file"]} if "file" in detail else {}
            self._append(name, dict(outcome, kind="done", step=name, **file))

    def _append(self, step: str, record: Record) -> None:
        try:
            self.append(record)
        except OSError:
            if step not in journal.TAKING_BACK:
                raise
            self.facts.apply(record)

    def append(self, record: Record) -> None:
        """Write one record and let the facts follow."""
        self.facts.apply(self.journal.append(record))

    def take_in(self, records: Iterable[Record]) -> None:
        """Add records that a lost journal lacks; where the disk takes one no more, only the facts
        know it and all that follow: half of them on the disk would say other things.
        """
        takes = True
        for record in records:
            if takes:
                try:
                    self.append(record)
                    continue
                except OSError:
                    takes = False
            self.facts.apply(record)

    def note(self, kind: str, **detail: Any) -> None:
        """Write a record that is no step; where the disk does not take it, only the facts know."""
        record = dict(detail, kind=kind)
        try:
            self.append(record)
        except OSError:
            self.facts.apply(record)

    def lock_holder(self, until: Optional[float] = None, deadline_s: Any = None) -> Holder:
        """What our lock beside an install says; `until` is wall time, only to be shown."""
        begun = self.facts.begun or {}
        return {
            "session": self.name,
            "host": self.host,
            "holder": begun.get("holder", ""),
            "hostname": begun.get("hostname", ""),
            "boot_id": begun.get("boot_id", ""),
            "since": begun.get("since", 0),
            "until": until,
            "deadline_s": deadline_s,
            "state_dir": self.state_dir,
            "moved": self.is_moved,
            "taken_from": begun.get("taken_from"),
            "machine": begun.get("machine"),
            "processes": lease.read_process_space(),
            "guard": self.facts.guard,
        }

    def renew(self, lease_s: float, **changes: Any) -> Lease:
        """Let the lease run `lease_s` from now; one that is kept stays without an end."""
        if self.check().deadline_s is not None:
            changes.update(deadline_s=lease.now_s() + lease_s, lease_s=lease_s)
        changes.setdefault("let_go", False)
        return lease.change(self.directory, self.epoch, self.holder, **changes)

    def shorten(self) -> None:
        """Leave the lease its grace, unless it is detached, kept or somebody else's."""
        found = lease.read(self.directory)
        if found is None or found.detached or found.deadline_s is None:
            return
        with contextlib.suppress(Refusal):
            deadline_s = min(found.deadline_s, lease.now_s() + found.grace_s)
            lease.change(self.directory, self.epoch, self.holder, deadline_s=deadline_s)

    def close(self) -> None:
        """Give descriptors back; the session itself goes on."""
        self.journal.close()


def write_private(path: str, value: Any) -> None:
    """Put JSON into a file that only its owner reads, whole or not at all, durable."""
    draft = path + ".draft"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with naming(draft), open(fd, "wb") as file:
        file.write(json.dumps(value).encode("ascii"))
        file.flush()
        os.fsync(fd)
    os.rename(draft, path)
    journal.sync_dir(os.path.dirname(path))
