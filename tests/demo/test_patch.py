"""The library's patch on the miniature: it applies as it is, and sees the fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.demo import layout
from orchestrator.logs.records import RecordReader
from orchestrator.model.record import Record
from orchestrator.planning.plan import make_plan
from orchestrator.planning.table import probe_table
from orchestrator.planning.view import HostView
from orchestrator.session.probe_runtime import runtime_source
from orchestrator.spec.patch import read_patch
from tests.demo.test_miniature import Server, generate, server

__all__ = ["server"]  # the fixture
TARGET = "sglang/srt/models/llama_eagle3.py"


def put_patch(host: layout.DemoHost, folder: Path) -> None:
    """Write what a session would have the agent write on this host, with the probes armed."""
    file = folder / f"{layout.PATCH}.yaml"
    file.write_bytes(layout.read_patch_source())
    before = (host.site / TARGET).read_bytes()
    probes = folder / "probes"
    probes.mkdir()
    view = HostView(host.name, layout.VERSION, {TARGET: before}, str(probes))
    plan = make_plan("s", [read_patch(file)], [view], runtime_source())
    for planned in plan.of_host(host.name):
        (host.site / planned.file).write_bytes(planned.after)
    (probes / "table.json").write_text(json.dumps(probe_table(plan, 1, "armed")))


def widths(records: list[Record]) -> set[tuple[str, int, int, bool | None]]:
    """Mode, width of the hidden states, width of the embeddings, and whether `fused` holds."""
    return {
        (
            r.values["forward_batch.forward_mode"]["text"],
            r.values["hidden_states"]["shape"][-1],
            r.values["embeds"]["shape"][-1],
            r.expect["fused"],
        )
        for r in records
    }


@pytest.mark.parametrize(
    ("algorithm", "wide", "holds"), [("EAGLE", 64, False), ("EAGLE3", 192, True)]
)
def test_the_fault_is_seen(
    server: Server, tmp_path: Path, algorithm: str, wide: int, holds: bool
) -> None:
    """Both workers tell the widths of each forward mode, and whose request they saw first."""
    put_patch(server.make_host(), tmp_path)
    (node,) = server.start(algorithm=algorithm)
    generate(node, rid="mine")
    reader = RecordReader("host0", "s")
    records = [*reader.feed(node.host.stderr.read_bytes()), *reader.finish()]
    assert reader.damaged == 0
    for title in ("sglang::scheduler_TP0", "sglang::scheduler_TP1"):
        own = [r for r in records if r.title == title and r.kind == "hit"]
        assert widths(own) == {
            ("ForwardMode.EXTEND", wide, 64, holds),
            ("ForwardMode.DRAFT_EXTEND_V2", wide, 64, holds),
            ("ForwardMode.DECODE", 64, 64, None),
        }
        assert own[0].values["self.fc.weight"]["shape"] == [64, 192]
        assert {r.requests for r in own} == {("warmup",)}  # spent on it: nothing armed it later
