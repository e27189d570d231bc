"""Which part may import which, and where each third-party library is at home."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "orchestrator"
SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))

BELOW = ("model", "errors", "diagnostics")
# Reading what a user names, and an error of the system in words: needed by no pure part.
READING = "userfile"
PARTS = (
    *BELOW,
    READING,
    "spec",
    "patching",
    "planning",
    "releases",
    "transport",
    "agent",
    "servers",
    "logs",
)

# Part -> parts of ours that it may import. A dotted name is that one module only.
ARROWS: dict[str, tuple[str, ...]] = {
    "model": (),
    "errors": ("model",),
    "diagnostics": ("model", "errors"),
    READING: (),
    "spec": (*BELOW, READING),
    "patching": ("model", "errors"),
    "planning": ("model", "errors", "patching"),
    "releases": ("model", "errors", READING),
    "transport": ("model", "errors", READING),
    "agent": ("model", "errors", "transport.base"),
    "onhost.agent": (),
    "onhost.probe": (),
    "servers": ("model", "errors", "agent"),
    "logs": ("model", "errors", "agent", READING),
    "session": (*PARTS, "report"),
    "report": ("model", "errors", "logs"),
    "demo": ("model", "transport.base"),
    "demo.miniature": (),
    "cli": (*PARTS, "session", "report", "demo"),
    "__main__": ("cli",),
}

# Library -> the parts that may import it directly; anything not named here has no home.
HOMES: dict[str, tuple[str, ...]] = {
    "click": ("cli",),
    "cryptography": ("demo",),  # keys: what paramiko itself makes them with
    "fabric": ("transport",),
    "invoke": ("transport",),
    "libcst": ("patching",),
    "multiprocessing": ("session", "demo.miniature"),
    "packaging": ("releases", "planning"),
    "paramiko": ("transport", "demo"),
    "pydantic": ("spec",),
    "pydantic_core": ("spec",),  # the error type of pydantic's validators
    "rich": ("report", "cli"),
    "sglang": ("demo.miniature",),  # the miniature's own package
    "subprocess": ("transport", "releases", "onhost.agent", "demo", "demo.miniature"),
    "yaml": ("spec",),
}


# Part -> modules of the standard library through which it would touch what it must not.
CLOCK = ("time", "datetime")
HOSTS = ("socket", "select", "asyncio", "ssl", "http", "urllib.request", "subprocess")
FILES = ("os", "pathlib", "shutil", "tempfile", "glob", "sqlite3")
PROCESSES = ("subprocess", "multiprocessing", "signal", "threading", "concurrent")
CLOSED: dict[str, tuple[str, ...]] = {
    "model": (*FILES, *CLOCK, *HOSTS, *PROCESSES),
    "errors": (*FILES, *CLOCK, *HOSTS, *PROCESSES),
    "diagnostics": (*FILES, *CLOCK, *HOSTS, *PROCESSES),
    "spec": (*CLOCK, *HOSTS, *PROCESSES),
    "patching": (*FILES, *CLOCK, *HOSTS, *PROCESSES),
    "planning": (*FILES, *CLOCK, *HOSTS, *PROCESSES),
    "report": HOSTS,
}


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, with the names taken from it."""

    line: int
    module: str


def part_of(module: str) -> str:
    """`orchestrator.spec.reader` -> `spec`; what runs on a host is a part of its own."""
    words = module.split(".")[1:]
    if words[:1] == ["onhost"] or words[:2] == ["demo", "miniature"]:
        return ".".join(words[:2])
    return words[0] if words else ""


