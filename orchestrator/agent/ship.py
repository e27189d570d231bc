"""Gets our agent running on a host: packs it, starts it, sends it where it is missing."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import secrets
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from orchestrator.agent.bootstrap import make_command
from orchestrator.agent.client import HELLO_ID, AgentClient
from orchestrator.agent.frames import encode
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.base import Channel, Transport

_MAIN = """\
import sys

from sgldbg_agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_NOISE_BYTES = 4096
# How transports tell that the far side ended as it should: nothing that explains a failure.
_ENDED_WELL = "(the process ended with status 0)"
# How our bootstrap ends after it has said why.
_ENDED_BY_US = "(the process ended with status 9)"
# An answer is a word and a short text; what is longer is not an answer.
_ANSWER_BYTES = 8192
_ANSWERS = frozenset(("have", "need", "no-python", "failed", "ready"))


@dataclass(frozen=True, slots=True)
class Zipapp:
    """The agent as one file; equal sources make equal bytes."""

    data: bytes
    sha256: str


def _read_sources(folder: Traversable, inside: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_sources(entry, f"{inside}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{inside}/{entry.name}", entry.read_bytes()


def make_zipapp() -> Zipapp:
    """Pack `orchestrator/onhost/agent/` as the package `sgldbg_agent`."""
    folder = resources.files("orchestrator") / "onhost" / "agent"
    members = dict(_read_sources(folder, "sgldbg_agent"))
    members["__main__.py"] = _MAIN.encode("ascii")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            # A date of its own would make every checkout's agent another one.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o600 << 16
            info.create_system = 3
            archive.writestr(info, members[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    data = buffer.getvalue()
    return Zipapp(data, hashlib.sha256(data).hexdigest())


def open_agent(
    transport: Transport, host: Host, timeout_s: float = 20.0, zipapp: Zipapp | None = None
) -> AgentClient:
    """Connect, start the agent, and wait for its first answer; the caller closes it.

    Raises `HostError`: the transport's codes, `no-python`, or `bootstrap` with what the host said
    instead; its `span` is the host's. Apart from the agent's own file nothing is written there.
    """
    try:
        return _open(transport, host, timeout_s, zipapp)
    except HostError as error:
        error.span = error.span or host.span
        if error.code == "unreachable" and not error.hints:
            error.hints = ("is the host up? if so, correct its `address` or `port`",)
        raise


def _open(transport: Transport, host: Host, timeout_s: float, zipapp: Zipapp | None) -> AgentClient:
    until = time.monotonic() + timeout_s
    zipapp = zipapp or make_zipapp()
    if host.python is not None and not _fits_one_line(host.python):
        raise HostError(
            f"`python: {host.python!r}` is no path of one line", host=host.name, code="no-python"
        )
    channel = transport.open(host, make_command(), timeout_s)
    shake = _Handshake(host, channel, zipapp)
    client: AgentClient | None = None
    try:
        with _Deadline(channel, until - time.monotonic()) as deadline:
            try:
                received = shake.run()
            except HostError as error:
                if deadline.is_over:
                    raise shake.error(f"it was not ready within {timeout_s:g} s") from error
                raise
        if deadline.is_over:
            raise shake.error(f"it was not ready within {timeout_s:g} s")
        client = AgentClient(host.name, channel, received)
        client.wait_hello(max(1.0, until - time.monotonic()))
    except BaseException:
        (client or channel).close()
        raise
    return client


class _Handshake:
    """The lines that come before frames; keeps what the login shell said of its own accord."""

    def __init__(self, host: Host, channel: Channel, zipapp: Zipapp) -> None:
        self._host = host
        self._channel = channel
        self._zipapp = zipapp
        self._marker = secrets.token_hex(16)
        self._buffer = b""
        self._noise = b""

    def run(self) -> bytes:
        """Get the agent to `ready` with `hello` on its way; return what was received after it."""
        greeting = {
            "marker": self._marker,
            "sha256": self._zipapp.sha256,
            "size": len(self._zipapp.data),
            "state_dir": self._host.state_dir,
        }
        first = f"{self._marker} {self._host.python or ''}\n"
        hello = encode({"id": HELLO_ID, "op": "hello", "args": {}})
        self._say((first + json.dumps(greeting) + "\n").encode())
        word, text = self._answer()
        if word in ("have", "need"):
            self._say((self._zipapp.data if word == "need" else b"") + hello)
            word, text = self._answer()
        if word == "ready":
            return self._buffer
        if word == "no-python":
            raise self._no_python(text)
        if word == "failed" and text.startswith("cannot use "):
            error = self.error(text)
            error.hints = ("mend that, or name another folder: `state_dir` of this host",)
            raise error
        raise self.error(text or f"it said `{word}` out of turn")

    def error(self, reason: str) -> HostError:
        """The agent did not start; `tail` is what the host said instead."""
        said = (self._noise + self._buffer)[-_NOISE_BYTES:]
        lines = said.decode("utf-8", "backslashreplace").replace("\r", "").splitlines()
        hints: tuple[str, ...] = ()
        if self._host.python is not None:
            hints = (f"is `python: {self._host.python}` of this host a Python of 3.8 or newer?",)
        if "account is currently not available" in said.decode("latin-1"):
            hints = ("the login shell of this account runs nothing: set another `user`",)
        return HostError(
            f"the agent did not start: {reason}",
            host=self._host.name,
            code="bootstrap",
            hints=hints,
            tail=[line for line in lines if line.strip()]
            + [line for line in self._channel.diagnostics() if line != _ENDED_BY_US],
        )

    def _no_python(self, text: str) -> HostError:
        return HostError(
            f"no Python of 3.8 or newer was found ({text})",
            host=self._host.name,
            code="no-python",
            hints=("name an interpreter for this host in the inventory, `python: /path/python3`",),
            tail=[
                line
                for line in self._channel.diagnostics()
                if line not in (_ENDED_WELL, _ENDED_BY_US)
            ],
        )

    def _say(self, data: bytes) -> None:
        # Where the host does not listen, what it said instead is still to be read.
        with contextlib.suppress(HostError):
            self._channel.write(data)

    def _answer(self) -> tuple[str, str]:
        """Wait for the next `<marker> <word> <text>`; what comes before it is noise."""
        sign = self._marker.encode("ascii") + b" "
        while True:
            before, found, after = self._buffer.partition(sign)
            line, end, rest = after.partition(b"\n")
            if found and end:
                self._noise = (self._noise + before)[-_NOISE_BYTES:]
                word, _, text = line.decode("utf-8", "backslashreplace").strip().partition(" ")
                self._buffer = rest
                if word in _ANSWERS:
                    return word, text
                # Our own greeting came back: something echoes. It answers to nothing else.
                self._noise = (self._noise + sign + line)[-_NOISE_BYTES:]
                continue
            if len(after) > _ANSWER_BYTES:
                raise self.error("its answer has no end")
            if not found and len(self._buffer) > _NOISE_BYTES:
                # The marker may have begun to arrive: keep as much as it is long.
                self._noise = (self._noise + self._buffer[: -len(sign)])[-_NOISE_BYTES:]
                self._buffer = self._buffer[-len(sign) :]
            try:
                data = self._channel.read()
            except HostError as error:
                raise self.error(error.message) from error
            if not data:
                raise self.error("the host ended it")
            self._buffer += data


class _Deadline:
    """Closes the channel when the time is over, which wakes whoever reads from it."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self.is_over = False
        self._channel = channel
        self._timer = threading.Timer(max(0.0, seconds), self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _end(self) -> None:
        self.is_over = True
        self._channel.close()


def _fits_one_line(text: str) -> bool:
    return bool(text.strip()) and text == text.strip() and text.isprintable()
