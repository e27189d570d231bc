"""The main job where everything goes well: the answer, the run directory, and no trace."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.session import readme
from tests.session.command import Result, call, told
from tests.session.test_kill import STAGES
from tests.session.world import TEXT, Project, World


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `.jsonl` file."""
    for line in path.read_text().splitlines():
        yield json.loads(line)


def find_run(folder: Path) -> Path:
    """The only run directory."""
    (found,) = (folder / "runs").iterdir()
    return found


def test_the_fault_is_found(
    world: World, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EAGLE: `fused` fails on all four workers, exit code 1, and everything is as it was.

    Called and answered to the letter as the README has it.
    """
    readme.go(project, monkeypatch)
    (words,) = [words for words in readme.read_commands() if words[0] == "run"]
    result = call(monkeypatch, *words, "--runs", tmp_path / "runs")
    world.assert_as_before()
    assert (result.code, told(result.err, tmp_path)) == (
        1,
        "demo-[0-1]: files are as they were, server is as it was\n"
        "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n",
    )
    assert result.out == readme.read_answer()
    check_records(find_run(tmp_path))
    check_logs(world, find_run(tmp_path))
    timeline = read_lines(find_run(tmp_path) / "timeline.jsonl")
    done = [r["stage"] for r in timeline if (r.get("host"), r.get("state")) == ("demo-0", "done")]
    assert tuple(done) == STAGES


def check_taken(planned: Result, project: Project) -> None:
    """A debug life that would meet a neighbour is refused before anything is written."""
    said = re.sub(r"\d+ is taken by process \d+ \(.*\) of \S+", "N is taken by US", planned.err)
    assert (planned.code, planned.out, told(said, project.folder)) == (
        5,
        "",
        "error: port N is taken by US\n"
        " --> host demo-0 (TMP/inventory.yaml:30)\n"
        "note: it listens on 127.0.0.2, the server on 0.0.0.0: there cannot be both on one port\n"
        "hint: stop that process, or give the server another port\n"
        "hosts:\n"
        "  demo-[0-1]: nothing was written, server was not touched\n",
    )


def check_records(run: Path) -> None:
    """Armed records are of the user's request only: one token per character, one request."""
    armed = [r for r in read_lines(run / "records.jsonl") if r["phase"] == "armed"]
    extends = [
        r for r in armed if r["values"]["forward_batch.forward_mode"]["text"].endswith(".EXTEND")
    ]
    assert {r["values"]["hidden_states"]["shape"][0] for r in extends} == {len(TEXT)}
    ids = {json.loads(r["head"])["meta_info"]["id"] for r in read_lines(run / "exercise.jsonl")}
    assert {request for r in armed for request in r["requests"]} == ids
    assert len(ids) == 1


def check_logs(world: World, run: Path) -> None:
    """The logs of the run are those that the debug life wrote, to the last byte."""
    for host in world.names:
        (ended,) = (world.state_dir(host) / "ended").glob(f"*/{host}")
        for name in ("stdout", "stderr"):
            whole = (ended / f"debug.{name}").read_bytes()
            assert (run / "hosts" / host / f"{name}.log").read_bytes() == whole
        assert not (ended / "server.json").exists()


def test_the_fix_is_seen(
    world: World, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EAGLE3 in the debug life: `fused` holds, exit code 0, told as JSON.

    All the while somebody listens on the server's port, at another address.
    """
    add_args = project.session["restart"]["add_args"]
    add_args += ["--speculative-algorithm", "EAGLE3"]
    port = urlsplit(world.cluster.url).port
    with socket.create_server(("127.0.0.2", port or 0)):
        session = project.write()
        result = call(monkeypatch, "run", session, "--runs", tmp_path / "runs", "--json")
        add_args += ["--host", "0.0.0.0"]
        check_taken(call(monkeypatch, "plan", project.write()), project)
    world.assert_as_before()
    facts = json.loads(result.out)
    assert (result.code, facts["exit_code"], facts["error"], facts["bug"]) == (0, 0, None, None)
    assert facts["verdict"]["findings"][0]["state"] == "holds"
    assert facts["hosts"] == {
        host: {"files": "reverted", "server": "restored", "message": ""} for host in world.names
    }
    saved = json.loads((find_run(tmp_path) / "verdict.json").read_text())
    assert [f["state"] for f in saved["findings"]] == ["holds"]
