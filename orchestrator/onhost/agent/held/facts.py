"""What a journal says of its session: the plan, and how far its effects may have got."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set

from .journal import Record

NEW, ORIG = "sgldbg-new", "sgldbg-orig"
# What a plan's line holds; the lock beside the install repeats it.
PLAN = ("root", "package", "pycache_prefix", "files", "dirs", "locks")


def beside(path: str, ending: str) -> str:
    """The hidden name of ours that stands beside `path`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, ".%s.%s" % (name, ending))


class PlannedFile(NamedTuple):
    """One file that the session changes, as it was when the plan was journaled.

    `path` is where the bytes really are, `shown` the path by which the interpreter imports them.
    `before_sha256` is `None` for a file that the session creates; `stat` then holds only the mode
    and owner to give it.
    """

    file: str
    path: str
    shown: str
    before_sha256: Optional[str]
    after_sha256: str
    size: int
    stat: Dict[str, int]

    @property
    def new(self) -> str:
        """Where the planned bytes wait."""
        return beside(self.path, NEW)

    @property
    def orig(self) -> str:
        """Where the original is kept while the planned bytes are in its place."""
        return beside(self.path, ORIG)


class Facts:
    """The records of one journal, folded. An intent counts as an effect that may have happened."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.begun: Optional[Record] = None
        self.guard: Optional[Dict[str, int]] = None
        self.server: Optional[Record] = None
        self.stopping: Optional[Record] = None
        # When the original was first said to be about to end: it may have ended from then on.
        self.down_s: Optional[float] = None
        self.stopped = False
        self.started: Optional[Record] = None
        self.debug: Optional[Dict[str, int]] = None
        self.restoring: Optional[Record] = None
        self.restored: Optional[Record] = None
        self.ended = False
        self.lost_server = False
        self.by = ""
        self.report: List[str] = []
        self._forget_files()
        for record in records:
            self.apply(record)

    def _forget_files(self) -> None:
        self.plan: Optional[Record] = None
        self.root = ""
        self.package = ""
        self.prefix: Optional[str] = None
        self.files: List[PlannedFile] = []
        self.dirs: Dict[str, Record] = {}
        self.locks: List[str] = []
        # Names beside a file are ours only from here on: before, another session may hold the lock.
        self.staging: Set[str] = set()
        self.swapping: Set[str] = set()
        self.put_back: Set[str] = set()
        # Swaps that never came to their rename, of files that are somebody else's by now.
        self.let_go: Set[str] = set()
        # What somebody else changed after the swap, and nobody has taken out yet.
        self.drifted: Set[str] = set()
        self.pycs: Dict[str, List[Record]] = {}
        self.verified: Optional[bool] = None
        # When the first planned bytes may have come in; the line of the last that were taken out.
        self.patched_s: Optional[float] = None
        self.back: Optional[Record] = None
        self.unlocking = False
        self.unlocked = False
        self.sharing: Optional[Record] = None
        self.left_share = False

    def apply(self, record: Record) -> None:
        """Take in one more record, in the journal's order."""
        kind = record["kind"]
        if kind in ("intent", "done"):
            handler = _HANDLERS.get((record["step"], kind))
            if handler is not None:
                handler(self, record)
        elif kind == "shared-swap":
            self._comes_in(record)
        elif kind == "not-swapped":
            self.swapping.discard(record["file"])
        elif kind == "undone":
            self._forget_files()
        elif kind == "reverted":
            self.verified = record["verified"]
        elif kind == "report":
            self.report.append(record["text"])
            self.by = record["by"]
        elif kind == "lost-server":
            self.lost_server = True
            self.report.append(record["text"])
        elif kind == "guard":
            self.guard = record["guard"]
        elif kind == "announced":
            self._stopping(record)
        elif kind == "ended":
            self.ended = True

    @property
    def package_dir(self) -> str:
        """The package's directory as the interpreter names it; empty before a plan."""
        return os.path.join(self.root, self.package) if self.root else ""

    @property
    def is_clean(self) -> bool:
        """Whether every file of the session was proven to be as it was, or none was planned."""
        return self.verified is True or not (self.files or self.sharing)

    def _plan(self, record: Record) -> None:
        self._forget_files()
        self.plan = {name: record[name] for name in PLAN}
        self.root, self.package = record["root"], record["package"]
        self.prefix = record["pycache_prefix"]
        self.files = [PlannedFile(**item) for item in record["files"]]
        self.dirs = record["dirs"]
        self.locks = record["locks"]

    def _share(self, record: Record) -> None:
        self.root, self.package, self.sharing = record["root"], record["package"], record

    def _unshared(self, record: Record) -> None:
        self.left_share = True

    def _begun(self, record: Record) -> None:
        self.begun = record

    def _begun_done(self, record: Record) -> None:
        self.guard = record.get("guard")

    def _stage(self, record: Record) -> None:
        self.staging.add(record["file"])

    def _put_back(self, record: Record) -> None:
        if record.get("state") in ("reverted", "removed"):
            self.put_back.add(record["file"])
        elif record.get("state") == "untouched" and record["file"] in self.swapping:
            self.let_go.add(record["file"])
        if record.get("state") == "drift":
            self.drifted.add(record["file"])
        else:
            self.drifted.discard(record["file"])
        if "back_s" in record:
            self.back = record

    def _swap(self, record: Record) -> None:
        self.swapping.add(record["file"])
        self.put_back.discard(record["file"])
        self.let_go.discard(record["file"])
        self._comes_in(record)

    def _comes_in(self, record: Record) -> None:
        self.verified = self.back = None
        if self.patched_s is None:
            self.patched_s = record.get("now_s", 0.0)

    def _pyc(self, record: Record) -> None:
        self.pycs[record["file"]] = record["dirs"]
        self.verified = None

    def _unlocking(self, record: Record) -> None:
        self.unlocking = True

    def _unlocked(self, record: Record) -> None:
        self.unlocked = True

    def _described(self, record: Record) -> None:
        self.server = record

    def _stopping(self, record: Record) -> None:
        self.stopping = record
        if self.down_s is None:
            self.down_s = record.get("now_s")

    def _stopped(self, record: Record) -> None:
        self.stopped = True

    def _starting(self, record: Record) -> None:
        self.started, self.debug = record, None

    def _started(self, record: Record) -> None:
        self.debug = {"pid": record["pid"], "start_time": record["start_time"]}

    def _debug_stopped(self, record: Record) -> None:
        if not record.get("left"):
            self.started, self.debug = None, None

    def _restoring(self, record: Record) -> None:
        self.restoring = record

    def _restored(self, record: Record) -> None:
        self.restored = record if record.get("pid") else None


_HANDLERS: Dict[Any, Any] = {
    ("begin", "intent"): Facts._begun,
    ("begin", "done"): Facts._begun_done,
    ("plan", "intent"): Facts._plan,
    ("share", "intent"): Facts._share,
    ("unshare", "done"): Facts._unshared,
    ("stage:new", "intent"): Facts._stage,
    ("swap:file", "intent"): Facts._swap,
    ("swap:pyc", "intent"): Facts._pyc,
    ("revert:file", "done"): Facts._put_back,
    ("unlock", "intent"): Facts._unlocking,
    ("unlock", "done"): Facts._unlocked,
    ("describe", "done"): Facts._described,
    ("stop:original", "intent"): Facts._stopping,
    ("stop:original", "done"): Facts._stopped,
    ("start:debug", "intent"): Facts._starting,
    ("start:debug", "done"): Facts._started,
    ("stop:debug", "done"): Facts._debug_stopped,
    ("restore", "intent"): Facts._restoring,
    ("restore", "done"): Facts._restored,
}
