"""Which word is offered for a wrong one, and that none is where it would be a guess."""

from __future__ import annotations

import pytest

from orchestrator.model.near import find_near, is_one_slip


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("nope", ["open", "demo-0"], None),
        ("env", ["enter"], None),
        ("lamp", ["llama"], None),
        ("gpu9", ["gpu1", "login"], "gpu1"),
        ("tp", ["tp0"], "tp0"),
        ("prot", ["root", "port"], "port"),
        ("hots", ["hosts"], "hosts"),
        ("edit", ["edits"], "edits"),
        ("usr", ["user"], "user"),
        ("raedy", ["ready"], "ready"),
        ("Kimi_0", ["kimi-0"], "kimi-0"),
        ("minatrue", ["miniature"], "miniature"),
    ],
)
def test_the_word_that_was_meant(word: str, known: list[str], near: str | None) -> None:
    """Of short words one slip is all that may be wrong; of longer ones most has to be right."""
    assert find_near(word, known) == near


@pytest.mark.parametrize("other", ["abc", "abdc", "abc1d", "bacd", "abxd", "bcd", "abcde", "xabcd"])
def test_one_slip(other: str) -> None:
    """A letter more, less or another, or two neighbours exchanged, at any place; in both ways."""
    assert is_one_slip("abcd", other)
    assert is_one_slip(other, "abcd")


@pytest.mark.parametrize("other", ["ab", "acbe", "badc", "dbca", "abcdef", "axcx"])
def test_more_than_one_slip(other: str) -> None:
    """Two of them are too many."""
    assert not is_one_slip("abcd", other)
    assert not is_one_slip(other, "abcd")
