"""The seam to the wire: what a transport and a channel promise, whatever carries the bytes."""

from __future__ import annotations

from typing import Protocol

from orchestrator.model.inventory import Host


class Channel(Protocol):
    """One stream pair to a process on a host. Reads and writes may come from different threads."""

    def write(self, data: bytes) -> None:
        """Send all of `data`; raises `HostError` with code `lost` where the link is gone."""

    def read(self) -> bytes:
        """Wait for some bytes; `b""` is the end. Raises `HostError` (`lost`) on a broken link."""
        ...

    def close(self) -> None:
        """End the stream pair and what carries it; never raises, may be called again."""

    def diagnostics(self) -> tuple[str, ...]:
        """The last lines that the far side wrote to its stderr, and its exit status if known."""
        ...


class Transport(Protocol):
    """Opens channels to hosts. May be used from several threads at once."""

    def open(self, host: Host, command: str, timeout_s: float) -> Channel:
        """Run `command` there and connect to its stdin and stdout.

        Raises `HostError` with one of the codes `unreachable`, `host-key-unknown`,
        `host-key-changed`, `auth`, `lost`; nothing has run on the host then.
        """
        ...
