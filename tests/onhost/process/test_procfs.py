"""What the kernel writes, as values."""

from __future__ import annotations

import pytest

from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.mempolicy import parse_policy


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("default", (0, [])),
        ("bind:0-2,5", (2, [0, 1, 2, 5])),
        ("interleave=static:0", (3 | 1 << 15, [0])),
        ("prefer (many):1", (5, [1])),
        ("local", (4, [])),
        ("something new:0", None),
    ],
)
def test_memory_policies_are_read(text, parsed):
    """The kernel's words become the mode and nodes of set_mempolicy(2)."""
    assert parse_policy(text) == parsed


def test_text_keeps_every_byte():
    """Whatever bytes an argument has, it comes back as it was; the locale has no say in it."""
    data = bytes(range(256))
    assert procfs.to_bytes(procfs.to_text(data)) == data
