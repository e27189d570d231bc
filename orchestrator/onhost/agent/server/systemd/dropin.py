"""The drop-in by which a unit lives its debug life; it lies below `/run`, so no reboot keeps it."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Mapping, Optional, Sequence

from ...proc import procfs
from ...proc.above import systemctl
from ...refusal import Refusal

# Drop-ins are read in the order of their names, whatever directory they lie in; later ones win.
_NAME = "zz-sgldbg.conf"
_RUNTIME = re.compile(r"/run/(?:user/\d+/)?systemd/(?:system|user)$")


def make(
    python: str,
    words: Sequence[str],
    cwd: str,
    environment_file: str,
    unset: Sequence[str],
    outputs: Sequence[str],
    shown: Optional[str] = None,
) -> str:
    """The text that makes a unit run this command line in these surroundings.

    What would start it again or end it by itself is off: a debug life that dies is to be seen.
    `shown` is a folder that it sees though its `/tmp` is its own and other folders are read-only.
    """
    command = ['"@%s"' % _quote(python, variables=False)] + ['"%s"' % _quote(w) for w in words]
    lines = [
        "# Written by sgldbg for the time of one session; it goes away with it, or at a reboot.",
        "[Service]",
        "ExecStart=",
        "ExecStart=%s" % " ".join(command),
        "Type=simple",
        "PIDFile=",
        "Restart=no",
        "WatchdogSec=0",
        "RuntimeMaxSec=infinity",
        "TimeoutStartSec=infinity",
        "WorkingDirectory=%s" % cwd.replace("%", "%%"),
        "Environment=",
        "PassEnvironment=",
        "EnvironmentFile=",
        "EnvironmentFile=%s" % environment_file.replace("%", "%%"),
        *["UnsetEnvironment=%s" % name for name in unset],
        "StandardOutput=append:%s" % outputs[0].replace("%", "%%"),
        "StandardError=append:%s" % outputs[1].replace("%", "%%"),
        *(['BindPaths="%s"' % shown.replace("%", "%%")] if shown else []),
    ]
    return "\n".join(lines) + "\n"


def make_environment_file(environ: Mapping[str, str]) -> str:
    """These variables as systemd.exec(5) reads them from an `EnvironmentFile=`."""
    lines = []
    for name in sorted(environ):
        value = re.sub(r'(["\\`$])', r"\\\1", environ[name])
        lines.append('%s="%s"\n' % (name, value))
    return "".join(lines)


def _quote(word: str, variables: bool = True) -> str:
    """A word of `ExecStart=` between double quotes: escapes as in C, specifiers, variables."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if variables:
        text = text.replace("$", "$$")
    return "".join(c if c >= " " else "\\x%02x" % ord(c) for c in text)


def place(unit: str, text: str) -> None:
    """Make it the unit's last word; raises `Refusal`."""
    folder = _find_folder(unit)
    os.makedirs(folder, 0o755, exist_ok=True)
    write(os.path.join(folder, _NAME), text, 0o644)
    systemctl.must(["daemon-reload"], "the server was not started")


def _find_folder(unit: str) -> str:
    said = systemctl.answered(systemctl.ctl(["show", "--property=UnitPath"]))
    paths = said.strip().partition("=")[2].split()
    runtime = next((path for path in paths if _RUNTIME.search(path)), None)
    if runtime is None:
        raise Refusal("no-systemd", "systemd reads no units from a directory below /run")
    return os.path.join(runtime, unit + ".d")


def remove(unit: str) -> None:
    """Take it away where it is; raises `Refusal` where systemd still has it, `OSError`."""
    folder = _find_folder(unit)
    try:
        os.unlink(os.path.join(folder, _NAME))
    except FileNotFoundError:
        return
    with contextlib.suppress(OSError):  # others' drop-ins may lie there
        os.rmdir(folder)
    systemctl.must(["daemon-reload"], "the unit `%s` still has the debug life" % unit)


def write(path: str, text: str, mode: int) -> None:
    """By rename, so that systemd never reads half of it."""
    new = path + ".new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(procfs.to_bytes(text))
    os.rename(new, path)
