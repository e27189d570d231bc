"""What an edit costs beside the bare parse of the file, engine warm: splice, and proofs."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from operator import truediv

import libcst as cst

from orchestrator.model.patch import Anchor, Capture, Edit, Patch, Probe
from orchestrator.patching.engine import edit_file
from orchestrator.patching.finding.places import find_places
from orchestrator.patching.making.edits import make_imports, make_probe, runtime_import
from orchestrator.patching.making.splice import splice
from orchestrator.patching.source import read_source
from orchestrator.patching.wanted import Wanted
from orchestrator.releases.source import open_release
from orchestrator.releases.wheels import cache_dir

ROUNDS = 9
PLACES = (
    ("0.5.23", "sglang/srt/models/llama_eagle3.py", "LlamaModel.forward",
     "hidden_states = forward_batch.spec_info.hidden_states"),
    ("0.5.6", "sglang/srt/models/deepseek_v2.py", "DeepseekV2Model.forward",
     "hidden_states, $_ = layer($$$)"),
    ("0.5.23", "sglang/srt/managers/scheduler.py", "Scheduler.run_batch", "self.forward_ct += 1"),
)  # fmt: skip


def main() -> int:
    """Measure side by side, interleaved, and print the table; 1 where a bar is missed."""
    print(f"{'file':<18}{'kB':>5}{'parse ms':>10}{'splice':>9}{'<= 1.5x':>9}{'(median)':>10}"
          f"{'proven':>9}{'<= 2.5x':>9}{'(median)':>10}")  # fmt: skip
    gc.disable()
    missed = False
    for version, file, scope, code in PLACES:
        data = open_release(version, "sglang", cache_dir()).read(file)
        assert data is not None
        wanted = _wanted(file, scope, code)
        rounds = _measure(
            lambda data=data: cst.parse_module(data),
            lambda data=data, wanted=wanted: _splice(data, wanted),
            lambda data=data, wanted=wanted: edit_file(data, [wanted]),
        )
        parse, spliced, proven = map(min, rounds)
        missed |= spliced > 1.5 * parse or proven > 2.5 * parse
        middle = [statistics.median(map(truediv, row, rounds[0])) for row in rounds]
        name = file.rsplit("/", 1)[-1]
        print(f"{name:<18}{len(data) / 1000:>5.0f}{parse:>10.1f}{spliced:>9.1f}"
              f"{spliced / parse:>8.2f}x{middle[1]:>9.2f}x{proven:>9.1f}"
              f"{proven / parse:>8.2f}x{middle[2]:>9.2f}x")  # fmt: skip
    return 1 if missed else 0


def _wanted(file: str, scope: str, code: str) -> Wanted:
    anchor = Anchor(file, scope, "after", code)
    edit = Edit((anchor,), Probe((Capture("self", "self"),)), "bench.1")
    return Wanted(Patch("bench", "A bench.", "sglang", "", (edit,)), "sglang", file, edit, anchor)


def _splice(data: bytes, wanted: Wanted) -> None:
    """Everything up to the new bytes: no proofs, and no check of the captures."""
    source = read_source(data, wanted.file)
    places = find_places(source, wanted.anchor)
    made = [make_probe(p, "bench.1", shown="locals()", takes_value=False) for p in places]
    imports = make_imports(source, [runtime_import("sglang")], [m.change for m in made])
    splice(source, [m.change for m in (imports, *made)])


def _measure(*tasks: Callable[[], object]) -> list[list[float]]:
    """The CPU time of each in ms, round by round: turn and turn about, on the same machine."""
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(ROUNDS):
        for number, task in enumerate(tasks):
            began = time.process_time()
            task()
            times[number].append((time.process_time() - began) * 1000)
            gc.collect()
    return times


if __name__ == "__main__":
    sys.exit(main())
