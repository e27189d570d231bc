"""Whether a script starts a command once, or again after its end, as far as its text tells."""

from __future__ import annotations

import itertools
import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import shell
from .shell import ANY, Node, Word

# They start nothing, whatever their arguments are; no alias and no function may have such a name.
_HARMLESS = frozenset(
    [
        *(":", "[", "((", "[[", "basename", "break", "cat", "cd", "chgrp", "chmod", "chown"),
        *("continue", "cp", "curl", "cut", "date", "declare", "df", "dirname", "disown"),
        *("du", "echo", "exit", "export", "false", "free", "grep", "head", "hostname", "id"),
        *("jobs", "kill", "let", "ln", "local", "logger", "ls", "mail", "mkdir", "mv"),
        *("nvidia-smi", "popd", "printf", "ps", "pushd", "pwd", "read", "readlink"),
        *("readonly", "realpath", "return", "rm", "rmdir", "set", "shift", "shopt", "sleep"),
        *("sort", "stat", "sync", "tail", "tee", "test", "touch", "tr", "trap", "true"),
        *("tty", "typeset", "ulimit", "umask", "uname", "unset", "uptime", "wait", "wc"),
        *("wget", "whoami"),
    ]
)
# What a script does after `&` while the command runs, until one of these.
_SLOW = frozenset(["cat", "curl", "mail", "read", "sleep", "sync", "tail", "tee", "wait", "wget"])
# What comes of them is not a server's end: whoever sends them means the script.
_FROM_OUTSIDE = frozenset(
    [
        *("ALRM", "CONT", "HUP", "INT", "PIPE", "QUIT", "TERM", "TSTP", "TTIN", "TTOU"),
        *("USR1", "USR2", "WINCH", "1", "2", "3", "10", "12", "13", "14", "15"),
    ]
)
# What they are given is run as if it stood in the script, loops and all.
_READ_MORE = ("eval", "source", ".", "repeat")
# They become the rest of their command line.
_BECOME = frozenset(
    [
        *("chrt", "command", "env", "exec", "ionice", "nice", "nohup", "numactl", "prlimit"),
        *("setarch", "setpriv", "setsid", "stdbuf", "taskset", "time"),
    ]
)


class Site(NamedTuple):
    """One command, and all that may run once it has ended.

    `loops` says that it is run again by a loop; `is_left` that the script goes on beside it.
    """

    node: Node
    after: Tuple[Node, ...] = ()
    loops: bool = False
    function: str = ""
    is_left: bool = False


def judge(text: str, argv: Sequence[str], is_alone: bool) -> Optional[str]:
    """`loop` or `unsure` where the command with this `argv` may be started again, else `None`.

    The script waits for that command now. `is_alone` says that it has no other children, so that
    it can end nobody else. `loop` is certain, and `unsure` is everything that we cannot follow.
    """
    try:
        return _Script(shell.parse(text), argv, is_alone).judge()
    except (shell.Unreadable, RecursionError):
        return "unsure"


