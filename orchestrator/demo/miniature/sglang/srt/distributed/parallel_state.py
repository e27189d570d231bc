"""The group of all workers: rank 0 says what is run, the others run it and answer."""

from __future__ import annotations

import json
import socket
import time
from multiprocessing.connection import Connection, wait
from typing import Any

RENDEZVOUS_TIMEOUT_S = 60.0  # nodes are started by hand, one after the other


class Link:
    """One TCP connection between two workers; a message is one line of JSON."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._lines = sock.makefile("rb")

    def fileno(self) -> int:
        """For `wait`."""
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        """Send one message."""
        self._sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        """The next message; `ConnectionResetError` when the peer is gone."""
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("Connection closed by peer")
        return json.loads(line)


class TensorParallelGroup:
    """`links` lead from rank 0 to every other rank, or from another rank to rank 0."""

    def __init__(self, rank: int, links: list[Link]) -> None:
        self.rank = rank
        self.links = links

    def broadcast(self, message: Any) -> None:
        """From rank 0 to all others."""
        for link in self.links:
            link.send(message)

    def gather(self) -> list[Any]:
        """At rank 0 one answer from each of the others, in order of rank."""
        return [link.receive() for link in self.links]

    def next_from(self, main: Connection) -> Any:
        """The next order, from our own main process at rank 0 and from rank 0 elsewhere.

        `EOFError` when our main process is gone, `ConnectionResetError` when a peer is.
        """
        ready = wait([main, *[link.fileno() for link in self.links]])
        if main in ready:
            return main.recv()
        return next(link for link in self.links if link.fileno() in ready).receive()


def listen(address: tuple[str, int]) -> socket.socket:
    """The place where the workers meet; open before any of them starts."""
    return socket.create_server(address, backlog=64)


def accept_peers(main: Connection, listener: socket.socket, world_size: int) -> TensorParallelGroup:
    """Rank 0 waits for all others, whatever their order; `EOFError` when `main` is gone."""
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    links: dict[int, Link] = {}
    while len(links) < world_size - 1:
        ready = wait([main, listener], deadline - time.monotonic())
        if main in ready:
            raise EOFError
        if not ready:
            raise TimeoutError(f"only {len(links) + 1} of {world_size} workers came")
        link = Link(listener.accept()[0])
        links[link.receive()["rank"]] = link
    listener.close()
    return TensorParallelGroup(0, [links[rank] for rank in sorted(links)])


def join_peers(main: Connection, address: tuple[str, int], rank: int) -> TensorParallelGroup:
    """Another rank calls on rank 0, again and again, since its node may be started later."""
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    while True:
        try:
            link = Link(socket.create_connection(address, timeout=5))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            if main.poll(0.05):
                raise EOFError from None
    link.send({"rank": rank})
    return TensorParallelGroup(rank, [link])
