"""Step by step: `apply`, `status`, `keep`, `revert`, and what a host does when nobody comes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.session.command import Result, call, start, told
from tests.session.world import Project, World, wait_for

Command = Callable[..., Result]
NAME = "eagle3-zero-acceptance"
# The session lies elsewhere, so that commands that do not name it must say where.
INVENTORY = "--inventory TMP/project/inventory.yaml"


@pytest.fixture
def sgldbg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command; both texts come with everything replaced that differs from run to run."""

    def run(*arguments: object) -> Result:
        result = call(monkeypatch, *arguments)
        print(arguments, result)
        return Result(
            result.code,
            told(result.out, tmp_path),
            told(result.err, tmp_path),
            result.stages,
        )

    return run


def test_apply_status_keep_revert(
    world: World, project: Project, sgldbg: Command, tmp_path: Path
) -> None:
    """The patched server stays as long as the user wants it, and goes without a trace."""
    session = project.write()
    applied = sgldbg("apply", session, "--runs", tmp_path / "runs", "--lease", "10m")
    assert (applied.code, applied.err) == (
        0,
        "demo-[0-1]: files are still patched, the patched server still runs\n"
        f"run directory: TMP/runs/TIME-{NAME}\n"
        "every host reverts by itself in N s; `sgldbg revert TMP/project/sessions/session.yaml`"
        " does it now, `sgldbg keep TMP/project/sessions/session.yaml` never\n",
    )
    assert world.differences()
    inventory = ("--inventory", tmp_path / "project" / "inventory.yaml")
    shown = json.loads(sgldbg("status", *inventory, "--json").out)
    for host in world.names:
        (left,) = shown[host]["sessions"]
        assert (left["controller"], left["server"], left["state"]) == (
            "detached",
            "debug life",
            "patched",
        )
    kept = sgldbg("keep", session)
    assert (kept.code, kept.err) == (
        0,
        "no host reverts by itself; `sgldbg revert TMP/project/sessions/session.yaml` puts"
        " everything back\n",
    )
    check_status_of_kept(sgldbg("status", *inventory), world)
    check_refused_by_kept(sgldbg("run", session, "--runs", tmp_path / "runs"))
    reverted = sgldbg("revert", session)
    world.assert_as_before()
    assert (reverted.code, reverted.err) == (0, "")
    assert reverted.out == "demo-[0-1]: files are as they were, server is as it was\n"
    assert sgldbg("status", *inventory).out == "demo-[0-1]: nothing is left\n"
    assert sgldbg("revert", "--all", *inventory).out == "demo-[0-1]: nothing was left\n"


def check_status_of_kept(status: Result, world: World) -> None:
    """Whose it is, since when, and that nobody ends it."""
    assert status.code == 7
    where = "session ID-eagle3-zero-acceptance of USER@HOST since WHEN"
    assert (status.out, status.err) == (
        "".join(
            f"{host}: {where}: patched, kept, without an end, no guard, server debug life\n"
            f"{host}:   HOSTS/{host}/site/sglang/_sgldbg.py: patched\n"
            f"{host}:   HOSTS/{host}/site/sglang/srt/models/llama_eagle3.py: patched\n"
            for host in world.names
        ),
        f"hint: `sgldbg revert --all {INVENTORY}` ends what is left\n",
    )


def check_refused_by_kept(refused: Result) -> None:
    """Who finds it there is told whom to ask."""
    assert refused.code == 5
    # Hosts that began within different seconds say the same one by one.
    blocks = dict.fromkeys(re.sub(r" --> hosts? .*\n", "", refused.err).split("\n\n"))
    assert "\n\n".join(blocks) == (
        "error: the install is in use by session `ID-eagle3-zero-acceptance` of USER@HOST since"
        " WHEN\n"
        "note: left so by `sgldbg keep`, without an end\n"
        "note: files are still patched, the patched server still runs\n"
        f"hint: if its owner does not need it any more, `sgldbg revert --all {INVENTORY}` ends"
        " it\n\n"
        "error: `look` failed on demo-[0-1]\n"
        "demo-[0-1]: nothing was written, server was not touched\n"
        "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n"
    )


