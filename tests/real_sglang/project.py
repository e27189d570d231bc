"""The files of a user who debugs the real server, and `sgldbg run` as that user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real_sglang.byhand import PROMPT, PROMPT_TOKENS

PATCH = "eagle3-draft-input"
EXPECTATION = "fused"
RUN_TIMEOUT_S = 540
CHECKOUT = Path(__file__).resolve().parent.parent.parent
# Forward mode to pairs of widths: hidden states that reach the draft, and its embeddings.
ONE_LAYER = {(64, 64)}
FUSED = {(192, 64)}
# In decode steps the draft is fed its own hidden state, in a server without a fault too.
ALL_ONE_LAYER = {"EXTEND": ONE_LAYER, "DRAFT_EXTEND_V2": ONE_LAYER, "DECODE": ONE_LAYER}
FUSED_WHERE_ASKED = {"EXTEND": FUSED, "DRAFT_EXTEND_V2": FUSED, "DECODE": ONE_LAYER}


@dataclass(frozen=True)
class Result:
    """What a run printed, how it ended, and what lies in its directory."""

    exit_code: int
    answer: dict[str, Any]
    stderr: str
    records: list[dict[str, Any]] = field(repr=False)

    def armed_hits(self) -> list[dict[str, Any]]:
        """The records that count: made after the probes were armed."""
        return [r for r in self.records if r["kind"] == "hit" and r["phase"] == "armed"]

    def widths(self) -> dict[str, dict[str, set[tuple[int, int]]]]:
        """Worker to forward mode to the pairs of widths seen there: hidden states, embeddings."""
        found: dict[str, dict[str, set[tuple[int, int]]]] = {}
        for record in self.armed_hits():
            values = record["values"]
            mode = _mode(record)
            pair = values["hidden_states"]["shape"][-1], values["embeds"]["shape"][-1]
            worker = f"TP{record['ranks']['tp']}"
            found.setdefault(worker, {}).setdefault(mode, set()).add(pair)
        return found

    def findings(self) -> dict[str, str]:
        """Expectation to its state."""
        return {f["expectation"]: f["state"] for f in self.answer["verdict"]["findings"]}


def _mode(record: Mapping[str, Any]) -> str:
    """`EXTEND`, without the enumeration's name."""
    text: str = record["values"]["forward_batch.forward_mode"]["text"]
    return text.rpartition(".")[2]


def check_request(result: Result, request_id: str) -> None:
    """Every record that counts is of the session's own request, by its id and by its length."""
    for record in result.armed_hits():
        assert record["requests"] == [request_id], record
    prefills = [
        record["values"]["hidden_states"]["shape"][0]
        for record in result.armed_hits()
        if _mode(record) == "EXTEND"
    ]
    assert prefills == [PROMPT_TOKENS] * 2  # once on each of two workers


def write_project(
    folder: Path,
    hosts: Mapping[str, Mapping[str, Any]],
    url: str,
    *,
    add_args: Sequence[str] = (),
    request_id: str,
) -> Path:
    """Inventory, session and the shipped patch; the session's path. JSON is YAML as well."""
    inventory = {
        "hosts": hosts,
        "installs": {"real": {"package": "sglang"}},
        "servers": {
            "real": {
                "install": "real",
                "hosts": list(hosts),
                "launch": "adopt",
                "url": url,
                "ready": {"path": "/health", "timeout": "5m"},
            }
        },
    }
    sampling = {"max_new_tokens": 16, "temperature": 0}
    request = {"text": PROMPT, "sampling_params": sampling, "rid": request_id}
    session = {
        "session": "eagle3-zero-acceptance",
        "question": "Do fused auxiliary hidden states reach the draft model?",
        "server": "real",
        "patches": [PATCH],
        "restart": {"add_args": list(add_args), "env": {"NCCL_DEBUG": "WARN"}},
        "exercise": [{"post": "/generate", "json": request}],
        "until": {"records": PATCH, "from": "every worker", "timeout": "2m"},
        "lease": "2m",
    }
    folder.mkdir(parents=True)
    (folder / "patches").mkdir()
    (folder / "sessions").mkdir()
    shipped = CHECKOUT / "patches" / f"{PATCH}.yaml"
    (folder / "patches" / shipped.name).write_bytes(shipped.read_bytes())
    (folder / "inventory.yaml").write_text(json.dumps(inventory, indent=2))
    path = folder / "sessions" / "eagle3-zero-acceptance.yaml"
    path.write_text(json.dumps(session, indent=2))
    return path


def enlarge_table(session: Path, size_bytes: int) -> None:
    """Give the session a second patch, whose captures alone make a probe table so large."""
    long = "x" * 1000
    captures = [{f"n{n}": f"len('{long}') + {n}"} for n in range(size_bytes // len(long) + 1)]
    where = {
        "file": "sglang/srt/managers/scheduler.py",
        "in": "Scheduler.run_batch",
        "after": "self.forward_ct += 1",
    }
    patch = {
        "patch": "many-captures",
        "about": "Does a table of any size reach the workers?",
        "package": "sglang",
        "edits": [{"where": where, "probe": {"capture": captures, "limit": 1}}],
    }
    (session.parent.parent / "patches" / "many-captures.yaml").write_text(json.dumps(patch))
    keys = json.loads(session.read_text())
    keys["patches"].append(patch["patch"])
    session.write_text(json.dumps(keys, indent=2))


def run(session: Path, home: Path) -> Result:
    """Call `sgldbg run --json` from the project's folder."""
    project = session.parent.parent
    done = call(session, home, "run", "--json")
    assert done.stdout.startswith("{"), f"exit {done.returncode}, no JSON:\n{done.stderr}"
    answer = json.loads(done.stdout)
    # A session that fails early has none; its message then stands in the failing comparison.
    records = project / answer["run_dir"] / "records.jsonl"
    lines = records.read_text().splitlines() if records.exists() else []
    return Result(done.returncode, answer, done.stderr, [json.loads(line) for line in lines])


def call(session: Path, home: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Any command of `sgldbg` for the session, from the project's folder."""
    environ = {**os.environ, "HOME": str(home), "SGLDBG_STATE": str(home / "state")}
    environ["PYTHONPATH"] = str(CHECKOUT)
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", command, str(session), *words],
        cwd=session.parent.parent,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
