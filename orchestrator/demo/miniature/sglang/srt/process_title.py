"""The names that processes go by in `ps`, and the prefix of their log lines."""

from __future__ import annotations

import logging
from pathlib import Path


def set_process_title(title: str) -> bool:
    """Write `title` over the command line and the environment, as setproctitle does.

    Afterwards `/proc/PID/cmdline` is the title and NULs and the inherited variables are gone from
    `/proc/PID/environ`; `os.environ` keeps them. False where the kernel does not let us.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        # Fields 48 to 51 of proc(5), counted from the third, which is the first after the name.
        start, arg_end, env_start, env_end = (int(fields[i]) for i in (45, 46, 47, 48))
        end = env_end if env_start == arg_end else arg_end
        data = title.encode()[: end - start - 1].ljust(end - start, b"\0")
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(data)
        Path("/proc/self/comm").write_text(title[:15])
    except (OSError, ValueError, IndexError):
        return False
    return True


def configure_logger(prefix: str = "") -> None:
    """Log to stderr with time and, for workers, the rank: `[2026-11-29 15:43:23 TP0] text`."""
    logging.basicConfig(
        level=logging.INFO,
        format=f"[%(asctime)s{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
