"""Patches and hosts made by hand for the tests of planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.model.patch import Anchor, Capture, Edit, Insert, Patch, Probe
from orchestrator.model.source import Span
from orchestrator.planning.view import HostView

FILE = "sglang/srt/model.py"
OTHER = "sglang/srt/runner.py"
RUNTIME = b"def _start(config): pass\n"

SOURCE = b"""import os


def forward(x):
    hidden = g(x)
    return hidden
"""


def make_view(
    host: str, files: Mapping[str, bytes | None] | None = None, version: str | None = "0.5.6"
) -> HostView:
    """A host with these files; by default the one of these tests."""
    return HostView(host, version, {FILE: SOURCE} if files is None else files, f"/run/{host}")


def make_anchor(
    code: str = "hidden = g(x)", file: str = FILE, position: str = "after", **more: Any
) -> Anchor:
    """An anchor at a statement of `forward`, by default behind it."""
    return Anchor(file, "forward", position, code, **more)


def make_patch(name: str, *edits: Probe | Insert | tuple[Anchor, ...], versions: str = "") -> Patch:
    """A patch with one edit for each action, or with one probe for each row of alternatives."""
    made = []
    for number, item in enumerate(edits, 1):
        site = f"{name}.{number}"
        if isinstance(item, tuple):
            made.append(Edit(item, Probe((Capture("x", "x"),)), site))
        else:
            made.append(Edit((make_anchor(),), item, site))
    spans = {"versions": Span(f"{name}.yaml", 3, 11, 3, 20)}
    return Patch(name, "A test.", "sglang", versions, tuple(made), spans=spans)
