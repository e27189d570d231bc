"""What a server was told by its command line, and by the file that `--config` names."""

from __future__ import annotations

import os
import stat as stat_module
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import commandline, flatfile, procfs

# By what they stand for: the options of all releases. argparse takes abbreviations of them, too.
_OPTIONS = {
    "model": ("--model-path", "--model"),
    "host": ("--host",),
    "port": ("--port",),
    "tp": ("--tp-size", "--tensor-parallel-size", "--tp"),
    "pp": ("--pp-size", "--pipeline-parallel-size", "--pp"),
    "dp": ("--dp-size", "--data-parallel-size", "--dp"),
    "ep": ("--ep-size", "--expert-parallel-size", "--ep"),
    "nnodes": ("--nnodes",),
    "meeting": ("--dist-init-addr", "--nccl-init-addr"),
    "node_rank": ("--node-rank",),
    "role": ("--disaggregation-mode",),
    "skip_warmup": ("--skip-server-warmup",),
}
# These take no value.
_SWITCHES = ("skip_warmup",)
_CONFIG = "--config"
_NUMBERS = ("port", "tp", "pp", "dp", "ep", "nnodes", "node_rank")
_SIZE_LIMIT = 1 << 20
# A script may write the file and then become the server, which has its number from before; the
# server reads it after its imports, which take as long.
_WRITTEN_BEFORE_S = 10.0
# `sglang.launch_server` listens there when it is not told.
DEFAULT_HOST = "127.0.0.1"

Pair = Tuple[str, Optional[str]]


class Given(NamedTuple):
    """What each option is, by the names above; an option that was not given is in neither.

    `unknown` are those that the file may have given, and `why` says why nobody can tell.
    """

    values: Dict[str, str]
    unknown: List[str]
    why: str


def find_given(argv: Sequence[str], cwd: str, pid: Optional[int] = None) -> Given:
    """The options of a command line and of its file, the command line's first.

    Without a command line nothing is known, as of a process that wrote a title over its own.
    `pid` is the process that has read the file: one that was changed since is not taken at its
    word, nor is one of another file system than ours.
    """
    if not argv:
        return Given({}, sorted(_OPTIONS), "")
    words = _find_words(argv)
    pairs, why = _read_config(words, cwd, pid)
    given: Dict[str, Optional[str]] = dict.fromkeys(_OPTIONS) if pairs is None else {}
    given.update(pairs or [])
    given.update(_parse_words(words))
    unknown = sorted(name for name, value in given.items() if value is None)
    return Given({n: v for n, v in given.items() if v is not None}, unknown, why if unknown else "")


def find_words(words: Sequence[str]) -> Dict[str, str]:
    """The options among any words, such as those of a start command; the last one counts."""
    return dict(_parse_words(words))


def find_host(given: Mapping[str, Any]) -> Optional[str]:
    """The address that a server with these options binds; `None` where nobody can tell."""
    if "host" in given["unknown"]:
        return None
    host: str = given["values"].get("host", DEFAULT_HOST)
    return host


def _find_words(argv: Sequence[str]) -> List[str]:
    """The program's own arguments; `serve` takes a model without a flag."""
    program = commandline.parse_program(argv)
    words = list(program.args if program is not None else argv)
    if words[:1] == ["serve"]:
        words = words[1:]
        if words and not words[0].startswith("-"):
            words.insert(0, "--model-path")
    return words


def _parse_words(words: Sequence[str]) -> List[Tuple[str, str]]:
    found = []
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        name = _name_option(flag)
        if name in _SWITCHES:
            found.append((name, "true"))
        elif name is not None and not equals and index + 1 < len(words):
            found.append((name, words[index + 1]))
        elif name is not None and equals:
            found.append((name, value))
    return found


def _name_option(flag: str) -> Optional[str]:
    """What a flag stands for. Of a server that runs, argparse has found no abbreviation unclear."""
    if not flag.startswith("--") or len(flag) < 3:
        return None
    exact = [name for name, options in _OPTIONS.items() if flag in options]
    if exact:
        return exact[0]
    meant = [name for name, options in _OPTIONS.items() for o in options if o.startswith(flag)]
    return meant[0] if len(meant) == 1 else None


def _read_config(
    words: Sequence[str], cwd: str, pid: Optional[int]
) -> Tuple[Optional[List[Pair]], str]:
    """What the file says, a value of `None` where it is not plain, and what cannot be told.

    `None` where the whole file tells nothing. SGLang reads that of the exact word `--config`, and
    of one alone.
    """
    if list(words).count(_CONFIG) != 1 or words[-1] == _CONFIG:
        return [], ""
    path = os.path.join(cwd, words[list(words).index(_CONFIG) + 1])
    try:
        rows = flatfile.parse(_read_text(path, pid))
    except OSError as error:
        return None, "`%s` cannot be read: %s" % (path, error.strerror)
    except UnicodeDecodeError:
        return None, "`%s` is not text" % path
    except ValueError as error:
        return None, "`%s` %s" % (path, error)
    named = [(_name_option("--" + key), value) for key, value in rows.items()]
    pairs = [(name, _require_number(name, value)) for name, value in named if name is not None]
    return pairs, "`%s` does not say it in a plain way" % path


def _require_number(name: str, value: Optional[str]) -> Optional[str]:
    plain = value is not None and value.isascii() and value.isdigit()
    return value if plain or name not in _NUMBERS else None


def _read_text(path: str, pid: Optional[int]) -> str:
    """The file as that process has read it; raises `ValueError` that says why it may differ."""
    namespaces = [procfs.read_link("/proc/%s/ns/mnt" % one) for one in (pid or "self", "self")]
    if None not in namespaces and namespaces[0] != namespaces[1]:
        raise ValueError("is a file of the server's own container or unit")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        stat = os.fstat(fd)
        if not stat_module.S_ISREG(stat.st_mode) or stat.st_size > _SIZE_LIMIT:
            raise ValueError("is no file of options")
        if pid is not None and stat.st_ctime > _read_start(pid) + _WRITTEN_BEFORE_S:
            raise ValueError("was changed since the server read it")
        return file.read().decode("utf-8-sig")


def _read_start(pid: int) -> float:
    """When a process was started, by the clock of files."""
    stat = procfs.read_stat(pid)
    if stat is None:
        return 0.0
    age_s = (procfs.read_clock() - stat.start_time) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s