class _Script:
    def __init__(self, root: Node, argv: Sequence[str], is_alone: bool) -> None:
        self._argv = argv
        self._alone = is_alone
        self._functions: Dict[str, Node] = {}
        self._asked: Set[str] = set()
        self._collect(root)
        self._sites = list(self._walk(root, ()))

    def judge(self) -> Optional[str]:
        waiting, less_sure = self._find_candidates()
        if waiting and less_sure and self._judge(less_sure) is not None:
            return self._judge(waiting) or "unsure"
        return self._judge(waiting)

    def _judge(self, candidates: Sequence[Site]) -> Optional[str]:
        waiting, seen = list(candidates), set()
        found = None if waiting and self._are_traps_harmless() else "unsure"
        while waiting:
            site = waiting.pop()
            if site.loops:
                return "loop"
            after = site.after
            if site.is_left:
                after = tuple(itertools.dropwhile(self._is_quick, after))
            if not self._is_followed(site.node) or not all(map(self._is_harmless, after)):
                found = "unsure"
            if site.function and site.function not in seen:
                seen.add(site.function)
                calls = [s for s in self._sites if _name(s.node) == site.function]
                found = found if calls else "unsure"
                # Who puts a function into the background leaves all of it there.
                waiting += [s._replace(is_left=s.is_left or site.is_left) for s in calls]
        return found

    def _find_candidates(self) -> Tuple[List[Site], List[Site]]:
        """The commands that may be the running one: those that are so most surely, and others."""
        sites = [site for site in self._sites if not self._is_harmless(site.node)]
        named = [site for site in sites if _fits(site.node.words, self._argv, is_named=True)]
        left_open = [site for site in sites if _fits(site.node.words, self._argv, is_named=False)]
        if not named:
            return left_open or sites, []
        direct = [site for site in named if _name(site.node) not in self._functions]
        # `again S`, where a function runs what it is given: its `"$@"` is the command then.
        inside = [s for s in left_open if s.function] if len(direct) < len(named) else []
        return direct + inside, left_open

    def _is_followed(self, node: Node) -> bool:
        """Whether a command is no more than what its words say."""
        name = _name(node)
        if name is None or name in _READ_MORE:
            return name is None
        if "/" in name or name in _BECOME or name in self._functions:
            return True
        # What was read in may have made a function of any other name.
        reads = any(_name(site.node) in _READ_MORE for site in self._sites)
        return not reads or name in {os.path.basename(word) for word in self._argv[:2]}

    def _collect(self, node: Node) -> None:
        if node.kind == "function":
            self._functions[node.words[0].text] = node.parts[0]
        for part in node.parts:
            self._collect(part)

    def _walk(self, node: Node, after: Tuple[Node, ...], function: str = "") -> Iterator[Site]:
        if node.kind == "run":
            bare = node._replace(inner=())
            for text in node.inner:
                yield from self._walk(_parse_inner(text), (bare, *after), function)
            yield Site(node, after, False, function)
        elif node.kind in ("seq", "chain"):
            for index, part in enumerate(node.parts):
                rest, is_last = _cut(node.parts[index + 1 :], node.kind == "seq")
                yield from self._walk(part, rest if is_last else rest + after, function)
        elif node.kind == "function":
            yield from self._walk(node.parts[0], (), node.words[0].text)
        elif node.kind == "sub":
            for site in self._walk(node.parts[0], (), function):
                yield site._replace(after=site.after + after)
        elif node.kind == "async":
            for site in self._walk(node.parts[0], after, function):
                yield site._replace(is_left=True)
        elif node.kind == "pipe":
            for part in node.parts:
                # What waits in a pipe for the command's output goes on after its end.
                rest = tuple(other for other in node.parts if other is not part)
                rest = tuple(other for other in rest if other.kind != "run")
                yield from self._walk(part, rest + after, function)
        else:  # any, loop, for
            again = node.kind in ("loop", "for")
            is_left_alone = node.kind == "for" and self._goes_through(node.parts[1])
            for part in node.parts:
                for site in self._walk(part, after, function):
                    loops = again and not (site.is_left and is_left_alone)
                    yield site._replace(loops=site.loops or loops)

    def _goes_through(self, body: Node) -> bool:
        """Whether a `for` only puts commands into the background and waits for none of them."""
        return body.kind == "seq" and all(self._is_quick(part) for part in body.parts)

    def _is_quick(self, node: Node) -> bool:
        if node.kind == "async":
            return True
        if node.kind == "run":
            return _name(node) not in _SLOW and self._is_harmless(node)
        return node.kind not in ("loop", "sub") and all(map(self._is_quick, node.parts))

    def _is_harmless(self, node: Node) -> bool:
        """Whether this starts no program that could be, or bring up, or hurt a server."""
        if node.kind == "function":
            return True  # until it is called
        if node.kind != "run":
            return all(self._is_harmless(part) for part in node.parts)
        if not all(self._is_harmless(_parse_inner(text)) for text in node.inner):
            return False
        name = _name(node)
        if name is None:
            return not node.words
        if name in self._functions:
            return self._is_call_harmless(name)
        if name == "kill" and [word.text for word in node.words[1:2]] != ["-0"]:
            return self._alone
        return name in _HARMLESS or (name == "exec" and len(node.words) == 1)

    def _is_call_harmless(self, name: str) -> bool:
        if name in self._asked:
            return False  # it calls itself
        self._asked.add(name)
        try:
            return self._is_harmless(self._functions[name])
        finally:
            self._asked.discard(name)

    def _are_traps_harmless(self) -> bool:
        for site in self._sites:
            words = [word.text for word in site.node.words if word.text != "--"]
            if words[:1] == ["alias"]:
                return False
            if words[:1] != ["trap"] or len(words) < 3 or words[1] in ("", "-"):
                continue
            names = {re.sub("^SIG", "", word.upper()) for word in words[2:]}
            if not names <= _FROM_OUTSIDE and not self._is_harmless(_parse_inner(words[1])):
                return False
        return True


def _parse_inner(text: str) -> Node:
    if text == ANY:
        return Node("run", (Word(ANY, False, (), False),))
    return shell.parse(text)


def _name(node: Node) -> Optional[str]:
    """The program that a simple command runs, `None` where there is none or nobody knows."""
    words = node.words
    while len(words) > 1 and words[0].text in ("command", "builtin"):
        words = words[1:]
    if not words or ANY in words[0].text:
        return None
    return words[0].text


def _cut(parts: Tuple[Node, ...], is_certain: bool) -> Tuple[Tuple[Node, ...], bool]:
    """What of these is reached, and whether the script ends there: `exit` and `exec` are last."""
    for index, part in enumerate(parts if is_certain else ()):
        ends = part.kind == "run" and _name(part)
        if ends == "exit" or (ends == "exec" and len(part.words) > 1):
            return parts[: index + 1], True
    return parts, False


def _fits(words: Tuple[Word, ...], argv: Sequence[str], is_named: bool) -> bool:
    """Whether these words can have become that command line.

    `env`, `nohup` and others become the rest of theirs, and a script's own line for the kernel
    puts its interpreter before its name. `is_named` asks for a program that the text names.
    """
    line = "".join("\n" + word for word in argv)
    for index, word in enumerate(words):
        if (ANY not in word.text) is not is_named or "=" in word.text:
            continue
        if index and not is_named and words[0].text not in _BECOME:
            continue
        pattern = _make_pattern(words[index:])
        if re.match(pattern + r"\Z", line):
            return True
        if index == 0 and is_named and re.search(pattern + r"\Z", line):
            return True
    return False


def _make_pattern(words: Sequence[Word]) -> str:
    pattern = ""
    for index, word in enumerate(words):
        if word.text == ANY:
            pattern += r"(?:\n[\s\S]*)?"
            continue
        text = r"[\s\S]*".join(re.escape(piece) for piece in word.text.split(ANY))
        folder = "(?:[^\n]*/)?" if index == 0 and "/" not in word.text else ""
        pattern += "\n" + folder + text
    return pattern
