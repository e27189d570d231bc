"""The library on a real server: every question that its two workers can answer gets an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real_sglang import project, server
from tests.real_sglang.byhand import ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.library_answers import (
    ASKED_TOKENS,
    AT_START,
    ON_REQUEST,
    REQUEST,
    Said,
)
from tests.real_sglang.project import CHECKOUT, Result
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

# Runs in the main process, which speaks HTTP.
IN_MAIN = "tokenizer-receive"


@dataclass(frozen=True)
class Asked:
    """One session with the whole library, and what was seen beside its records."""

    result: Result
    answer: list[int]
    folder: Path
    stderr: str

    def hits(self, name: str, worker: str) -> list[dict[str, Any]]:
        """The records of a patch by one worker, in order."""
        return [
            record
            for record in self.result.records
            if record["kind"] == "hit"
            and str(record["site"]).rpartition(".")[0] == name
            and _worker(record) == worker
        ]

    def said(self, name: str, rank: int) -> Said:
        """The same, by phase."""
        hits = self.hits(name, f"TP{rank}")
        start, armed = ([r for r in hits if r["phase"] == p] for p in ("start", "armed"))
        return Said(rank, start, armed, self.answer, self.folder, self.stderr)


@pytest.fixture(scope="module")
def asked(
    environment: Environment, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """One session with all of them, on a server that was started by hand; no trace stays."""
    home = tmp_path_factory.mktemp("library")
    launch = server.command(environment, server.free_port(), "EAGLE3", home=home)
    with ByHand([launch], home, [environment.site_packages], hosts.states) as running:
        answer = running.tokens()
        with Witness(running, hosts):
            folder = home / "project"
            session = project.write_project(
                folder, hosts.entries(1), running.url, request_id=REQUEST
            )
            _ask_everything(session, home)
            found = project.run(session, hosts.home)
        # 1 only because what runs at start counts as never reached.
        assert found.exit_code == 1, found.stderr
        (log,) = (folder / found.answer["run_dir"] / "hosts").glob("*/stderr.log")
        yield Asked(found, answer, home, log.read_text(errors="replace"))


def _ask_everything(session: Path, home: Path) -> None:
    """Put the whole library into the session instead of its one patch."""
    names = (*AT_START, *ON_REQUEST, IN_MAIN)
    for name in names:
        source = CHECKOUT / "patches" / f"{name}.yaml"
        (session.parent.parent / "patches" / source.name).write_bytes(source.read_bytes())
    keys = json.loads(session.read_text())
    keys["patches"] = list(names)
    keys["restart"]["env"]["SGLDBG_STDERR_DIR"] = str(home)
    keys["until"] = {"records": "finish-reason", "from": "every worker", "timeout": "2m"}
    session.write_text(json.dumps(keys, indent=2))


def _worker(record: Mapping[str, Any]) -> str:
    ranks = record["ranks"] or {}
    return f"TP{ranks['tp']}" if "tp" in ranks else "main"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", AT_START)
def test_it_answers_at_start(asked: Asked, name: str, rank: int) -> None:
    """Records of phase `start` with the values of these models, without errors."""
    said = asked.said(name, rank)
    assert [r["errors"] for r in said.start if r["errors"]] == []
    AT_START[name](said)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ON_REQUEST)
def test_it_answers_the_request(asked: Asked, name: str, rank: int) -> None:
    """Armed records with the values of the session's own request, every prediction true."""
    said = asked.said(name, rank)
    assert [r["errors"] for r in said.armed if r["errors"]] == []
    assert [r["expect"] for r in said.armed if False in r["expect"].values()] == []
    assert {rid for r in said.armed for rid in r["requests"]} <= {REQUEST}
    ON_REQUEST[name](said)


@pytest.mark.parametrize("name", ON_REQUEST)
def test_both_ranks_say_the_same(asked: Asked, name: str) -> None:
    """What is computed twice comes out alike, tensors by their statistics; only names differ."""
    own = ("self.rank_in_group",)
    first, second = (
        [{k: v for k, v in r["values"].items() if k not in own} for r in asked.said(name, n).armed]
        for n in (0, 1)
    )
    assert first
    assert first == second


def test_the_main_process_answers(asked: Asked) -> None:
    """The answer reaches the process that speaks HTTP, with the reason of its end."""
    (one,) = (r for r in asked.hits(IN_MAIN, "main") if r["phase"] == "armed")
    assert one["errors"] == {}
    texts = {name: v["text"] if isinstance(v, dict) else v for name, v in one["values"].items()}
    assert texts == {
        "kind": "BatchStrOutput",
        "rids": f"['{REQUEST}']",
        "finished": str([{"type": "length", "length": ASKED_TOKENS}]),
        "waiting": 1,
    }
