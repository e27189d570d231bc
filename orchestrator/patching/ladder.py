"""What would fit instead: the reasons and the YAML to paste when an anchor is not found."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.model.source import Span
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.structure.expressions import Expression, walk_expressions
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import (
    Pattern,
    PatternError,
    hole_of,
    make_hole,
    make_run,
    parse_pattern,
    run_of,
    show,
)
from orchestrator.patching.structure.walk import (
    Statement,
    all_definitions,
    qualified_name,
    scope_name,
    walk_block,
    walk_definition,
)

# More places than these do not help a reader.
_SHOWN = 5
# Below this likeness (difflib's ratio) a neighbour is no help but noise.
_LIKE = 0.6
# Plain YAML text that needs no quotes: no `: `, no ` #`, no sign that YAML gives a meaning to.
_PLAIN = re.compile(r"^[A-Za-z_$][^\n]*$")
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def yaml_line(key: str, text: str) -> str:
    """A line of YAML that a user can paste as it is."""
    flat = " ".join(text.split()) if "\n" in text else text
    plain = _PLAIN.match(flat) and ": " not in flat and " #" not in flat and flat[-1] != ":"
    return f"{key}: {flat if plain else json.dumps(flat, ensure_ascii=False)}"


def missing_scope(source: Source, wanted: str, span: Span | None) -> PatchError:
    """The error for a scope that the file does not define, with the nearest that it does."""
    names = list(dict.fromkeys(qualified_name(s) for s in all_definitions(source.module)))
    last = wanted.rsplit(".", 1)[-1]
    near = [n for n in names if n.rsplit(".", 1)[-1] == last][:_SHOWN]
    near += [n for n in difflib.get_close_matches(wanted, names, _SHOWN, _LIKE) if n not in near]
    anonymous = _find_lambda(source, wanted)
    if anonymous is not None:
        return PatchError(
            f"`{wanted}` is a lambda (line {anonymous}): it holds no statements",
            state="refused",
            span=span,
            hints=("put the probe where it is called",),
            file=source.file,
        )
    return PatchError(
        f"`{source.file}` has no `{wanted}`",
        state="not found",
        span=span,
        notes=() if names else ("the file defines no function and no class",),
        hints=[f"did you mean `{yaml_line('in', n)}`" for n in near],
        file=source.file,
    )


def _find_lambda(source: Source, name: str) -> int | None:
    """The line where a lambda is bound to that qualified name, if it is."""
    for statement in walk_block(source.module, (), nested=True):
        node = statement.node
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Lambda):
            scope = scope_name(statement)
            for target in node.targets:
                code = source.module.code_for_node(target.target)
                if name == (f"{scope}.{code}" if scope else code):
                    return source.line_of(node)
    return None


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
        hints += [*_looser(source, anchor, pattern, inside), *_moved(source, pattern, scope)]
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
    moved = _moved_expressions(source, pattern) if anchor.scope else []
    return PatchError(
        f"the expression was not found in {where}",
        state="not found",
        span=anchor.code_span or anchor.span,
        notes=("targets, patterns, annotations and parts of f-strings are not looked at",),
        hints=[*hints, *moved],
        file=source.file,
    )


def _moved_expressions(source: Source, pattern: Pattern) -> list[str]:
    places = dict.fromkeys(
        (scope_name(s), source.line_of(s.node))
        for s in walk_block(source.module, (), nested=True)
        for e in walk_expressions(s)
        if match(pattern, e.node) is not None
    )
    return [
        f"the same expression stands in line {line}: `{yaml_line('in', name)}`"
        if name
        else f"the same expression stands in line {line}, outside of functions: no `in`"
        for name, line in list(places)[:_SHOWN]
    ]


def find_elsewhere(data: bytes, file: str, anchor: Anchor) -> list[str]:
    """Where in another file the anchor's code stands, as YAML to paste; none where it does not."""
    try:
        source = read_source(data, file)
        pattern = parse_pattern(
            f"({anchor.code}\n)" if anchor.position == "wrap" else anchor.code or ""
        )
    except (PatchError, PatternError):
        return []
    wanted = getattr(pattern.node, "value", None) if anchor.position == "wrap" else pattern.node
    assert isinstance(wanted, cst.CSTNode)
    pattern = Pattern(pattern.text, wanted, pattern.is_header)
    found = [
        statement
        for statement in walk_block(source.module, (), nested=True)
        if match(pattern, statement.node) is not None
        or any(match(pattern, e.node) is not None for e in _expressions_of(anchor, statement))
    ]
    hints = []
    for statement in found[:_SHOWN]:
        scope = scope_name(statement)
        where = f", `{yaml_line('in', scope)}`" if scope else ""
        line = source.line_of(statement.node)
        hints.append(f"the same code stands in line {line} of another file: `file: {file}`{where}")
    return hints


def _expressions_of(anchor: Anchor, statement: Statement) -> Iterable[Expression]:
    return walk_expressions(statement) if anchor.position == "wrap" else ()


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
    code = show(source.module.code_for_node(pattern.node)).strip()
    return code.splitlines()[0].rstrip() if pattern.is_header else code


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


def _moved(source: Source, pattern: Pattern, scope: Statement | None) -> Iterator[str]:
    """Where else in the file the anchor fits exactly."""
    if scope is None:
        return
    found = [
        s for s in walk_block(source.module, (), nested=True) if match(pattern, s.node) is not None
    ]
    for statement in found[:_SHOWN]:
        name = scope_name(statement)
        line = source.line_of(statement.node)
        if name:
            yield f"the same statement stands in line {line}: `{yaml_line('in', name)}`"
        else:
            yield f"the same statement stands in line {line}, outside of functions: no `in`"


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
    return list(dict.fromkeys(whole))[:_SHOWN]


def _whole(source: Source, anchor: Anchor, statement: Statement, line: int) -> str:
    header = not statement.is_small
    code = source.module.code_for_node(statement.node).strip().rstrip("; ")
    text = source.line_text(line).strip() if header else code
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
    best, likeness = None, _LIKE
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
