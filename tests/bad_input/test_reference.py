"""The reference of messages names every message of the cases, and no message without a case."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
REFERENCE = FOLDER.parents[1] / "docs" / "reference" / "errors.md"


def read_patterns() -> dict[str, re.Pattern[str]]:
    """The messages of the reference's tables; an ellipsis stands for any text."""
    rows = re.findall(r"^\| `` ?(.+?) ?`` \|", REFERENCE.read_text(), re.MULTILINE)
    return {
        row: re.compile(".+".join(re.escape(part) for part in row.split("..."))) for row in rows
    }


def read_messages() -> set[str]:
    """What stands behind `error: ` in all texts of this folder."""
    texts = [path.read_text() for path in FOLDER.glob("*/**/*.txt")]
    messages = {line for text in texts for line in re.findall(r"^error: (.+)$", text, re.MULTILINE)}
    assert messages
    return messages


def test_every_message_is_explained() -> None:
    """A user who looks up a message finds what it means and what to do."""
    patterns = read_patterns().values()
    missing = [m for m in read_messages() if not any(p.fullmatch(m) for p in patterns)]
    assert missing == []


def test_every_explained_message_has_a_case() -> None:
    """What the reference promises is shown by a case."""
    messages = read_messages()
    unused = [
        row for row, p in read_patterns().items() if not any(p.fullmatch(m) for m in messages)
    ]
    assert unused == []
