"""The environment of the real SGLang server: built once per set of pins, cached, then shared.

`python -m tests.real_sglang.environment` builds it (about two minutes and 2.7 GB) or says where it
is. It lies outside the checkout, under `$SGLDBG_CACHE` or `~/.cache/sgldbg`; environments of other
pins are left alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SGLANG_VERSION = "0.5.16"
# The wheel's file name says cp311.
PYTHON_VERSION = (3, 11)
STEP_TIMEOUT_S = 1800
HERE = Path(__file__).resolve().parent


class EnvironmentFailedError(Exception):
    """A step of the building failed; the text holds its command and its last lines."""


@dataclass(frozen=True)
class Environment:
    """Where everything lies: interpreter, packages, the two models, the stand-in packages."""

    root: Path
    python: Path
    site_packages: Path
    models: Path
    shim: Path


def ensure() -> Environment:
    """The environment, built first where it is missing; safe to call from several processes."""
    environment = _layout()
    environment.root.parent.mkdir(parents=True, exist_ok=True)
    with _locked(environment.root.with_name(environment.root.name + ".lock")):
        if not _stamp(environment.root).exists():
            _build(environment)
        if not environment.models.exists():
            _make_models(environment)
    return environment


def find() -> Environment | None:
    """The environment where it is complete; builds nothing."""
    environment = _layout()
    complete = _stamp(environment.root).exists() and environment.models.exists()
    return environment if complete else None


def cache_dir() -> Path:
    """Where environments are kept."""
    named = os.environ.get("SGLDBG_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "sgldbg"


def _layout() -> Environment:
    pins = (HERE / "requirements.txt").read_bytes()
    root = cache_dir() / f"sglang-{SGLANG_VERSION}-{_short_hash(pins)}"
    minor = f"python{PYTHON_VERSION[0]}.{PYTHON_VERSION[1]}"
    return Environment(
        root=root,
        python=root / "venv" / "bin" / "python",
        site_packages=root / "venv" / "lib" / minor / "site-packages",
        # The shim is used from the checkout and the models have a name of their own, so that a
        # change of either does not cost a new environment.
        models=root / f"models-{_short_hash((HERE / 'models.py').read_bytes())}",
        shim=HERE / "shim",
    )


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _stamp(root: Path) -> Path:
    return root / "complete"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel releases it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(environment: Environment) -> None:
    """Lay the environment where it will stay: a venv cannot be moved. The stamp comes last."""
    root = environment.root
    _say(f"building the environment of the real SGLang server in {root}")
    if root.exists():
        shutil.rmtree(root)  # half built: its builder died before the stamp
    root.mkdir()
    _step([_base_python(), "-m", "venv", str(root / "venv")])
    pip = [str(environment.python), "-m", "pip", "install", "--quiet"]
    _step([*pip, "--requirement", str(HERE / "requirements.txt")])
    _step([*pip, "--no-deps", f"sglang=={SGLANG_VERSION}"])
    _stamp(root).touch()


def _make_models(environment: Environment) -> None:
    unfinished = environment.models.with_name(environment.models.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    _step([str(environment.python), str(HERE / "models.py"), str(unfinished)])
    unfinished.rename(environment.models)


def _base_python() -> str:
    """A CPython 3.11 outside of any virtual environment, with the modules that venv needs."""
    candidates = [os.environ.get("SGLDBG_SGLANG_PYTHON"), "/usr/bin/python3.11"]
    if sys.version_info[:2] == PYTHON_VERSION:
        candidates.insert(1, getattr(sys, "_base_executable", sys.executable))
    candidates.append(shutil.which("python3.11"))
    asked = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    for candidate in filter(None, candidates):
        try:
            answer = subprocess.run(
                [candidate, "-c", asked], capture_output=True, text=True, timeout=60, check=False
            )
        except OSError:
            continue
        if answer.stdout.split() == [str(n) for n in PYTHON_VERSION]:
            return candidate
    raise EnvironmentFailedError(
        "no CPython 3.11 with venv and ensurepip found; install python3.11 and python3-venv, or"
        " name one in SGLDBG_SGLANG_PYTHON"
    )


def _step(command: list[str]) -> None:
    """Run one command of the building; pip's own settings in the environment are kept."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise EnvironmentFailedError(f"{' '.join(command)}: exit {done.returncode}\n{tail}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(ensure().root)
    except EnvironmentFailedError as error:
        sys.exit(f"error: {error}")
