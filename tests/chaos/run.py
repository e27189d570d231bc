"""Starts a part of the sweeps as a program of its own, with mounts that nobody else sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Another slice every hour; set it to run a slice again.
SEED = int(os.environ.get("SGLDBG_SEED", time.strftime("%j%H")))


def run_part(name: str, *words: object) -> dict[str, Any]:
    """Run `tests.chaos.NAME` and return what it found; its progress goes to stderr."""
    command = [sys.executable, "-m", f"tests.chaos.{name}", *map(str, words)]
    if os.geteuid() == 0:
        # File systems are mounted where no other process sees them, and end with the last of ours.
        command = ["unshare", "--mount", "--propagation", "private", *command]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environ, cwd=root, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
