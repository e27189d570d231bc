"""What a server printed last, made safe to show: its log files, or the journal of its unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.servers.life import MASK

LINES = 30
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
# SGLang logs all of its arguments at the start: ServerArgs(..., api_key='...', ...).
_SECRETS = re.compile(r"(?i)\b(\w*(?:api_?key|secret|password|access_token)=)('[^']*'|\"[^\"]*\")")
# What probes wrote belongs to the records, and would drown a server's own last words.
_RECORD = "@sgldbg"

Life = Mapping[str, Any]


def with_outputs(agent: AgentClient, life: Life) -> Life:
    """The life with the files that its process writes to, where it does not name any yet."""
    if "stderr" in life or "unit" in life:
        return life
    asked = {"pid": life["pid"], "start_time": life["start_time"]}
    try:
        described = agent.call("describe", asked).value
    except HostError as error:
        if error.code != "gone":
            raise
        return life
    outputs = {name: described[name] for name in ("stdout", "stderr")}
    files = {name: found["path"] for name, found in outputs.items() if found["kind"] == "file"}
    return {**life, **files}


class NewLines:
    """The last lines of a life's log, without those of the life before it in the same place.

    `whole` says that the life names its log itself, and where it began in it; else what stands
    there at the first look is taken for old.
    """

    def __init__(self, agent: AgentClient, life: Life, *, whole: bool) -> None:
        self._agent = agent
        self._life = life
        self._old: tuple[str, ...] | None = () if whole else None

    def read(self) -> tuple[str, ...]:
        """What was written since, of the last lines."""
        lines = read_stream(self._agent, self._life, "stderr")
        if self._old is None:
            self._old = lines
        return drop_old(self._old, lines)


def drop_old(old: tuple[str, ...], lines: tuple[str, ...]) -> tuple[str, ...]:
    """What was written since `old` were the last lines of the same file."""
    for end in range(len(lines), 0, -1) if old else ():
        if lines[max(0, end - len(old)) : end] == old[-end:]:
            return lines[end:]
    return lines


def read_last_words(agent: AgentClient, life: Life) -> tuple[str, ...]:
    """The last lines of stderr; of stdout where nothing stands there."""
    return read_stream(agent, life, "stderr") or read_stream(agent, life, "stdout")


def tell_full(agent: AgentClient, life: Life) -> list[str]:
    """A note for each file system without room for what this life prints: why it may have died."""
    outputs = [life[name] for name in ("stdout", "stderr") if life.get(name)]
    if not outputs:
        return []
    full = agent.call("life", {"pid": None, "outputs": outputs}).value["full"]
    of_mount: dict[str, list[str]] = {}
    for path, mount in full.items():
        of_mount.setdefault(mount, []).append(f"`{path}`")
    return [
        f"the file system `{mount}` is full, with what it prints: {', '.join(paths)}"
        for mount, paths in of_mount.items()
    ]


def read_stream(agent: AgentClient, life: Life, name: str) -> tuple[str, ...]:
    """The last lines of one stream of a life; none where it goes nowhere that can be read."""
    path, unit = life.get(name), life.get("unit")
    if path is None and unit is None:
        return ()
    if path is None:
        asked = {"path": None, "unit": unit, "invocation": life.get("invocation")}
        return _read(agent, {**asked, "lines": LINES})
    return _read(agent, {"path": path, "lines": LINES, "start": life.get(f"{name}_from", 0)})


def read_tail(agent: AgentClient, path: str, lines: int) -> tuple[str, ...]:
    """The last lines of a file on the host, as text that is safe to show; none if unreadable."""
    return _read(agent, {"path": path, "lines": lines})


def _read(agent: AgentClient, args: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        raw = agent.call("tail", {**args, "without": _RECORD}).raw
    except HostError as error:
        if error.code in ("lost", "timeout"):
            raise
        return ()
    text = raw.decode("utf-8", "backslashreplace")
    kept = [line for line in text.split("\n") if line and not line.startswith(_RECORD)]
    return tuple(map(make_safe, kept))


def make_safe(line: str) -> str:
    """A log line without escape sequences, control characters and secrets."""
    # Of a progress bar that overwrites its line only the last state is worth showing.
    plain = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])
    plain = _SECRETS.sub(rf"\1'{MASK}'", plain)
    return "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in plain)
