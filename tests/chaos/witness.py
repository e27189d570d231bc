"""Who saw every edit of an install, and so knows what it must be without us."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.onhost.transaction.place import Place
from tests.onhost.tree import describe, differences

_Version = tuple[str, bytes | None]


class Witness:
    """Remembers each file's versions and the whole tree as it last was without a session.

    `base` is what a file must hold without us, `drift` what somebody put over planned bytes.
    """

    def __init__(self, place: Place, names: Sequence[str]) -> None:
        self._place = place
        self._tree = place.before
        self.base = {name: self.read(name) for name in names}
        self.drift: dict[str, bytes | None] = {}
        self._entries: dict[_Version, dict[str, Any] | None] = {}
        self._stirred: set[str] = set()
        for name in names:
            self._remember(name)

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self._place.root / name

    def read(self, name: str) -> bytes | None:
        """What stands in a file now."""
        path = self.path(name)
        return path.read_bytes() if path.exists() else None

    def edit(self, name: str, theirs: bytes | None, in_place: bool) -> None:
        """Somebody writes a file anew, writes into it, or removes it."""
        path, is_base = self.path(name), self.read(name) == self.base[name]
        if theirs is None:
            path.unlink(missing_ok=True)
        elif in_place and not self._is_cached(path):
            path.write_bytes(theirs)
        else:
            draft = self._place.top / "draft"
            draft.write_bytes(theirs)
            draft.rename(path)
        self.stir(os.path.relpath(path.parent, self._place.root))
        self._remember(name)
        if is_base:
            self.base[name] = theirs
        elif theirs == self.base[name]:
            self.drift.pop(name, None)
        else:
            self.drift[name] = theirs

    def stir(self, folder: str) -> None:
        """From here to the next comparison a directory's own time may be another one."""
        self._stirred.add(folder)

    def _is_cached(self, path: Path) -> bool:
        """Whether who writes into it would write into the cache as well."""
        cached = self._place.disk / "cache" / path.name
        return cached.exists() and path.exists() and cached.samefile(path)

    def _remember(self, name: str) -> None:
        path, data = self.path(name), self.read(name)
        entry = None if data is None else describe(str(path))
        if entry is not None and not self._is_cached(path):
            entry["nlink"] = 1  # what a session keeps it by is another link
        self._entries[name, data] = entry

    def force(self, name: str, planned: set[bytes | None], kept: list[bytes]) -> None:
        """What somebody wrote may be gone from its place by force, if it was kept."""
        theirs, found = self.drift.get(name, self.base[name]), self.read(name)
        if found == theirs or found in planned:
            return
        assert theirs is None or theirs in kept, f"{name}: somebody's version is lost"
        assert (name, found) in self._entries, f"{name} holds {found!r}"
        self.base[name] = found
        self.drift.pop(name, None)

    def changes(self) -> list[str]:
        """Without a session: how the whole tree differs from what others made of it.

        From here on it is compared with what is there now.
        """
        wanted = {name: dict(entry) for name, entry in self._tree.items()}
        for name, data in self.base.items():
            entry = self._entries[name, data]
            wanted.pop(f"site/{name}", None)
            if entry is not None:
                wanted[f"site/{name}"] = entry
            cached = wanted.get(f"cache/{os.path.basename(name)}")
            if cached is not None:
                is_shared = entry is not None and entry["inode"] == cached["inode"]
                cached["nlink"] = 2 if is_shared else 1
        found = self._place.tree()
        for folder in self._stirred:  # its own time is that of the edit, or of what we did since
            wanted[f"site/{folder}"]["mtime_ns"] = found[f"site/{folder}"]["mtime_ns"]
        self._tree, self._stirred = found, set()
        return differences(wanted, found)
