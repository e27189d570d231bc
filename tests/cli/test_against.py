"""`sgldbg check --against`, the cases of patches, and `sgldbg new patch`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from orchestrator.cli.app import main

OLD = """class Model:
    def forward(self, x):
        hidden = self.layer(x)
        return hidden
"""
NEW = """class Model:
    def forward(self, x, mode):
        hidden = self.layer(x, mode=mode)
        return hidden

    def other(self, x):
        return self.layer(x)
"""
PATCH = """patch: hidden
about: What does the layer give?
versions: ">=1.0"
edits:
  - where:
      - {file: sglang/model.py, in: Model.forward, after: hidden = self.layer(x)}
      - {file: sglang/model.py, in: Model.forward, after: "hidden = self.layer($$$, mode=$_)"}
    probe: {capture: [hidden]}
  - where: {file: sglang/model.py, in: Model.forward, at: return}
    return: {capture: [value]}
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkouts and a wheel of a package, and a patch for it, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_CACHE", str(tmp_path / "cache"))
    for name, text, version in (("old", OLD, "1.0"), ("new", NEW, "2.0"), ("gone", "", "3.0")):
        package = tmp_path / name / "python" / "sglang"
        package.mkdir(parents=True)
        (package / "model.py").write_text(text)
        (package / "version.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / "gone/python/sglang/moved.py").write_text(OLD)
    (tmp_path / "cache" / "wheels").mkdir(parents=True)
    wheel = tmp_path / "cache" / "wheels" / "sglang-0.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sglang/model.py", OLD)
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches/hidden.yaml").write_text(PATCH)
    return tmp_path


