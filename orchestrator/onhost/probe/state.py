"""What one process knows: the session, the table's sites, and the counters that `off` needs."""

from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

# Module-level, since `off` has a third of a microsecond: an attribute of an object costs too much.
LIVE: Set[str] = set()  # sites that may still fire; everything else is off
CUT: Dict[str, int] = {}  # calls of sites that are off


class State:
    """What the table says now and what this process has said of itself."""

    def __init__(self) -> None:
        self.session = self.host = self.dir = ""
        self.stamp: Any = None
        self.table: Any = None
        self.generation = 0
        self.phase = ""
        self.sites: Dict[str, Any] = {}
        self.modules: Dict[str, List[str]] = {}
        self.announced: Set[str] = set()
        self.flags: Tuple[Any, ...] = ()  # what tells of graph capture, found anew at each poll
        self.seq: Dict[str, Iterator[int]] = {}
        self.unsent = 0
        self.title = ""
        self.ranks: Optional[Dict[str, int]] = None
        self.renew_locks()

    def renew_locks(self) -> None:
        """New locks; after a fork another thread's hold on the old ones never ends."""
        self.lock = threading.Lock()  # of counters; never held while an expression is evaluated
        self.poll_lock = threading.Lock()


STATE = State()
