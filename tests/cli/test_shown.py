"""What servers and session files say never reaches the terminal as control characters."""

from __future__ import annotations

import errno
from pathlib import Path

import click
import pytest

from orchestrator.cli.commands.ask import _show
from orchestrator.cli.commands.run import show_ending
from orchestrator.cli.job import open_run
from orchestrator.diagnostics import render
from orchestrator.errors import DiskError
from orchestrator.model.record import Record, Verdict
from orchestrator.session.asking import Question
from orchestrator.session.kept.ending import Ending

ATTACK = "\x1b]0;title\x07\nINJECTED"


def make_record() -> Record:
    return Record(
        session="s",
        kind="hit",
        site="p.1",
        host="gpu0",
        pid=7,
        title="sglang::scheduler_TP0",
        seq=1,
        phase="armed",
        mono_s=1.0,
        wall_s=1.0,
        values={"text": ATTACK},
    )


def test_an_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Captured text may come from anybody's prompt."""
    _show([make_record()], Question("p.1", ()), as_json=False)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert not set("\x1b\x07") & set(said)


def test_a_question_is_no_escape_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    """A session file may come from somebody else."""
    verdict = Verdict("\x1b]0;title\x07?", (), True, 0)
    ending = Ending(
        session_id="id",
        question="?",
        outcomes=(),
        verdict=verdict,
        cause=None,
        interrupted=False,
        applied=False,
        changed=False,
        run_dir=None,
        bug=None,
    )
    show_ending(ending, as_json=False)
    assert capsys.readouterr().out.startswith("\\x1b]0;title\\x07?")


def test_a_full_disk_is_no_wrong_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with the command line then: it may be given once more as it is."""

    def full(path: Path, *args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    class Job:
        """As much of a job as is looked at before the folder is made."""

        runs_dir = tmp_path / "runs"

        class session:  # noqa: N801
            name = "s"

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskError) as refused:
        open_run(Job(), None)  # type: ignore[arg-type]
    assert render(refused.value) == (
        f"error: the run's directory cannot be written in `{tmp_path / 'runs'}`: no space left on"
        " device\nhint: make room there, or name another folder with `--runs`"
    )


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A wrong `--runs` is an error of usage, told before any host is asked."""
    (tmp_path / "file").write_text("")

    class Job:
        """As much of a job as is looked at before the folder is made."""

        runs_dir = tmp_path / "file"

        class session:  # noqa: N801
            name = "s"

    with pytest.raises(click.UsageError) as refused:
        open_run(Job(), None)  # type: ignore[arg-type]
    assert str(refused.value) == (
        f"the run's directory cannot be made in {tmp_path / 'file'}: file exists"
    )
