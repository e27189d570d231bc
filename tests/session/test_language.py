"""A whole session with a patch that uses every kind of edit, on a server that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.session.command import call, told
from tests.session.world import Project, World

PATCH = """patch: eagle3-draft-input
about: Does the draft run its fc once its input is fused by hand?
edits:
  - where: {file: sglang/srt/models/llama_eagle3.py, in: LlamaModel.forward, wrap: self.fc($$$)}
    wrap:
      capture: [value.shape, hidden_states.shape]
      limit: 3
  - where: {file: sglang/srt/models/llama_eagle3.py, in: LlamaModel.forward, at: return}
    return: {capture: ["tuple(value.shape)", embeds.shape], limit: 3}
  - where:
      file: sglang/srt/models/llama_eagle3.py
      in: LlamaModel.forward
      replace: |
        if hidden_states.shape[-1] != embeds.shape[-1]:
            $$$BODY
    replace: |
      if hidden_states.shape[-1] == embeds.shape[-1]:
          pass
      else:
          $$$BODY
  - where: {file: sglang/srt/models/llama_eagle3.py, in: LlamaModel.forward, at: start}
    insert: marked = time.monotonic() > 0
  - where: {file: sglang/srt/models/llama_eagle3.py}
    import: import time
  - where: {file: sglang/srt/managers/scheduler.py, in: Scheduler}
    decorate: "lambda cls: cls"
"""


def test_every_kind_of_edit_in_one_session(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It conflicts with itself where it wraps what it replaces; without that it runs and goes."""
    small.patch = PATCH
    session = small.write()
    refused = call(monkeypatch, "run", session, "--runs", tmp_path / "runs")
    single.assert_as_before()
    assert refused.code == 4
    file = "TMP/project/patches/eagle3-draft-input.yaml"
    assert told(refused.err, tmp_path) == (
        "error: `eagle3-draft-input.3` and `eagle3-draft-input.1` change the same code\n"
        f" --> {file}:4:12\n"
        "  |\n"
        "4 |   - where: {file: sglang/srt/models/llama_eagle3.py, in: LlamaModel.forward,"
        " wrap: self.fc($$$)}\n"
        f"  |            {'^' * 85}\n"
        " ::: sglang/srt/models/llama_eagle3.py on demo-0\n"
        f"note: `eagle3-draft-input.3` ({file}:10:5) replaces line 45:"
        " `if hidden_states.shape[-1] != embeds.shape[-1]:`\n"
        f"note: `eagle3-draft-input.1` ({file}:4:5) stands inside line 46:"
        " `hidden_states = self.fc(hidden_states)`\n"
        "hint: use one of them, or put both changes into one edit\n"
        "demo-0: nothing was written, server was not touched\n"
        "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n"
    )

    small.patch = PATCH.replace("wrap: self.fc($$$)", "wrap: self.midlayer($$$)")
    result = call(monkeypatch, "run", small.write(), "--runs", tmp_path / "again")
    single.assert_as_before()
    assert result.code == 0, result.err
    (run,) = (tmp_path / "again").iterdir()
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    hits = [r for r in records if r["kind"] == "hit" and r["phase"] == "armed"]
    assert {r["site"] for r in hits} == {"eagle3-draft-input.1", "eagle3-draft-input.2"}
    returned = [r for r in hits if r["site"].endswith(".2")]
    assert returned
    assert all(len(r["values"]) == 2 and not r["errors"] for r in returned)
