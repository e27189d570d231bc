"""Where probes land in a later release: our anchors, GNU patch and git apply, side by side."""

from __future__ import annotations

import ast
import builtins
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.patching.finding.places import find_places
from orchestrator.patching.source import Source, read_source
from orchestrator.releases.source import open_release
from orchestrator.releases.wheels import cache_dir

COUNT = 400
SEED = 7
MARK = "SGLDBG_DRIFT_PROBE"
PAIRS = (("0.5.2", "0.5.6"), ("0.4.6.post5", "0.5.6"), ("0.5.6", "0.5.23"))
FILES = tuple(
    f"sglang/srt/{name}.py"
    for name in (
        "managers/scheduler",
        "managers/schedule_batch",
        "managers/tp_worker",
        "managers/tokenizer_manager",
        "mem_cache/radix_cache",
        "model_executor/model_runner",
        "layers/logits_processor",
        "layers/sampler",
        "models/llama_eagle3",
        "models/deepseek_v2",
    )
)


@dataclass(frozen=True)
class Spot:
    """A simple statement: its scope, its code without layout, and the lines that it takes."""

    file: str
    scope: str
    code: str
    text: str
    first: int
    last: int


def main() -> int:
    """Carry random statements from one release to another by every way, and print the table."""
    ways = [way for way, tool in (("patch", "patch"), ("git apply", "git")) if shutil.which(tool)]
    print(f"{'from -> to':<24}{'way':<28}{'right':>7}{'refused':>9}{'wrong':>7}")
    wrong = 0
    for old, new in PAIRS:
        before, after = _sources(old), _sources(new)
        spots = [s for file, text in before.items() for s in _spots(file, text)]
        chosen = random.Random(SEED).sample(spots, COUNT)
        counts: dict[str, Counter[str]] = {}
        parsed = {f: read_source(t.encode(), f) for f, t in after.items()}
        for spot in chosen:
            counts.setdefault("anchor", Counter())[_ours(parsed[spot.file], spot)] += 1
            for way in ways:
                landed = _by_diff(way, before[spot.file], after[spot.file], spot)
                counts.setdefault(way, Counter())[landed] += 1
        suggested = Counter(
            _suggested(parsed[s.file], s) for s in chosen if _ours(parsed[s.file], s) == "refused"
        )
        for way, count in counts.items():
            print(f"{old + ' -> ' + new:<24}{way:<28}{count['right']:>7}"
                  f"{count['refused']:>9}{count['wrong']:>7}")  # fmt: skip
        print(f"{'':<24}of those that the anchor refused, the first suggestion is right for "
              f"{suggested['right']}, wrong for {suggested['wrong']}, "
              f"{suggested['none']} have none")  # fmt: skip
        wrong += counts["anchor"]["wrong"]
    return 1 if wrong else 0


def _sources(version: str) -> dict[str, str]:
    release = open_release(version, "sglang", cache_dir())
    found = {file: release.read(file) for file in FILES}
    return {file: data.decode() for file, data in found.items() if data is not None}


def _spots(file: str, text: str) -> Iterator[Spot]:
    """Assignments and calls in functions, which are unique in their function."""
    lines = text.splitlines()
    found = list(_statements(ast.parse(text), ()))
    equal = Counter((scope, ast.dump(node)) for scope, node in found)
    for scope, node in found:
        if equal[scope, ast.dump(node)] > 1:
            continue
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) and scope:
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
                continue
            last = node.end_lineno or node.lineno
            code = "\n".join(lines[node.lineno - 1 : last])
            yield Spot(file, scope, ast.dump(node), code, node.lineno, last)


