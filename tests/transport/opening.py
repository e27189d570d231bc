"""Opens channels for the SSH tests: what a command writes, or the whole text of a refusal."""

from __future__ import annotations

import subprocess
import threading

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.base import Channel
from orchestrator.transport.ssh import SshTransport
from tests.sshd import Sshd


def read_all(channel: Channel) -> bytes:
    pieces = []
    while piece := channel.read():
        pieces.append(piece)
    return b"".join(pieces)


def run(host: Host, command: str, stdin: bytes = b"") -> bytes:
    """What the command writes to stdout."""
    channel = SshTransport().open(host, command, 30.0)
    try:
        if stdin:
            channel.write(stdin)
        return read_all(channel)
    finally:
        channel.close()


def refused(host: Host, timeout_s: float = 20.0) -> str:
    """The error of a connection that must not come about; nothing is left running."""
    before = threading.active_count()
    with pytest.raises(HostError) as caught:
        SshTransport().open(host, "echo in", timeout_s)
    assert threading.active_count() <= before
    return f"{caught.value.code}\n{render(caught.value)}"


def shown_fingerprint(sshd: Sshd) -> str:
    public = f"{sshd.host_keys[0]}.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", public], check=True, capture_output=True)
    return shown.stdout.decode().split()[1]
