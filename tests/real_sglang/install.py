"""What an installed SGLang looks like on disk, and whether it is what the wheel brought."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real_sglang.environment import SGLANG_VERSION, Environment

PACKAGE = "sglang"
DIST_INFO = f"sglang-{SGLANG_VERSION}.dist-info"


@dataclass(frozen=True)
class Entry:
    """All of a file or folder that a session must give back; ctime is nobody's to set."""

    mode: int
    owner: tuple[int, int]
    links: int
    inode: int
    mtime_ns: int
    content: str


def snapshot(site_packages: Path) -> dict[str, Entry]:
    """Every file and folder of the package, with its bytecode and the package's own folder."""
    package = site_packages / PACKAGE
    return {str(path.relative_to(site_packages)): _entry(path) for path in _walk(package)}


def changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """What differs, a line per path; empty where all is as it was."""
    lines = [f"{path}: is gone" for path in sorted(before.keys() - after.keys())]
    lines += [f"{path}: is new" for path in sorted(after.keys() - before.keys())]
    for path in sorted(before.keys() & after.keys()):
        if before[path] != after[path]:
            lines.append(f"{path}: was {before[path]}, is {after[path]}")
    return lines


def record_differences(site_packages: Path) -> list[str]:
    """How the package differs from the wheel's own record; bytecode is not in it by checksum."""
    record = _record(site_packages)
    lines = []
    for name, wanted in sorted(record.items()):
        path = site_packages / name
        if not path.is_file():
            lines.append(f"{name}: is missing")
        elif _record_hash(path.read_bytes()) != wanted:
            lines.append(f"{name}: sha256 is not the record's")
    for path in _walk(site_packages / PACKAGE):
        name = str(path.relative_to(site_packages))
        if path.is_file() and name not in record and not _is_bytecode_of(name, record):
            lines.append(f"{name}: is not the wheel's")
    return lines


def repair(environment: Environment) -> None:
    """Install the wheel again, after a session that was killed left the package changed."""
    shutil.rmtree(environment.site_packages / PACKAGE)
    pip = [str(environment.python), "-m", "pip", "install", "--quiet", "--no-deps"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    subprocess.run(
        [*pip, "--force-reinstall", f"sglang=={SGLANG_VERSION}"],
        env=environ,
        check=True,
        timeout=300,
    )


def copy_package(environment: Environment, folder: Path) -> Path:
    """A second installation, as another host has one; times are kept, so its bytecode is valid."""
    folder.mkdir(parents=True)
    for name in (PACKAGE, DIST_INFO):
        shutil.copytree(environment.site_packages / name, folder / name, symlinks=True)
    return folder


def _record(site_packages: Path) -> dict[str, str]:
    """Path to checksum, of the files of the package that have one."""
    with (site_packages / DIST_INFO / "RECORD").open(newline="") as file:
        return {
            name: checksum
            for name, checksum, _size in csv.reader(file)
            if checksum and name.startswith(f"{PACKAGE}/")
        }


def _record_hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def _is_bytecode_of(name: str, record: Mapping[str, str]) -> bool:
    """`a/__pycache__/b.cpython-311.pyc` where the wheel has `a/b.py`."""
    path = Path(name)
    if path.parent.name != "__pycache__" or path.suffix != ".pyc":
        return False
    return str(path.parent.parent / (path.name.split(".")[0] + ".py")) in record


def _walk(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def _entry(path: Path) -> Entry:
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        content = f"-> {path.readlink()}"
    elif stat.S_ISREG(facts.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        content = ""
    return Entry(
        facts.st_mode,
        (facts.st_uid, facts.st_gid),
        facts.st_nlink,
        facts.st_ino,
        facts.st_mtime_ns,
        content,
    )