def test_the_matrix(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each edit, a column for each source; why one does not fit stands below, once."""
    against = [f"--against={name}" for name in ("old", "new", "0.9")]
    assert main(["check", "hidden", *against]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "ok patches/hidden.yaml\n"
        "patch     old    new    0.9\n"
        "hidden.1  3 (1)  3 (2)  not meant\n"
        "hidden.2  4      4      not meant\n"
    )
    assert said.err == "hidden on 0.9: patch `hidden` is for sglang >=1.0\n"
    assert main(["check", "hidden", "--against", "gone"]) == 4
    said = capsys.readouterr()
    assert said.out == (
        "ok patches/hidden.yaml\npatch     gone\nhidden.1  not found\nhidden.2  not found\n"
    )
    assert said.err == (
        "hidden on gone: none of the 2 places of `hidden.1` fits\n"
        "hidden on gone: `sglang/model.py` has no `Model.forward`\n"
    )


def test_explain(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every place with its surroundings, or its whole error and where the code went."""
    assert main(["check", "hidden", "--against", "new", "--explain"]) == 0
    out = capsys.readouterr().out
    assert (
        "== hidden.1 on new\nplace 1 does not fit:\n"
        "error: the anchor was not found in `Model.forward` of `sglang/model.py`\n"
    ) in out
    assert "hint: with any arguments it fits line 3: `after: hidden = self.layer($$$)`\n" in out
    assert (
        "place 2 fits line 3 of sglang/model.py in `Model.forward`:\n  1 | class Model:\n"
    ) in out
    assert main(["check", "hidden", "--against", "gone", "--explain"]) == 4
    assert (
        "hint: the same code stands in line 3 of another file: `file: sglang/moved.py`, "
        "`in: Model.forward`\n"
    ) in capsys.readouterr().out


def test_the_matrix_as_data(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts for programs."""
    assert main(["check", "hidden", "--against", "new", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["releases"]
    assert (row["patch"], row["release"], row["version"], row["fits"]) == (
        "hidden", "new", "2.0", True,
    )  # fmt: skip
    states = [[p["state"] for p in e["places"]] for e in row["edits"]]
    assert states == [["not found", "fits"], ["fits"]]


def test_what_is_no_source(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is neither a path nor a version, and a folder without the package."""
    assert main(["check", "hidden", "--against", "latest"]) == 3
    assert capsys.readouterr().err == (
        "error: `latest` is no path here, and no version\n"
        "hint: name a checkout, an unpacked wheel, a wheel, or a version like `0.5.6`\n"
        "\n1 problem\n"
    )
    assert main(["check", "hidden", "--against", "patches"]) == 3
    assert "`patches` holds no package `sglang`" in capsys.readouterr().err
    assert main(["check", "hidden", "--explain"]) == 2


def test_cases_are_run(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case is right where the patch makes what it says, or fails with the text that it keeps."""
    good, bad = (sources / "patches/cases/hidden" / name for name in ("good", "wrong"))
    for case in (good, bad):
        case.mkdir(parents=True)
        (case / "before.py").write_text(OLD)
        (case / "version.txt").write_text("0.9\n")
    error = (
        "error: patch `hidden` is for sglang >=1.0\n"
        " --> hidden.yaml:3:11\n"
        "  |\n"
        '3 | versions: ">=1.0"\n'
        "  |           ^^^^^^^\n"
        "note: found 0.9 on the case\n"
        "hint: if its code is the same there, widen `versions`\n"
    )
    (good / "error.txt").write_text(error)
    (bad / "error.txt").write_text(error.replace("0.9", "0.8"))
    assert main(["check"]) == 3
    said = capsys.readouterr()
    assert said.out == "ok patches/hidden.yaml\n2 cases, 1 wrong\n"
    assert said.err == (
        "error: case `patches/cases/hidden/wrong`: `error.txt` is not what the patch makes\n"
        "note: expected -, made +:\n"
        "      @@ -5,3 +5,3 @@\n"
        "         |           ^^^^^^^\n"
        "      -note: found 0.8 on the case\n"
        "      +note: found 0.9 on the case\n"
        "       hint: if its code is the same there, widen `versions`\n"
        "\n1 problem\n"
    )


def test_new_patch(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The patch that is written fits where it was asked for, and its case is right."""
    place = "old/python/sglang/model.py:3"
    assert main(["new", "patch", place, "--name", "mine", "--against", "new"]) == 0
    said = capsys.readouterr()
    assert said.out == "patches/mine.yaml\npatches/cases/mine/as-written\n"
    text = (sources / "patches/mine.yaml").read_text()
    assert text == (
        "patch: mine\n"
        'about: "TODO: the question that this patch answers"\n'
        "edits:\n"
        "  - where:\n"
        "      file: sglang/model.py\n"
        "      in: Model.forward\n"
        '      after: "hidden = self.layer($$$)"\n'
        "    probe:\n"
        "      capture: [hidden, x]\n"
    )
    assert main(["check", "mine", "--against", "old", "--against", "new"]) == 0
    assert "1 cases, none wrong\n" in capsys.readouterr().out
    assert main(["new", "patch", place, "--name", "mine"]) == 3
    assert "`patches/mine.yaml` exists" in capsys.readouterr().err
    assert main(["new", "patch", "old/python/sglang/model.py:99", "--name", "x"]) == 4
    assert "no statement stands in line 99" in capsys.readouterr().err
    (sources / "old/python/sglang/dead.py").write_text("def f():\n    return 1\n    x = 2\n")
    assert main(["new", "patch", "old/python/sglang/dead.py:3", "--name", "x"]) == 4
    assert "no way leads to the place after line 3" in capsys.readouterr().err
    assert not (sources / "patches/x.yaml").exists()
    long = f"return [{'1, ' * 5000}]"
    (sources / "old/python/sglang/long.py").write_text(f"def f():\n    {long}\n")
    assert main(["new", "patch", "old/python/sglang/long.py:2", "--name", "x"]) == 4
    assert "has more than 10,000 characters, too many for an anchor" in capsys.readouterr().err
    assert sorted(p.name for p in (sources / "patches").rglob("*x*")) == []
    assert main(["new", "patch", "model.py"]) == 2
