"""Where an edit goes, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from orchestrator.patching.structure.expressions import Expression
from orchestrator.patching.structure.match import Bindings
from orchestrator.patching.structure.walk import Statement


@dataclass(frozen=True, slots=True)
class Place:
    """Where an edit goes: a side of one statement. `scope` is the real scope there.

    `side` is `before`, `after`, `replace`, `wrap` (then `expression` is what is wrapped) or
    `decorate`. `bindings` are what the anchor's metavariables stand for.
    """

    statement: Statement
    side: str
    scope: str | None
    expression: Expression | None = None
    bindings: Bindings = field(default_factory=dict)


def is_future(node: cst.CSTNode) -> bool:
    """Whether a statement imports from `__future__`, before which only a docstring may stand."""
    if not isinstance(node, cst.ImportFrom) or not isinstance(node.module, cst.Name):
        return False
    return node.module.value == "__future__" and not node.relative
