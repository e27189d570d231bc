"""Lines of a server's log: which worker wrote them, and a text that is safe to show."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.logs.records import cut_records

# `[2026-11-29 15:43:23 DP0 TP1 EP1] text`: the order of the labels changed four times between
# releases, parts are left out where a size is 1, and `SGLANG_LOG_MS` adds milliseconds.
_LABEL = r"(?:ATTN_|MOE_)?[A-Z]{2,}\d+"
_PREFIX = re.compile(
    rf"\[(?P<time>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<labels>(?: {_LABEL})*)\] ?"
)
# SGLang's own, and those of what it brings along: `sgl_diffusion::scheduler_T0_U1`, `..._0`.
_RANK = r"(?:ATTN_|MOE_)?[A-Z]+\d+"
_TITLE = re.compile(rf"sgl\w*::(?P<name>[a-z_]+?(?:[/:][\w/]+|_\d+)?)(?P<labels>(?:_{_RANK})*)$")
_MAIN = re.compile(r"(-m |/)?sglang[./](launch_server|cli)|\bsglang serve\b|\.launch_server\b")
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"  # CSI; at the end of a line it may be cut short
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # OSC: window titles, links
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c|$)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*(?:[0-~]|$)"
)
# What is left of C0, DEL and C1, and what would reorder a line on a terminal.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# The end of a tqdm bar, behind which another writer's text may stand: `[00:01<00:02, 3.3it/s]`.
_BAR = re.compile(r"\d+/(?:\d+|\?) \[[\d:?]+<[\d:?]+,[^\]]*\]")
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it may be shown. `label` is empty where the line does not name its worker."""

    label: str
    text: str
    time: str = ""
    is_bar: bool = False


def label_of_title(title: str) -> str:
    """`TP0`, `DP1 TP3`, `scheduler`, `detokenizer`, `main`; empty for other processes.

    Titles are those that SGLang sets (`sglang::scheduler_DP1_TP3`), or a command line.
    """
    title = title.replace("\0", " ").strip()
    match = _TITLE.match(title)
    if match is not None:
        labels = re.findall(_RANK, match["labels"])
        return " ".join(labels) if labels else match["name"]
    return "main" if _MAIN.search(title) else ""


def is_scheduler(label: str) -> bool:
    """Whether a worker of this label runs the model."""
    return re.fullmatch(rf"scheduler(_\d+)?|{_RANK}( {_RANK})*", label) is not None


def clean(text: str) -> str:
    """The text without escape sequences and control characters, so that no terminal obeys it."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def parse_line(text: str) -> Line:
    """Label and text of a clean line; nothing is guessed where the prefix has no label."""
    match = _PREFIX.match(text)
    if match is None:
        return Line("", text)
    return Line(match["labels"].strip(), text[match.end() :], match["time"])


def show_line(raw: bytes) -> list[Line]:
    """What one line of a log shows, without its newline; records of probes are left out.

    A bar that redraws itself with `\\r` keeps its last frame; a message that another writer put
    behind a bar becomes a line of its own.
    """
    text = cut_records(raw).decode("utf-8", "replace")
    messages, bar = [], ""
    for frame in text.split("\r"):
        shown = clean(frame)
        end = _BAR.search(shown)
        if end is None:
            if shown.strip():
                messages.append(shown)
            continue
        bar = shown[: end.end()]
        if shown[end.end() :].strip():
            messages.append(shown[end.end() :])
    lines = [Line("", bar, is_bar=True)] if bar else []
    # Frames of a bar of another make, too, overwrite one another: the last one counts.
    kept = messages if bar else messages[-1:]
    for message in kept:
        lines += _split_glued(message)
    return lines


def _split_glued(message: str) -> list[Line]:
    """One line, or two where a worker's prefix stands in the middle of another's text."""
    glued = _PREFIX.search(message, 1)
    if glued is None or message[glued.start() - 1] == " ":
        return [parse_line(message)]
    return [parse_line(message[: glued.start()]), parse_line(message[glued.start() :])]


class LineReader:
    """Turns a stream of bytes, however cut, into the lines that it shows."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[Line]:
        """Take the next bytes; return the lines that they completed."""
        *whole, self._data = (self._data + data).split(b"\n")
        lines = [line for raw in whole for line in show_line(raw)]
        if len(self._data) > _LONGEST_LINE:
            # A bar that never ends its line: what it has overwritten is of no use to anybody.
            self._data = self._data[-_LONGEST_LINE // 2 :]
        return lines

    def finish(self) -> list[Line]:
        """The lines of what is left without a newline."""
        raw, self._data = self._data, b""
        return show_line(raw)
