"""What would fit instead: the reasons and the YAML to paste when an anchor is not found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.patching.finding.moved import (
    LIKE,
    SHOWN,
    moved_expressions,
    moved_statements,
    yaml_line,
)
from orchestrator.patching.source import Source
from orchestrator.patching.structure.expressions import walk_expressions
from orchestrator.patching.structure.header import header_of
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import (
    Pattern,
    hole_of,
    make_hole,
    make_run,
    run_of,
    show,
)
from orchestrator.patching.structure.walk import (
    Statement,
    walk_block,
    walk_definition,
)

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def missing_anchor(
    source: Source, anchor: Anchor, pattern: Pattern, scope: Statement | None
) -> PatchError:
    """The error for an anchor that fits no statement: where it would, and what would."""
    where = f"`{anchor.scope}` of `{source.file}`" if anchor.scope else f"`{source.file}`"
    block = walk_definition(scope) if scope else walk_block(source.module, (), nested=True)
    inside = list(block)
    span = anchor.code_span or anchor.span
    kept = _inside_expression(source, anchor, pattern, inside)
    if isinstance(kept, PatchError):
        return kept
    outside = list(_outside_branch(source, anchor, pattern, inside))
    hints = [*outside, *kept]
    if not outside:
        hints += _looser(source, anchor, pattern, inside)
        hints += moved_statements(source, pattern) if scope else ()
    if scope is not None and isinstance(scope.node, cst.FunctionDef):
        hints.append("the function itself is there: `at: start`")
    return PatchError(
        f"the anchor was not found in {where}",
        state="not found",
        span=span,
        notes=() if outside else _nearest(source, pattern, inside),
        hints=hints,
        file=source.file,
    )


def missing_expression(
    source: Source, anchor: Anchor, pattern: Pattern, inside: Iterable[Statement]
) -> PatchError:
    """The error for an expression that stands nowhere in the scope, or only where none is wrapped.

    With any arguments, it may be there once.
    """
    where = f"`{anchor.scope}` of `{source.file}`" if anchor.scope else f"`{source.file}`"
    statements = list(inside)
    hints = []
    loose = any_arguments(pattern.node)
    if loose is not None:
        looser = Pattern(pattern.text, loose, is_header=False)
        found = [
            e for s in statements for e in walk_expressions(s) if match(looser, e.node) is not None
        ]
        if len(found) == 1:
            line = yaml_line("wrap", text_of(source, looser))
            at = source.line_of(found[0].statement.node)
            hints.append(f"with any arguments it fits line {at}: `{line}`")
    moved = moved_expressions(source, pattern) if anchor.scope else []
    return PatchError(
        f"the expression was not found in {where}",
        state="not found",
        span=anchor.code_span or anchor.span,
        notes=("targets, patterns, annotations and parts of f-strings are not looked at",),
        hints=[*hints, *moved],
        file=source.file,
    )


def _outside_branch(
    source: Source, anchor: Anchor, pattern: Pattern, inside: list[Statement]
) -> Iterator[str]:
    """Where `within` alone keeps the anchor from fitting."""
    if anchor.within:
        lines = [str(source.line_of(s.node)) for s in inside if match(pattern, s.node) is not None]
        if lines:
            where = ", ".join(lines)
            yield f"the statement is there, but not within what `within` names: line {where}"


def _looser(
    source: Source, anchor: Anchor, pattern: Pattern, inside: list[Statement]
) -> Iterator[str]:
    """Patterns with less in them that fit exactly one place of the same scope."""
    rungs = {
        "with any arguments": any_arguments(pattern.node),
        "by its target alone": target_only(pattern.node),
        "by its call alone": _call_only(pattern.node),
    }
    fits_already = False
    for why, node in rungs.items():
        if node is None or (fits_already and why == "by its call alone"):
            continue
        looser = Pattern(pattern.text, node, pattern.is_header)
        found = [s for s in inside if match(looser, s.node) is not None]
        if len(found) == 1:
            fits_already = True
            line = yaml_line(anchor.position, text_of(source, looser))
            yield f"{why} it fits line {source.line_of(found[0].node)}: `{line}`"


def text_of(source: Source, pattern: Pattern) -> str:
    """A pattern as a user writes it."""
    if pattern.is_header and isinstance(pattern.node, cst.BaseCompoundStatement):
        return show(header_of(source.module, pattern.node))
    return show(source.module.code_for_node(pattern.node)).strip()


class _AnyArguments(cst.CSTTransformer):
    def __init__(self) -> None:
        self.loosened = False

    def leave_Call(  # noqa: N802
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.Call:
        """Put a run in the place of all arguments."""
        if not updated_node.args or (
            len(updated_node.args) == 1 and run_of(updated_node.args[0]) is not None
        ):
            return updated_node
        self.loosened = True
        return updated_node.with_changes(args=[cst.Arg(make_run())])


def any_arguments(node: cst.CSTNode) -> cst.CSTNode | None:
    """The code with `$$$` for the arguments of every call; `None` where there are none."""
    loosener = _AnyArguments()
    loose = node.visit(loosener)
    return loose if loosener.loosened and isinstance(loose, cst.CSTNode) else None


def target_only(node: cst.CSTNode) -> cst.CSTNode | None:
    """The statement with `$_` for what it assigns or goes through; `None` for others."""
    hole = make_hole()
    if isinstance(node, cst.For):
        return None if hole_of(node.target) else node.with_changes(iter=hole)
    if isinstance(node, cst.Assign):
        plain = any(hole_of(t.target) is None for t in node.targets)
        return node.with_changes(value=hole) if plain else None
    if isinstance(node, cst.AugAssign):
        return node.with_changes(value=hole)
    if isinstance(node, cst.AnnAssign) and node.value is not None:
        return node.with_changes(value=hole)
    return None


def _call_only(node: cst.CSTNode) -> cst.CSTNode | None:
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
        loose = any_arguments(node.value) or node.value
        return cst.Assign([cst.AssignTarget(make_hole())], loose)  # type: ignore[arg-type]
    return None


def _inside_expression(
    source: Source, anchor: Anchor, pattern: Pattern, inside: list[Statement]
) -> PatchError | list[str]:
    """Where the anchor is an expression that only stands inside a larger statement."""
    if not isinstance(pattern.node, cst.Expr) or isinstance(pattern.node.value, cst.Name):
        return []
    whole = []
    for statement in inside:
        for holder in _holders(statement.node, pattern):
            line = source.line_of(statement.node)
            if holder is not None:
                return PatchError(
                    f"the anchor stands inside {holder} in line {line}, "
                    "where no statement can be put",
                    state="refused",
                    span=anchor.code_span or anchor.span,
                    hints=(_whole(source, anchor, statement, line),),
                    file=source.file,
                )
            whole.append(_whole(source, anchor, statement, line))
    return list(dict.fromkeys(whole))[:SHOWN]


def _whole(source: Source, anchor: Anchor, statement: Statement, line: int) -> str:
    node = statement.node
    if isinstance(node, cst.BaseCompoundStatement):
        text = header_of(source.module, node)
    else:
        text = source.module.code_for_node(node).strip().rstrip("; ")
    return f"it is a part of line {line}: `{yaml_line(anchor.position, text)}`"


def _holders(node: cst.CSTNode, pattern: Pattern) -> Iterator[str | None]:
    """For each place in a statement where the expression stands: the lambda or the like there."""
    assert isinstance(pattern.node, cst.Expr)
    wanted = pattern.node.value
    waiting: list[tuple[cst.CSTNode, str | None]] = [(node, None)]
    while waiting:
        current, holder = waiting.pop()
        if isinstance(current, cst.BaseExpression) and _same(wanted, current):
            yield holder
        if isinstance(current, cst.Lambda):
            holder = "a lambda"
        elif isinstance(current, _COMPREHENSIONS):
            holder = "a comprehension"
        for child in current.children:
            if not isinstance(child, cst.BaseSuite | cst.Else | cst.BaseStatement):
                waiting.append((child, holder))


def _same(wanted: cst.BaseExpression, node: cst.BaseExpression) -> bool:
    return match(Pattern("", wanted, is_header=False), node) is not None


def _nearest(source: Source, pattern: Pattern, inside: list[Statement]) -> list[str]:
    """The statement of the scope that reads most like the anchor, if one does."""
    best, likeness = None, LIKE
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(pattern.text)
    for statement in inside:
        text = source.line_text(source.line_of(statement.node)).strip()
        matcher.set_seq1(text)
        if matcher.real_quick_ratio() > likeness and matcher.quick_ratio() > likeness:
            ratio = matcher.ratio()
            if ratio > likeness:
                best, likeness = (statement, text), ratio
    if best is None:
        return []
    return [f"nearest statement, line {source.line_of(best[0].node)}: `{best[1]}`"]
