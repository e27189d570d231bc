"""Where a value stands in a file that a user wrote, so that every error can point there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text file; lines and columns count from 1, the end is exclusive.

    `lines` holds the file's text of the lines from `line` to `end_line`, so that a message can be
    rendered with no access to the file; empty where the text is not known.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"