def _statements(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _statements(child, (*names, child.name))
            continue
        if isinstance(child, ast.stmt):
            yield ".".join(names), child
        yield from _statements(child, names)


def _ours(source: Source, spot: Spot) -> str:
    try:
        places = find_places(source, Anchor(spot.file, spot.scope, "after", spot.text))
    except PatchError:
        return "refused"
    statement = places[0].statement
    code = ast.dump(_parsed(source.module.code_for_node(statement.node)))
    return "right" if (places[0].scope, code) == (spot.scope, spot.code) else "wrong"


def _parsed(code: str) -> ast.stmt:
    return ast.parse(code.strip().rstrip("; ")).body[0]


def _by_diff(way: str, before: str, after: str, spot: Spot) -> str:
    """A line behind the statement as a diff with three lines of context, put into the new file."""
    lines = before.splitlines(keepends=True)
    indent = len(lines[spot.first - 1]) - len(lines[spot.first - 1].lstrip())
    probed = [*lines[: spot.last], f"{' ' * indent}{MARK}()\n", *lines[spot.last :]]
    diff = "".join(unified_diff(lines, probed, "a/f.py", "b/f.py"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "f.py"
        target.write_text(after)
        command = (
            ["patch", "-p1", "--batch", "--silent"] if way == "patch" else ["git", "apply", "-"]
        )
        ran = subprocess.run(
            command, input=diff.encode(), cwd=folder, capture_output=True, check=False,
            env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/"},
        )  # fmt: skip
        result = target.read_text()
    return "refused" if ran.returncode or MARK not in result else _landed(result, spot)


def _landed(result: str, spot: Spot) -> str:
    """Right where the probe stands directly behind the same statement of the same function."""
    try:
        tree = ast.parse(result)
    except SyntaxError:
        return "wrong"
    for scope, body in _blocks(tree, ()):
        for one, two in pairwise(body):
            if MARK in ast.dump(two) and isinstance(two, ast.Expr):
                same = (scope, ast.dump(one)) == (spot.scope, spot.code)
                return "right" if same else "wrong"
    return "wrong"


def _blocks(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, list[ast.stmt]]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, node.name)
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if isinstance(body, list):
            yield ".".join(names), body
    for child in ast.iter_child_nodes(node):
        yield from _blocks(child, names)


def _suggested(source: Source, spot: Spot) -> str:
    """Whether the first line to paste leads to a statement that binds, or calls, the same.

    That is what a person would look at first; a start of the function is no suggestion of a place.
    """
    try:
        find_places(source, Anchor(spot.file, spot.scope, "after", spot.text))
    except PatchError as error:
        for hint in error.hints:
            anchor = _anchor_of(hint, spot)
            if anchor is not None:
                return _judge(source, anchor, spot)
    return "none"


def _anchor_of(hint: str, spot: Spot) -> Anchor | None:
    if "`after: " in hint:
        text = hint.split("`after: ", 1)[1].rsplit("`", 1)[0]
        code = str(ast.literal_eval(text)) if text.startswith('"') else text
        return Anchor(spot.file, spot.scope, "after", code)
    if "`in: " in hint and "same statement" in hint:
        scope = hint.split("`in: ", 1)[1].split("`", 1)[0]
        of = int(hint.split("`of: ", 1)[1].rstrip("`")) if "`of: " in hint else None
        return Anchor(spot.file, scope, "after", spot.text, occurrence=of and 1, of=of)
    return None


def _judge(source: Source, anchor: Anchor, spot: Spot) -> str:
    try:
        (place,) = find_places(source, anchor)
    except (PatchError, ValueError):
        return "wrong"
    found = _parsed(source.module.code_for_node(place.statement.node))
    return "right" if _subjects(found) & _subjects(_parsed(spot.text)) else "wrong"


def _subjects(node: ast.stmt) -> set[str]:
    """What a statement binds and what it calls, as far as that says something."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    value = getattr(node, "value", None)
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Call) and not _is_builtin(value.func):
        targets = [*targets, value.func]
    return {ast.dump(t) for t in targets}


def _is_builtin(func: ast.expr) -> bool:
    return isinstance(func, ast.Name) and hasattr(builtins, func.id)


if __name__ == "__main__":
    sys.exit(main())
