"""Agents for tests: the real package with a few ops of ours in place of the real ones."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from orchestrator.agent.ship import Zipapp, make_zipapp


def make_test_zipapp() -> Zipapp:
    """The agent with the ops of `remote_main.py`; frames, loop, descriptors, end are real."""
    text = Path(__file__).with_name("remote_main.py").read_text()
    return replace_members({"sgldbg_agent/__main__.py": text})


def replace_members(members: dict[str, str]) -> Zipapp:
    """The packed agent with other, or further, files in it."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(make_zipapp().data)) as packed,
        zipfile.ZipFile(buffer, "w") as archive,
    ):
        for name in packed.namelist():
            if name not in members:
                archive.writestr(name, packed.read(name))
        for name, text in members.items():
            archive.writestr(name, text)
    data = buffer.getvalue()
    return Zipapp(data, hashlib.sha256(data).hexdigest())
