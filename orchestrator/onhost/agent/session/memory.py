"""What a guard keeps of its session, so that it can undo it without the session's directory."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Callable, Dict, Optional, Tuple

from ..files.shared import SEEN
from ..held import journal, lease, rebuild
from ..held.lease import Lease
from ..held.state import JOURNAL
from ..server.life import SERVER
from ..server.shm import SHM

_Stamp = Tuple[int, int, int]


class Memory:
    """The journal, what is known of the server, and the lease, as they could last be read.

    `lost` says whether the directory, when it was last looked at, held no journal that could undo
    what was begun; before anything was begun nothing can be lost.
    """

    def __init__(self, directory: str) -> None:
        self.lost = False
        self._home = directory
        self._place = ""
        self._stamps: Dict[str, _Stamp] = {}
        self._contents: Dict[str, bytes] = {}
        self._lease: Optional[Lease] = None

    @property
    def directory(self) -> str:
        """Where the session's directory is, or has to be made."""
        if not self._place:
            return self._home
        folder, host = os.path.split(self._home)
        return os.path.join(self._place, "sessions", os.path.basename(folder), host)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that would have to be undone."""
        return JOURNAL not in self._contents

    @property
    def knows_server(self) -> bool:
        """Whether the original can be started again though its description is lost."""
        return SERVER in self._contents

    def look(self) -> Optional[Lease]:
        """Read again what has changed; the lease, or `None` where it cannot be read now."""
        found = lease.read(self.directory)
        if found is not None:
            self._lease = found
        for name in (SERVER, SHM, SEEN):
            with contextlib.suppress(OSError):
                self._read(name, lambda data: bool(data))
        try:
            self.lost = not self._read(JOURNAL, _has_begun) and not self.is_empty
        except (FileNotFoundError, NotADirectoryError):
            self.lost = not self.is_empty
        except OSError:
            self.lost = False  # a file system that may come back; the lease cannot be read either
        return found

    def _read(self, name: str, is_whole: Callable[[bytes], bool]) -> bool:
        with open(os.path.join(self.directory, name), "rb") as file:
            seen = os.fstat(file.fileno())
            stamp = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
            if self._stamps.get(name) == stamp:
                return True
            data = file.read()
        if is_whole(data):
            self._stamps[name], self._contents[name] = stamp, data
            return True
        return False

    def give_back(self) -> None:
        """Make the directory again, with everything that is missing in it.

        The lease comes back as one that is over: whoever held it is ended by the one who takes it.
        """
        path = os.path.join(self.directory, JOURNAL)
        if self.lost and os.path.exists(path):
            os.rename(path, path + ".damaged")
        rebuild.give_back(self.directory, self._contents)
        if self._lease is not None and (self.lost or lease.read(self.directory) is None):
            with lease.exclusive(self.directory):
                lease.write(self.directory, lease.over(self._lease))

    def move(self) -> None:
        """Make the directory in a place of our own.

        Where a home is gone or takes nothing, files and server must come back all the same.
        """
        self.forget_place()
        self._place = rebuild.make_refuge()
        self.lost = True
        self.give_back()

    def forget_place(self) -> None:
        """Remove what `move` made, if it did."""
        if self._place:
            shutil.rmtree(self._place)
            self._place = ""


def _has_begun(data: bytes) -> bool:
    records = map(journal.unseal, data.split(b"\n"))
    return any(record is not None and record.get("step") == "begin" for record in records)
