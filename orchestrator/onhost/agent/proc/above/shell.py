"""The text of a shell script as a tree of commands; nothing is expanded and nothing is run."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Tuple, Union

from .shellwords import ANY, Unreadable, Word, split

__all__ = ["ANY", "Node", "Unreadable", "Word", "parse"]

_ASSIGNMENT = re.compile(r"\w+(\[[^]]*\])?\+?=")
_CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}", "in"])
_ENDS_CLAUSE = (";;", ";&", ";;&")


class Node(NamedTuple):
    """A command or several: `kind` says how `parts` follow each other.

    `run` is a simple command with its `words`, assignments left out, and `inner`, the texts of
    its command substitutions. `seq` is one after the other, `chain` the same where some may be
    skipped, `any` at most one of them, `pipe` all at once; `loop` a condition and a body, `for` a
    body for each of some words; `sub` a subshell, `async` what nobody waits for, `function` a
    body under the name in `words`.
    """

    kind: str
    words: Tuple[Word, ...] = ()
    parts: Tuple["Node", ...] = ()
    inner: Tuple[str, ...] = ()


def parse(text: str) -> Node:
    """Raises `Unreadable` where it is no script that we understand as a whole."""
    tokens, hidden = split(text)
    parser = _Parser(tokens)
    try:
        found = parser.sequence()
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    if parser.tokens:
        raise Unreadable("`%s` stands where no command begins" % parser.show())
    # `> >(COMMAND)` runs beside whatever it stands with.
    beside = tuple(Node("async", (), (parse(inner),)) for inner in hidden)
    return found._replace(parts=beside + found.parts)


class _Parser:
    def __init__(self, tokens: List[Union[str, Word]]) -> None:
        self.tokens = tokens[::-1]  # the next one is the last

    def show(self) -> str:
        token = self.tokens[-1] if self.tokens else "the end"
        return token.text if isinstance(token, Word) else token

    def at(self, *texts: str) -> bool:
        """Whether an operator or a bare word of these is next."""
        token = self.tokens[-1] if self.tokens else ""
        if isinstance(token, Word):
            return token.bare and token.text in texts
        return token in texts

    def take(self, *texts: str) -> None:
        if not self.at(*texts):
            raise Unreadable("`%s` where `%s` should be" % (self.show(), texts[0]))
        self.tokens.pop()

    def take_word(self) -> Word:
        token = self.tokens.pop() if self.tokens else ""
        if not isinstance(token, Word):
            raise Unreadable("a word is missing")
        return token

    def skip(self, *operators: str) -> None:
        while self.tokens and self.tokens[-1] in operators:
            self.tokens.pop()

    def sequence(self) -> Node:
        """All up to a word or an operator that closes what was opened before."""
        parts: List[Node] = []
        self.skip("\n")
        while self.tokens and not self.at(")", *_ENDS_CLAUSE, *_CLOSING):
            part = self._chain()
            if self.at("&"):
                self.tokens.pop()
                part = Node("async", (), (part,))
            elif self.at(";"):
                self.tokens.pop()
            elif self.tokens and not self.at("\n", ")", *_ENDS_CLAUSE, *_CLOSING):
                raise Unreadable("`%s` after a command" % self.show())
            parts.append(part)
            self.skip("\n")
        return Node("seq", (), tuple(parts))

    def _chain(self) -> Node:
        parts = [self._pipeline()]
        while self.at("&&", "||"):
            self.tokens.pop()
            self.skip("\n")
            parts.append(self._pipeline())
        return parts[0] if len(parts) == 1 else Node("chain", (), tuple(parts))

    def _pipeline(self) -> Node:
        while self.at("!"):
            self.tokens.pop()
        parts = [self._command()]
        while self.at("|", "|&"):
            self.tokens.pop()
            self.skip("\n")
            parts.append(self._command())
        return parts[0] if len(parts) == 1 else Node("pipe", (), tuple(parts))

    def _command(self) -> Node:
        known: Dict[str, Callable[[], Node]] = {
            "(": self._subshell,
            "{": self._braces,
            "if": self._if,
            "while": self._loop,
            "until": self._loop,
            "for": self._for,
            "select": self._for,
            "case": self._case,
            "function": self._function,
            "[[": self._test,
        }
        for text, read in known.items():
            if self.at(text):
                self.tokens.pop()
                return read()
        if self.at("coproc", *_CLOSING):
            raise Unreadable("`%s` where a command begins" % self.show())
        return self._simple()

    def _simple(self) -> Node:
        words = [self.take_word()]
        if self.at("("):
            self.tokens.pop()
            return self._define(words[0])
        while self.tokens and isinstance(self.tokens[-1], Word):
            words.append(self.take_word())
        inner = tuple(text for word in words for text in word.inner)
        while words and words[0].assigns and _ASSIGNMENT.match(words[0].text):
            words.pop(0)
        return Node("run", tuple(words), (), inner)

    def _define(self, name: Word) -> Node:
        self.take(")")
        self.skip("\n")
        return Node("function", (name,), (self._command(),))

    def _function(self) -> Node:
        name = self.take_word()
        if self.at("("):
            self.tokens.pop()
            return self._define(name)
        self.skip("\n")
        return Node("function", (name,), (self._command(),))

    def _subshell(self) -> Node:
        body = self.sequence()
        self.take(")")
        return Node("sub", (), (body,))

    def _braces(self) -> Node:
        body = self.sequence()
        self.take("}")
        return body

    def _if(self) -> Node:
        condition = self.sequence()
        self.take("then")
        body = self.sequence()
        other = Node("seq")
        if self.at("elif"):
            self.tokens.pop()
            return Node("seq", (), (condition, Node("any", (), (body, self._if()))))
        if self.at("else"):
            self.tokens.pop()
            other = self.sequence()
        self.take("fi")
        return Node("seq", (), (condition, Node("any", (), (body, other))))

    def _loop(self) -> Node:
        condition = self.sequence()
        return Node("loop", (), (condition, self._body()))

    def _body(self) -> Node:
        self.skip("\n", ";")
        close = "}" if self.at("{") else "done"
        self.take("do", "{")
        body = self.sequence()
        self.take(close)
        return body

    def _for(self) -> Node:
        name = self.take_word()
        self.skip("\n")
        inner: Tuple[str, ...] = ()
        if self.at("in"):
            self.tokens.pop()
            while self.tokens and isinstance(self.tokens[-1], Word):
                inner += self.take_word().inner
        kind = "loop" if name.text == "((" else "for"
        return Node(kind, (), (Node("run", (), (), inner), self._body()))

    def _case(self) -> Node:
        self.take_word()
        self.skip("\n")
        self.take("in")
        self.skip("\n")
        bodies: List[Node] = []
        falls = False
        while not self.at("esac"):
            while not self.at(")"):
                if not self.tokens or not (self.at("(", "|") or isinstance(self.tokens[-1], Word)):
                    raise Unreadable("`%s` in a pattern" % self.show())
                self.tokens.pop()
            self.tokens.pop()
            bodies.append(self.sequence())
            falls = falls or self.at(";&", ";;&")
            self.skip(*_ENDS_CLAUSE, "\n")
        self.tokens.pop()
        return Node("chain" if falls else "any", (), tuple(bodies))

    def _test(self) -> Node:
        inner: Tuple[str, ...] = ()
        while not self.at("]]"):
            if not self.tokens:
                raise Unreadable("`[[` without an end")
            token = self.tokens.pop()
            inner += token.inner if isinstance(token, Word) else ()
        self.tokens.pop()
        return Node("run", (Word("[[", True, (), False),), (), inner)
