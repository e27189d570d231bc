"""The probe's own tests that need torch, in the real server's environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.real_sglang.environment import Environment

pytestmark = [pytest.mark.sglang, pytest.mark.torch, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((CHECKOUT / "tests" / "probe").glob("torch_*.py"))


def test_there_are_some() -> None:
    """A renamed file must not make this module pass by finding nothing."""
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_passes_beside_a_real_torch(environment: Environment, path: Path, tmp_path: Path) -> None:
    """The file passes, and none of its tests is skipped."""
    # The project's own conftest needs what a controller has; these tests need torch alone.
    options = ["--noconftest", "-p", "no:cacheprovider", "-q", "-rs"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    environ.update(HOME=str(tmp_path), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))
    done = subprocess.run(
        [str(environment.python), "-m", "pytest", *options, str(path)],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout, done.stdout
