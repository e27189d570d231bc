"""Every command of the README is run as it stands there, or says here why it is not."""

from __future__ import annotations

import subprocess

import pytest

from tests.session import readme
from tests.session.command import call
from tests.session.world import Project, World

# What each ends with on a host where nothing is left and a server with the fault runs.
CODES = {"check": 0, "hosts": 0, "plan": 0, "status": 0, "revert": 0}
# Not run here, since each needs what no test has.
NOT_RUN = {
    "make demo": "its own target of CI",
    "make test": "it is what runs this",
    "python3 -m venv ~/.venvs/sgldbg && . ~/.venvs/sgldbg/bin/activate": "a shell of its user",
    "pip install .": "it asks the package index",
}


def test_every_command_does_what_it_says(
    single: World, small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order and where it says to stand; `run` is the first test of a session's success."""
    readme.go(small, monkeypatch)
    found = {}
    for words in readme.read_commands():
        if words[0] != "run":
            result = call(monkeypatch, *words)
            found[words[0]] = result.code
            assert result.code == CODES[words[0]], result.err
    assert found == CODES
    single.assert_as_before()


def test_the_rest_is_known() -> None:
    """A line that is new in the README is run, or gets its reason; the targets of make exist."""
    lines = {line.split("  #")[0].rstrip() for line in readme.read_lines()}
    assert {line for line in lines if not line.startswith("sgldbg ")} == set(NOT_RUN)
    for line in (line for line in NOT_RUN if line.startswith("make ")):
        subprocess.run([*line.split(), "--dry-run"], cwd=readme.README.parent, check=True,
                       capture_output=True, timeout=30)  # fmt: skip
