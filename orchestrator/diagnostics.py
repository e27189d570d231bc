"""Turns the data of errors into text for people: what, where, the line, what to do."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from orchestrator.errors import (
    FileErrors,
    FleetError,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
)
from orchestrator.model.outcome import Outcome
from orchestrator.model.source import Span

MAX_SHOWN_LINES = 4
MAX_LINE = 160  # a longer line is cut around the place; terminals wrap it and carets get lost

_STATES = {
    "untouched": "nothing was written",
    "staged": "files are staged, none is in place",
    "patched": "files are still patched",
    "reverted": "files are as they were",
    "let go": "files are as they were, but for what somebody else changed",
    "drifted": "files were changed by somebody else",
    "unknown": "state of the files is unknown",
}
_SERVERS = {
    "untouched": "server was not touched",
    "stopping": "server still runs, and was about to be stopped",
    "stopped": "server is stopped",
    "debug life": "the patched server still runs",
    "restored": "server is as it was",
    "differs": "server runs again, but differs",
    "left stopped": "server was left stopped",
    "not back": "server is not back",
    "unknown": "state of the server is unknown",
}
# Escape sequences and other control characters of hosts and files must not reach a terminal, and
# characters that turn the direction of writing must not make a line look like another one.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def render(error: OrchestratorError) -> str:
    """The whole text of an error, with no escape sequences and no newline at the end."""
    return make_visible("\n".join(_render(error)))


def make_visible(text: str) -> str:
    """The text with control characters but newline written as `\\x1b` or `\\u202e`."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match.group())
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _CONTROL.sub(escape, text.expandtabs(4))


def one_line(text: str) -> str:
    """As `make_visible`, of what is one line: a file's name may hold newlines and tabs as well."""
    return make_visible(text.replace("\n", "\\n").replace("\t", "\\t"))


def render_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """One line per distinct outcome: `gpu[01-07]: files are as they were, server is as it was`."""
    hosts: dict[str, list[str]] = {}
    for outcome in outcomes:
        text = outcome_text(outcome)
        text = f"{text}; {one_line(outcome.message)}" if outcome.message else text
        hosts.setdefault(text, []).append(outcome.host)
    return [f"{fold_hosts(names)}: {text}" for text, names in hosts.items()]


def outcome_text(outcome: Outcome) -> str:
    """What state a host's files and server are in: the same words wherever it is said."""
    return f"{_STATES[outcome.state]}, {_SERVERS[outcome.server]}"


def fold_hosts(names: Iterable[str]) -> str:
    """Host names in short: `gpu[01-03,07], login`; each once, by name, numbers by value."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    plain: set[str] = set()
    for name in names:
        match = re.fullmatch(r"(.*?)([0-9]{1,9})([^0-9]*)", name)
        if match is None:
            plain.add(name)
        else:
            prefix, digits, suffix = match.groups()
            found.setdefault((prefix, suffix), {})[digits] = int(digits)
    texts = {name: name for name in plain}
    for (prefix, suffix), numbers in found.items():
        for width, digits in _by_width(numbers).items():
            ranges = _ranges(sorted(numbers[d] for d in digits), width)
            inner = ",".join(ranges)
            inner = f"[{inner}]" if len(digits) > 1 else inner
            texts[f"{prefix}{width}{suffix}"] = f"{prefix}{inner}{suffix}"
    return ", ".join(texts[key] for key in sorted(texts))


def _by_width(numbers: dict[str, int]) -> dict[int, list[str]]:
    """Digits that can share one range: padded to one width, or (width 0) not padded at all."""
    padded = {len(digits) for digits in numbers if len(digits) > 1 and digits[0] == "0"}
    groups: dict[int, list[str]] = {}
    for digits in numbers:
        groups.setdefault(len(digits) if len(digits) in padded else 0, []).append(digits)
    return groups


def _ranges(numbers: list[int], width: int) -> list[str]:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in ranges
    ]


def _render(error: OrchestratorError) -> list[str]:
    if isinstance(error, FileErrors):
        return _render_problems(error)
    lines = []
    if isinstance(error, FleetError):
        lines = _render_hosts(error.errors)
    if isinstance(error, RevertIncompleteError):
        lines = [line for reason in error.errors for line in [*_render(reason), ""]]
    lines += [f"error: {one_line(error.message)}", *_place(error), *_details(error)]
    others = error.others if isinstance(error, PatchError) else ()
    lines += [line for other in others for line in ["", *_render(other)]]
    return lines + _ending(error)


def _render_hosts(errors: Sequence[HostError]) -> list[str]:
    """Every host's error; those that differ in the host only are written once."""
    groups: dict[tuple[str, ...], list[HostError]] = {}
    for error in errors:
        groups.setdefault((error.message, *_details(error)), []).append(error)
    lines: list[str] = []
    for group in groups.values():
        hosts = [error.host for error in group]
        spans = [error.span for error in group if error.span]
        lines += [f"error: {one_line(group[0].message)}", *_host_place(hosts, spans)]
        lines += [*_details(group[0]), ""]
    return lines


