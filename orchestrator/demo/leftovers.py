"""What a killed demonstration leaves: a folder that names its maker, and who runs in it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from pathlib import Path

from orchestrator.demo.processes import end_all, read_start_time

_NAME = re.compile(r"sgldbg-demo-([0-9a-f]{8})-(\d+)-(\d+)-.*")


def own_prefix() -> str:
    """How the names of our folders begin, so that others can tell whether we still live."""
    pid = os.getpid()
    return f"sgldbg-demo-{_machine()}-{pid}-{read_start_time(pid)}-"


def remove_leftovers(parent: Path) -> list[Path]:
    """End and remove what demonstrations of ours left in `parent`; the folders that are gone.

    Only those whose maker is known to be dead: not those of another user, machine, container or
    boot, whose processes cannot be seen from here.
    """
    return [path for path in sorted(parent.glob("sgldbg-demo-*")) if _remove(path)]


def _remove(path: Path) -> bool:
    name = _NAME.fullmatch(path.name)
    if name is None or name[1] != _machine() or not _is_ours(path):
        return False
    if read_start_time(int(name[2])) == int(name[3]):
        return False
    end_all(sorted(path.glob("cluster/hosts/*/home")))
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def _is_ours(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _machine() -> str:
    """This boot of this machine, and who shares its numbers of processes."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    numbers = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(boot_id + numbers.encode()).hexdigest()[:8]
