"""End a session at every point it can be ended at, recover it, and compare everything.

Run as a program of its own: it forks for each point, which a test process with threads must not.
`python -m tests.onhost.transaction.sweep KIND PART OF DIRECTORY` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.onhost.agent.refusal import Refusal
from tests.onhost.transaction.place import Place, session_of, whole_session

# What changes names, times or contents; a crash between any two of these must not matter.
CALLS = (
    "link",
    "unlink",
    "rename",
    "replace",
    "utime",
    "rmdir",
    "mkdir",
    "write",
    "pwrite",
    "fsync",
)
FAR = 10**9
Point = tuple[str, int]
Try = Callable[[Path, str, int], tuple[dict[str, int], list[str]]]


class Countdown:
    """Ends the process at the chosen point of a line, or call, and counts them."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.seen = {"line": 0, "call": 0}
        self.pid = os.getpid()

    def pass_by(self, kind: str) -> None:
        """One more of a kind; the chosen one is the last thing that this process does."""
        if self.is_next(kind):
            os._exit(9)

    def is_next(self, kind: str) -> bool:
        """Whether one more of a kind is the chosen one."""
        if os.getpid() != self.pid:  # on its way to become a server
            return False
        self.seen[kind] += 1
        return (kind, self.seen[kind]) == self.point

    def watch_calls(self) -> None:
        """Count every call that changes a file, before it happens."""
        for name in CALLS:
            setattr(os, name, self._counted(getattr(os, name)))

    def tear_lines(self) -> None:
        """End within the write of a line: after half of it, or with all of it but its newline.

        Any other cut is one of these two to whoever reads: `test_crash.py` cuts at every byte.
        """
        real = os.write

        def write(fd: int, data: bytes) -> int:
            if b',"crc":"' in data:
                for part in (data[: len(data) // 2], data[:-1]):
                    if self.is_next("line"):
                        real(fd, part)
                        os._exit(9)
            return real(fd, data)

        os.write = write

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kw: Any) -> Any:
            self.pass_by("call")
            return real(*args, **kw)

        return call


def in_child(work: Callable[[Countdown], None], point: Point) -> dict[str, int]:
    """Run `work` in a forked process that ends at `point`; what it counted where it did not."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            countdown = Countdown(point)
            work(countdown)
            os.write(writing, json.dumps(countdown.seen).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writing, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else {}


def run_session(place: Place, main: Any) -> Callable[[Countdown], None]:
    """The whole session, watched from its first line on."""

    def work(countdown: Countdown) -> None:
        if countdown.point[0] == "call":
            countdown.watch_calls()
        elif countdown.point[0] == "line":
            countdown.tear_lines()
        context = place.begin()
        whole_session(place, context, main)
        assert context.session is None

    return work


def run_recovery(place: Place) -> Callable[[Countdown], None]:
    """A recovery, watched from its first call on."""

    def work(countdown: Countdown) -> None:
        countdown.watch_calls()
        place.recover()

    return work


def run_until_debug(place: Place, main: Any) -> Callable[[Countdown], None]:
    """A session up to its debug life: the most that a recovery can have to undo."""

    def work(countdown: Countdown) -> None:
        context = place.begin(on_line=lambda record: end_at(record, "start:debug"))
        whole_session(place, context, main)
        session_of(context)

    def end_at(record: dict[str, Any], step: str) -> None:
        if record.get("step") == step and record["kind"] == "done":
            os._exit(9)

    return work


def clean(place: Place) -> None:
    """What `git clean -fd` takes where compiled files are ignored: every untracked name."""
    for path in [*place.package_dir.rglob(".*sgldbg*"), place.package_dir / "_sgldbg.py"]:
        if path.parent.name != "__pycache__":
            path.unlink()


def differences(place: Place, cleaned: bool = True) -> list[str]:
    """What is not as it was; of a cleaned install but for what a copy cannot have, its links."""
    links = ("inode was", "nlink was")
    return [
        change
        for change in place.changes()
        if not (cleaned and any(name in change for name in links))
    ]


def judge(place: Place, cleaned: bool = False) -> list[str]:
    """Recover and say what is not as it was."""
    problems = []
    if os.path.exists(os.path.join(place.directory(), "journal.jsonl")):
        try:
            value = place.recover()
            problems += [f"left: {text}" for text in value["left"]]
        except Refusal as refusal:
            problems.append(f"refused: {refusal.code}: {refusal.message}")
    problems += differences(place, cleaned)
    problems += [f"status: {item['state']}" for item in place.status()]
    problems += [f"tmp: {name}" for name in os.listdir(place.top / "tmp")]
    if len(place.servers()) != 1 or place.servers() != place.originals():
        problems.append(f"servers: {place.servers()}, originals: {place.originals()}")
    return problems


def try_point(directory: Path, kind: str, number: int) -> tuple[dict[str, int], list[str]]:
    """One point on one fresh host: what the child counted, and what is not as it was."""
    tempfile.tempdir = str(directory / "tmp")
    (directory / "tmp").mkdir(parents=True)
    place = Place(directory)
    try:
        main = place.start_server()
        if kind in ("recovery", "cleaned"):
            in_child(run_until_debug(place, main), ("line", FAR))
            if kind == "cleaned":
                clean(place)
            seen = in_child(run_recovery(place), ("call", number))
        else:
            seen = in_child(run_session(place, main), (kind, number))
        return seen, judge(place, kind == "cleaned")
    finally:
        place.end_processes()
        shutil.rmtree(directory)


def sweep(
    kind: str, part: int, of: int, directory: Path, try_one: Try = try_point
) -> dict[str, Any]:
    """Every `of`-th point from `part` on; the first run, to nowhere, counts the points."""
    unit = "line" if kind == "line" else "call"
    seen, problems = try_one(directory / "count", kind, FAR)
    failures = {"none": problems + ([str(seen)] if "error" in seen else [])}
    count = seen.get(unit, 0)
    numbers = range(part, count + 1, of)
    for number in numbers:
        seen, problems = try_one(directory / str(number), kind, number)
        failures[str(number)] = problems + (["it was not reached"] if seen else [])
    failures = {point: found for point, found in failures.items() if found}
    return {"points": count, "tried": len(numbers), "failures": failures}


if __name__ == "__main__":
    print(json.dumps(sweep(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
