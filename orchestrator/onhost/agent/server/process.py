"""The life of a server's processes on this host: describe, start, stop and compare them.

A process is a pid and the start time that goes with it; none is ever found or ended by its name.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..look.gpu import Holder
from ..proc import launch, procfs
from ..proc.describe import describe, public, with_command, with_output, with_way
from ..proc.mains import find_mains
from ..proc.tree import Tree, is_alive, kill, send, wait_for_end
from . import ports, remains, twin, ways
from .compare import compare
from .remains import name_owner

__all__ = [
    "compare",
    "describe",
    "find_mains",
    "is_alive",
    "name_owner",
    "public",
    "start",
    "stop",
    "with_command",
    "with_output",
    "with_way",
]


def start(
    description: Mapping[str, Any],
    stdout: Optional[str],
    stderr: Optional[str],
    argv: Optional[Sequence[str]] = None,
    env_set: Optional[Mapping[str, str]] = None,
    env_unset: Optional[Sequence[str]] = None,
    cwd: Optional[str] = None,
    session: Optional[str] = None,
    folder: Optional[str] = None,
) -> Dict[str, Any]:
    """Start the described server, or a variant of it, in the way that it is run.

    The arguments are those of `launch.start`. Returns `pid` and `start_time`, and `stdout` and
    `stderr` where its output goes to files; `stdout_from` and `stderr_from` are the sizes that
    these had before. Raises `Refusal` (`start-failed`).
    """
    change = launch.Change(
        stdout, stderr, argv, env_set or {}, env_unset or (), cwd, session, folder
    )
    way = description.get("way")
    if way is not None:
        return ways.start(way, description, change)
    outputs = launch.find_outputs(description, change)
    started: Dict[str, Any] = dict(launch.start(description, change))
    return dict(started, **outputs)


def stop(
    main: Optional[Mapping[str, int]],
    session: Optional[str],
    timeout_s: float,
    port: Optional[int],
    description: Optional[Mapping[str, Any]] = None,
    meanwhile: Callable[[], None] = lambda: None,
    life: Optional[remains.Life] = None,
) -> Dict[str, Any]:
    """End a server: SIGTERM to its main process, SIGKILL to what is left after `timeout_s`.

    Where nobody knows a main process any more, SIGTERM goes to the outermost of what is left.
    Its processes are `main`, everything below it from before the signal on, reparented or not,
    with `session` whatever carries that session in its environment, and without it what the
    `description` saw below its main process. A server that somebody else runs is stopped by them.
    Then waits until nobody is in the way of the next life on `port` and none of them holds memory
    of a GPU, and removes the shared memory that was theirs alone; also what `life` shows to have
    been theirs and nobody uses any more. `left` says in words what is still there; empty
    is success. `shm` are the names removed. `meanwhile` is called as soon as the server was asked.
    """
    began, began_at = time.monotonic(), procfs.read_clock()
    known = description or {}
    way = known.get("way")
    tree = Tree(main, session, () if session is not None else known.get("tree") or ())
    tree.record(everywhere=True)
    others = twin.list_others(way, tree.pids)
    segments, held = remains.find_segments(tree.pids), remains.find_holders(tree.pids)
    wanted = None if port is None else _find_wanted(known, tree, port)
    refused = _ask_to_end(tree, way, timeout_s, meanwhile)
    # Who was not told to end will not.
    wait_for_end(tree, began + (0.0 if refused else timeout_s))
    # A supervisor that still runs it would start what we kill anew.
    killed = set() if way is not None and tree.main is not None else kill(tree)
    left = _wait_until_clear(tree, port, wanted, held)
    left += twin.find_successors(known, tree.pids, began_at)
    uid, numbers = known.get("uid", os.getuid()), tree.pids | ({main["pid"]} if main else set())
    removed, shared = _clear_shared(segments, None if left else life, uid, numbers)
    if left or port is None:
        left = refused + left
    else:  # who stops what is not there any more often says that it failed
        shared = shared + refused
    stopped = [key[0] for key in tree.titles if key not in killed and not is_alive(*key)]
    return {
        "stopped": sorted(stopped),
        "killed": sorted(pid for pid, _ in killed),
        "seconds": round(time.monotonic() - began, 3),
        "left": left,
        "shm": removed,
        "notes": shared + twin.tell_ended(others, began_at),
    }


def _clear_shared(
    segments: Set[remains.Segment], life: Optional[remains.Life], uid: int, pids: Set[int]
) -> Tuple[List[str], List[str]]:
    """Remove shared memory of a server, and with `life` what it left; told as by `remains`."""
    unsure: List[str] = []
    if life is not None:
        abandoned, unsure = remains.find_abandoned(life, segments, uid, pids)
        segments = segments | abandoned
    removed, left = remains.remove_segments(segments)
    return removed, left + unsure


def _find_wanted(known: Mapping[str, Any], tree: Tree, port: int) -> Optional[Set[str]]:
    """Where the next life will listen: where this one does, and where the described one did."""
    here = ports.find_addresses(port, tree.pids)
    described = ports.find_wanted(known, port)
    return here | (described or set()) if here else described


def _wait_until_clear(
    tree: Tree, port: Optional[int], wanted: Optional[Set[str]], held: List[Holder]
) -> List[str]:
    """Wait for the port and the GPUs of what has ended; in words what is still there."""
    left = tree.describe_left()
    if port is not None:
        # Who runs on keeps its port, too.
        left += remains.wait_for_port(port, wanted, tree.pids, 0.0 if left else remains.PORT_S)
    return left or remains.wait_for_gpus(held)


def _ask_to_end(
    tree: Tree,
    way: Optional[Mapping[str, Any]],
    timeout_s: float,
    meanwhile: Callable[[], None],
) -> List[str]:
    """Tell the server, or whoever runs it, that it is to end; in words why that was refused."""
    if way is not None:
        meanwhile()  # its supervisor answers only once it is gone
        return ways.stop(way, tree.session, timeout_s)
    for key in tree.heads():
        send(key, signal.SIGTERM)
    meanwhile()
    return []
