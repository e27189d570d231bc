"""What the manager of the system's units, or of a user's own, is asked and told: `systemctl`."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, NamedTuple, Optional, Sequence

from ...refusal import Refusal
from .. import procfs

ANSWER_S = 10.0
# Units that systemd stops along with one.
TOGETHER = ("ConsistsOf", "BoundBy", "RequiredBy")
_SHOWN = (
    *TOGETHER,
    "Id",
    "LoadState",
    "ActiveState",
    "Result",
    "Job",
    "MainPID",
    "InvocationID",
    "FragmentPath",
    "ControlGroup",
)


class Done(NamedTuple):
    """A call that is over: exit code, stdout, and the last words on stderr."""

    code: int
    out: str
    said: str


def show(unit: str) -> Dict[str, str]:
    """The unit's properties; empty where there is no answer."""
    return parse(ask(unit).out)


def ask(unit: str) -> Done:
    """The same, as `systemctl show` answers."""
    return ctl(["show", *("--property=" + name for name in _SHOWN), "--", unit])


def parse(text: str) -> Dict[str, str]:
    """Lines `name=value` as `systemctl show` prints them."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}


def answered(done: Done) -> str:
    """What it said; raises `Refusal` (`no-systemd`) where that is no answer."""
    if done.code != 0:
        raise Refusal("no-systemd", "systemd does not answer: %s" % done.said)
    return done.out


def must(words: Sequence[str], what: str) -> None:
    """One call; raises `Refusal` (`start-failed`) with `what` that means."""
    done = ctl(words)
    if done.code != 0:
        shown = "`systemctl %s`" % " ".join(words)
        raise Refusal("start-failed", "%s: %s failed: %s" % (what, shown, done.said))


def ctl(words: Sequence[str], timeout_s: float = ANSWER_S) -> Done:
    """A user's own manager is asked by everybody but root."""
    return _tell(words, timeout_s, is_users=os.geteuid() != 0)


def ask_main(unit: str, uid: Optional[int]) -> Done:
    """The number of a unit's main process, as text, of the machine's manager or that user's own.

    That of another user answers nobody, and is not asked.
    """
    if uid not in (None, os.geteuid()):
        return Done(-1, "", "another user's manager does not answer us")
    words = ["show", "--property=MainPID", "--", unit]
    done = _tell(words, ANSWER_S, is_users=uid is not None)
    return done._replace(out=parse(done.out).get("MainPID", ""))


def _tell(words: Sequence[str], timeout_s: float, is_users: bool) -> Done:
    scope = ["--user"] if is_users else []
    return run(["systemctl", *scope, "--no-ask-password", *words], timeout_s)


def find_bus() -> Dict[str, str]:
    """Where a user's own manager listens, which `sudo -u`, `su` and some logins do not say."""
    folder = "/run/user/%d" % os.geteuid()
    known = "XDG_RUNTIME_DIR" in os.environ or not os.path.isdir(folder)
    return {} if known else {"XDG_RUNTIME_DIR": folder}


def run(command: Sequence[str], timeout_s: float) -> Done:
    """One program, bounded: code -1 where it did not start or not end in time."""
    try:
        done = subprocess.run(
            command,
            env=dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", **find_bus()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return Done(-1, "", "no answer within %g s" % timeout_s)
    except OSError as error:
        return Done(-1, "", "%s: %s" % (command[0], error.strerror))
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = said[-1] if said else "exit status %d" % done.returncode
    return Done(done.returncode, procfs.to_text(done.stdout), last)
