"""Takes random steps of the state machine of `two_controllers` and counts them.

`python -m tests.chaos.fuzz SEED STEPS DIRECTORY` takes that many steps and prints one JSON object.
A program of its own: it forks.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.chaos import disks
from tests.chaos.two_controllers import Sessions, tally, where

_STEPS_EACH = 40


def run(number: int, steps: int) -> dict[str, Any]:
    """Rounds of at most `_STEPS_EACH` steps until there were enough, or one went wrong."""
    began, failure = time.monotonic(), ""
    gc.freeze()  # a collection in a forked agent would touch, and so copy, all of Hypothesis
    while tally["steps"] < steps and not failure:
        chosen = settings(
            max_examples=min(25, max(1, (steps - tally["steps"]) // _STEPS_EACH)),
            stateful_step_count=_STEPS_EACH,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        machine = seed(number + tally["rounds"])(type("Sessions", (Sessions,), {}))
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except Exception as error:
            failure = "\n".join([str(error), *getattr(error, "__notes__", [])])
        sys.stderr.write(f"fuzz {number}: {tally['steps']} of {steps} steps\n")
    seconds = round(time.monotonic() - began, 1)
    return {**tally, "seconds": seconds, "failure": failure}


@contextlib.contextmanager
def _in_memory(directory: Path) -> Iterator[None]:
    """Where we may mount, memory in the place of a disk: nothing in here is a power cut."""
    directory.mkdir(parents=True, exist_ok=True)
    mounted = disks.can_mount("tmpfs", directory / "try")
    if mounted:
        disks.mount("tmpfs", directory)
    try:
        yield
    finally:
        if mounted:
            disks.unmount(directory)


if __name__ == "__main__":
    where[:] = [Path(sys.argv[3])]
    with _in_memory(where[0]):
        print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
