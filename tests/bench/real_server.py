"""Tokens per second of a real server with a placed probe, beside the same life without it.

EAGLE-3 on the CPU with one worker: two would spin for each other on cores that all else needs as
well, and that alone moves the rate by several per cent. The probe stands in the draft's forward,
which runs three times per round of drafting. One life, so that nothing differs but the probe's
statement: it is taken out and put back between requests (see `switch/`). Each round asks the same
three times, in rotating order: without the probe, again without it (what the machine's noise alone
makes of the comparison), and with it. The worker's CPU time per token stands beside the rate: where
others use the machine as well, it says more.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.real_sglang import bystanders, environment, install, project, server
from tests.real_sglang.byhand import PROMPT, ByHand

ROUNDS = 240
TOKENS = 48
SIGNALS = {"bare": signal.SIGUSR1, "probed": signal.SIGUSR2}
ARMS = (("bare", "bare"), ("again", "bare"), ("probe", "probed"))
LEASE = "30m"
FILE = "sglang/srt/models/llama_eagle3.py"
SWITCH = Path(__file__).resolve().parent / "switch"
# What `sgldbg ask` makes of the site: how it is left once the first request has been through.
STATES = {
    "spent": ["--limit", "1"],
    "armed, does not fire (two keys)": [
        *("--limit", "1000", "--once-per", "forward_batch.forward_mode"),
        *("--once-per", "hidden_states.shape[-1]"),
    ],
}


@dataclass(frozen=True)
class Bench:
    """The applied session on the running server."""

    byhand: ByHand
    session: Path
    home: Path
    said: Path

    def call(self, command: str, *words: str) -> None:
        """`sgldbg COMMAND SESSION ...`; its failure ends the benchmark."""
        done = project.call(self.session, self.home, command, *words)
        if done.returncode != 0:
            sys.exit(f"error: sgldbg {command}: exit {done.returncode}\n{done.stderr}")

    def switch(self, workers: Sequence[int], code: str) -> None:
        """Put this code into both workers, and see that it is in place."""
        for pid in workers:
            (self.said / str(pid)).unlink(missing_ok=True)
            os.kill(pid, SIGNALS[code])
        for pid in workers:
            path = self.said / str(pid)
            server.wait_for(path.exists, 30, lambda path=path: f"{path} is missing")
            if path.read_text() != code:
                sys.exit(f"error: worker {pid} runs {path.read_text()}, not {code}")


@dataclass(frozen=True)
class Cost:
    """One request: the rate that its user saw, and the CPU time of the worker per token."""

    tokens_per_s: float
    cpu_ms: float


def main() -> int:
    """Start, apply, measure each state of the site, revert."""
    found = environment.ensure()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sgldbg-bench-")))
        byhand = stack.enter_context(_start(found, home))
        session = project.write_project(
            home / "project", {"here": {"transport": "local"}}, byhand.url, request_id="bench"
        )
        bench = Bench(byhand, session, home, home / "said")
        bench.call("apply", "--lease", LEASE)
        try:
            print(f"{'a probe in the draft forward':<34}{'tokens/s':>9}{'CPU ms':>9}"
                  f"{'best, >= -1':>13}{'<= +1':>11}{'pairs: median, 95 %':>26}")  # fmt: skip
            for state, words in STATES.items():
                workers = [pid for pid in byhand.life() if bystanders.is_scheduler(pid)]
                bench.switch(workers, "probed")  # the rounds before may have ended without it
                _ask(bench, words)
                _print_state(state, _measure(bench, workers))
        finally:
            bench.call("revert")
    if differences := install.record_differences(found.site_packages):
        sys.exit(f"error: the install was left changed: {differences}")
    return 0


def _start(found: environment.Environment, home: Path) -> ByHand:
    (home / "said").mkdir()
    original = home / "original.py"
    original.write_bytes((found.site_packages / FILE).read_bytes())
    launch = server.command(found, server.free_port(), "EAGLE3", home=home, tp=1)
    path = f"{SWITCH}:{launch.environ['PYTHONPATH']}"
    more = {"SWITCH_ORIGINAL": str(original), "SWITCH_SAID": str(home / "said")}
    launch = replace(
        launch,
        # An idle worker that sleeps takes a second to notice a signal.
        argv=tuple(word for word in launch.argv if word != "--sleep-on-idle"),
        environ={**launch.environ, "PYTHONPATH": path, **more},
    )
    return ByHand([launch], home, [found.site_packages], [home / "state"])


def _ask(bench: Bench, words: Sequence[str]) -> None:
    """Put the site into a state: the session's request uses up what it may record."""
    capture = ("--capture", "hidden_states.shape[-1]", "--exercise", "--lease", LEASE)
    bench.call("ask", "--site", f"{project.PATCH}.1", *capture, *words)


def _measure(bench: Bench, workers: Sequence[int]) -> dict[str, list[Cost]]:
    """What each arm took, round by round; all rounds must answer the same."""
    seen: dict[str, list[Cost]] = {arm: [] for arm, _ in ARMS}
    answers = set()
    for number in range(-1, ROUNDS):  # the first one warms up
        turn = number % len(ARMS)
        for arm, code in (*ARMS[turn:], *ARMS[:turn]):
            bench.switch(workers, code)
            used_s, began = _cpu_s(workers), time.perf_counter()
            answers.add(tuple(server.generate(bench.byhand.url, PROMPT, TOKENS)))
            took_s = time.perf_counter() - began
            if number >= 0:
                seen[arm].append(Cost(TOKENS / took_s, (_cpu_s(workers) - used_s) * 1000 / TOKENS))
    if len(answers) != 1:
        sys.exit("error: the arms answered differently")
    return seen


def _cpu_s(pids: Sequence[int]) -> float:
    """CPU time of all threads, which the kernel counts in nanoseconds in its own table."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _print_state(state: str, seen: dict[str, list[Cost]]) -> None:
    """Each arm beside the bare one: the best rounds, since noise only ever adds, and the pairs."""
    bare = seen["bare"]
    for arm, name in (("bare", "without it"), ("again", "without it, again"), ("probe", state)):
        rate = max(cost.tokens_per_s for cost in seen[arm])
        cpu_ms = min(cost.cpu_ms for cost in seen[arm])
        line = f"{name:<34}{rate:>9.2f}{cpu_ms:>9.2f}"
        if arm != "bare":
            rates = [m.tokens_per_s / b.tokens_per_s for m, b in zip(seen[arm], bare, strict=True)]
            low, high = _interval(rates)
            line += f"{_change(rate / max(cost.tokens_per_s for cost in bare)):>+11.2f} %"
            line += f"{_change(cpu_ms / min(cost.cpu_ms for cost in bare)):>+9.2f} %"
            line += f"{_change(statistics.median(rates)):>+9.2f} % [{low:+.2f}, {high:+.2f}]"
        print(line, flush=True)


def _change(ratio: float) -> float:
    """In per cent."""
    return (ratio - 1) * 100


def _interval(ratios: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """95 % of the medians of samples drawn from the rounds, in per cent of change."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    low, high = (_change(medians[int(draws * share)]) for share in (0.025, 0.975))
    return low, high


if __name__ == "__main__":
    sys.exit(main())
