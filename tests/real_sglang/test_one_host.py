"""The example session on a real server: the fault is found, the fix is seen, no trace stays.

All along, somebody else's server runs on the same host from the same install, and schedulers of an
earlier life, whose main process was killed, hold memory there. Neither is any of a session's
business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.real_sglang import bystanders, project, server
from tests.real_sglang.byhand import PROMPT_TOKENS, ByHand
from tests.real_sglang.environment import Environment
from tests.real_sglang.project import ALL_ONE_LAYER, FUSED_WHERE_ASKED
from tests.real_sglang.server import Running
from tests.real_sglang.surroundings import make_odd
from tests.real_sglang.traces import Hosts, Witness

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

SITE = f"{project.PATCH}.1"


@pytest.fixture(scope="module")
def foreign(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A small server of somebody else, of the same user and from the same install."""
    home = tmp_path_factory.mktemp("foreign")
    launch = server.command(environment, server.free_port(), None, home=home, tp=1)
    with bystanders.foreign_server(launch, home) as running:
        yield running


@pytest.fixture(scope="module")
def byhand(
    environment: Environment,
    hosts: Hosts,
    foreign: Running,
    cgroup: Path | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ByHand]:
    """Both workers on one host, started with the faulty `--speculative-algorithm EAGLE`."""
    home = tmp_path_factory.mktemp("one-host")
    launch = server.command(environment, server.free_port(), "EAGLE", home=home)
    launch = replace(
        launch,
        environ=bystanders.may_outlive(launch, home / "outliving"),
        prepare=make_odd(server.allowed_cpus(), cgroup),
    )
    with ByHand([launch], home, [environment.site_packages], hosts.states) as running:
        server.wait_ready(foreign)
        yield running


@pytest.fixture(scope="module")
def orphans(byhand: ByHand) -> Iterator[list[int]]:
    """Schedulers of a life that was killed, after which its user started the server once more."""
    (main,) = byhand.mains()
    found = bystanders.orphan_schedulers(main, byhand.folder / "outliving")
    try:
        byhand.start()
        assert bystanders.look(found).shared_memory, "they were to hold shared memory"
        yield found
    finally:
        server.kill(found)


@pytest.fixture(autouse=True)
def _nobody_else_is_touched(foreign: Running, orphans: list[int]) -> Iterator[None]:
    """The same processes, with the same shared memory and the same answer, before and after."""
    foreigners = server.tree(foreign.pid)
    before = bystanders.look(foreigners, foreign.url), bystanders.look(orphans)
    yield
    assert (bystanders.look(foreigners, foreign.url), bystanders.look(orphans)) == before


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


def test_asked_again_then_killed(byhand: ByHand, hosts: Hosts, tmp_path: Path) -> None:
    """A placed site answers two more questions in the same processes; then the server is killed.

    Its workers stay behind, as they do below a launcher in between; `revert` ends them, and gives
    everything back as after any session.
    """
    orphaned: list[int] = []
    with Witness(byhand, hosts):
        session = project.write_project(
            tmp_path / "project", hosts.entries(1), byhand.url, request_id="asked"
        )
        # More than a frame of a log holds, and than an agent once read of a table.
        project.enlarge_table(session, 100_000)
        began = time.monotonic()
        applied = project.call(session, hosts.home, "apply", "--lease", "10m")
        assert applied.returncode == 0, applied.stderr
        apply_s = time.monotonic() - began
        try:
            _ask_twice(byhand, session, hosts.home, apply_s)
            main = next(iter(byhand.life()))
            orphaned = bystanders.orphan_schedulers(main, byhand.folder / "outliving")
            reverted = project.call(session, hosts.home, "revert")
            assert reverted.returncode == 0, reverted.stderr
            assert not any(map(server.is_alive, orphaned)), reverted.stdout + reverted.stderr
        finally:
            server.kill(orphaned)
            with suppress(AssertionError):
                project.call(session, hosts.home, "revert")


def _ask_twice(byhand: ByHand, session: Path, home: Path, apply_s: float) -> None:
    life = byhand.life()
    began = time.monotonic()
    widths = _ask(
        session,
        home,
        *("--capture", "hidden_states.shape[-1]", "--capture", "embeds.shape[-1]"),
        *("--when", f"len(input_ids) == {PROMPT_TOKENS}"),
    )
    first_s = time.monotonic() - began
    assert widths == {"TP0": [("asked", 64, 64)], "TP1": [("asked", 64, 64)]}
    began = time.monotonic()
    seen = _ask(
        session,
        home,
        *("--capture", "forward_batch.forward_mode.name", "--capture", "len(input_ids)"),
        *("--once-per", "forward_batch.forward_mode"),
    )
    second_s = time.monotonic() - began
    for answers in (seen.pop("TP0"), seen.pop("TP1")):
        lengths = {mode: (request, length) for request, mode, length in answers}
        # The prompt was asked before: but for its end, it comes from the prefix cache.
        request, computed = lengths.pop("EXTEND")
        assert request == "asked"
        assert 0 < computed < PROMPT_TOKENS
        assert lengths == {"DECODE": ("asked", 1), "DRAFT_EXTEND_V2": ("asked", 4)}
    assert seen == {}
    assert byhand.life() == life, "a question is asked without a new process"
    print(f"apply took {apply_s:.1f} s, the questions {first_s:.1f} and {second_s:.1f} s")
    assert max(first_s, second_s) < apply_s, "a question costs no restart"


def _ask(session: Path, home: Path, *words: str) -> dict[str, list[tuple[Any, ...]]]:
    """Worker to what it answered: whose request, then the captured values."""
    done = project.call(
        session, home, "ask", "--site", SITE, *words, "--exercise", "--json", "--lease", "10m"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[Any, ...]]] = {}
    for record in json.loads(done.stdout):
        if record["kind"] == "hit":
            answer = (*record["requests"], *record["values"].values())
            found.setdefault(f"TP{record['ranks']['tp']}", []).append(answer)
    return found
