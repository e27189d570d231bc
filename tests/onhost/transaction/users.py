"""Several users on one host: being somebody else for a while, on an install that all can reach."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tests.onhost.transaction.place import Place

ANOTHER = 1234  # has no name


@contextlib.contextmanager
def another_user(uid: int = ANOTHER) -> Iterator[None]:
    """Be somebody else for a while."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def give_away(place: Place, uid: int = ANOTHER) -> None:
    """Let somebody else own the install."""
    for path in [place.package_dir, *place.package_dir.rglob("*")]:
        os.chown(path, uid, uid)
    place.before = place.tree()
