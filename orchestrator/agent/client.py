"""The controller's end of one agent channel: requests out, replies and events in."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.agent.frames import BrokenFrame, Decoder, encode
from orchestrator.errors import HostError
from orchestrator.transport.base import Channel

# `open_agent` sends the first request before this object exists, which saves a round trip.
HELLO_ID = 0
_JOIN_S = 5.0

EventCallback = Callable[[dict[str, Any], bytes], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """What an op returned: its value and the raw bytes that came with it."""

    value: Any
    raw: bytes = b""


@dataclass(slots=True)
class _Pending:
    op: str
    done: threading.Event = field(default_factory=threading.Event)
    result: Reply | HostError | None = None

    def settle(self, result: Reply | HostError) -> None:
        self.result = result
        self.done.set()


class AgentClient:
    """One agent on one host. All methods may be called from several threads.

    `host` is the host's name in the inventory, `hello` the agent's first answer.
    """

    def __init__(self, host: str, channel: Channel, received: bytes = b"") -> None:
        """Take over a channel whose agent is ready and was sent `hello` under `HELLO_ID`."""
        self.host = host
        self.hello: Mapping[str, Any] = {}
        self._channel = channel
        self._decoder = Decoder()
        self._ids = itertools.count(HELLO_ID + 1)
        self._pending: dict[int, _Pending] = {HELLO_ID: _Pending("hello")}
        self._state = threading.Lock()
        self._write = threading.Lock()
        self._callbacks: list[EventCallback] = []
        self._lost: HostError | None = None
        self._closed = False
        self._reader = threading.Thread(
            target=self._read, args=(received,), name=f"sgldbg-read-{host}", daemon=True
        )
        self._reader.start()

    @property
    def lost(self) -> HostError | None:
        """Why the channel ended, if it ended by itself."""
        return self._lost

    @property
    def is_open(self) -> bool:
        """Whether the channel is neither lost nor closed, as far as is known."""
        return self._lost is None and not self._closed

    def wait_hello(self, timeout_s: float) -> None:
        """Fill in `hello`; the errors are those of `call`."""
        self.hello = self._wait(HELLO_ID, self._pending[HELLO_ID], timeout_s, timeout_s).value

    def call(
        self,
        op: str,
        args: Mapping[str, Any] | None = None,
        raw: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Reply:
        """Ask the agent and wait for its answer.

        Raises `HostError` with the agent's own code, or `timeout` (the host may still be doing
        it), or `lost` (it is not known whether the host did it).
        """
        until = time.monotonic() + timeout_s
        pending = _Pending(op)
        with self._state:
            if self._lost is not None or self._closed:
                raise self._gone(op)
            number = next(self._ids)
            self._pending[number] = pending
        try:
            self._send(op, encode({"id": number, "op": op, "args": args or {}}, raw), until)
        except BaseException:
            with self._state:
                self._pending.pop(number, None)
            raise
        return self._wait(number, pending, until - time.monotonic(), timeout_s)

    def on_event(self, callback: EventCallback) -> None:
        """Hand every further event to `callback(header, raw)`, in order, in the reading thread.

        A callback must be quick and must not call the agent and wait: replies come through the
        same thread. One that raises gets no more events, and the exception goes to
        `threading.excepthook`; the channel stays, since a revert may need it.
        """
        with self._state:
            self._callbacks = [*self._callbacks, callback]

    def close(self) -> None:
        """End the channel; the agent shortens its lease to the grace and leaves. Never raises."""
        with self._state:
            self._closed = True
        self._channel.close()
        if threading.current_thread() is not self._reader:
            self._reader.join(_JOIN_S)

    def _send(self, op: str, frame: bytes, until: float) -> None:
        # A frame must not be cut into by another one; a channel that takes nothing for long
        # declares itself lost, so that the wait here is bounded for everybody.
        if not self._write.acquire(timeout=max(0.0, until - time.monotonic())):
            raise HostError(
                f"`{op}` was not sent in time: another request is still on its way",
                host=self.host,
                code="timeout",
            )
        try:
            self._channel.write(frame)
        except HostError as error:
            self._fail(error)
            raise self._gone(op) from error
        except BaseException:
            # Half a frame may be on its way (Ctrl-C): what follows would be read as its rest.
            self._fail(self._make_lost(f"`{op}` was broken off while it was being sent"))
            self._channel.close()
            raise
        finally:
            self._write.release()

    def _wait(self, number: int, pending: _Pending, wait_s: float, timeout_s: float) -> Reply:
        answered = pending.done.wait(max(0.0, wait_s))
        with self._state:
            self._pending.pop(number, None)
        result = pending.result
        if isinstance(result, Reply):
            return result
        if result is not None:
            raise result
        assert not answered
        raise HostError(
            f"no answer to `{pending.op}` within {timeout_s:g} s; the host may still be doing it",
            host=self.host,
            code="timeout",
        )

    def _read(self, received: bytes) -> None:
        try:
            data = received
            while True:
                for header, raw in self._decoder.feed(data):
                    self._dispatch(header, raw)
                data = self._channel.read()
                if not data:
                    break
            where = " in the middle of a frame" if self._decoder.is_inside_frame else ""
            self._fail(self._make_lost(f"the agent ended{where}"))
        except BrokenFrame as error:
            self._fail(self._make_lost(f"the agent sent {error}"))
            self._channel.close()
        except HostError as error:
            self._fail(error)
        except Exception as error:  # ours: those who wait must not wait for ever
            self._fail(self._make_lost(f"the channel's reader failed: {error!r}"))
            raise

    def _dispatch(self, header: dict[str, Any], raw: bytes) -> None:
        if "event" in header:
            for callback in self._callbacks:
                self._deliver(callback, header, raw)
            return
        with self._state:
            pending = self._pending.get(header.get("id", -1))
        # Nobody waits for an answer that came after its time-out.
        if pending is not None:
            pending.settle(self._parse_reply(header, raw))

    def _deliver(self, callback: EventCallback, header: dict[str, Any], raw: bytes) -> None:
        try:
            callback(header, raw)
        except Exception:
            with self._state:
                self._callbacks = [kept for kept in self._callbacks if kept is not callback]
            kind, value, trace = sys.exc_info()
            assert kind is not None
            threading.excepthook(
                threading.ExceptHookArgs((kind, value, trace, threading.current_thread()))
            )

    def _parse_reply(self, header: dict[str, Any], raw: bytes) -> Reply | HostError:
        if header.get("ok") is True:
            return Reply(header.get("value"), raw)
        data = header.get("data")
        data = data if isinstance(data, dict) else {}
        tail = data.get("tail")
        return HostError(
            str(header.get("message", "the agent refused and gave no reason")),
            host=self.host,
            code=str(header.get("code", "crash")),
            trace=str(header.get("trace", "")),
            tail=[str(line) for line in tail] if isinstance(tail, list) else (),
            data=data,
        )

    def _make_lost(self, reason: str) -> HostError:
        tail = self._channel.diagnostics()
        return HostError(f"lost the host: {reason}", host=self.host, code="lost", tail=tail)

    def _fail(self, error: HostError) -> None:
        """The end of the channel: nobody who waits shall wait any longer."""
        with self._state:
            if self._lost is None and not self._closed:
                self._lost = error
            waiting = list(self._pending.values())
        for pending in waiting:
            if not pending.done.is_set():
                pending.settle(self._gone(pending.op))

    def _gone(self, op: str) -> HostError:
        """A new error for each waiting call: a raised exception belongs to one thread."""
        lost = self._lost
        if lost is None:
            return HostError(
                f"`{op}` was cut off: the channel was closed", host=self.host, code="lost"
            )
        return HostError(
            lost.message, host=self.host, code="lost", notes=lost.notes, tail=lost.tail
        )
