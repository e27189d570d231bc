"""Each host is reached the way its inventory entry says, or the reason is given."""

from __future__ import annotations

import subprocess
import sys

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


def test_enter_is_not_there_yet() -> None:
    """A way into a container is refused before anything is done."""
    with pytest.raises(HostError) as caught:
        open_transport().open(Host("c", enter=("docker", "exec", "-i", "x")), "true", 1.0)
    assert render(caught.value) == (
        "error: `enter: docker exec -i x` is not supported yet\n"
        " --> host c\n"
        "hint: reach the container by ssh, or run sgldbg where the server runs"
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
