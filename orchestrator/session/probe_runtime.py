"""Joins the parts of the probe runtime into the one file that goes to a host."""

from __future__ import annotations

import ast
from importlib import resources

# In this order each part finds the names of those before it; `runtime` is what sites call.
PARTS = (
    "state",
    "rendering",
    "tensors",
    "worker",
    "records",
    "sites",
    "deciding",
    "runtime",
)
_FUTURE = "from __future__ import annotations"
_ABOUT = '"""Placed here by sgldbg for one debug session; it goes when the session ends."""'


def runtime_source() -> bytes:
    """The runtime as one module: standard library only, ASCII, the same bytes every time."""
    folder = resources.files("orchestrator.onhost.probe")
    imports: dict[str, set[str]] = {}
    bodies = []
    for name in PARTS:
        found, body = split_part(folder.joinpath(f"{name}.py").read_text(encoding="utf-8"))
        for module, names in found:
            imports.setdefault(module, set()).update(names)
        bodies.append(f"# --- {name} ---\n\n\n{body.strip()}\n")
    head = "\n".join((_ABOUT, "", _FUTURE, "", *_import_lines(imports), "", ""))
    return (head + "\n" + "\n\n".join(bodies)).encode("ascii")


def split_part(text: str) -> tuple[list[tuple[str, tuple[str, ...]]], str]:
    """What a part imports from outside the folder, and the text below its imports.

    Raises `ValueError` where a part imports below its first definition or under another name: in
    one file that would mean something else.
    """
    tree = ast.parse(text)
    imports: list[tuple[str, tuple[str, ...]]] = []
    last = 0
    for index, node in enumerate(tree.body):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if index != last + 1 or any(alias.asname for alias in node.names):
            raise ValueError(f"line {node.lineno}: not an import that a part may have")
        last = index
        names = tuple(alias.name for alias in node.names)
        if isinstance(node, ast.Import):
            imports.extend((name, ()) for name in names)
        elif not node.level and node.module != "__future__":
            imports.append((node.module or "", names))
    lines = text.splitlines(keepends=True)
    return imports, "".join(lines[tree.body[last].end_lineno or 0 :])


def _import_lines(imports: dict[str, set[str]]) -> list[str]:
    plain = [f"import {module}" for module, names in sorted(imports.items()) if not names]
    return plain + [
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(imports.items())
        if names
    ]
