"""A probe at a random statement of every file of a package: placed, proven, and taken out again."""

from __future__ import annotations

import ast
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor, Edit, Patch, Probe
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import remove_insertions
from orchestrator.planning.view import HostView
from orchestrator.releases.source import Release
from orchestrator.session.engine import Engine

_RUNTIME = b"def _start(config): pass\n"
# No statement in a function to choose from: an empty file, or one of assignments alone.
NOTHING = "no function"


@dataclass
class Swept:
    """What became of all files: how many got a probe, why others did not, and what is wrong."""

    placed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Swept) -> None:
        """Count another part in."""
        self.placed += other.placed
        self.kinds += other.kinds
        self.refused += other.refused
        self.wrong += other.wrong


def sweep(release: Release, package: str, seed: int, part: int, parts: int, jobs: int) -> Swept:
    """One part of all files, chosen by the seed; every file has its own random numbers."""
    files = [f for f in release.files() if random.Random(f"{seed} {f}").randrange(parts) == part]
    total = Swept()
    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(
            lambda share: _sweep_files(release, package, seed, share), _shares(files, jobs)
        ):
            total.add(done)
    return total


def _shares(files: Sequence[str], jobs: int) -> Iterator[Sequence[str]]:
    yield from (files[number::jobs] for number in range(jobs))


def _sweep_files(release: Release, package: str, seed: int, files: Sequence[str]) -> Swept:
    swept = Swept()
    with Engine() as engine:
        for file in files:
            data = release.read(file) or b""
            _sweep_file(engine, package, file, data, random.Random(f"{seed} {file}"), swept)
    return swept


def _sweep_file(
    engine: Engine, package: str, file: str, data: bytes, rng: random.Random, swept: Swept
) -> None:
    line = _random_line(data, rng)
    if line is None:
        swept.refused[NOTHING] += 1
        return
    try:
        found = engine.suggest(data, file, line, [])
        kind, edit = _random_edit(found.anchor, rng)
        patch = Patch("sweep", "A sweep.", package, "", (edit,))
        view = HostView("sweep", None, {file: data}, "/")
        plan = engine.plan("sweep", [patch], [view], _RUNTIME)
    except PatchError as error:
        swept.refused[f"{error.state}: {_kind_of(error, file)}"] += 1
        if error.state in ("proof", "engine", "parse"):
            swept.wrong.append(f"{file}:{line}: {error.message}")
        return
    swept.placed += 1
    swept.kinds[kind] += 1
    edited = plan.files[-1]
    if remove_insertions(edited.after, edited.insertions) != data:
        swept.wrong.append(f"{file}:{line}: the insertions do not come out")
    if remove_ours(edited.after, file).data != data:
        swept.wrong.append(f"{file}:{line}: the probes do not come out")


def _random_line(data: bytes, rng: random.Random) -> int | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        return None
    inside = [n for n in ast.walk(rng.choice(functions)) if isinstance(n, ast.stmt)][1:]
    return rng.choice(inside).lineno


def _random_edit(anchor: Anchor, rng: random.Random) -> tuple[str, Edit]:
    """Mostly at the statement itself; sometimes at the ways out of its function, or its start."""
    kind = rng.choice(["statement", "statement", "statement", "return", "return value", "start"])
    probe = Probe(takes_value=kind == "return value")
    if kind != "statement" and anchor.scope is not None:
        position = "start" if kind == "start" else "return"
        place = Anchor(anchor.file, anchor.scope, position, None, which=anchor.which)
        return kind, Edit((place,), probe, "sweep.1")
    return "statement", Edit((anchor,), Probe(), "sweep.1")


def _kind_of(error: PatchError, file: str) -> str:
    """The reason without names and numbers, so that equal ones are counted together."""
    text = error.message.replace(file, "FILE")
    words = [
        "..." if word.strip("`,:()").isdigit() or "`" in word else word for word in text.split()
    ]
    return " ".join(words)[:90]
