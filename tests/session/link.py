"""A way to a host that can be cut: a relay of TCP connections on loopback."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from types import TracebackType

_LOOK_S = 0.02


class Link:
    """Relays to `target` from a port of its own, in one thread.

    `cut` resets what is connected and refuses what comes; `mute` takes what comes and lets
    nothing through, neither way; `mend` ends both for new connections (and, after `mute`, for
    those that are still there).
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._cut = threading.Event()
        self._mute = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """As a cable that is pulled and noticed at once."""
        self._cut.set()

    def mute(self) -> None:
        """As a cable that is pulled and not noticed."""
        self._mute.set()

    def mend(self) -> None:
        """Let everything through again."""
        self._cut.clear()
        self._mute.clear()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(10)
        self._listener.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._over.is_set():
                if self._cut.is_set():
                    self._reset_all(selector)
                if self._mute.is_set():
                    self._over.wait(_LOOK_S)
                    continue
                for key, _ in selector.select(_LOOK_S):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    if source is self._listener:
                        self._accept(selector)
                    elif source in self._peers:
                        self._pass_on(selector, source)
            self._reset_all(selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        if self._cut.is_set():
            _reset(near)
            return
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:
            _reset(near)
            return
        far.settimeout(None)
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, selector: selectors.BaseSelector, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
            if data:
                self._peers[source].sendall(data)
                return
        except OSError:
            pass
        self._end(selector, source)

    def _end(self, selector: selectors.BaseSelector, one: socket.socket) -> None:
        for end in (one, self._peers[one]):
            selector.unregister(end)
            self._peers.pop(end)
            end.close()

    def _reset_all(self, selector: selectors.BaseSelector) -> None:
        for end in list(self._peers):
            selector.unregister(end)
            self._peers.pop(end)
            _reset(end)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
