"""Reading a server's command line: which program it runs, and which file a first word means."""

from __future__ import annotations

import os
import re
from typing import List, Mapping, NamedTuple, Optional, Sequence

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*[a-z]?$")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# What the server's interpreter was told and the locator must be told as well; -u, -v and -i
# change what it prints, not what it imports.
_KEPT = re.compile(r"-[bBEIOPsS]+$")
DEFAULT_PATH = "/bin:/usr/bin"


class Program(NamedTuple):
    """What a Python command line runs: `kind` is `module`, `script` or `code`."""

    kind: str
    name: str
    args: List[str]
    options: List[str]


def is_interpreter(path: str) -> bool:
    """Whether a file of this name is a Python."""
    return _INTERPRETER.match(os.path.basename(path)) is not None


def parse_program(argv: Sequence[str]) -> Optional[Program]:
    """The program behind the interpreter's own options; `None` where there is none."""
    options: List[str] = []
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word in _WITH_VALUE:
            options += [word, words.pop(0)] if words else []
        elif word.startswith(("-m", "-c")):
            name = word[2:] or (words.pop(0) if words else "")
            return Program("module" if word[1] == "m" else "code", name, words, options)
        elif word.startswith(("-X", "-W")) or _KEPT.match(word):
            options.append(word)
        elif re.match(r"-[A-Za-z]*[mc]$", word) and words:  # `-um module`
            kind = "module" if word.endswith("m") else "code"
            return Program(kind, words[0], words[1:], options)
        elif not word.startswith("-"):
            return Program("script", word, words, options)
    return None


def name_program(argv: Sequence[str]) -> str:
    """What a command line runs, without its arguments: `python -m sglang.launch_server`."""
    name = os.path.basename(argv[0]) or argv[0]
    if len(argv) == 1 or not is_interpreter(argv[0]):
        return argv[0] if len(argv) == 1 else name
    program = parse_program(argv)
    if program is None:
        return name
    if program.kind == "script":
        return "%s %s" % (name, program.name)
    return "%s -c" % name if program.kind == "code" else "%s -m %s" % (name, program.name)


def is_main(argv: Sequence[str], executable: str, cwd: str, package: str) -> bool:
    """Whether this command line is the main process of a server of `package`.

    Only a Python that runs the server itself counts: shells and launchers that wait for it hold
    the same words in their own command line.
    """
    return find_package(argv, executable, cwd) == package


def find_package(argv: Sequence[str], executable: str, cwd: str) -> Optional[str]:
    """The package of whose server this command line is the main process; `None` of all others."""
    if not argv or not (is_interpreter(argv[0]) or is_interpreter(executable)):
        return None
    program = parse_program(argv)
    if program is None or program.kind == "code":
        return None
    serves = program.args[:1] == ["serve"]
    if program.kind == "module":
        module = re.match(r"(\w+)(\.launch_server|(?:\.cli(?:\.main)?)?)$", program.name)
        if module is None or not (serves or module.group(2) == ".launch_server"):
            return None
        return module.group(1)
    folder, name = os.path.split(os.path.normpath(os.path.join(cwd, program.name)))
    if name == "launch_server.py":
        return os.path.basename(folder) or None
    return name if serves else None


def find_executable(word: str, environ: Mapping[str, str], cwd: str) -> Optional[str]:
    """The file that `exec` would run for this first word, or `None`; links are not followed."""
    if "/" in word:
        candidates = [word]
    else:
        folders = environ.get("PATH", DEFAULT_PATH).split(":")
        candidates = [os.path.join(folder, word) for folder in folders]
    for candidate in candidates:
        path = os.path.join(cwd, candidate)
        if ".." not in path.split("/"):  # `link/..` is not what it looks like
            path = os.path.normpath(path)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def find_value(argv: Sequence[str], flag: str) -> Optional[str]:
    """The value of `--flag value` or `--flag=value`; the last one counts, as in argparse."""
    found = None
    for index, word in enumerate(argv):
        if word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
        elif word == flag and index + 1 < len(argv):
            found = argv[index + 1]
    return found
