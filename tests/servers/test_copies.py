"""The copy of the package that a start command leads to is the patched one, or the session ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.lives import check_copy, start

from .conftest import Bench
from .ways import Way, open_driver, prepare


@pytest.mark.parametrize("leads_elsewhere", [True, False])
def test_a_start_command_that_leads_to_another_copy(
    bench: Bench, port, tmp_path: Path, monkeypatch, leads_elsewhere: bool
):
    """It has its own directory and environment, which nobody knows before it has run."""
    way = Way("pair", bench, port)
    prepare(tmp_path, monkeypatch, way.root)
    way.start()
    patched, elsewhere = bench.folder / bench.package, tmp_path / "elsewhere"
    elsewhere.mkdir()
    if leads_elsewhere:
        shutil.copytree(patched, elsewhere / bench.package)
    else:  # by another name, it is the same copy
        (elsewhere / bench.package).symlink_to(patched)
    control = bench.folder / "ctl"
    moved = f"env -C {elsewhere} setsid"
    control.write_text(control.read_text().replace("setsid", moved))
    server = way.server()
    with open_driver(way) as driver:
        found = driver.begin()
        install = {"package_dir": str(patched)}
        member = Member(way.host, 0, agent=driver.agent, found=found, install=install)
        driver.stop("original")
        debug_life = start(lambda member: found.original, server, bench.package)
        if not leads_elsewhere:
            assert debug_life(member).startswith("pid ")
            assert member.notes == []
        else:
            with pytest.raises(HostError) as error:
                debug_life(member)
            assert (error.value.code, error.value.message, error.value.notes) == (
                "other-copy",
                f"the debug life of server `kimi` imports `{bench.package}` from"
                f" {elsewhere / bench.package}, and {patched} is patched",
                (f"the server that ran before imported {patched}",),
            )
            assert error.value.hints == (
                "have the start command lead to the patched copy: its interpreter, PYTHONPATH and"
                " directory decide",
            )
        assert member.life is not None
        bench.stage.note(member.life["pid"])
        driver.stop("debug")
        bench.stage.note(driver.restore()["pid"])


class Silent:
    """An agent whose server's interpreter cannot be asked."""

    def call(self, op: str, *args: Any, **options: Any) -> Any:
        raise HostError("there is no interpreter `python`", host="gpu01", code=self.code)

    def __init__(self, code: str) -> None:
        self.code = code


def test_an_interpreter_that_cannot_be_asked(bench: Bench, port):
    """That is told, since nobody knows then which copy it is; a lost host is an error as ever."""
    life, install = {"pid": 1, "start_time": 1}, {"package_dir": "/x"}

    def member_with(code: str) -> Member:
        agent: Any = Silent(code)
        return Member(Host("gpu01"), 0, agent=agent, install=install, life=life)

    member = member_with("no-interpreter")
    check_copy(member, bench.server(port), bench.package)
    assert member.notes == [
        f"which `{bench.package}` its debug life imports is not known: there is no interpreter"
        " `python`"
    ]
    with pytest.raises(HostError):
        check_copy(member_with("lost"), bench.server(port), bench.package)
