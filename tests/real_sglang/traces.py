"""Proves that a session left no trace: installs, hosts' state, processes and answers as before."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.real_sglang import install
from tests.real_sglang.byhand import ByHand

RECORD_MARK = b"@sgldbg1 "


@dataclass
class Hosts:
    """The hosts that sessions reach, and where each keeps what a session leaves there."""

    home: Path
    inventory: Mapping[str, Mapping[str, Any]]
    states: Sequence[Path]

    def entries(self, count: int) -> dict[str, Mapping[str, Any]]:
        """The first hosts, as an inventory names them."""
        return dict(list(self.inventory.items())[:count])


class Witness:
    """Looks before and after; what differs fails the test that it surrounds."""

    def __init__(self, byhand: ByHand, hosts: Hosts) -> None:
        self.byhand = byhand
        self.hosts = hosts

    def __enter__(self) -> None:
        for site_packages in self.byhand.installs:
            assert install.record_differences(site_packages) == []
        self.trees = [install.snapshot(path) for path in self.byhand.installs]
        self.facts = self.byhand.facts()
        self.logs = [path.read_bytes() for path in self.byhand.logs()]
        self.tokens = self.byhand.tokens()
        # Another run on this machine may have left something, or leave it to its next contact.
        self.others = leftovers(self.hosts.states)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._check()

    def _check(self) -> None:
        for site_packages, before in zip(self.byhand.installs, self.trees, strict=True):
            assert install.record_differences(site_packages) == []
            assert install.changes(before, install.snapshot(site_packages)) == []
        assert self.byhand.facts() == self.facts
        for written, path in zip(self.logs, self.byhand.logs(), strict=True):
            now = path.read_bytes()
            assert now.startswith(written), f"{path} was not appended to"
            assert RECORD_MARK not in now, f"{path} holds what belongs to the session"
        assert self.byhand.tokens() == self.tokens
        assert [left for left in leftovers(self.hosts.states) if left not in self.others] == []


def leftovers(states: Sequence[Path]) -> list[str]:
    """Session directories and probe folders that should be gone."""
    folders = [path for state in states for path in (state / "sessions").glob("*/*")]
    folders += Path(tempfile.gettempdir()).glob("sgldbg-*-real-?")
    return sorted(str(path) for path in folders)
