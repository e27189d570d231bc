"""Where the code of an anchor stands instead: in another function, another file, another module."""

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
from orchestrator.patching.structure.pattern import Pattern, PatternError, parse_pattern
from orchestrator.patching.structure.walk import (
    Statement,
    all_definitions,
    dotted_name,
    qualified_name,
    scope_name,
    walk_block,
)

# More places than these do not help a reader.
SHOWN = 5
# Below this likeness (difflib's ratio) a neighbour is no help but noise.
LIKE = 0.6
# Plain YAML text that needs no quotes: no `: `, no ` #`, no sign that YAML gives a meaning to.
_PLAIN = re.compile(r"^[A-Za-z_$][^\n]*$")


def yaml_line(key: str, text: str) -> str:
    """A line of YAML that a user can paste as it is."""
    # Lines are joined where that cannot change what they say.
    joins = "\n" in text and not any(sign in text for sign in ("#", "\\", '"""', "'''"))
    flat = " ".join(text.split()) if joins else text
    plain = _PLAIN.match(flat) and ": " not in flat and " #" not in flat and flat[-1] != ":"
    return f"{key}: {flat if plain else json.dumps(flat, ensure_ascii=False)}"


def missing_scope(source: Source, anchor: Anchor, span: Span | None) -> PatchError:
    """The error for a scope that the file does not define: where its code and its name went."""
    wanted = anchor.scope or ""
    anonymous = _find_lambda(source, wanted)
    if anonymous is not None:
        return PatchError(
            f"`{wanted}` is a lambda (line {anonymous}): it holds no statements",
            state="refused",
            span=span,
            hints=("put the probe where it is called",),
            file=source.file,
        )
    names = list(dict.fromkeys(qualified_name(s) for s in all_definitions(source.module)))
    last = wanted.rsplit(".", 1)[-1]
    near = [n for n in names if n.rsplit(".", 1)[-1] == last][:SHOWN]
    near += [n for n in difflib.get_close_matches(wanted, names, SHOWN, LIKE) if n not in near]
    hints = [f"did you mean `{yaml_line('in', n)}`?" for n in near]
    return PatchError(
        f"`{source.file}` has no `{wanted}`",
        state="not found",
        span=span,
        notes=() if names else ("the file defines no function and no class",),
        hints=[*_moved_from(source, anchor), *_imported(source, wanted), *hints],
        file=source.file,
    )


def _moved_from(source: Source, anchor: Anchor) -> list[str]:
    """Where the anchor's code stands in the file, whose own scope is not there."""
    pattern = _pattern_of(anchor)
    if pattern is None:
        return []
    if anchor.position == "wrap":
        return moved_expressions(source, pattern)
    return list(moved_statements(source, pattern))


def _pattern_of(anchor: Anchor) -> Pattern | None:
    if anchor.code is None:
        return None
    try:
        if anchor.position != "wrap":
            return parse_pattern(anchor.code)
        pattern = parse_pattern(f"({anchor.code}\n)")
    except PatternError:
        return None
    value = getattr(pattern.node, "value", None)
    return Pattern(pattern.text, value, is_header=False) if value is not None else None


def _imported(source: Source, wanted: str) -> Iterator[str]:
    """Where a name comes from that the file only imports."""
    first = wanted.split(".", 1)[0]
    for statement in walk_block(source.module, (), nested=False):
        node = statement.node
        if not isinstance(node, cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
            continue
        for alias in node.names:
            name = alias.asname.name if alias.asname else alias.name
            if isinstance(name, cst.Name) and name.value == first:
                yield _imported_from(source, node, alias, wanted)


def _imported_from(source: Source, node: cst.ImportFrom, alias: cst.ImportAlias, name: str) -> str:
    """The module that an import names, from the package's own name on."""
    folders = source.file.removesuffix(".py").split("/")[: -len(node.relative) or None]
    own = ".".join(folders) if node.relative else ""
    module = ".".join(
        part for part in (own, dotted_name(node.module) if node.module else "") if part
    )
    real = ".".join([dotted_name(alias.name) or "", *name.split(".")[1:]])
    line = source.line_of(node)
    return (
        f"it is imported in line {line}: `{yaml_line('module', module)}`, `{yaml_line('in', real)}`"
    )


def moved_statements(source: Source, pattern: Pattern) -> Iterator[str]:
    """Where else in the file a pattern fits, as YAML to paste, one line for each function."""
    places: dict[str | None, list[int]] = {}
    for statement in walk_block(source.module, (), nested=True):
        if match(pattern, statement.node) is not None:
            places.setdefault(scope_name(statement), []).append(source.line_of(statement.node))
    for name, lines in list(places.items())[:SHOWN]:
        where = f"`{yaml_line('in', name)}`" if name else "outside of functions: no `in`"
        comma = ": " if name else ", "
        if len(lines) == 1:
            yield f"the same statement stands in line {lines[0]}{comma}{where}"
        else:
            shown = ", ".join(map(str, lines[:SHOWN])) + (", ..." if lines[SHOWN:] else "")
            yield (
                f"the same statement stands in lines {shown}{comma}{where}, "
                f"`occurrence: 1`, `of: {len(lines)}`"
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


def moved_expressions(source: Source, pattern: Pattern) -> list[str]:
    """Where else in the file an expression stands, as YAML to paste."""
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
        for name, line in list(places)[:SHOWN]
    ]


def find_elsewhere(data: bytes, file: str, anchor: Anchor) -> list[str]:
    """Where in another file the anchor's code stands, as YAML to paste; none where it does not."""
    pattern = _pattern_of(anchor)
    if pattern is None:
        return []
    try:
        source = read_source(data, file)
    except PatchError:
        return []
    found = [
        statement
        for statement in walk_block(source.module, (), nested=True)
        if match(pattern, statement.node) is not None
        or any(match(pattern, e.node) is not None for e in _expressions_of(anchor, statement))
    ]
    hints = []
    for statement in found[:SHOWN]:
        scope = scope_name(statement)
        where = f", `{yaml_line('in', scope)}`" if scope else ""
        line = source.line_of(statement.node)
        hints.append(f"the same code stands in line {line} of another file: `file: {file}`{where}")
    return hints


def _expressions_of(anchor: Anchor, statement: Statement) -> Iterable[Expression]:
    return walk_expressions(statement) if anchor.position == "wrap" else ()
