"""What a starting server is doing, from the last lines of its log; best effort, never needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The words of SGLang's log through its releases, latest stage last; what is in a group is shown.
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Init torch distributed begin"), "waiting for all ranks"),
    (re.compile(r"Load weight begin"), "loading weights"),
    (
        re.compile(r"[Ll]oading (?:\w+ )*shards:.*?\| *(\d+)/(\d+)"),
        "loading weights: {0} of {1}",
    ),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"(?:Memory pool end|KV Cache is allocated)"), "memory pool allocated"),
    (re.compile(r"Capture (?:\w+ )*graph begin"), "capturing graphs"),
    (re.compile(r"Capturing batches.*?\| (\d+)/(\d+)"), "capturing graphs: {0} of {1}"),
    (re.compile(r"Capture (?:\w+ )*graph end"), "graphs captured"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "warming up"),
    (re.compile(r"fired up and ready to roll"), "warmed up"),
)


def find_progress(lines: Sequence[str]) -> str:
    """The stage that the last line with a known one shows; empty where none does."""
    for line in reversed(lines):
        for pattern, text in reversed(_STAGES):
            match = pattern.search(line)
            if match:
                return text.format(*match.groups())
    return ""
