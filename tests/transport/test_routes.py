"""Each host is reached the way its inventory entry says, or the reason is given."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.routes import open_transport
from tests.sshd import Sshd


def test_local_and_ssh(sshd: Sshd) -> None:
    """One transport serves hosts of both kinds."""
    transport = open_transport()
    for host in (Host("here", transport="local"), sshd.host("h0")):
        channel = transport.open(host, "cat", 30.0)
        channel.write(b"x")
        assert channel.read() == b"x"
        channel.close()


def test_a_local_host_gets_our_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of a library's, as GNU readline sets `COLUMNS`, must not come into a server."""
    libc = ctypes.CDLL(None)
    monkeypatch.setenv("SGLDBG_ROUTE_OURS", "1")
    libc.setenv(b"SGLDBG_ROUTE_THEIRS", b"2", 1)
    try:
        channel = open_transport().open(
            Host("here", transport="local"), "env | grep SGLDBG_ROUTE", 30.0
        )
        assert channel.read() == b"SGLDBG_ROUTE_OURS=1\n"
        channel.close()
    finally:
        libc.unsetenv(b"SGLDBG_ROUTE_THEIRS")


def test_a_way_into_a_container(sshd: Sshd, tmp_path: Path) -> None:
    """The words of `enter` stand before the program, on this machine and behind SSH."""
    way = tmp_path / "enter"
    way.write_text('#!/bin/sh\necho "inside of $1"\nshift\nexec "$@"\n')
    way.chmod(0o755)
    for host in (Host("here", transport="local"), sshd.host("h0")):
        inside = replace(host, enter=(str(way), "box-1"))
        channel = open_transport().open(inside, "exec /bin/echo -n 'a b'", 30.0)
        text = b""
        while data := channel.read():
            text += data
        channel.close()
        assert text == b"inside of box-1\na b"


def test_a_way_that_a_shell_would_change() -> None:
    """Refused before anything is done: it would mean something else to each login shell."""
    with pytest.raises(HostError) as caught:
        open_transport().open(Host("c", enter=("docker", "exec", "$X")), "exec true", 1.0)
    assert render(caught.value) == (
        "error: `enter` holds `$X`, which not every shell takes as it is\n"
        " --> host c\n"
        "hint: write letters, digits and `/=._+:@,-` only, or put it into a script"
    )


def test_unknown_transport() -> None:
    """A word that is no transport is named with those that are."""
    with pytest.raises(HostError) as caught:
        open_transport().open(Host("c", transport="pigeon"), "true", 1.0)
    assert str(caught.value) == "no transport is called `pigeon`: `ssh` or `local`"


def test_local_hosts_cost_no_import_of_ssh() -> None:
    """paramiko and fabric are imported when a host is reached by SSH, not before."""
    program = (
        "import sys; from orchestrator.transport.routes import open_transport;"
        "from orchestrator.agent.ship import open_agent; open_transport();"
        "print(sorted({'paramiko', 'fabric', 'invoke'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert shown.stdout == b"[]\n"
