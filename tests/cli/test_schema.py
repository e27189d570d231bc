"""`sgldbg schema`: JSON Schema that agrees with what is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.cli.app import main


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("inventory", ["hosts"]),
        ("patch", ["patch", "about", "edits"]),
        ("session", ["session", "question", "server", "patches"]),
    ],
)
def test_schema(kind: str, needed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The schema of each kind is printed as JSON, and names the keys that are needed."""
    assert main(["schema", kind]) == 0
    said = capsys.readouterr()
    schema = json.loads(said.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == needed
    assert schema["additionalProperties"] is False
    assert said.err == ""


def test_references(capsys: pytest.CaptureFixture[str]) -> None:
    """Every reference leads to a definition."""
    assert main(["schema", "inventory"]) == 0
    schema = json.loads(capsys.readouterr().out)
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                found.add(node["$ref"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)
    assert found
    assert found == {f"#/$defs/{name}" for name in schema["$defs"]}


def test_unknown_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Another kind is an error of usage."""
    assert main(["schema", "recipe"]) == 2
    assert "'recipe' is not one of 'inventory', 'patch', 'session'" in capsys.readouterr().err
