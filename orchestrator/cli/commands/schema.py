"""`sgldbg schema`: JSON Schema of a kind of file, so that editors complete and check."""

from __future__ import annotations

import json

import click

from orchestrator.spec.kinds import KINDS, make_schema


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS))
def command(kind: str) -> None:
    """Print the JSON Schema of KIND.

    Editors with a YAML language server take it from a first line such as
    `# yaml-language-server: $schema=patch.schema.json`.
    """
    click.echo(json.dumps(make_schema(kind), indent=2, ensure_ascii=False))
