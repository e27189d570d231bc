"""Errors are values: each survives the way between two processes as what it is."""

from __future__ import annotations

import pickle

import pytest

from orchestrator.errors import (
    DiskError,
    FileError,
    FileErrors,
    FleetError,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
    SessionError,
    StandsAlreadyError,
)
from orchestrator.model.outcome import Outcome
from orchestrator.model.source import Span

SPAN = Span("patches/a.yaml", 3, 1, 3, 6)
HOST = HostError("no", host="a", code="lost", tail=("last",), trace="T", data={"left": [1]})
ERRORS = [
    OrchestratorError(
        "a", span=SPAN, notes=("n",), hints=("h",), outcomes=(Outcome("a", "x", True),)
    ),
    FileError("b", span=SPAN),
    FileErrors([FileError("c", span=SPAN), FileError("d")]),
    PatchError("e", state="proof", file="f.py", hosts=("a",), others=(PatchError("f", state="x"),)),
    StandsAlreadyError("g", state="already there", span=SPAN),
    HOST,
    FleetError("h", [HOST]),
    DiskError("k", hints=("h",)),
    SessionError("i", hints=("h",)),
    RevertIncompleteError("j", outcomes=(), remaining=("a: b",), errors=(HOST,)),
]


def describe(value: object) -> object:
    """An error as plain data, with the errors in it."""
    if isinstance(value, tuple):
        return tuple(describe(item) for item in value)
    if isinstance(value, OrchestratorError):
        fields = {name: describe(item) for name, item in vars(value).items()}
        return type(value), value.args, fields
    return value


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_whole(error: OrchestratorError) -> None:
    """Type, text and data are those that were sent."""
    assert describe(pickle.loads(pickle.dumps(error))) == describe(error)


def test_every_kind_is_asked() -> None:
    """A class that is added belongs into the table."""
    kinds, waiting = set(), [OrchestratorError]
    while waiting:
        kind = waiting.pop()
        kinds.add(kind)
        waiting += kind.__subclasses__()
    assert {k for k in kinds if k.__module__ == "orchestrator.errors"} == {type(e) for e in ERRORS}
