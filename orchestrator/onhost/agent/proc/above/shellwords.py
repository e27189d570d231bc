"""The words and operators of a shell script, with what only the shell knows left open."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Tuple, Union

# Stands in a word for what an expansion puts there: nothing, something, or several words.
ANY = "\0"

_META = " \t\r\n;&|()<>"
_OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", "&", "|", ";", "(", ")")
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|&>>?")
_NAME = re.compile(r"\w+|[@*#?$!-]")
_ARRAY = re.compile(r"\w+\+?=$")
# Globs, braces and the home directory; alone these are words like others.
_OPEN = "*?[{~"
_ALONE = ("{", "}", "[", "[[", "]]", "!")


class Unreadable(Exception):
    """A text that is no script, or one whose meaning we would have to guess."""


class Word(NamedTuple):
    """`bare` words hold no quotes and may be keywords; `inner` are commands in `$(...)`.

    `assigns` says that it may begin with an assignment: its name is not quoted.
    """

    text: str
    bare: bool
    inner: Tuple[str, ...]
    assigns: bool


def split(text: str) -> Tuple[List[Union[str, Word]], List[str]]:
    """The words and operators (a line's end is `\\n`), redirections left out.

    The second are commands that redirections lead to or from: `> >(tee log)`.
    """
    scanner = _Scanner(text)
    scanner.run()
    return scanner.tokens, scanner.hidden


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.tokens: List[Union[str, Word]] = []
        self.hidden: List[str] = []
        self._documents: List[Tuple[str, bool]] = []

    def run(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                self.at = self._find("\n", self.at, len(self.text))
            elif char == "\n":
                self.at += 1
                self._skip_documents()
                self.tokens.append("\n")
            else:
                self._read()

    def _read(self) -> None:
        redirection = _REDIRECTION.match(self.text, self.at)
        if self.text[self.at : self.at + 2] in ("<(", ">("):
            self.tokens.append(self._word())
        elif redirection:
            self._redirect(redirection.group())
        elif self.text.startswith("((", self.at) and self._is_arithmetic():
            end = self._match(self.at, "(", ")")
            inner = self._find_inner(self.text[self.at : end])
            self.tokens.append(Word("((", True, inner, False))
            self.at = end
        elif self.text[self.at] in _META:
            operator = next(o for o in _OPERATORS if self.text.startswith(o, self.at))
            self.at += len(operator)
            self.tokens.append(operator)
        else:
            self.tokens.append(self._word())

    def _redirect(self, operator: str) -> None:
        self.at += len(operator)
        blank = re.compile(r"(?:[ \t]|\\\n)*").match(self.text, self.at)
        self.at = blank.end() if blank else self.at
        start = self.at
        target = self._word()
        if start == self.at:
            raise Unreadable("a redirection leads nowhere")
        self.hidden += target.inner
        if operator.endswith(("<<", "<<-")) and "<<<" not in operator:
            name = re.sub(r"[\"'\\]", "", self.text[start : self.at])
            self._documents.append((name, operator.endswith("-")))

    def _skip_documents(self) -> None:
        for name, is_indented in self._documents:
            while True:
                if self.at >= len(self.text):
                    raise Unreadable("`<<%s` without an end" % name)
                end = self._find("\n", self.at, len(self.text))
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if is_indented else line) == name:
                    break
        self._documents = []

    def _word(self) -> Word:
        start = self.at
        self._parts: List[str] = []
        self._inner: List[str] = []
        bare = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "'\"" or (char == "\\" and not self.text.startswith("\\\n", self.at)):
                bare = False
            if not self._read_part(char, start):
                break
        raw = self.text[start : self.at]
        text = raw if raw in _ALONE else "".join(self._parts)
        assigns = re.match(r"\w+(\[[^]]*\])?\+?=", raw) is not None
        return Word(text, bare, tuple(self._inner), assigns)

    def _read_part(self, char: str, start: int) -> bool:
        """Read what stands next of a word; false where the word is over."""
        following = self.text[self.at + 1 : self.at + 2]
        if char in "<>" and following == "(":
            self._substitute(self.at + 1)
        elif char == "(" and self._goes_on(start):
            end = self._match(self.at, "(", ")")
            self._take(self._find_inner(self.text[self.at : end]), end)
        elif char in _META:
            return False
        elif char == "'":
            end = self._find("'", self.at + 1)
            self._parts.append(self.text[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self._quoted()
        elif char == "\\":
            self._parts.append(following.replace("\n", ""))
            self.at += 2
        elif char in "$`":
            self._expand()
        else:
            self._parts.append(ANY if char in _OPEN else char)
            self.at += 1
        return True

    def _goes_on(self, start: int) -> bool:
        """Whether a parenthesis belongs to the word: an array's elements, an extended glob."""
        raw = self.text[start : self.at]
        return bool(raw) and (_ARRAY.match(raw) is not None or raw[-1] in "@?*+!")

    def _quoted(self) -> None:
        self.at += 1
        while True:
            char = self.text[self.at : self.at + 1]
            if char == "":
                raise Unreadable("a quote without an end")
            if char == '"':
                self.at += 1
                return
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                plain = escaped if escaped in '$`"\\' else "\\" + escaped
                self._parts.append("" if escaped == "\n" else plain)
                self.at += 2
            elif char in "$`":
                self._expand()
            else:
                self._parts.append(char)
                self.at += 1

    def _expand(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if self.text[self.at] == "`":
            end = self._find("`", self.at + 1)
            self._take((self.text[self.at + 1 : end],), end + 1)
        elif self.text.startswith("$((", self.at):
            end = self._match(self.at + 1, "(", ")")
            self._take(self._find_inner(self.text[self.at + 2 : end]), end)
        elif following == "(":
            self._substitute(self.at + 1)
        elif following == "{":
            end = self._match(self.at + 1, "{", "}")
            self._take(self._find_inner(self.text[self.at + 2 : end]), end)
        elif following == "'":
            self._take((), self._end_of_quote(self.at + 1))
        elif following == '"':
            self.at += 1
        else:
            name = _NAME.match(self.text, self.at + 1)
            if name is None:
                self._parts.append("$")
                self.at += 1
            else:
                self._take((), name.end())

    def _substitute(self, at: int) -> None:
        end = self._match(at, "(", ")")
        self._take((self.text[at + 1 : end - 1],), end)

    def _take(self, inner: Tuple[str, ...], end: int) -> None:
        self._parts.append(ANY)
        self._inner += inner
        self.at = end

    def _find_inner(self, text: str) -> Tuple[str, ...]:
        """A command that nobody looks for in there is one that nobody knows."""
        return (ANY,) if "$(" in text.replace("$((", "") or "`" in text else ()

    def _is_arithmetic(self) -> bool:
        end = self._match(self.at, "(", ")")
        return self.text[end - 2 : end] == "))"

    def _match(self, at: int, opening: str, closing: str) -> int:
        """Behind what closes the parenthesis or brace at this place."""
        depth = 0
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "#" and opening == "(" and self.text[at - 1] in " \t\n(":
                at = self._find("\n", at)
            elif char in "'\"":
                at = self._end_of_quote(at) - 1
            elif char in (opening, closing):
                depth += 1 if char == opening else -1
                if depth == 0:
                    return at + 1
            at += 1
        raise Unreadable("`%s` without an end" % opening)

    def _end_of_quote(self, at: int) -> int:
        """Behind the quote that closes the one at this place; `$'` knows escapes as `"` does."""
        quote = self.text[at]
        if quote == "'" and self.text[at - 1 : at] != "$":
            return self._find("'", at + 1) + 1
        at += 1
        while at < len(self.text):
            if self.text[at] == quote:
                return at + 1
            if quote == '"' and self.text.startswith("$(", at):
                at = self._match(at + 1, "(", ")")
                continue
            at += 2 if self.text[at] == "\\" else 1
        raise Unreadable("a quote without an end")

    def _find(self, what: str, at: int, otherwise: int = -1) -> int:
        found = self.text.find(what, at)
        if found < 0 and otherwise < 0:
            raise Unreadable("`%s` without an end" % what)
        return found if found >= 0 else otherwise