def module_of(path: Path) -> str:
    """The dotted name of a source file."""
    words = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file: inside functions, in `try`, and under TYPE_CHECKING too."""
    package = module_of(path)
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            # `from orchestrator import errors` names a part only after `import`
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}")
        elif isinstance(node, ast.Call) and (named := _imported_by_name(node)):
            yield Import(node.lineno, named)


def _imported_by_name(node: ast.Call) -> str | None:
    """`yaml` for `importlib.import_module("yaml")`; a computed name stays unseen."""
    called = ast.unparse(node.func).rpartition(".")[2]
    if called in ("import_module", "__import__") and node.args:
        first = node.args[0]
        return first.value if isinstance(first, ast.Constant) else None
    return None


def problem_of(part: str, wanted: Import) -> str | None:
    """Why this part may not import that module, or `None` where it may."""
    library = wanted.module.split(".")[0]
    if library == PACKAGE:
        return _arrow_problem(part, wanted.module)
    if library in HOMES:
        homes = HOMES[library]
        return None if part in homes else f"`{library}` is at home in {', '.join(homes)}"
    if library in sys.stdlib_module_names:
        for closed in CLOSED.get(part, ()):
            if f"{wanted.module}.".startswith(f"{closed}."):
                return f"`{part}` may not touch what `{closed}` reaches"
        return None
    return f"`{library}` is at home nowhere"


def _arrow_problem(part: str, module: str) -> str | None:
    target = part_of(module)
    if target in ("", part, "__version__"):
        return None
    if part.startswith("onhost"):
        return f"`{part}` runs on the host and imports nothing of ours"
    inner = ".".join(module.split(".")[1:])
    for allowed in ARROWS[part]:
        if inner == allowed or inner.startswith(allowed + "."):
            return None
    return f"`{part}` may not import `{inner}`"


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_follow_the_table(path: Path) -> None:
    """No arrow and no library that the table of layers does not allow."""
    part = part_of(module_of(path))
    if part in ("", "onhost"):
        assert not list(imports_of(path)), f"{path.name} of a bare package imports nothing"
        return
    assert part in ARROWS, f"the table of layers does not know the part `{part}`"
    found = [
        f"{path.relative_to(ROOT)}:{wanted.line}: {problem}"
        for wanted in imports_of(path)
        if (problem := problem_of(part, wanted))
    ]
    assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("part", "module", "problem"),
    [
        ("planning", "orchestrator.transport.ssh", "`planning` may not import `transport.ssh`"),
        ("agent", "orchestrator.transport.ssh", "`agent` may not import `transport.ssh`"),
        ("agent", "orchestrator.transport.base.Channel", None),
        ("model", "orchestrator.errors", "`model` may not import `errors`"),
        ("cli", "orchestrator.session.run", None),
        ("cli", "libcst", "`libcst` is at home in patching"),
        ("planning", "os.path", "`planning` may not touch what `os` reaches"),
        ("planning", "posixpath", None),
        ("spec", "numpy", "`numpy` is at home nowhere"),
        (
            "onhost.agent",
            "orchestrator.model",
            "`onhost.agent` runs on the host and imports nothing of ours",
        ),
        (
            "onhost.probe",
            "orchestrator.onhost.agent.held.state",
            "`onhost.probe` runs on the host and imports nothing of ours",
        ),
    ],
)
def test_the_table_tells_arrows_apart(part: str, module: str, problem: str | None) -> None:
    """What is refused is refused with its reason, and what is allowed is not."""
    assert problem_of(part, Import(1, module)) == problem


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    """Inside functions, under TYPE_CHECKING, relative ones and those by name count too."""
    source = ROOT / PACKAGE / "agent" / "client.py"
    text = """
import os.path
if TYPE_CHECKING:
    from orchestrator import spec
def f():
    from .ship import make
    importlib.import_module("yaml")
"""
    folder = tmp_path / "orchestrator" / "agent"
    folder.mkdir(parents=True)
    copy = folder / source.name
    copy.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "ROOT", tmp_path)
        found = [(wanted.line, wanted.module) for wanted in imports_of(copy)]
    assert sorted(found) == [
        (2, "os.path"),
        (4, "orchestrator.spec"),
        (6, "orchestrator.agent.ship.make"),
        (7, "yaml"),
    ]
