"""What an edit costs beside the bare parse of the file, engine warm: splice, and proofs."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

import libcst as cst

from orchestrator.model.patch import Anchor, Capture, Edit, Patch, Probe
from orchestrator.patching.edits import make_imports, make_probe, runtime_import
from orchestrator.patching.engine import Wanted, edit_file
from orchestrator.patching.places import find_places
from orchestrator.patching.source import read_source
from orchestrator.patching.splice import splice
from orchestrator.releases.source import open_release
from orchestrator.releases.wheels import cache_dir

ROUNDS = 7
PLACES = (
    ("0.5.23", "sglang/srt/models/llama_eagle3.py", "LlamaModel.forward",
     "hidden_states = forward_batch.spec_info.hidden_states"),
    ("0.5.6", "sglang/srt/models/deepseek_v2.py", "DeepseekV2Model.forward",
     "hidden_states, $_ = layer($$$)"),
    ("0.5.23", "sglang/srt/managers/scheduler.py", "Scheduler.run_batch", "self.forward_ct += 1"),
)  # fmt: skip


def main() -> int:
    """Measure side by side, interleaved, and print the table; 1 where a bar is missed."""
    print(f"{'file':<20}{'kB':>6}{'parse ms':>10}{'splice':>10}{'<= 1.5x':>9}"
          f"{'proven':>10}{'<= 2.5x':>9}")  # fmt: skip
    gc.disable()
    missed = False
    for version, file, scope, code in PLACES:
        data = open_release(version, "sglang", cache_dir()).read(file)
        assert data is not None
        wanted = _wanted(file, scope, code)
        parse, spliced, proven = _measure(
            lambda data=data: cst.parse_module(data),
            lambda data=data, wanted=wanted: _splice(data, wanted),
            lambda data=data, wanted=wanted: edit_file(data, [wanted]),
        )
        missed |= spliced > 1.5 * parse or proven > 2.5 * parse
        name = file.rsplit("/", 1)[-1]
        print(f"{name:<20}{len(data) / 1000:>6.0f}{parse:>10.1f}{spliced:>10.1f}"
              f"{spliced / parse:>8.2f}x{proven:>10.1f}{proven / parse:>8.2f}x")  # fmt: skip
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


def _measure(*tasks: Callable[[], object]) -> list[float]:
    """The median CPU time of each in ms; turn and turn about, so that all see the same machine."""
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(ROUNDS):
        for number, task in enumerate(tasks):
            began = time.process_time()
            task()
            times[number].append((time.process_time() - began) * 1000)
            gc.collect()
    return [statistics.median(row) for row in times]


if __name__ == "__main__":
    sys.exit(main())
