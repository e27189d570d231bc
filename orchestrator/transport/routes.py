"""Picks the way to a host by what the inventory says of it."""

from __future__ import annotations

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.base import Channel, Transport
from orchestrator.transport.enter import enter


def open_transport() -> Transport:
    """The transport for hosts of every kind; may be used from several threads at once."""
    return Routes()


class Routes:
    """Opens each channel by the host's own transport, made when it is first needed."""

    def __init__(self) -> None:
        self._made: dict[str, Transport] = {}

    def open(self, host: Host, command: str, timeout_s: float) -> Channel:
        """Open a channel to the host, or through it to where its `enter` leads."""
        return self._transport(host).open(host, enter(host, command), timeout_s)

    def _transport(self, host: Host) -> Transport:
        made = self._made.get(host.transport)
        # Of two threads that make one at once, both use the same: it counts connections.
        return made or self._made.setdefault(host.transport, self._make(host))

    def _make(self, host: Host) -> Transport:
        # Imported here: paramiko takes 0.2 s, which a local session need not spend.
        if host.transport == "local":
            from orchestrator.transport.local import LocalTransport

            return LocalTransport()
        if host.transport == "ssh":
            from orchestrator.transport.ssh import SshTransport

            return SshTransport()
        raise HostError(
            f"no transport is called `{host.transport}`: `ssh` or `local`",
            host=host.name,
            code="unreachable",
        )
