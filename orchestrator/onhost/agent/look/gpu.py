"""Which GPUs there are and which processes hold their memory, as `nvidia-smi` tells it."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from ..proc import procfs

# The driver takes seconds to answer where it has to wake up eight boards first.
_TIMEOUT_S = 20.0


class Holder(NamedTuple):
    """Memory of one GPU in the hands of one process; `used_mib` is `None` where nobody tells."""

    pid: int
    gpu: str
    used_mib: Optional[int]


def read_gpus() -> Optional[List[Dict[str, Any]]]:
    """All GPUs of the host in order; `None` where there is no `nvidia-smi` or it fails."""
    rows = _query("--query-gpu=index,uuid,name,memory.used,memory.total", 5)
    if rows is None:
        return None
    return [
        {
            "index": _number(row[0]),
            "uuid": row[1],
            "name": row[2],
            "used_mib": _number(row[3]),
            "total_mib": _number(row[4]),
        }
        for row in rows
    ]


def read_holders() -> Optional[List[Holder]]:
    """Every process that computes on a GPU; `None` as of `read_gpus`, and in a container.

    There the numbers are those of the machine, which mean other processes, or none are shown.
    """
    if not procfs.sees_machine():
        return None
    rows = _query("--query-compute-apps=pid,gpu_uuid,used_memory", 3)
    if rows is None:
        return None
    return [Holder(int(row[0]), row[1], _number(row[2])) for row in rows if row[0].isdigit()]


def describe_held(holders: Iterable[Holder]) -> List[str]:
    """One text per holder, such as `GPU 0 holds 81000 MiB for process 12`."""
    held = list(holders)
    names = {gpu["uuid"]: gpu["index"] for gpu in read_gpus() or []} if held else {}
    texts = []
    for holder in held:
        size = "memory" if holder.used_mib is None else "%d MiB" % holder.used_mib
        name = names.get(holder.gpu, holder.gpu)
        texts.append("GPU %s holds %s for process %d" % (name, size, holder.pid))
    return texts


def _query(what: str, fields: int) -> Optional[List[List[str]]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, what, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    rows = (line.split(", ") for line in done.stdout.decode("utf-8", "replace").splitlines())
    return [row for row in rows if len(row) == fields]


def _number(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None
