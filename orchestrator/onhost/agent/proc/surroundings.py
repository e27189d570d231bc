"""What surrounds a process beside its files: limits, scheduling, cgroups, user and signals.

Everything here changes the calling process, which is a fork that is about to become the server.
"""

from __future__ import annotations

import os
import resource
import signal
from typing import Any, Callable, Dict, Mapping, Sequence

from . import mempolicy, priority, procfs, traits

_CGROUP_OPTIONS = ("rw", "ro", "xattr", "clone_children", "cpuset_v2_mode")


def restore_surroundings(description: Mapping[str, Any]) -> None:
    """Put back what we may; `compare` names what we may not."""
    for name, act in _SURROUNDINGS:
        if description.get(name) is not None:
            attempt(act, description[name])
    for name, limits in (description.get("rlimits") or {}).items():
        attempt(_set_limit, (name, limits))
    traits.restore(description)


def attempt(act: Callable[[Any], object], value: Any) -> None:
    """Do what the kernel allows."""
    try:
        act(value)
    except (OSError, ValueError):
        pass


def _set_limit(item: Any) -> None:
    name, limits = item
    resource.setrlimit(getattr(resource, name), (limits[0], limits[1]))


def _set_score(score: int) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def _set_numa(policy: str) -> None:
    # Mostly it is ours already, and a fork of a process with threads does well to load nothing.
    if mempolicy.read_policy(os.getpid()) != policy:
        mempolicy.set_policy(policy)


def _enter_cgroups(lines: Sequence[str]) -> None:
    own = (procfs.read_bytes("/proc/self/cgroup") or b"").decode().splitlines()
    mounts = _find_cgroup_mounts()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if line in own or controllers not in mounts:
            continue
        attempt(_enter_cgroup, mounts[controllers] + path)


def _enter_cgroup(folder: str) -> None:
    with open(os.path.join(folder, "cgroup.procs"), "w") as file:
        file.write("0")


def _find_cgroup_mounts() -> Dict[str, str]:
    """Where each hierarchy is mounted: controllers as `/proc/PID/cgroup` names them, to folder."""
    found: Dict[str, str] = {}
    for line in (procfs.read_bytes("/proc/self/mountinfo") or b"").decode().splitlines():
        fields, _, tail = line.partition(" - ")
        folder, kind, options = fields.split()[4], tail.split()[0], tail.split()[2]
        if kind == "cgroup2":
            found[""] = folder
        elif kind == "cgroup":
            words = [word for word in options.split(",") if word not in _CGROUP_OPTIONS]
            found[",".join(word for word in words if "release_agent=" not in word)] = folder
    return found


_SURROUNDINGS = (
    ("cgroups", _enter_cgroups),
    ("oom_score_adj", _set_score),
    ("affinity", lambda cpus: os.sched_setaffinity(0, cpus)),
    ("numa", _set_numa),
    ("nice", lambda value: os.setpriority(os.PRIO_PROCESS, 0, value)),
    ("scheduler", priority.set_scheduler),
    ("disk", priority.set_disk),
    ("umask", os.umask),
)


def become_user(description: Mapping[str, Any]) -> None:
    """Take the described user and groups; raises `OSError` where we may not."""
    uid, gid = description.get("uid"), description.get("gid")
    groups = description.get("groups")
    if groups is not None and sorted(os.getgroups()) != groups and os.geteuid() == 0:
        os.setgroups(groups)
    # Real, effective and saved; one of an older agent knows the effective one alone.
    gids = tuple(description.get("gids") or (gid, gid, gid))
    uids = tuple(description.get("uids") or (uid, uid, uid))
    if gid is not None and os.getresgid() != gids:
        os.setresgid(*gids)
    if uid is not None and os.getresuid() != uids:
        os.setresuid(*uids)
    traits.restore_rights(description)


def restore_signals(description: Mapping[str, Any]) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, which a program that it starts must not inherit."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            attempt(lambda n: signal.signal(n, signal.SIG_DFL), number)
    for number in description.get("ignored") or ():
        attempt(lambda n: signal.signal(n, signal.SIG_IGN), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, description.get("blocked") or ())
