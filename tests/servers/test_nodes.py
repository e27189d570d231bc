"""A server over several hosts: the first is stopped first, and whoever takes no signal is ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.onhost.agent.proc.mains import find_mains
from orchestrator.servers.base import find
from orchestrator.servers.ready import wait_ready
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import lives
from orchestrator.transport.routes import open_transport

from .conftest import Bench
from .test_ways import note_all
from .ways import prepare

HOSTS = (Host("gpu01", transport="local"), Host("gpu02", transport="local"))


@pytest.fixture
def members(bench: Bench, port: int, tmp_path, monkeypatch) -> Iterator[list[Member]]:
    """Both hosts of a server whose second node takes no SIGTERM, as those of 0.5.23."""
    prepare(tmp_path, monkeypatch, None)
    nodes = ["--nnodes", "2", "--node-rank"]
    bench.run("--port", str(port), *nodes, "0")
    bench.run(*nodes, "1", "--mode", "deaf")
    made = [Member(host, n, open_agent(open_transport(), host)) for n, host in enumerate(HOSTS)]
    yield made
    for member in made:
        asked = {"session": bench.package, "host": member.name}
        with suppress(HostError):  # finished
            member.channel.call("recover", asked, timeout_s=60)
        member.channel.close()
    note_all(bench)


def test_nodes_that_take_no_sigterm(bench: Bench, port: int, members: list[Member]):
    """Node 0 goes by its signal; the others have their deadline, then go with all they started."""
    server = replace(bench.server(port), hosts=("gpu01", "gpu02"), stop_timeout_s=0.5)
    for member in members:
        member.found = find(member.channel, server, bench.install, member.host, member.rank, 2)
        asked = {"session": bench.package, "host": member.name, "holder": "test"}
        member.channel.call("begin", {**asked, "lease_s": 60.0, "grace_s": 1.0}, timeout_s=30)
        lives.describe(server)(member)
        lives.announce_stop(server)(member)
    stop = lives.stop_server("original", server)
    said = [stop(member) for member in members]
    assert said == ["1 processes ended", "0 processes ended, 2 killed"]
    assert find_mains(bench.package) == []
    for member in members:
        lives.start_original(member)
        assert member.notes == []
        assert member.life is not None
        bench.stage.note(member.life["pid"])
        report = wait_ready(
            member.channel, server, member.life, member.rank, first_ready=lambda: True
        )
    assert report.how == "it runs, and rank 0 is ready"
    for member in members:
        member.channel.call("finish", timeout_s=30)
