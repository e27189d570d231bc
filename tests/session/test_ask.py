"""`sgldbg ask`: another question to a placed probe of an applied session, without a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent.client import AgentClient, Reply
from orchestrator.errors import HostError
from orchestrator.onhost.agent.ops_host import OPS
from orchestrator.session.asking import read_table
from tests.session.command import Result, call, told
from tests.session.world import Project, World

Command = Callable[..., Result]
SITE = "eagle3-draft-input.1"
WIDTH = "hidden_states.shape[-1]"


@pytest.fixture
def sgldbg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command; both texts come with everything replaced that differs from run to run."""

    def run(*arguments: object) -> Result:
        result = call(monkeypatch, *arguments)
        return Result(
            result.code, told(result.out, tmp_path), told(result.err, tmp_path), result.stages
        )

    return run


@pytest.fixture
def applied(single: World, small: Project, sgldbg: Command, tmp_path: Path) -> Iterator[Path]:
    """The session of the demonstration, applied; put back afterwards."""
    session = small.write()
    assert sgldbg("apply", session, "--runs", tmp_path / "runs", "--lease", "10m").code == 0
    yield session
    assert sgldbg("revert", session).code == 0
    single.assert_as_before()


def test_ask(applied: Path, sgldbg: Command) -> None:
    """The same processes answer within seconds, and a question that cannot work is refused."""
    seen: list[set[int]] = []
    wrong = sgldbg("ask", applied, "--site", SITE, "--capture", "hidden_state")
    assert wrong.code == 4
    assert wrong.err == (
        "error: `hidden_state` is not bound in `LlamaModel.forward`, nor in its module\n"
        "hint: did you mean `hidden_states`?\n"
    )
    unknown = sgldbg("ask", applied, "--site", "x.1", "--capture", "embeds")
    assert (unknown.code, unknown.err) == (
        6,
        f"error: there is no site `x.1` on demo-0\nhint: its sites: `{SITE}`\n",
    )
    for limit in ("1", "2"):
        asked = sgldbg(
            "ask", applied, "--site", SITE, "--capture", WIDTH, "--capture", "[w for w in [1]]",
            "--when", "hidden_states is not None", "--limit", limit, "--exercise", "--json",
        )  # fmt: skip
        assert asked.code == 0, asked.err
        records = [r for r in json.loads(asked.out) if r["kind"] == "hit"]
        seen.append({r["pid"] for r in records})
        assert all(isinstance(r["values"][WIDTH], int) for r in records)
        assert asked.err == "every host reverts by itself in N s\n"
    inventory = ("--inventory", applied.parents[1] / "inventory.yaml")
    (left,) = json.loads(sgldbg("status", *inventory, "--json").out)["demo-0"]["sessions"]
    assert 500 < left["deadline_s"] - left["now_s"] <= 600  # as long as `apply` said
    assert seen[1] <= seen[0] or seen[0] <= seen[1]


def test_nothing_is_applied(small: Project, sgldbg: Command) -> None:
    """Without an applied session there is nobody to ask."""
    asked = sgldbg("ask", small.write(), "--site", SITE, "--capture", "embeds")
    assert (asked.code, asked.err) == (
        6,
        "error: nothing of this session is applied\nhint: apply it first: `sgldbg apply`\n",
    )


class _HereAgent:
    """The agent's own ops, called in this process."""

    def call(self, op: str, args: dict[str, Any]) -> Reply:
        return Reply(*OPS[op](None, args, b""))


def test_a_table_of_any_length_is_read(tmp_path: Path) -> None:
    """Sixty sites and more make a table beyond what `tail` sends; one that is gone is said so."""
    agent = cast("AgentClient", _HereAgent())
    with pytest.raises(HostError) as caught:
        read_table("h", agent, str(tmp_path))
    assert (caught.value.message, caught.value.code) == ("its probe table is gone", "table")
    table = {"sites": {f"p.{n}": {"capture": "x" * 1000} for n in range(300)}}
    (tmp_path / "table.json").write_text(json.dumps(table))
    assert read_table("h", agent, str(tmp_path)) == table
