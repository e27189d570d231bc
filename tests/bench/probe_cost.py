"""What a site costs: spent, armed but silent, and one record; beside an empty function call."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.probe.workshop import Workshop

ROUNDS = 25
# CPU time in short runs: the clock would count whoever else has the machine's cores meanwhile.
CHILD = """
import timeit, time, statistics
class Mode: pass
forward_mode, width = 2, 192
def empty(a): return True
def measure(code, number):
    runs = timeit.repeat(
        code, timer=time.process_time, globals=globals(), number=number, repeat=ROUNDS
    )
    times = [seconds / number * 1e6 for seconds in runs]
    return f"{min(times):.3f} {statistics.median(times):.3f}"
class Batch: forward_mode = 2
class Tensor: shape = (29, 192)
batch, tensor = Batch(), Tensor()
exec('''
def site(forward_batch, hidden_states):
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
def bare(forward_batch, hidden_states):
    pass
''', model.__dict__)
site, bare = model.site, model.bare
model._sgldbg = _sgldbg
put(); site(batch, tensor)
print("floor", measure("empty('p.1')", 20000))
print("silent", measure("site(batch, tensor)", 4000))
print("frame", measure("bare(batch, tensor)", 20000))
put(generation=2, site={"once_per": [], "limit": 1}); site(batch, tensor)
print("spent", measure("_sgldbg.off('p.1')", 20000))
put(generation=3, site={"once_per": [], "limit": None}); site(batch, tensor)
print("record", measure("site(batch, tensor)", 300))
"""
ROWS = {
    "floor": ("a call of an empty function", ""),
    "spent": ("a spent site", "<= 0.35 us"),
    "silent": ("an armed site that does not fire, two keys", "<= 3 us"),
    "record": ("a site that writes a record, with spool", ""),
}


def main() -> int:
    """Measure in a child process and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        shop.put(
            capture=["hidden_states"],
            once_per=["forward_batch.forward_mode", "hidden_states.shape[-1]"],
        )
        command = shop.command(f"ROUNDS = {ROUNDS}\n{CHILD}")
        done = subprocess.run(
            command,
            env=shop.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode != 0:
        print("error: the measured process failed")
        return 1
    seen = {name: (best, middle) for name, best, middle in map(str.split, done.stdout.splitlines())}
    print(f"{'what':<46}{'to reach':<14}{'best us':>10}{'median us':>12}")
    for name, (what, bar) in ROWS.items():
        print(f"{what:<46}{bar:<14}{seen[name][0]:>10}{seen[name][1]:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