def _host_place(hosts: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """The host or hosts, and the lines of the inventory that speak of what is wrong there."""
    lines = dict.fromkeys(one_line(f"{span.path}:{span.line}") for span in spans)
    where = f" ({', '.join(lines)})" if lines else ""
    return [f" --> host{'s' if len(hosts) > 1 else ''} {fold_hosts(hosts)}{where}"]


def _details(error: OrchestratorError) -> list[str]:
    """What stands below the place of an error."""
    lines = [_labelled("note", note) for note in error.notes]
    if isinstance(error, HostError):  # of a host each is one line; those of a patch show code
        lines = [f"note: {one_line(note)}" for note in error.notes]
        lines += _quoted_block("the last lines from the host", error.tail)
        lines += _quoted_block("the failure on the host", error.trace.splitlines())
    hints = [*error.hints, *(hint for outcome in error.outcomes for hint in outcome.hints)]
    return lines + [_labelled("hint", hint) for hint in dict.fromkeys(hints)]


def _ending(error: OrchestratorError) -> list[str]:
    """What the reader is left with: every host's state, and what is to be done about it."""
    lines = []
    if error.outcomes:
        lines += ["hosts:", *(f"  {line}" for line in render_outcomes(error.outcomes))]
    if isinstance(error, RevertIncompleteError) and error.remaining:
        lines += ["left to do:", *(_indented(item) for item in error.remaining)]
    return lines


def _render_problems(errors: FileErrors) -> list[str]:
    lines: list[str] = []
    for problem in errors.problems:
        lines += [*_render(problem), ""]
    count = len(errors.problems)
    files = {problem.span.path: None for problem in errors.problems if problem.span}
    noun = "problem" if count == 1 else "problems"
    if not files:
        return [*lines, f"{count} {noun}"]
    where = one_line(next(iter(files))) if len(files) == 1 else f"{len(files)} files"
    return [*lines, f"{count} {noun} in {where}"]


def _place(error: OrchestratorError) -> list[str]:
    if isinstance(error, HostError):
        return _host_place([error.host], [error.span] if error.span else [])
    lines = _source_lines(error.span) if error.span else []
    if isinstance(error, PatchError) and (error.file or error.hosts):
        hosts = f"on {fold_hosts(error.hosts)}" if error.hosts else ""
        lines.append(" ::: " + " ".join(part for part in (error.file, hosts) if part))
    return lines


def _source_lines(span: Span) -> list[str]:
    """The place and, where its text is known, the lines with carets under the first of them."""
    shown = span.lines[:MAX_SHOWN_LINES]
    width = len(str(span.line + max(len(shown) - 1, 0)))
    lines = [f"{' ' * width}--> {one_line(str(span))}"]
    if not shown:
        return lines
    bar = f"{' ' * width} |"
    is_one = span.end_line == span.line
    end = span.end_column - 1 if is_one else len(shown[0])
    text, start, end = _cut(shown[0], span.column - 1, end)
    before = _columns(make_visible(text[:start]))
    marked = max(_columns(make_visible(text[:end])) - before, 1)
    lines += [bar, _numbered(span.line, width, text), f"{bar} {' ' * before}{'^' * marked}"]
    for number, further in enumerate(shown[1:], span.line + 1):
        lines.append(_numbered(number, width, _cut(further, 0, 0)[0]))
    if len(span.lines) > len(shown):
        lines.append(f"{bar} ...")
    return lines


def _numbered(number: int, width: int, text: str) -> str:
    return f"{number:>{width}} | {make_visible(text)}".rstrip()


def _cut(text: str, start: int, end: int) -> tuple[str, int, int]:
    """A long line's part around the place, with the place in it."""
    if len(text) <= MAX_LINE:
        return text, start, end
    left = max(0, min(start - MAX_LINE // 4, len(text) - MAX_LINE))
    part = text[left : left + MAX_LINE]
    head, tail = "..." if left else "", "..." if left + MAX_LINE < len(text) else ""
    shift = len(head) - left
    return f"{head}{part}{tail}", start + shift, min(end, left + MAX_LINE) + shift


def _columns(text: str) -> int:
    """How many columns of a terminal the text fills."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def _labelled(label: str, text: str) -> str:
    """The text behind its label; further lines are aligned with the first."""
    return f"{label}: " + text.rstrip("\n").replace("\n", "\n" + " " * (len(label) + 2))


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")


def _quoted_block(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:", *(f"  | {line}".rstrip() for line in lines)] if lines else []
