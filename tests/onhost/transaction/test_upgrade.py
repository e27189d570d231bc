"""`pip install` into the environment that a guard is about to repair, and runs from."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import venv
import zipfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import lease
from tests.onhost.transaction.place import NOBODY, RUNTIME, op, sha256
from tests.onhost.transaction.test_guard import wait_for_the_guard

NEW = b"from sglang import _sgldbg\nX = 'probed'\n"


def source(version: str) -> bytes:
    """The module that is patched, as a release has it."""
    return f"X = 'of {version}'\n".encode()


def make_wheel(folder: Path, version: str) -> Path:
    """The smallest wheel that pip takes."""
    info = f"sglang-{version}.dist-info"
    files = {
        "sglang/__init__.py": b"",
        "sglang/layers.py": source(version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


class Environment:
    """A virtual environment without a pip of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.python = str(folder / "env" / "bin" / "python")
        self._folder = folder
        self.install("1.0")
        (self.layers,) = (folder / "env").glob("lib/*/site-packages/sglang/layers.py")

    def install(self, version: str, *words: str) -> None:
        """Install a release of the package, with no index."""
        wheel = make_wheel(self._folder, version)
        command = [sys.executable, "-m", "pip", "--python", self.python, "install", "--no-index"]
        done = subprocess.run(
            [*command, *words, str(wheel)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self) -> str:
        """What the environment's interpreter imports now."""
        command = [self.python, "-c", "from sglang.layers import X; print(X)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def patched(place, monkeypatch):
    """An environment with a patched package, whose guard runs on its own interpreter."""
    environment = Environment(place.top)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", environment.python)
        context = place.begin(with_guard=True)
    contents = [("sglang/_sgldbg.py", None, RUNTIME), ("sglang/layers.py", source("1.0"), NEW)]
    files = [
        {
            "file": name,
            "before_sha256": None if before is None else sha256(before),
            "after_sha256": sha256(after),
            "size": len(after),
        }
        for name, before, after in contents
    ]
    root = str(environment.layers.parents[1])
    place_of = {"root": root, "package": "sglang", "pycache_prefix": None, "tag": "cpython-311"}
    op(context, "stage", RUNTIME + NEW, **place_of, files=files)
    op(context, "swap")
    assert environment.ask() == "probed\n"
    context.session.close()
    place.expire(agent=NOBODY, deadline_s=lease.now_s() + 60.0)
    return environment


def leftovers(environment):
    """What the session has left in the package."""
    folder = environment.layers.parent
    return sorted(p.name for p in folder.rglob("*") if "sgldbg" in p.name)


def test_the_same_release_anew(place, patched):
    """What pip has put back is the original: nothing of the session is left beside it."""
    patched.install("1.0", "--force-reinstall")
    place.expire(agent=NOBODY)
    session = wait_for_the_guard(place)
    assert session["report"] == ["the lease ran out: 2 of 2 files put back, all verified"]
    assert (patched.ask(), leftovers(patched)) == ("of 1.0\n", [])


def test_another_release(place, patched):
    """What pip has put there is somebody's change: left as it is, the old original kept."""
    patched.install("2.0", "--upgrade")
    place.expire(agent=NOBODY)
    session = wait_for_the_guard(place)
    assert session["report"] == [
        "the lease ran out: 1 of 2 files put back",
        f"left: {patched.layers}: drift, it was changed after the swap",
    ]
    assert patched.ask() == "of 2.0\n"
    assert leftovers(patched) == [
        f".{Path(cache_from_source('layers.py')).name}.sgldbg-orig",
        ".layers.py.sgldbg-orig",
        ".sgldbg-lock",
    ]
