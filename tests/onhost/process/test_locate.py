"""Where a server's package lies, as its own interpreter sees it in its own surroundings."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import effective
from orchestrator.onhost.agent.look import locate as locate_module
from orchestrator.onhost.agent.look.locate import check_code, locate
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.session.steps.locating import LOOK_S

from .conftest import OTHER_PYTHONS, Stage

OLD = [path for name, path in OTHER_PYTHONS.items() if name.startswith(("3.6.", "3.7."))]


def lay(folder: Path, editable: str | None = None, package: str | None = "tinysgl") -> Path:
    """An install: package and dist-info, or with `editable` the dist-info alone."""
    if package:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise ImportError('never imported')\n")
    info = folder / "tinysgl-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinysgl\nVersion: 1.2\n")
    if editable:
        link = {"url": f"file://{editable}", "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(link))
    return folder


def test_an_install_on_the_path(tmp_path):
    """Everything that later steps need, and nothing is imported or written."""
    site = lay(tmp_path / "site")
    found = locate(sys.executable, "tinysgl", None, {"PYTHONPATH": str(site)}, str(tmp_path))
    assert found == {
        "python": sys.executable,
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "root": str(site),
        "package_dir": str(site / "tinysgl"),
        "package_version": "1.2",
        "dist_info": str(site / "tinysgl-1.2.dist-info"),
        "pycache_prefix": None,
        "tag": sys.implementation.cache_tag,
        "editable": False,
        "hidden": [],
        "other": None,
    }
    assert list(tmp_path.rglob("__pycache__")) == []


def test_copies_that_another_one_hides(tmp_path):
    """A server's own directory comes first with `-m`; links and repeats do not count."""
    first, second = lay(tmp_path / "work"), lay(tmp_path / "site")
    (tmp_path / "link").symlink_to(first)
    path = ":".join(map(str, (second, tmp_path / "link", second, tmp_path / "none")))
    found = locate(sys.executable, "tinysgl", None, {"PYTHONPATH": path}, str(first))
    assert found["package_dir"] == str(first / "tinysgl")
    assert found["hidden"] == [str(second / "tinysgl")]


def lay_interpreter(folder: Path) -> Path:
    """An interpreter of its own with an install of its own."""
    lay(folder / "site")
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_another_copy_than_the_servers(tmp_path):
    """The interpreter that is named says one thing, the one that runs the server another."""
    named, own = (lay_interpreter(tmp_path / name) for name in ("named", "own"))
    other = {"python": str(own), "package_dir": str(tmp_path / "own/site/tinysgl")}
    asked = (str(named), "tinysgl", None, {}, str(tmp_path))
    assert locate(*asked, str(own))["other"] == other
    assert locate(*asked, "own/bin/python3")["other"] == other
    assert locate(*asked, str(named))["other"] is None
    assert locate(*asked)["other"] is None


def test_another_interpreter_with_the_same_copy(tmp_path):
    """Two environments may share a checkout; what is no interpreter is never run."""
    named = lay_interpreter(tmp_path / "named")
    own = lay_interpreter(tmp_path / "own")
    shutil.rmtree(tmp_path / "own/site/tinysgl")
    (tmp_path / "own/site/tinysgl").symlink_to(tmp_path / "named/site/tinysgl")
    asked = (str(named), "tinysgl", None, {}, str(tmp_path))
    assert locate(*asked, str(own))["other"] is None
    tool = tmp_path / "docker"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    tool.chmod(0o755)
    assert locate(*asked, str(tool))["other"] is None
    assert not (tmp_path / "ran").exists()


