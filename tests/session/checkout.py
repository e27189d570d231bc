"""The layout of somebody who works on SGLang: a git checkout, installed editable elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import orchestrator.demo


@dataclass(frozen=True)
class Checkout:
    """`repo/python/<package>` with uncommitted changes, and an interpreter that imports it."""

    repo: Path
    package: str
    python: Path

    @property
    def target(self) -> Path:
        """The file that the session patches."""
        return self.repo / "python" / self.package / "srt/models/llama_eagle3.py"

    def facts(self) -> dict[str, object]:
        """What git says, and every file of the work tree as the file system has it."""
        files: dict[str, object] = {
            str(path.relative_to(self.repo)): (
                path.read_bytes(),
                path.stat().st_ino,
                path.stat().st_mtime_ns,
                path.stat().st_mode,
            )
            for path in sorted((self.repo / "python").rglob("*"))
            if path.is_file()
        }
        return files | {
            "status": git(self.repo, "status", "--porcelain", "--ignored"),
            "diff": git(self.repo, "diff"),
        }


def git(repo: Path, *words: str) -> str:
    """What git answers; the user's own configuration has no say."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(repo),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
    return subprocess.run(
        command, cwd=repo, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def make_checkout(folder: Path, package: str) -> Checkout:
    """The miniature under another name, committed, then edited; `pip install -e` in files."""
    repo = folder / "repo"
    source = Path(orchestrator.demo.__file__).parent / "miniature" / "sglang"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, repo / "python" / package, ignore=ignored)
    (repo / ".gitignore").write_text("__pycache__/\n")
    git(repo, "init", "--quiet")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "as released")
    env = folder / "env"
    venv.create(env, with_pip=False, symlinks=True)
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = env / "lib" / minor / "site-packages"
    (packages / f"__editable__.{package}.pth").write_text(f"{repo / 'python'}\n")
    info = packages / f"{package}-0.5.16.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.5.16\n")
    made = Checkout(repo, package, env / "bin" / "python")
    with made.target.open("a") as file:
        file.write("\n# work in progress\n")
    (made.target.parent / "notes.txt").write_text("not committed\n")
    return made
