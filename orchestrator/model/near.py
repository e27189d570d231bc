"""The known word that a wrong one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Of a word of four letters two may be right by chance, `open` for `nope`: one slip is all there.
_SHORT = 5
_LIKE = 0.6


def find_near(word: str, known: Iterable[str], like: float = _LIKE) -> str | None:
    """The nearest known word, upper and lower case and `_` and `-` being one; none for a guess.

    `like` is the least share of equal letters.
    """
    by_fold = {_fold(name): name for name in known}
    folded = _fold(word)
    for near in difflib.get_close_matches(folded, by_fold, 3, like):
        if max(len(near), len(folded)) > _SHORT or is_one_slip(folded, near):
            return by_fold[near]
    return None


def is_one_slip(one: str, other: str) -> bool:
    """Whether they differ in one letter more, less or another, or in two that are exchanged."""
    short, long = sorted((one, other), key=len)
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    rest, other_rest = short[start:], long[start:]
    if len(short) < len(long):
        return rest == other_rest[1:]
    exchanged = rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:]
    return exchanged or rest[1:] == other_rest[1:]


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")