def test_nobody_comes(single: World, small: Project, sgldbg: Command, tmp_path: Path) -> None:
    """After an applied lease of 3 s the guard reverts, starts the original and says so."""
    applied = sgldbg("apply", small.write(), "--runs", tmp_path / "runs", "--lease", "3s")
    assert applied.code == 0, applied.err
    inventory = ("--inventory", tmp_path / "project" / "inventory.yaml")
    wait_for(single.is_back, "the guard")
    status = sgldbg("status", *inventory)
    report = (
        "the lease ran out: 2 of 2 files put back, all verified",
        "the original server runs as process N (no differences)",
    )
    assert (status.code, status.err) == (
        0,
        f"hint: what a guard has reverted is as it was; `sgldbg revert --all {INVENTORY}` takes"
        " its report away\n",
    )
    assert status.out == (
        f"demo-0: session ID-{NAME} of USER@HOST since WHEN: reverted by guard, its lease is over,"
        " guard dead, server restored\n"
        "demo-0:   HOSTS/demo-0/site/sglang/_sgldbg.py: original\n"
        "demo-0:   HOSTS/demo-0/site/sglang/srt/models/llama_eagle3.py: original\n"
        f"demo-0:   guard: {report[0]}\n"
        f"demo-0:   guard: {report[1]}\n"
    )
    planned = sgldbg("plan", small.session_file)
    assert planned.code == 0, planned.err
    ended = sgldbg("revert", "--all", *inventory)
    single.assert_as_before()
    assert (ended.code, ended.out) == (
        0,
        f"demo-0: files are as they were, server is as it was ({'; '.join(report)})\n",
    )


def test_a_file_that_somebody_edits_while_it_is_patched(
    single: World, small: Project, sgldbg: Command, tmp_path: Path
) -> None:
    """Never overwritten without `--force`, and then the other version is kept."""
    target = single.target("demo-0")
    session = small.write()
    assert sgldbg("apply", session, "--runs", tmp_path / "runs").code == 0
    edited = target.read_bytes() + b"# somebody else\n"
    target.write_bytes(edited)
    refused = sgldbg("revert", session)
    assert (refused.code, refused.out) == (7, "")
    path = "HOSTS/demo-0/site/sglang/srt/models/llama_eagle3.py"
    kept = path.replace("llama", ".llama") + ".sgldbg-orig"
    assert refused.err.startswith("demo-0: files were changed by somebody else, ")
    assert f"{path}: drift, it was changed after the swap; kept: {kept})\n" in refused.err
    assert target.read_bytes() == edited
    forced = sgldbg("revert", session, "--force")
    assert (forced.code, forced.err) == (0, "")
    assert f"what stood in {path} is kept as " in forced.out
    found = [p for p in target.parents[4].rglob("*llama_eagle3*") if p.is_file()]
    (saved,) = [p for p in found if p.read_bytes() == edited]
    assert saved.name in forced.out
    if saved.is_relative_to(target.parent):
        saved.unlink()
    single.assert_as_before()


def test_a_session_at_work_is_not_taken(
    single: World, small: Project, sgldbg: Command, tmp_path: Path
) -> None:
    """`revert` leaves a live run alone; with `--take` the run is over, and sees how it ended."""
    small.session["until"] |= {"count": 1000, "timeout": "60s"}
    session = small.write()
    with start("run", session, "--runs", tmp_path / "runs") as running:
        running.wait_line("exercise done")
        refused = sgldbg("revert", session)
        assert (refused.code, refused.err) == (
            7,
            "demo-0: files are still patched, the patched server still runs (session"
            f" `ID-{NAME}` of USER@HOST is at work; end it there, or take it with --take)\n",
        )
        taken = sgldbg("revert", session, "--take")
        assert (taken.code, taken.out) == (
            0,
            "demo-0: files are as they were, server is as it was\n",
        )
        result = running.end()
    single.assert_as_before()
    assert result.code == 6, result.err
    assert "demo-0: files are as they were, server is as it was\n" in result.err
    assert "demo-0: the session had been ended there\n" in result.err
