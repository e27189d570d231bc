"""`sgldbg check`: what it looks at, what it prints where, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from orchestrator.cli.app import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example files, as the working directory."""
    shutil.copy(ROOT / "inventory.yaml", tmp_path)
    for folder in ("patches", "sessions"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "patches/eagle3-draft-input.yaml", tmp_path / "patches")
    shutil.copy(ROOT / "sessions/eagle3-zero-acceptance.yaml", tmp_path / "sessions")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    """Replace a part of a file that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_all_right(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without files, those of the working directory are checked; each right one is named."""
    assert main(["check"]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "ok inventory.yaml\n"
        "ok patches/eagle3-draft-input.yaml\n"
        "ok sessions/eagle3-zero-acceptance.yaml\n"
        "   patch eagle3-draft-input: patches/eagle3-draft-input.yaml\n"
    )
    assert said.err == ""


def test_which_file_a_patch_comes_from(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the library stands in for a name that no folder has, and never for a path or link."""
    session = Path("sessions/eagle3-zero-acceptance.yaml")
    own = Path("patches/eagle3-draft-input.yaml")
    own.unlink()
    shipped = ROOT / own
    assert main(["check", str(session), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["patches"] == {str(session): {"eagle3-draft-input": str(shipped)}}
    own.symlink_to("nowhere.yaml")
    assert main(["check", str(session)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"error: cannot read `{own}`: no such file or directory\n")
    own.unlink()
    for path in ("../patches/eagle3-draft-input.yaml", "./eagle3-draft-input", "patch.yaml"):
        edit(session, "[eagle3-draft-input]", f"[{path}]")
        assert main(["check", str(session)]) == 3
        absent = os.path.normpath(session.parent / path)
        assert capsys.readouterr().err.startswith(f"error: there is no file `{absent}`\n")
        edit(session, f"[{path}]", "[eagle3-draft-input]")


def test_problems(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All problems of all files go to stderr, each once, though a session shares its patches."""
    edit(project / "patches/eagle3-draft-input.yaml", "about:", "abuot:")
    edit(project / "sessions/eagle3-zero-acceptance.yaml", "lease: 2m", "lease: 120")
    assert main(["check"]) == 3
    said = capsys.readouterr()
    assert said.out == "ok inventory.yaml\n"
    assert said.err == (
        """\
error: unknown key `abuot` in a patch
 --> patches/eagle3-draft-input.yaml:5:1
  |
5 | abuot: Which hidden width reaches the EAGLE-3 draft, and will fc be applied to it?
  | ^^^^^
hint: did you mean `about`?

error: a duration needs its unit
  --> sessions/eagle3-zero-acceptance.yaml:27:8
   |
27 | lease: 120         # hosts revert by themselves so long after they last heard from us
   |        ^^^
hint: write `120s` or `120m`

2 problems in 2 files
"""
    )


def test_session_with_its_project(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session is right only with its inventory and patches, wherever the command is called."""
    edit(project / "inventory.yaml", "  kimi:\n    install", "  qwen:\n    install")
    assert main(["check", "sessions/eagle3-zero-acceptance.yaml"]) == 3
    assert capsys.readouterr().err == (
        """\
error: unknown server `kimi` in inventory.yaml
 --> sessions/eagle3-zero-acceptance.yaml:5:9
  |
5 | server: kimi
  |         ^^^^

1 problem in sessions/eagle3-zero-acceptance.yaml
"""
    )


def test_options(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inventory and folders of patches can be named."""
    (project / "inventory.yaml").rename(project / "hosts.yml")
    (project / "patches").rename(project / "more")
    edit(project / "sessions/eagle3-zero-acceptance.yaml", "[eagle3-draft-input]", "[mine]")
    edit(
        project / "sessions/eagle3-zero-acceptance.yaml",
        "records: eagle3-draft-input",
        "records: mine",
    )
    path = project / "more/eagle3-draft-input.yaml"
    edit(path, "patch: eagle3-draft-input", "patch: mine")
    path.rename(project / "more/mine.yaml")
    assert main(["check", "--inventory", "hosts.yml", "--patches", "more"]) == 0
    assert capsys.readouterr().out == (
        "ok sessions/eagle3-zero-acceptance.yaml\n   patch mine: more/mine.yaml\n"
    )


def test_a_case_that_cannot_be_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe among a patch's files is not waited for, and text must be UTF-8."""
    case = project / "patches" / "cases" / "eagle3-draft-input" / "mine"
    case.mkdir(parents=True)
    os.mkfifo(case / "before.py")
    other = case.with_name("other")
    other.mkdir()
    (other / "before.py").write_text("x = 1\n")
    (other / "error.txt").write_bytes(b"caf\xe9")
    assert main(["check", "patches/eagle3-draft-input.yaml"]) == 3
    folder = "patches/cases/eagle3-draft-input"
    assert capsys.readouterr().err == (
        f"error: cannot read `{folder}/mine/before.py`: it is a pipe, not a file\n\n"
        f"error: not UTF-8: byte 0xe9\n"
        f" --> {folder}/other/error.txt:1:4\n"
        "  |\n1 | caf\ufffd\n  |    ^\n"
        "hint: save the file as UTF-8\n\n"
        f"2 problems in {folder}/other/error.txt\n"
    )


def test_missing_inventory(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session without an inventory says what to do."""
    (project / "inventory.yaml").unlink()
    assert main(["check", "sessions/eagle3-zero-acceptance.yaml"]) == 3
    assert capsys.readouterr().err == (
        "error: there is no inventory `inventory.yaml`\n"
        "hint: write one, or name it with `--inventory`\n\n1 problem\n"
    )


def test_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` carries the same facts on stdout, and nothing else is printed."""
    edit(project / "patches/eagle3-draft-input.yaml", "about:", "abuot:")
    assert main(["check", "--json", "inventory.yaml", "patches/eagle3-draft-input.yaml"]) == 3
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out) == {
        "ok": ["inventory.yaml"],
        "problems": [
            {
                "message": "unknown key `abuot` in a patch",
                "place": {
                    "file": "patches/eagle3-draft-input.yaml",
                    "line": 5,
                    "column": 1,
                    "end_line": 5,
                    "end_column": 6,
                },
                "notes": [],
                "hints": ["did you mean `about`?"],
            }
        ],
    }


def test_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty folder is not taken for a right one."""
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 3
    assert capsys.readouterr().err == (
        "error: there is nothing to check in this folder\n"
        "hint: name files, or go where inventory.yaml, patches/ and sessions/ are\n\n1 problem\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pach: p\nabout: x\n", "unknown key `pach` in a patch"),
        ("about: x\nedits: []\n", "a patch needs the key `patch`"),
        ("sesion: s\n", "unknown key `sesion` in a session"),
        ("groups: {}\nservers: {}\n", "an inventory needs the key `hosts`"),
        (
            "x: 1\n",
            "neither an inventory (`hosts:`) nor a patch (`patch:`) nor a session (`session:`)",
        ),
    ],
)
def test_kind(text: str, message: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kind of a file is told by its keys, also when the first one is misspelt or missing."""
    (project / "x.yaml").write_text(text, encoding="utf-8")
    assert main(["check", "x.yaml"]) == 3
    assert f"error: {message}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"),
    [(f"{name} $", "SESSION") for name in ("run", "plan", "apply", "ask", "keep", "revert")]
    + [
        ("check inventory.yaml $", "[FILES]..."),
        ("run x.yaml --runs $", "--runs"),
        ("apply x.yaml --runs $", "--runs"),
        ("status --inventory $", "--inventory"),
        ("plan x.yaml --patches $", "--patches"),
    ],
)
def test_an_empty_name_is_no_path(
    project: Path, capsys: pytest.CaptureFixture[str], words: str, what: str
) -> None:
    """A variable of the shell that is not set does not mean the working directory."""
    assert main([word.replace("$", "") for word in words.split()]) == 2
    shown = "[SESSION]" if words.startswith("revert") else what
    said = capsys.readouterr().err
    assert said.endswith(f"\nError: Invalid value for '{shown}': the name is empty\n")


