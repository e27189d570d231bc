"""The example session on a real server: the fault is found, the fix is seen, no trace stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_sglang import project, server
from tests.real_sglang.byhand import ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.project import ALL_ONE_LAYER, FUSED_WHERE_ASKED
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def byhand(
    environment: Environment, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ByHand]:
    """Both workers on one host, started with the faulty `--speculative-algorithm EAGLE`."""
    home = tmp_path_factory.mktemp("one-host")
    launch = server.command(environment, server.free_port(), "EAGLE", home=home)
    with ByHand([launch], home, [environment.site_packages], hosts.states) as running:
        yield running


def test_the_fault_is_found_on_both_workers(byhand: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """With EAGLE the draft gets one layer's states: `fused` fails, with the widths of each mode."""
    with Witness(byhand, hosts):
        session = project.write_project(
            tmp_path / "project", hosts.entries(1), byhand.url, request_id="capital-eagle"
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 1, result.stderr
    assert result.findings() == {"fused": "fails"}
    assert result.widths() == {"TP0": ALL_ONE_LAYER, "TP1": ALL_ONE_LAYER}
    project.check_request(result, "capital-eagle")


def test_the_fix_holds_for_the_users_request(byhand: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """With EAGLE3 in the debug life `fused` holds, shown by the request that the session sent."""
    with Witness(byhand, hosts):
        session = project.write_project(
            tmp_path / "project",
            hosts.entries(1),
            byhand.url,
            add_args=["--speculative-algorithm", "EAGLE3"],
            request_id="capital-eagle3",
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 0, result.stderr
    assert result.findings() == {"fused": "holds"}
    assert result.widths() == {"TP0": FUSED_WHERE_ASKED, "TP1": FUSED_WHERE_ASKED}
    project.check_request(result, "capital-eagle3")
