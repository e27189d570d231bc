"""The one exception that becomes a reply `ok: false` with a code of the protocol."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """The agent did not do it. `code` is a word of the protocol, `data` is JSON."""

    def __init__(self, code: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