def test_an_editable_install(tmp_path):
    """The code lies in a checkout, the dist-info elsewhere."""
    site = lay(tmp_path / "site", editable=str(tmp_path / "src"), package=None)
    (tmp_path / "src" / "tinysgl").mkdir(parents=True)
    (tmp_path / "src" / "tinysgl" / "__init__.py").touch()
    (site / "tinysgl.pth").write_text(str(tmp_path / "src") + "\n")
    code = f"import site; site.addsitedir({str(site)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    found = locate(sys.executable, "tinysgl", None, {"PYTHONPATH": str(tmp_path)}, "/")
    assert (found["root"], found["editable"]) == (str(tmp_path / "src"), True)
    assert (found["package_version"], found["dist_info"]) == (
        "1.2",
        str(site / "tinysgl-1.2.dist-info"),
    )


def test_links_are_kept(tmp_path):
    """The root is the directory as imported; a prefix for .pyc files is reported."""
    lay(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    env = {"PYTHONPATH": str(tmp_path / "link"), "PYTHONPYCACHEPREFIX": str(tmp_path / "pyc")}
    found = locate(sys.executable, "tinysgl", None, env, "/")
    assert found["root"] == str(tmp_path / "link")
    assert found["pycache_prefix"] == str(tmp_path / "pyc")


def test_surroundings_of_a_running_server(stage: Stage, tmp_path):
    """PYTHONPATH and directory of the process count, noise on its stdout does not."""
    lay(tmp_path / "cwd")
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "sitecustomize.py").write_text("print('welcome ' * 100)\n")
    child = stage.spawn("", cwd=tmp_path / "cwd", env={"PYTHONPATH": str(tmp_path / "noise")})
    found = locate(None, "tinysgl", child.pid, {}, None)
    assert found["root"] == str(tmp_path / "cwd")
    assert found["python"] == sys.executable


def test_a_server_that_is_a_script(stage: Stage, tmp_path):
    """A console script sees its own folder first, not the directory it was started in."""
    lay(tmp_path / "cwd")
    lay(tmp_path / "bin")
    script = tmp_path / "bin" / "serve"
    script.write_text("import os,time; open(os.environ['READY'], 'w').close(); time.sleep(60)")
    child = stage.run([sys.executable, str(script)], cwd=tmp_path / "cwd")
    assert locate(None, "tinysgl", child.pid, {}, None)["root"] == str(tmp_path / "bin")


def test_options_of_the_interpreter(stage: Stage, tmp_path):
    """A server that runs with -I does not see its directory, so the locator does not either."""
    lay(tmp_path / "cwd")
    code = "import os,time; open(os.environ['READY'], 'w').close(); time.sleep(60)"
    child = stage.run([sys.executable, "-I", "-c", code], cwd=tmp_path / "cwd")
    assert refusal(None, "tinysgl", child.pid, {}, None) == (
        "not-installed",
        f"`{sys.executable}` finds no package `tinysgl`: it is not on its path",
        [],
    )


def refusal(*args) -> tuple[str, str, object]:
    with pytest.raises(Refusal) as refused:
        locate(*args)
    return refused.value.code, refused.value.message, refused.value.data["tail"]


def test_packages_that_cannot_be_patched(tmp_path):
    """A namespace directory, a single module and nothing at all are told apart."""
    (tmp_path / "spaced").mkdir()
    (tmp_path / "single.py").touch()
    env = {"PYTHONPATH": str(tmp_path)}
    head = f"`{sys.executable}` finds no package"
    for name, why in [
        ("spaced", f"{tmp_path}/spaced has no __init__.py"),
        ("single", f"it is no package but {tmp_path}/single.py"),
        ("absent", "it is not on its path"),
    ]:
        expected = ("not-installed", f"{head} `{name}`: {why}", [])
        assert refusal(sys.executable, name, None, env, "/") == expected


