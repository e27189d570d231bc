"""Why a release could not be had, told from what pip says."""

from __future__ import annotations

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import FileErrors
from orchestrator.releases.wheels import explain

# What pip says of mirrors that are set up and not there, whatever is asked.
WARNED = "WARNING: Location 'file:///mirror/sglang/' is ignored: it is neither a file nor a folder."
LISTED = (
    f"{WARNED}\nERROR: Could not find a version that satisfies the requirement sglang==VERSION "
    "(from versions: VERSIONS)\nERROR: No matching distribution found for sglang==VERSION\n"
)
BY_PATH = "\nhint: name an unpacked wheel or a checkout by its path instead\n\n1 problem"
ALL = "0.1.3, 0.4.9, 0.4.10, 0.4.10.post1, 0.5.1, 0.5.10, 0.5.2"


@pytest.mark.parametrize(
    ("version", "versions", "nearest"),
    [
        ("0.5.0", [ALL], "`0.4.10`, `0.4.10.post1`, `0.5.1`, `0.5.2`"),
        ("0.5", [ALL], "`0.4.10`, `0.4.10.post1`, `0.5.1`, `0.5.2`"),
        ("0.5.3", [ALL], "`0.5.1`, `0.5.2`, `0.5.10`"),
        ("9.9", ["0.5.10, 0.5.2", "0.5.11", "none"], "`0.5.10`, `0.5.11`"),
        ("0.0.1", [ALL], "`0.1.3`, `0.4.9`"),
    ],
)
def test_a_release_that_does_not_exist(version: str, versions: list[str], nearest: str) -> None:
    """Its neighbours in order of versions, whichever Python they are built for; no list of all."""
    said = [LISTED.replace("VERSIONS", v).replace("VERSION", version) for v in versions]
    assert render(FileErrors([explain("sglang", version, said)])) == (
        f"error: the package index has no sglang {version}\nhint: those next to it: {nearest}"
        + BY_PATH
    )


@pytest.mark.parametrize(
    ("said", "notes"),
    [
        # The same words where the index does not know the package, and where it has the release.
        (
            LISTED.replace("VERSIONS", "none").replace("VERSION", "0.5.2"),
            "note: ERROR: Could not find a version that satisfies the requirement sglang==0.5.2 "
            "(from versions: none)\nnote: ERROR: No matching distribution found for sglang==0.5.2",
        ),
        (f"{WARNED}\nERROR: {'x' * 999}\n", f"note: ERROR: {'x' * 293}"),
        ("a\nb\n\nc\nd\n", "note: b\nnote: c\nnote: d"),
        ("pip took longer than 600 s", "note: pip took longer than 600 s"),
    ],
)
def test_another_reason(said: str, notes: str) -> None:
    """The last lines of the last try, bounded, without warnings of other things."""
    assert render(FileErrors([explain("sglang", "0.5.2", ["an earlier try", said])])) == (
        f"error: sglang 0.5.2 could not be fetched from the package index\n{notes}{BY_PATH}"
    )
