"""The one file that goes to a host: how it is joined, and which Pythons run it."""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.session.probe_runtime import PARTS, runtime_source, split_part
from tests.probe.workshop import Workshop

FOLDER = Path(__file__).parent.parent.parent / "orchestrator/onhost/probe"


def other_pythons() -> list[str]:
    """This interpreter and those of other releases that the machine has, 3.8 or newer."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for minor in range(8, 16):
        installed = [Path("/usr/bin"), Path("/usr/local/bin")]
        paths = [p / f"python3.{minor}" for p in installed]
        paths += sorted((pyenv / "versions").glob(f"3.{minor}.*/bin/python"))
        for path in paths:
            if path.exists():
                found.setdefault(f"3.{minor}", str(path))
    return sorted(found.values())


def test_all_parts_are_joined_and_no_name_stands_for_two_things() -> None:
    """What is defined twice in one file would silently be the later one."""
    assert sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__") == sorted(PARTS)
    tree = ast.parse(runtime_source())
    names: Counter[str] = Counter()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] += 1
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(ast.unparse(target) for target in targets)
    assert [name for name, count in names.items() if count > 1] == []


def test_it_needs_only_the_standard_library() -> None:
    """Torch and SGLang are looked up in `sys.modules`, never imported."""
    imports = [n for n in ast.walk(ast.parse(runtime_source())) if isinstance(n, ast.Import)]
    froms = [n for n in ast.walk(ast.parse(runtime_source())) if isinstance(n, ast.ImportFrom)]
    modules = {alias.name for n in imports for alias in n.names} | {n.module for n in froms}
    assert modules <= sys.stdlib_module_names


def test_the_bytes_are_the_same_every_time() -> None:
    """A plan's checksum must not depend on who planned."""
    assert runtime_source() == runtime_source()
    assert runtime_source().isascii()
    compile(runtime_source(), "_sgldbg.py", "exec")


@pytest.mark.parametrize(
    "text", ['"""Doc."""\nx = 1\nimport os\n', '"""Doc."""\nimport os as system\n']
)
def test_a_part_that_cannot_be_joined_is_refused(text: str) -> None:
    """An import in the middle or under another name would mean something else in one file."""
    with pytest.raises(ValueError, match="not an import that a part may have"):
        split_part(text)


@pytest.mark.parametrize("python", other_pythons())
def test_other_pythons_run_it(shop: Workshop, python: str) -> None:
    """The host's interpreter decides; this machine's other releases are tried where it has them."""
    shop.put(capture=["x", "[i + y for i in (x,)]", "(lambda: x)()"], once_per=["x"])
    done = shop.run("print(model.f(3), model.f(3), model.f(4))", python)
    assert (done.code, done.stdout) == (0, "3 3 4\n")
    assert [(r.kind, dict(r.values)) for r in done.records] == [
        ("import", {}),
        (
            "hit",
            {"x": 3, "[i + y for i in (x,)]": {"t": "list", "text": "[5]"}, "(lambda: x)()": 3},
        ),
        (
            "hit",
            {"x": 4, "[i + y for i in (x,)]": {"t": "list", "text": "[6]"}, "(lambda: x)()": 4},
        ),
    ]
