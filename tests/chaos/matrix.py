"""The kill matrix: every line of a session's journal, and of its guard's, times every fault.

`python -m tests.chaos.matrix SEED COUNT SHARE/SHARES DIRECTORY KIND...` chooses that many of its
cases by the seed, all of them where the count is 0, runs this share of them, each with its install
on another kind of file system in turn, and prints one JSON object. A program of its own: it forks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.onhost.agent.held import journal
from orchestrator.onhost.agent.held.journal import STEPS
from tests.chaos import disks, faults
from tests.chaos.agent import Agent, Forked, ReachedPoint, start_tail
from tests.chaos.host import DEBUG, BreakableHost
from tests.chaos.owner import Owner
from tests.onhost.transaction.place import requests_of

_NOWHERE = 10**9
_FAULTS = {"agent": faults.SESSION, "guard": faults.TAIL, "member": faults.MEMBER}
_CASE_S = 90
# Longer than any case, so that nothing but a fault ends a lease; a cut leaves it this grace.
_LEASE_S, _GRACE_S = 600.0, 0.3


@dataclass(frozen=True)
class Case:
    """One fault at one line: `who` writes the journal there.

    A session's `agent`, its `guard`, or the agent of a `member` that shares its install.
    """

    who: str
    line: int
    label: str
    fault: str

    def __str__(self) -> str:
        return f"{self.who} {self.line} ({self.label}): {self.fault}"


def run_case(case: Case, directory: Path, kind: str) -> list[str]:
    """Break one session on a fresh host; what is not as it was afterwards."""
    with _host(directory, kind) as host:
        fault = _FAULTS[case.who][case.fault]
        with _forked(case.who, host, case.line) as forked:
            try:
                if forked is None:
                    return ["the point was not reached"]
                problems = fault(host, forked)
            except (AssertionError, OSError, TimeoutError) as error:
                problems = [f"{type(error).__name__}: {error}"]
        return problems + host.judge()


@contextlib.contextmanager
def _host(directory: Path, kind: str) -> Iterator[BreakableHost]:
    host = BreakableHost(directory, kind)
    try:
        yield host
    finally:
        host.end_processes()
        host.unmount()
        shutil.rmtree(directory)


@contextlib.contextmanager
def _forked(who: str, host: BreakableHost, line: int) -> Iterator[Forked | None]:
    """The process that stands at the line; `None` where it never came there."""
    agent = Agent(host, _end_of_debug() if who == "guard" else line)
    forked: list[Forked] = [agent]
    owner = Owner(host) if who == "member" else None
    try:
        reached = _drive(host, agent, owner)
        if who == "guard" and reached:
            faults.end_guard(host)
            agent.kill()
            host.expire()
            forked.append(start_tail(host, line))
            reached = forked[-1].reached()
        yield forked[-1] if reached else None
    finally:
        for one in forked:
            one.close()
        if owner is not None:
            owner.end()


def _end_of_debug() -> int:
    """The line that says that the debug life runs: from there a guard has most to undo."""
    return int(os.environ["SGLDBG_DEBUG_LINE"])


def _drive(host: BreakableHost, agent: Agent, owner: Owner | None) -> bool:
    """Be the controller, up to the agent's point."""
    main = host.start_server()
    begin = dict(host.begin_args(lease_s=_LEASE_S), grace_s=_GRACE_S)
    try:
        agent.call("begin", begin)
        for name, args, raw in requests_of(host, main, DEBUG):
            if owner is not None and name == "swap":
                owner.swap()
            if owner is not None and name == "revert":
                owner.start_revert()
            agent.call(name, args, raw)
    except ReachedPoint:
        if owner is not None:
            owner.start_revert()
        return True
    return False


