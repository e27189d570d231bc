"""A session that its user ends early: everything is put back first."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.signals import signals_end
from tests.session.command import call, start, told
from tests.session.world import Project, Quiet, World, wait_for

BACK = {
    "connect": "nothing was written, server was not touched",
    "stage": "files are as they were, server was not touched",
}


@pytest.mark.parametrize(
    ("number", "stage"),
    [
        (signal.SIGINT, "connect"),
        (signal.SIGINT, "stage"),
        (signal.SIGHUP, "start"),
        (signal.SIGQUIT, "exercise"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_puts_everything_back(
    single: World, small: Project, tmp_path: Path, number: signal.Signals, stage: str
) -> None:
    """Ctrl-C, a closed terminal and SIGTERM: exit code 130 once all is as before."""
    small.session["exercise"][0]["times"] = 1000
    with start("run", small.write(), "--runs", tmp_path / "runs") as running:
        # The request for traffic is the last word before the traffic itself.
        running.wait_line("arm done" if stage == "exercise" else f"demo-0: {stage} done")
        running.send(number)
        running.wait_line("interrupted: putting everything back")
        result = running.end()
    single.assert_as_before()
    lines = [line for line in told(result.err, tmp_path).splitlines() if not line.startswith("[")]
    words = BACK.get(stage, "files are as they were, server is as it was")
    assert (result.code, lines) == (
        130,
        [
            "error: interrupted",
            f"demo-0: {words}",
            "run directory: TMP/runs/TIME-eagle3-zero-acceptance",
        ],
    )


def test_a_second_signal_changes_nothing(world: World, project: Project, tmp_path: Path) -> None:
    """Who presses Ctrl-C again is told to wait; the end is not cut short."""
    with start("run", project.write(), "--runs", tmp_path / "runs") as running:
        running.wait_line("demo-1: start done")
        running.send(signal.SIGINT)
        running.wait_line("interrupted: putting everything back")
        running.wait_line("revert done")
        running.send(signal.SIGINT)
        running.wait_line("still putting everything back; do not close this terminal")
        running.send(signal.SIGTERM)
        result = running.end()
    world.assert_as_before()
    assert result.code == 130, result.err


def test_who_will_not_wait_leaves_the_rest_to_the_guards(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-\\ puts everything back like Ctrl-C, and pressed again it leaves at once, which is 7."""
    small.session["lease"] = "4s"
    book = small.folder / "inventory.yaml"
    session = small.write()
    with start("run", session, "--inventory", book, "--runs", tmp_path / "runs") as running:
        running.wait_line("demo-0: start done")
        running.send(signal.SIGQUIT)
        running.wait_line("interrupted: putting everything back")
        running.send(signal.SIGQUIT)
        result = running.end()
    assert (result.code, result.err.splitlines()[-1]) == (
        7,
        "left at once: what is not back yet is put back by the guard of each host;"
        f" `sgldbg status --inventory {book}` shows what is left",
    )
    wait_for(single.is_back, "the guard")
    ended = call(monkeypatch, "revert", "--all", "--inventory", book)
    assert ended.code == 0, ended.err
    single.assert_as_before()


def test_nobody_hears_of_it(single: World, small: Project, tmp_path: Path) -> None:
    """Nobody reads the progress, and the verdict finds no room: the exit code is the session's."""
    with start("run", small.write(), "--runs", tmp_path / "runs", unheard=True) as running:
        result = running.end()
    single.assert_as_before()
    assert result.code == 1
    assert not (tmp_path / "state" / "traces").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_another_thread_is_handed(number: signal.Signals) -> None:
    """The kernel chooses the thread, and the main one may wait for a host that does not answer."""
    fleet = Fleet([], Quiet())
    may_go_on = threading.Event()
    heard: list[bool] = []

    def take() -> None:
        may_go_on.wait(0.3)  # the main thread has begun to wait by then
        signal.pthread_kill(threading.get_ident(), number)
        for _ in range(100):
            if fleet.stop.is_set():
                break
            may_go_on.wait(0.05)
        heard.append(fleet.stop.is_set())
        may_go_on.set()

    with signals_end(fleet):
        threading.Thread(target=take).start()
        may_go_on.wait()
    assert heard == [True]
