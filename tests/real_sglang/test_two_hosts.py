"""One server on two hosts, one worker each: all of it is debugged and restored together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real_sglang import install, project, server
from tests.real_sglang.byhand import ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.project import FUSED_WHERE_ASKED
from tests.real_sglang.surroundings import make_odd
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def byhand(
    environment: Environment,
    hosts: Hosts,
    cgroup: Path | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ByHand]:
    """Two nodes, each with an install of its own as two machines have, and a core of its own."""
    cpus = server.allowed_cpus()
    home = tmp_path_factory.mktemp("two-hosts")
    second = install.copy_package(environment, home / "site")
    meeting = f"127.0.0.1:{server.free_port()}"
    launches = [
        replace(
            server.command(
                environment,
                server.free_port(),
                "EAGLE3",
                home=home,
                nnodes=2,
                node_rank=rank,
                init_addr=meeting,
                packages=packages,
            ),
            prepare=make_odd([cpu], cgroup),
        )
        for rank, packages, cpu in ((0, None, cpus[0]), (1, second, cpus[-1]))
    ]
    with ByHand(launches, home, [environment.site_packages, second], hosts.states) as running:
        yield running


def test_each_host_is_heard_and_restored(byhand: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """Both nodes are stopped, patched, observed and restored together; each worker is heard."""
    with Witness(byhand, hosts):
        session = project.write_project(
            tmp_path / "project", hosts.entries(2), byhand.url, request_id="capital-two"
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 0, result.stderr
    assert result.findings() == {"fused": "holds"}
    assert result.widths() == {"TP0": FUSED_WHERE_ASKED, "TP1": FUSED_WHERE_ASKED}
    heard = {(record["host"], record["ranks"]["tp"]) for record in result.armed_hits()}
    assert heard == {("real-0", 0), ("real-1", 1)}
    project.check_request(result, "capital-two")