def test_interpreters_that_do_not_answer(tmp_path, monkeypatch):
    """Missing, failing, killed and hanging ones, with what they said."""
    monkeypatch.setattr(locate_module, "_TIMEOUT_S", 0.3)
    made = {
        "fails": "echo one >&2; echo two >&2; exit 3",
        "dies": "kill -9 $$",
        "hangs": "echo still here >&2; sleep 60",
    }
    for name, text in made.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "text").write_text("text")
    (tmp_path / "text").chmod(0o755)
    expected = {
        "fails": ("ended with exit status 3 and no answer: is it a Python?", ["one", "two"]),
        "dies": ("was ended by signal 9", []),
        "hangs": ("did not answer within 0.3 s", ["still here"]),
    }
    for name, (how, tail) in expected.items():
        path = str(tmp_path / name)
        wanted = ("no-interpreter", f"`{path}` {how}", tail)
        assert refusal(path, "tinysgl", None, {}, "/") == wanted
    path = str(tmp_path / "text")
    wanted = f"`{path}` does not run: [Errno 8] Exec format error: '{path}'"
    assert refusal(path, "tinysgl", None, {}, "/") == ("no-interpreter", wanted, [])
    wanted = "there is no interpreter `/no/python`"
    assert refusal("/no/python", "tinysgl", None, {}, "/") == ("no-interpreter", wanted, [])


@pytest.mark.parametrize("module", [locate_module, effective])
def test_the_host_says_it_before_the_controller_gives_up(module):
    """Which interpreter hangs is more than that a host does not answer."""
    assert module._TIMEOUT_S < LOOK_S


@pytest.mark.parametrize("python", OLD or [None], ids=lambda p: p.parts[-3] if p else "none here")
def test_interpreters_that_are_too_old(python):
    """An old interpreter says its version itself; where none is here, the text is parsed as one."""
    if python is None:
        compile(locate_module.LOCATOR, "locator", "exec")
        return
    version = python.parts[-3]
    message = f"`{python}` is Python {version}; 3.8 or newer is needed"
    assert refusal(str(python), "tinysgl", None, {}, "/") == ("no-interpreter", message, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as somebody else")
def test_root_looks_as_the_server_s_user(stage: Stage, open_dir):
    """What a user's sitecustomize does, it does with that user's rights."""
    stage.folder = open_dir
    (open_dir / "tinysgl").mkdir()
    (open_dir / "tinysgl" / "__init__.py").touch()
    (open_dir / "sitecustomize.py").write_text(
        f"import os\nopen({str(open_dir / 'uid')!r}, 'w').write(str(os.getresuid()))\n"
    )
    code = "import os,time; open(os.environ['READY'], 'w').close(); time.sleep(60)"
    child = stage.run(
        ["/usr/bin/python3", "-c", code],
        cwd=open_dir,
        env={"PYTHONPATH": str(open_dir)},
        preexec_fn=lambda: os.setresuid(65534, 65534, 65534),
    )
    assert locate(None, "tinysgl", child.pid, {}, None)["root"] == str(open_dir)
    assert (open_dir / "uid").read_text() == "(65534, 65534, 65534)"


def test_code_is_checked_in_memory(tmp_path):
    """Each file by itself, with the error in one line; nothing is run or written."""
    texts = {
        "a.py": b"import sys; sys.exit(3)\n",
        "b.py": b"x = 1\nif x\n    pass\n",
        "c.py": b"x = '\x00'\n",
        "d.py": b"",
        "e.py": b"# -*- coding: no-such -*-\n",
        "f.py": "x = 'ü'; '\\d'\n".encode(),
    }
    sizes = [{"file": name, "size": len(data)} for name, data in texts.items()]
    checked = check_code(sys.executable, sizes, b"".join(texts.values()))
    assert [item["file"] for item in checked] == list(texts)
    errors = [item["error"] for item in checked]
    assert errors[0] is errors[3] is errors[5] is None
    assert errors[1] == "SyntaxError: expected ':' (line 2)"
    assert errors[2] is not None
    assert errors[4] == "SyntaxError: unknown encoding: no-such"
    assert list(tmp_path.iterdir()) == []


def test_code_without_an_interpreter():
    """The refusal names what was asked for."""
    with pytest.raises(Refusal) as refused:
        check_code("/no/python", [], b"")
    assert refused.value.message == "there is no interpreter `/no/python`"
