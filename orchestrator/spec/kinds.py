"""The three kinds of file: told apart by their first key, read, and described by a schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import FileError, FileErrors
from orchestrator.model.near import find_near
from orchestrator.spec.fields import Strict
from orchestrator.spec.inventory import InventoryKeys, read_inventory
from orchestrator.spec.patch import PatchKeys, read_patch
from orchestrator.spec.problems import MARKS
from orchestrator.spec.project import load_project
from orchestrator.spec.reader import read_document
from orchestrator.spec.session import SessionKeys

_MODELS: dict[str, type[Strict]] = {
    "inventory": InventoryKeys,
    "patch": PatchKeys,
    "session": SessionKeys,
}
KINDS = tuple(_MODELS)
_MARKS = {MARKS[model.noun]: kind for kind, model in _MODELS.items()}


def find_kind(path: str | Path) -> str:
    """`inventory`, `patch` or `session`, by the keys; raises `FileErrors` where none fits."""
    document = read_document(path)
    keys = list(document.value) if isinstance(document.value, dict) else []
    kinds = [_MARKS[key] for key in keys if key in _MARKS]
    kinds += [_MARKS[near] for key in keys if (near := find_near(key, _MARKS))]
    # A file of which the marking key is missing still shows by its others what it is.
    kinds += [kind for kind, model in _MODELS.items() if len(_known(model, keys)) > 1]
    if kinds:
        return kinds[0]
    message = "neither an inventory (`hosts:`) nor a patch (`patch:`) nor a session (`session:`)"
    raise FileErrors([FileError(message, span=document.values[()])])


def read_file(
    path: str | Path, inventory: str | Path | None = None, patch_dirs: Sequence[str | Path] = ()
) -> str:
    """Read the file as what it is, a session with its project; its kind.

    Raises `FileErrors` with everything that is wrong in it.
    """
    kind = find_kind(path)
    match kind:
        case "inventory":
            read_inventory(path)
        case "patch":
            read_patch(path)
        case _:
            load_project(path, inventory, patch_dirs)
    return kind


def make_schema(kind: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of a kind of file."""
    schema = _without_null(_MODELS[kind].model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _known(model: type[Strict], keys: Sequence[str]) -> list[str]:
    return [key for key in keys if key in model.model_fields]


def _without_null(node: Any) -> Any:
    """Keys that may be left out are not keys that may be empty, which pydantic takes for one."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {
        key: _without_null(value)
        for key, value in node.items()
        if not (key == "default" and value is None)
    }
    properties: dict[str, Any] = result.get("properties") or {}
    for name, value in properties.items():
        choices = value.get("anyOf") if isinstance(value, dict) else None
        if isinstance(choices, list) and {"type": "null"} in choices:
            others = [choice for choice in choices if choice != {"type": "null"}]
            rest = {key: item for key, item in value.items() if key != "anyOf"}
            properties[name] = {**rest, **(others[0] if len(others) == 1 else {"anyOf": others})}
    return result
