"""Patches made by hand, for tests that need no YAML."""

from __future__ import annotations

from typing import Any

from orchestrator.model.patch import Action, Anchor, Edit, Insert, Patch, Probe
from orchestrator.patching.engine import Edited, edit_file
from orchestrator.patching.wanted import Wanted

FILE = "sglang/m.py"


def make_anchor(position: str, code: str | None, scope: str | None = None, **more: Any) -> Anchor:
    """An anchor in the one file of these tests."""
    return Anchor(FILE, scope, position, code, **more)


def make_wanted(anchor: Anchor, action: Action | None = None, site: str = "p.1") -> Wanted:
    """One edit wanted at one anchor."""
    edit = Edit((anchor,), action or Probe(), site)
    patch = Patch(site.rsplit(".", 1)[0], "A test.", "sglang", "", (edit,))
    return Wanted(patch, "sglang", FILE, edit, anchor)


def edit_one(source: str | bytes, anchor: Anchor, action: Probe | Insert | None = None) -> Edited:
    """A source with one edit in it."""
    data = source.encode() if isinstance(source, str) else source
    return edit_file(data, [make_wanted(anchor, action)])
