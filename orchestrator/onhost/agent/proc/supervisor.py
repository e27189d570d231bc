"""Who would start a server again behind our back, or end with it: told from cgroups and parents."""

from __future__ import annotations

import os
import re
from typing import Dict, List, Optional

from . import procfs
from .above import owner, systemctl

_RUNTIMES = re.compile(r"[/-](docker|libpod|cri-containerd|crio|lxc|nerdctl|kubepods)\b")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# Services that only hold people's sessions; what runs in them is nobody's unit.
_SESSION_HOSTS = re.compile(
    r"(sshd?(@.*)?|crond?|atd|user@\d+|.*getty.*|gdm|lightdm|sddm|dropbear|tmux.*|screen.*)\.service$"
)


def read_cgroups(pid: int) -> List[str]:
    """The lines of `/proc/PID/cgroup`; empty where the process is gone."""
    data = procfs.read_bytes("/proc/%d/cgroup" % pid) or b""
    return procfs.to_text(data).splitlines()


def find_path(cgroups: List[str]) -> str:
    """The one cgroup worth showing: the unified one, else systemd's, else the first not `/`."""
    paths = {line.split(":", 2)[1] or "unified": line.split(":", 2)[2] for line in cgroups}
    for name in ("unified", "name=systemd"):
        if paths.get(name, "/") != "/":
            return paths[name]
    return next((path for path in paths.values() if path != "/"), "/")


def find_container(cgroups: List[str]) -> Optional[str]:
    """The container that these cgroups belong to, by its short id where the path holds one."""
    for line in cgroups:
        path = line.split(":", 2)[2]
        runtime = _RUNTIMES.search(path)
        if runtime:
            ids = _CONTAINER_ID.findall(path)
            return "container %s" % (ids[-1][:12] if ids else "of " + runtime.group(1))
    return None


def find_unit(cgroups: List[str]) -> Optional[str]:
    """The service unit in whose cgroup a process runs, unless it only hosts sessions."""
    for line in cgroups:
        parts = line.split(":", 2)[2].split("/")
        name = next((part for part in reversed(parts) if part.endswith(".service")), "")
        # A scope below user@1000.service is a terminal or a session, not a service.
        if name and not _SESSION_HOSTS.match(name) and not parts[-1].endswith(".scope"):
            return name
    return None


def find_manager(cgroups: List[str]) -> Optional[int]:
    """The user whose own manager runs the process; `None` for what the machine's runs."""
    found = (re.search(r"/user@(\d+)\.service/", line) for line in cgroups)
    return next((int(match.group(1)) for match in found if match), None)


def find_supervisor(pid: int, processes: Dict[int, procfs.Stat]) -> Optional[owner.Owner]:
    """Whoever would start this process again or ends with it; `None` where nobody does.

    What a unit runs may be a loop as well; then the unit is whom to ask.
    """
    cgroups = read_cgroups(pid)
    container = find_container(cgroups)
    if container and container != find_container(read_own()):
        return _owns("container", container)
    found, chain = owner.find(pid, processes)
    if found is not None and found.kind in ("supervisor", "init"):
        return found
    unit = find_unit(cgroups)
    if unit and unit != find_unit(read_own()):
        owning = _ask_unit(unit, find_manager(cgroups), [pid, *chain])
        if owning is not None:
            return owning
    if found is not None:
        return found
    ancestors = procfs.find_ancestors(pid, processes)
    if pid != 1 and processes[pid].sid == 1 and any(stat.pid == 1 for stat in ancestors):
        return _owns("init", owner.container_main())
    return None


def _owns(kind: str, name: str) -> owner.Owner:
    return owner.Owner(kind, name, "%s owns it" % name)


def read_own() -> List[str]:
    """Our own cgroups: a container that holds us as well is the machine we work on."""
    data = procfs.read_bytes("/proc/self/cgroup") or b""
    return procfs.to_text(data).splitlines()


def _ask_unit(unit: str, uid: Optional[int], family: List[int]) -> Optional[owner.Owner]:
    """The unit, unless its main process is neither the server nor above it.

    `uid` is the user whose own manager runs it. Where nobody can tell, the unit may own it.
    """
    # What root has systemd do, the machine's manager does.
    is_asked = uid is None or uid == os.geteuid() != 0
    manager = None if is_asked or uid is None else procfs.user_name(uid)
    whose = " of %s's own manager" % manager if manager else ""
    name = "systemd unit %s%s" % (unit, whose)
    done = systemctl.ask_main(unit, uid)
    main = int(done.out) if done.out.isdigit() else None
    if done.code != 0 or main is None:
        why = "%s may own it, which nobody says: %s" % (name, done.said)
    elif main == 0 or main in family:
        why = "%s owns it" % name
    else:
        return None
    return owner.Owner("unit", name, why, unit=unit, manager=manager)