def count_lines(directory: Path, kind: str) -> dict[str, list[str]]:
    """Run both journals to their end without a fault: the label of each of their lines."""
    with _host(directory / "count", kind) as host, _forked("agent", host, _NOWHERE) as never:
        assert never is None, "the session did not come to its end"
        found = {"agent": [_label(record) for record in host.journal()]}
        assert not host.judge(), host.judge()
    with (
        _host(directory / "member", kind) as host,
        _forked("member", host, _NOWHERE) as never,
    ):
        assert never is None, "the member did not come to its end"
        found["member"] = [_label(record) for record in host.journal()]
    debug = found["agent"].index("done start:debug") + 1
    os.environ["SGLDBG_DEBUG_LINE"] = str(debug)
    with _host(directory / "tail", kind) as host, _forked("guard", host, _NOWHERE) as never:
        assert never is None, "the guard's tail stopped"
        path = os.path.join(host.directory(), "journal.jsonl")
        found["guard"] = [_label(record) for record in journal.read(path)[debug:]]
        assert not host.end_session(), host.end_session()
    return found


def _label(record: dict[str, Any]) -> str:
    file = os.path.basename(record.get("file", ""))
    return " ".join(filter(None, [record["kind"], record.get("step", ""), file]))


def list_cases(lines: dict[str, list[str]], has_disks: bool) -> list[Case]:
    """Every line times every fault of whoever writes it."""
    cases = []
    for who, table in _FAULTS.items():
        for number, label in enumerate(lines[who], 1):
            for fault in table:
                if has_disks or fault not in faults.NEEDS_DISKS:
                    cases.append(Case(who, number, label, fault))
    return cases


def missing_steps(lines: dict[str, list[str]]) -> set[str]:
    """Positions of the code's own list of steps at which no case breaks anything."""
    seen = {" ".join(label.split()[:2]) for labels in lines.values() for label in labels}
    return {f"{kind} {step}" for step in STEPS for kind in ("intent", "done")} - seen


def choose(cases: list[Case], count: int, seed: int) -> list[Case]:
    """`count` of them by the seed, every fault in turn; all for 0."""
    if not count:
        return cases
    shuffled = random.Random(seed).sample(cases, len(cases))
    turns: dict[str, int] = {}
    ranked = []
    for case in shuffled:
        turns[case.fault] = turns.get(case.fault, 0) + 1
        ranked.append((turns[case.fault], case))
    return [case for _, case in sorted(ranked, key=lambda item: item[0])][:count]


def run(seed: int, count: int, share: str, directory: Path, wanted: list[str]) -> dict[str, Any]:
    """The matrix or a share of a slice of it, as data; `kinds` are those that could be mounted."""
    began = time.monotonic()
    kinds = [kind for kind in wanted if disks.can_mount(kind, directory / "try")]
    lines = count_lines(directory, kinds[0] if kinds else "")
    cases = list_cases(lines, bool(kinds))
    first, step = map(int, share.split("/"))
    chosen = list(enumerate(choose(cases, count, seed)))[first::step]
    failures = {}
    signal.signal(signal.SIGALRM, _too_long)
    for number, case in chosen:
        signal.alarm(_CASE_S)
        kind = kinds[(seed + number) % len(kinds)] if kinds else ""
        problems = run_case(case, directory / str(number), kind)
        signal.alarm(0)
        if problems:
            failures[f"{case} on {kind}"] = problems
        sys.stderr.write(f"{case} on {kind}: {'; '.join(problems) or 'as before'}\n")
    return {
        "cases": len(cases),
        "lines": {who: len(labels) for who, labels in lines.items()},
        "missing": sorted(missing_steps(lines)),
        "tried": len(chosen),
        "kills": sum(any(word in c.fault for word in ("SIG", "boot", "link")) for _, c in chosen),
        "kinds": kinds,
        "seconds": round(time.monotonic() - began, 1),
        "failures": failures,
    }


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"a case took more than {_CASE_S} s")


if __name__ == "__main__":
    seed, count, share, directory, *kinds = sys.argv[1:]
    print(json.dumps(run(int(seed), int(count), share, Path(directory), kinds)))
