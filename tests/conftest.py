"""What holds for every test: nothing that it started lives on."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

# Ends what only needs a moment; what is still there then has leaked.
_PATIENCE_S = 10.0
# Python's own helper of multiprocessing, which lives as long as its process does.
_TRACKER = "resource_tracker"
# Fixtures that open a cluster for several tests, by themselves or through `project`.
_SHARED = frozenset(["shared", "cluster", "project"])


def pytest_configure() -> None:
    """Ctrl-C is what it is at a terminal, also where a shell started us in the background.

    Such a shell has us ignore it, and whatever a test starts would inherit that.
    """
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves threads or child processes behind.

    Clusters that several tests share are started by the first one that needs them; those fixtures
    say of themselves what is whole.
    """
    shares = _SHARED & set(request.fixturenames)
    threads, children = set(threading.enumerate()), _children()
    yield
    if shares:
        return
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _left(threads, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == [], "the test leaves something running"


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _left(threads: set[threading.Thread], children: set[psutil.Process]) -> list[str]:
    left = [f"thread {t.name}" for t in threading.enumerate() if t not in threads and t.is_alive()]
    for child in _children() - children:
        try:
            line = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and _TRACKER not in line:
                left.append(f"process {child.pid}: {line[:200]}")
        except psutil.NoSuchProcess:
            continue
    return left
