"""What a run is given: the files that were read, and the way to the hosts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.model.inventory import Host, Install, Inventory, Server
from orchestrator.model.patch import Patch
from orchestrator.model.session import Session
from orchestrator.servers.base import Life, debug_life, restart_for_host
from orchestrator.session.hosts.member import Member
from orchestrator.transport.base import Transport


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a run needs, already read and checked."""

    inventory: Inventory
    session: Session
    patches: Sequence[Patch]
    transport: Transport
    runtime_source: bytes
    holder: str
    runs_dir: Path

    @property
    def server(self) -> Server:
        """The server that the session names."""
        return self.inventory.servers[self.session.server]

    @property
    def install(self) -> Install:
        """Where that server's package is."""
        return self.inventory.installs[self.server.install]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Its hosts in rank order."""
        return tuple(self.inventory.hosts[name] for name in self.server.hosts)

    def life(self, member: Member) -> Life:
        """The debug life of a member's server, which must have been found."""
        assert member.found is not None
        nodes = len(self.server.hosts)
        restart = restart_for_host(self.session.restart, member.host, member.rank, nodes)
        return debug_life(member.found.original, restart)


def new_session_id(session: str, now: datetime) -> str:
    """Time, name and 32 random bits: sorts by time, says what it is, never meets another."""
    return f"{now:%Y%m%d-%H%M%S}-{session}-{secrets.token_hex(4)}"