ODD = "a\x1b[2J\nb\tc"
SHOWN = "a\\x1b[2J\\nb\\tc"


def test_a_name_with_control_characters_stays_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a file is called: no line of ours is broken, and no terminal cleared."""
    (project / f"patches/{ODD}.yaml").write_text("x")
    assert main(["check"]) == 3
    place = f"patches/{SHOWN}.yaml"
    kinds = "neither an inventory (`hosts:`) nor a patch (`patch:`) nor a session (`session:`)"
    assert capsys.readouterr().err == (
        f"error: {kinds}\n --> {place}:1:1\n  |\n1 | x\n  | ^\n\n1 problem in {place}\n"
    )
    (project / f"patches/{ODD}.yaml").unlink()
    (project / "inventory.yaml").rename(project / ODD)
    session = "sessions/eagle3-zero-acceptance.yaml"
    (project / session).rename(project / f"sessions/{ODD}")
    assert main(["check", ODD, f"sessions/{ODD}", "--inventory", ODD]) == 0
    named = f"ok {SHOWN}\nok sessions/{SHOWN}\n"
    assert capsys.readouterr().out.startswith(named)
    for words, said in [
        (["run", ODD + "?"], f"error: cannot read `{SHOWN}?`: no such file or directory\n"),
        (["status", ODD, "--inventory", ODD], f"unknown host or group `{SHOWN}` in {SHOWN}"),
        ([ODD], f"No such command '{SHOWN}'"),
    ]:
        assert main(words) in (2, 3)
        assert said in capsys.readouterr().err
