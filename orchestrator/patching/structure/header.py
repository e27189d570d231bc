"""The header of a compound statement, as code."""

from __future__ import annotations

import libcst as cst

from orchestrator.patching.structure.walk import Definition

_WORD = "pass"


def header_of(module: cst.Module, node: cst.BaseCompoundStatement) -> str:
    """The code of a statement up to its colon, over all its lines, without decorators."""
    if isinstance(node, cst.Try | cst.TryStar):
        return "try:"
    if isinstance(node, cst.Match):
        return f"match {module.code_for_node(node.subject)}:"
    code = module.code_for_node(_bare(node))
    return code[: code.rindex(_WORD)].rstrip()


def _bare(node: cst.BaseCompoundStatement) -> cst.CSTNode:
    """The statement with `pass` for its body, and none of what stands above and behind it."""
    body = cst.SimpleStatementSuite([cst.Pass()])
    bare: cst.CSTNode = node.with_changes(body=body, leading_lines=())
    if isinstance(node, cst.If | cst.For | cst.While):
        bare = bare.with_changes(orelse=None)
    if isinstance(node, Definition):
        bare = bare.with_changes(decorators=(), lines_after_decorators=())
    return bare
