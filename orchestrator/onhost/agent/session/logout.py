"""What of a user's processes outlives the last logout: systemd and its logind decide.

The user's own manager, with all scopes below it, ends some seconds after the last logout unless
lingering is on; a process that stays in the login's own scope is left alone, or ended with that
login where logind has `KillUserProcesses=yes` (logind.conf(5); Debian, Fedora and Ubuntu say no).
"""

from __future__ import annotations

import os
import shutil
from typing import List

from ..proc import procfs
from ..proc.above import systemctl

RUNNING = "/run/systemd/system"
LINGERING = "/var/lib/systemd/linger"
_ANSWER_S = 5.0


def find_scope(uid: int, running: str = RUNNING, lingering: str = LINGERING) -> List[str]:
    """The words before a command that is to outlive a logout; none where it does so by itself."""
    scope = shutil.which("systemd-run")
    if scope is None or not os.path.isdir(running):
        return []
    if uid and not _lingers(uid, lingering) and not kills_all(uid, running, lingering):
        return []
    user = ["--user"] if uid else []
    return [scope, *user, "--scope", "--quiet", "--collect", "--"]


def kills_all(uid: int, running: str = RUNNING, lingering: str = LINGERING) -> bool:
    """Whether no process of this user stays after the last logout, in whatever scope it is."""
    if uid == 0 or not os.path.isdir(running) or _lingers(uid, lingering):
        return False
    # Without a session's name it shows what holds for all of them; and where no logind answers,
    # nobody ends what a login leaves.
    done = systemctl.run(["loginctl", "show-session", "--property=KillUserProcesses"], _ANSWER_S)
    return done.out.strip() == "KillUserProcesses=yes"


def _lingers(uid: int, lingering: str) -> bool:
    return os.path.exists(os.path.join(lingering, procfs.user_name(uid)))
