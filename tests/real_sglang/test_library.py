"""The library on a real server: every question that its two workers can answer gets an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.real_sglang import project, server
from tests.real_sglang.byhand import PROMPT_TOKENS, ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.project import CHECKOUT, Result
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

# By when they run: while the server starts, or for the request that the session sends.
AT_START = (
    "eagle3-aux-layer-ids",
    "eagle3-d2t-map",
    "eagle3-weights-dropped",
    "weights-never-written",
    "worker-stderr-split",
)
ON_REQUEST = (
    "admission",
    "all-reduce-order",
    "batch-composition",
    "eagle-draft-step",
    "eagle-verify",
    "eagle3-aux-concat",
    "eagle3-draft-input",
    "eagle3-fc-applied",
    "finish-reason",
    "kv-allocation",
    "logits-nan",
    "prefix-hit",
    "sampled-ids",
)
# Runs in the main process, which speaks HTTP.
IN_MAIN = "tokenizer-receive"
REQUEST = "library"


@pytest.fixture(scope="module")
def result(
    environment: Environment, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Result]:
    """One session with all of them, on a server that was started by hand; no trace stays."""
    home = tmp_path_factory.mktemp("library")
    launch = server.command(environment, server.free_port(), "EAGLE3", home=home)
    with ByHand([launch], home, [environment.site_packages], hosts.states) as running:
        with Witness(running, hosts):
            folder = home / "project"
            session = project.write_project(
                folder, hosts.entries(1), running.url, request_id=REQUEST
            )
            _ask_everything(session, home)
            found = project.run(session, hosts.home)
        # 1 only because what runs at start counts as never reached.
        assert found.exit_code in (0, 1), found.stderr
        yield found


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


def _hits(result: Result, name: str, phase: str) -> dict[str, list[dict[str, Any]]]:
    """The records of a patch by worker."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in result.records:
        is_its = str(record["site"]).rpartition(".")[0] == name
        if is_its and record["kind"] == "hit" and record["phase"] == phase:
            found.setdefault(_worker(record), []).append(record)
    return found


def _worker(record: Mapping[str, Any]) -> str:
    ranks = record["ranks"] or {}
    return f"TP{ranks['tp']}" if "tp" in ranks else "main"


def _text(value: Any) -> str:
    return str(value["text"]) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("name", AT_START)
def test_both_workers_answer_at_start(result: Result, name: str) -> None:
    """Records of phase `start` with values, without errors, and with every prediction true."""
    _check(_hits(result, name, "start"), {"TP0", "TP1"})


@pytest.mark.parametrize("name", ON_REQUEST)
def test_both_workers_answer_the_request(result: Result, name: str) -> None:
    """The same, for the request that the session sent."""
    _check(_hits(result, name, "armed"), {"TP0", "TP1"})


def test_the_main_process_answers(result: Result) -> None:
    """The answer reaches the process that speaks HTTP, with the reason of its end."""
    hits = _hits(result, IN_MAIN, "armed")
    _check(hits, {"main"})
    values = [record["values"] for record in hits["main"]]
    assert any(REQUEST in _text(v["rids"]) and "length" in _text(v["finished"]) for v in values)


def _check(hits: Mapping[str, list[dict[str, Any]]], workers: set[str]) -> None:
    assert set(hits) == workers
    for records in hits.values():
        assert [r["errors"] for r in records if r.get("errors")] == []
        assert all(r["values"] for r in records)
        said = [v for r in records for v in (r.get("expect") or {}).values()]
        assert False not in said


def test_the_values_make_sense(result: Result) -> None:
    """Layers, vocabulary, weights, tokens and slots are those of the small model and the prompt."""
    both = ("TP0", "TP1")
    layers = _hits(result, "eagle3-aux-layer-ids", "start")
    d2t = _hits(result, "eagle3-d2t-map", "start")
    admitted = _hits(result, "admission", "armed")
    ended = _hits(result, "finish-reason", "armed")
    slots = _hits(result, "kv-allocation", "armed")
    aux = _hits(result, "eagle3-aux-concat", "armed")
    for worker in both:
        assert {_text(r["values"]["layers"]) for r in layers[worker]} >= {"[1, 2, 3]"}
        assert d2t[worker][0]["values"]["self.hot_token_id"]["shape"] == [320]
        assert [r["values"]["prompt"] for r in admitted[worker]] == [PROMPT_TOKENS]
        assert [r["values"]["answered"] for r in ended[worker]] == [16]
        assert PROMPT_TOKENS in [r["values"]["need_size"] for r in slots[worker]]
        stored = [r["values"].get("hidden_states_to_store") for r in aux[worker]]
        assert {value["shape"][-1] for value in stored if value} == {64, 192}
    ids = _hits(result, "sampled-ids", "armed")
    assert [_ids(r) for r in ids["TP0"]] == [_ids(r) for r in ids["TP1"]]
    order = _hits(result, "all-reduce-order", "armed")
    assert [_shape(r) for r in order["TP0"]] == [_shape(r) for r in order["TP1"]]


def _ids(record: Mapping[str, Any]) -> list[int]:
    return list(record["values"]["ids"]["head"])


def _shape(record: Mapping[str, Any]) -> tuple[str, str]:
    return _text(record["values"]["self.unique_name"]), _text(record["values"]["shape"])


def test_weights_that_nobody_wrote_are_named(result: Result) -> None:
    """The target is whole; the draft's embeddings come from the target, after loading."""
    found = _hits(result, "weights-never-written", "start")
    for worker in ("TP0", "TP1"):
        named = {_text(r["values"]["model"]): r["values"] for r in found[worker]}
        assert named["LlamaForCausalLM"]["unwritten"] == 0
        assert "embed_tokens" in _text(named["LlamaForCausalLMEagle3"]["first"])
