"""What a program does once the command that it waits for has ended, as far as its name tells."""

from __future__ import annotations

import os
import re
from typing import FrozenSet, List, NamedTuple, Optional, Sequence

from .. import commandline, procfs

# They start again what ends; nothing else is known to be their purpose.
SUPERVISORS = frozenset(
    [
        *("circusd", "monit", "runsv", "s6-supervise", "slurmstepd", "supervise"),
        "supervisord",
    ]
)
# They hold people's sessions and take in orphans; what runs below them is nobody's child.
_HOLDERS = frozenset(
    [
        *("abduco", "agetty", "atd", "dropbear", "dtach", "init", "login", "mosh-server"),
        *("screen", "sshd", "sshd-session", "systemd", "zellij"),
    ]
)
_HOLDERS_BEGIN = ("tmux: ",)
SHELLS = frozenset(["ash", "bash", "dash", "ksh", "mksh", "rbash", "sh", "zsh"])
# They are people's as well; what they are given as a script we cannot read.
_OTHER_SHELLS = frozenset(["csh", "elvish", "fish", "nu", "tcsh", "xonsh"])
# First processes of containers: they wait for the one command that they were given.
INITS = frozenset(["catatonit", "docker-init", "dumb-init", "s6-init", "tini", "tini-static"])
# They run one command and end with it. A program that ends others with it (torchrun the other
# ranks) counts only while it has no others.
_ONCE = INITS | frozenset(
    [
        *("accelerate", "catchsegv", "conda", "doas", "flock", "ltrace", "mamba"),
        *("micromamba", "mpiexec", "mpirun", "ncu", "nsenter", "nsys", "orterun", "perf"),
        *("pipenv", "poetry", "prterun", "py-spy", "runuser", "rye", "script", "setsid"),
        *("strace", "su", "sudo", "systemd-inhibit", "time", "timeout", "torchrun"),
        *("unbuffer", "unshare", "uv", "uvx"),
    ]
)
_MODULES = {
    "accelerate.commands.launch": "accelerate",
    "conda.cli.main": "conda",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.run": "torchrun",
}
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|nodejs|tclsh|expect|wish)[\d.]*[a-z]?$")
# With these words they run it several times: in repetition, or once for each measurement.
_AGAIN = {"perf": ("-r", "--repeat"), "ncu": ("application", "app-range")}
# How the agent and the guard are started: `agent/bootstrap.py`, `session/guard.py`.
_AGENT = "import base64,sys;exec(base64.b64decode(sys.argv[1]))"
_GUARD = re.compile(r"^import sys; .*\.guard import main; main\(sys\.argv\[1\]\)$")


class Program(NamedTuple):
    """A running program: its command line, and the names that it goes by."""

    argv: List[str]
    names: FrozenSet[str]

    @property
    def is_shell(self) -> bool:
        """Whether it is a shell whose scripts we can read."""
        return is_shell(self.argv)

    @property
    def is_other_shell(self) -> bool:
        return bool(self.names & _OTHER_SHELLS)

    @property
    def is_holder(self) -> bool:
        """Whether it holds sessions, or is an agent or a guard of ours."""
        return (
            bool(self.names & _HOLDERS)
            or any(name.startswith(_HOLDERS_BEGIN) for name in self.names)
            or any(word == _AGENT or _GUARD.match(word) for word in self.argv[1:5])
        )

    def find_supervisor(self) -> Optional[str]:
        """The name that it has as a supervisor, where it is one."""
        return next(iter(sorted(self.names & SUPERVISORS)), None)


def is_shell(argv: Sequence[str]) -> bool:
    """Whether this command line runs a shell whose scripts we can read."""
    return bool(argv) and _base(argv[0]) in SHELLS


def read(stat: procfs.Stat) -> Program:
    """The program that a process runs now."""
    argv = procfs.parse_strings(procfs.read_cmdline(stat.pid))
    names = {stat.comm}
    if argv:
        names |= {_base(argv[0])} | _find_script_names(argv)
    return Program(argv, frozenset(names))


def ends_with_it(program: Program, is_alone: bool) -> bool:
    """Whether this program waits for one command and ends once that has ended.

    `is_alone` says that it has no other children.
    """
    known = program.names & _ONCE
    if not known or not is_alone:
        return False
    for name in known:
        again = _AGAIN.get(name, ())
        if any(word in again or word.partition("=")[2] in again for word in program.argv[1:]):
            return False
    for flag in ("--max-restarts", "--max_restarts"):
        if commandline.find_value(program.argv, flag) not in (None, "0"):
            return False
    return True


def _find_script_names(argv: Sequence[str]) -> FrozenSet[str]:
    """The name of what an interpreter runs: `uv` of `python /usr/bin/uv run`."""
    if commandline.is_interpreter(argv[0]):
        program = commandline.parse_program(argv)
        if program is None or program.kind == "code":
            return frozenset()
        if program.kind == "module":
            last = program.name.rpartition(".")[2]
            return frozenset([_MODULES.get(program.name, last)])
        return frozenset([os.path.basename(program.name)])
    if _INTERPRETER.match(_base(argv[0])):
        script = next((word for word in argv[1:] if not word.startswith("-")), "")
        return frozenset([os.path.basename(script)])
    return frozenset()


def _base(word: str) -> str:
    return os.path.basename(word).lstrip("-")
