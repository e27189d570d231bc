"""The example session on a real server: the fault is found, the fix is seen, no trace stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_sglang import install, project, server
from tests.real_sglang.byhand import PROMPT_TOKENS, ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

ONE_LAYER = {(64, 64)}
FUSED = {(192, 64)}
# In decode steps the draft is fed its own hidden state, in a server without a fault too.
ALL_ONE_LAYER = {"EXTEND": ONE_LAYER, "DRAFT_EXTEND_V2": ONE_LAYER, "DECODE": ONE_LAYER}
FUSED_WHERE_ASKED = {"EXTEND": FUSED, "DRAFT_EXTEND_V2": FUSED, "DECODE": ONE_LAYER}


@pytest.fixture(scope="module")
def one_host(environment: Environment, hosts: Hosts, tmp_path_factory) -> Iterator[ByHand]:
    """Both workers on one host, started with the faulty `--speculative-algorithm EAGLE`."""
    home = tmp_path_factory.mktemp("one-host")
    launch = server.command(environment, server.free_port(), "EAGLE", home=home)
    yield from hosts.serve(ByHand([launch], home), [environment.site_packages])


@pytest.fixture(scope="module")
def two_hosts(environment: Environment, hosts: Hosts, tmp_path_factory) -> Iterator[ByHand]:
    """One worker on each of two hosts, each with an install of its own."""
    home = tmp_path_factory.mktemp("two-hosts")
    second = install.copy_package(environment, home / "site")
    meeting = f"127.0.0.1:{server.free_port()}"
    launches = [
        server.command(
            environment,
            server.free_port(),
            "EAGLE3",
            home=home,
            nnodes=2,
            node_rank=rank,
            init_addr=meeting,
            packages=packages,
        )
        for rank, packages in enumerate((None, second))
    ]
    yield from hosts.serve(ByHand(launches, home), [environment.site_packages, second])


def test_the_fault_is_found_on_both_workers(one_host: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """With EAGLE the draft gets one layer's states: `fused` fails, with the widths of each mode."""
    with Witness(one_host, hosts):
        session = project.write_project(
            tmp_path / "project", hosts.entries(1), one_host.url, request_id="capital-eagle"
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 1, result.stderr
    assert result.findings() == {"fused": "fails"}
    assert result.widths() == {"TP0": ALL_ONE_LAYER, "TP1": ALL_ONE_LAYER}


def test_the_fix_holds_for_the_users_request(
    one_host: ByHand, hosts: Hosts, tmp_path: Path
) -> None:
    """With EAGLE3 in the debug life `fused` holds, shown by the request that the session sent."""
    with Witness(one_host, hosts):
        session = project.write_project(
            tmp_path / "project",
            hosts.entries(1),
            one_host.url,
            add_args=["--speculative-algorithm", "EAGLE3"],
            request_id="capital-eagle3",
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 0, result.stderr
    assert result.findings() == {"fused": "holds"}
    assert result.widths() == {"TP0": FUSED_WHERE_ASKED, "TP1": FUSED_WHERE_ASKED}
    _from_the_request(result, "capital-eagle3")


def test_two_hosts_with_one_worker_each(two_hosts: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """Both nodes are stopped, patched, observed and restored together; each worker is heard."""
    with Witness(two_hosts, hosts):
        session = project.write_project(
            tmp_path / "project", hosts.entries(2), two_hosts.url, request_id="capital-two"
        )
        result = project.run(session, hosts.home)
    assert result.exit_code == 0, result.stderr
    assert result.findings() == {"fused": "holds"}
    assert result.widths() == {"TP0": FUSED_WHERE_ASKED, "TP1": FUSED_WHERE_ASKED}
    by_host = {(r["host"], r["ranks"]["tp"]) for r in result.armed_hits()}
    assert by_host == {("real-0", 0), ("real-1", 1)}
    _from_the_request(result, "capital-two")


def _from_the_request(result: project.Result, request_id: str) -> None:
    """Every record that counts is of the session's own request, by its id and by its length."""
    for record in result.armed_hits():
        assert record["requests"] == [request_id], record
    prefills = [
        r["values"]["hidden_states"]["shape"][0]
        for r in result.armed_hits()
        if r["values"]["forward_batch.forward_mode"]["text"].endswith(".EXTEND")
    ]
    assert prefills == [PROMPT_TOKENS] * 2
