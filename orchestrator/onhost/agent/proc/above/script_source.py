"""Where a shell has its commands from: a file, its command line, its input, or a person."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .. import procfs

LIMIT_BYTES = 64 << 10
_WITH_VALUE = ("--rcfile", "--init-file")
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


class Source(NamedTuple):
    """`kind` is `file`, `code` (`-c`), `input` or `typed`; `text` is `None` where none is read.

    `name` is how it is called: the script's path as it was given, `-c`, `< run.sh`, or nothing.
    """

    kind: str
    name: str
    text: Optional[str]


def find(pid: int, argv: Sequence[str]) -> Source:
    """What the shell with this command line runs."""
    flags, rest = _parse(argv)
    if "c" in flags:
        return Source("code", "-c", rest[0] if rest else None)
    if rest and "s" not in flags:
        return Source("file", rest[0], _read_file(pid, rest[0]))
    number, target = _find_input(pid)
    # Of somebody else's shell nobody can tell; then the server is not ours to read either.
    if "i" in flags or target is None or target.startswith(_TERMINALS):
        return Source("typed", "", None)
    if target.startswith("/"):
        name = "< %s" % os.path.basename(_strip(target))
        return Source("input", name, _read("/proc/%d/fd/%d" % (pid, number)))
    return Source("input", "", None)


def _find_input(pid: int) -> Tuple[int, Optional[str]]:
    """The descriptor that a shell reads its commands from, and where that leads to.

    While it waits for a command whose input is another, dash has its own kept above 9.
    """
    target = procfs.read_link("/proc/%d/fd/0" % pid)
    if target == os.devnull:
        for number in _list_descriptors(pid):
            kept = procfs.read_link("/proc/%d/fd/%d" % (pid, number)) or ""
            if number > 9 and kept != target and kept.startswith("/"):
                return number, kept
    return 0, target


def _list_descriptors(pid: int) -> List[int]:
    try:
        return sorted(map(int, os.listdir("/proc/%d/fd" % pid)))
    except OSError:
        return []


def _parse(argv: Sequence[str]) -> Tuple[str, List[str]]:
    """The letters of a shell's own options, and the words that follow them."""
    flags, words = "", list(argv[1:])
    while words and words[0][:1] in "-+" and len(words[0]) > 1:
        word = words.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            if word in _WITH_VALUE and words:
                words.pop(0)
            continue
        flags += word[1:] if word[0] == "-" else ""
        for _ in range(word.count("o") + word.count("O")):
            words[:1] = []
    return flags, words[1:] if words[:1] == ["-"] else words


def _read_file(pid: int, script: str) -> Optional[str]:
    """The file that the shell has open, whatever has taken its name since."""
    folder = "/proc/%d/fd" % pid
    for number in reversed(_list_descriptors(pid)):
        target = procfs.read_link("%s/%d" % (folder, number)) or ""
        if number > 2 and os.path.basename(_strip(target)) == os.path.basename(script):
            return _read("%s/%d" % (folder, number))
    cwd = procfs.read_link("/proc/%d/cwd" % pid) or "/"
    return _read(os.path.join(cwd, script))


def _strip(target: str) -> str:
    return target[: -len(" (deleted)")] if target.endswith(" (deleted)") else target


def _read(path: str) -> Optional[str]:
    if not os.path.isfile(path):  # a pipe would keep us waiting
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError:
        return None
    return data.decode("utf-8", "surrogateescape") if len(data) <= LIMIT_BYTES else None
