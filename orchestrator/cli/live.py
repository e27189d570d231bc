"""Shows hosts x stages while a session runs: a live table on a terminal, else plain lines."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli.given import complete, find_given
from orchestrator.diagnostics import one_line
from orchestrator.model.outcome import ExitCode

_MARKS = {"running": "…", "done": "✓", "failed": "✗"}
# A log of a start with hundreds of shards would hold little else.
_COUNT_S = 10.0
# What a row of the table needs beside the host: gaps, `ready again`, the mark, a word or two.
_BESIDE = 28
_STYLES = {"running": "yellow", "done": "green", "failed": "bold red"}


class LiveProgress:
    """A `Progress` on stderr (a context manager). Colour never carries meaning alone.

    A table that is drawn anew again and again needs a terminal that can move its cursor, and room
    for whole names: `demo…` twice says nothing. Lines need neither.
    """

    def __init__(self, hosts: Sequence[str], console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._rows: dict[str, tuple[str, str, str]] = dict.fromkeys(hosts, ("", "", ""))
        self._began = time.monotonic()
        self._told: dict[str, tuple[tuple[str, str, str], float]] = {}
        self._lock = threading.Lock()
        self._given = find_given()
        self._live: Live | None = None
        if self._can_draw(hosts):
            self._live = Live(console=self._console, get_renderable=self._table, transient=False)

    def _can_draw(self, hosts: Sequence[str]) -> bool:
        console = self._console
        room = console.width - _BESIDE
        fits = all(cell_len(host) <= room for host in hosts)
        return console.is_terminal and not console.is_dumb_terminal and fits

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        """Take note of a stage; a plain line is written where it ends or has something to say."""
        with self._lock:
            changed = self._rows.get(host) != (stage, state, text)
            self._rows[host] = (stage, state, text)
            told = changed and (state != "running" or text)
            if self._live is None and told and self._is_due(host, stage, state, text):
                self._print(f"{host}: {stage} {state}" + (f" ({text})" if text else ""))

    def _is_due(self, host: str, stage: str, state: str, text: str) -> bool:
        """Whether a line is worth it; a count (`loading weights: 3 of 20`) every 10 s only."""
        kind, now = (stage, state, text.partition(":")[0]), time.monotonic()
        before, at = self._told.get(host, (None, 0.0))
        if state == "running" and kind == before and now - at < _COUNT_S:
            return False
        self._told[host] = (kind, now)
        return True

    def note(self, text: str) -> None:
        """Write a line that concerns the whole session."""
        with self._lock:
            self._print(text)

    def leave(self, text: str) -> None:
        """Write a line and end the process: whoever holds a lock just now is not waited for."""
        if self._live is not None:  # the terminal is not left without its cursor
            with contextlib.suppress(OSError):
                os.write(2, b"\x1b[?25h\n")
        with contextlib.suppress(OSError):
            os.write(2, f"{one_line(complete(text, self._given))}\n".encode())
        os._exit(int(ExitCode.NOT_RESTORED))

    def _print(self, text: str) -> None:
        # A terminal that was closed, or a reader that has left, is no reason to leave the hosts.
        with contextlib.suppress(OSError, ValueError):
            self._console.print(
                f"[{time.monotonic() - self._began:6.1f} s] {one_line(text)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        table.add_column("host", overflow="fold")  # whole, even where the window was made narrow
        for title in ("stage", "", "what"):
            table.add_column(title)
        for host, (stage, state, text) in self._rows.items():
            mark = Text(_MARKS.get(state, ""), style=_STYLES.get(state, ""))
            table.add_row(Text(host), Text(stage), mark, Text(one_line(text)))
        return table
