"""The ready patches on the sources of real releases, as their wheels hold them."""

from __future__ import annotations

import ast
import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.model.plan import Plan
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import remove_insertions
from orchestrator.planning.plan import make_plan
from orchestrator.planning.view import HostView
from orchestrator.spec.patch import read_patch
from tests.releases.wheels import RELEASES, read_release

pytestmark = pytest.mark.releases

FILE = "sglang/srt/models/llama_eagle3.py"
PATCH = Path(__file__).parents[2] / "patches" / "eagle3-draft-input.yaml"
ANCHOR = "hidden_states = forward_batch.spec_info.hidden_states"


def _plan(version: str, data: bytes) -> Plan:
    view = HostView("host", version, {FILE: data}, "/run/probe")
    return make_plan("s1", [read_patch(PATCH)], [view], b"def _start(config): pass\n")


@pytest.mark.parametrize("version", RELEASES)
def test_the_seeds_patch_fits_every_release(version: str) -> None:
    """It applies at the one statement, compiles, keeps all lines, and comes out without a trace."""
    data = read_release(version, FILE)
    plan = _plan(version, data)
    edited = plan.files[-1]
    assert edited.before_sha256 == hashlib.sha256(data).hexdigest()

    (site,) = edited.sites
    assert (site.scope, site.text.strip()) == ("LlamaModel.forward", ANCHOR)
    assert site.class_name == "LlamaModel"
    assert site.clear_locals
    assert plan.warnings == ()

    compile(edited.after, FILE, "exec")
    assert edited.after.count(b"\n") == data.count(b"\n")
    assert len(edited.insertions) == 2
    assert remove_insertions(edited.after, edited.insertions) == data
    assert remove_ours(edited.after, FILE).data == data


@pytest.mark.parametrize("version", RELEASES)
def test_the_probe_stands_behind_the_statement(version: str) -> None:
    """In the tree of the result, the probe is the next statement in the same block."""
    tree = ast.parse(_plan(version, read_release(version, FILE)).files[-1].after)
    found = [
        (before, after)
        for node in ast.walk(tree)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None))
        if isinstance(body, list)
        for before, after in pairwise(body)
        if "_sgldbg.off" in ast.unparse(after) and isinstance(after, ast.Expr)
    ]
    assert [ast.unparse(before) for before, _ in found] == [ANCHOR]
    assert found[0][0].lineno == found[0][1].lineno
