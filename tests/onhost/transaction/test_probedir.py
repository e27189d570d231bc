"""A server that cannot see the probes' table is told of, instead of probes that stay silent."""

from __future__ import annotations

import os
import subprocess

import pytest

from orchestrator.onhost.agent.files import probedir
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.refusal import Refusal

OWN_NAMESPACE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]


def start(command):
    """Run it until it says a word; the process and what it said."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return child, child.stdout.readline()


def end(child):
    """Wait for its end, which the end of its input is."""
    child.communicate()
    child.wait()


def process_of(child):
    """The process as the journal names it."""
    return lease.Process(child.pid, lease.procfs.read_stat(child.pid).start_time)


@pytest.fixture
def folder(tmp_path):
    """A probe directory with a table."""
    path = str(tmp_path / "tmp" / "sgldbg-s-h")
    os.makedirs(path)
    probedir.write_table(path, {"session": "s"})
    return path


def test_a_server_with_a_tmp_of_its_own(folder):
    """As under a unit with `PrivateTmp`: refused, until it has ended."""
    script = f"mount -t tmpfs none {os.path.dirname(folder)} && echo ready && exec cat"
    child, said = start([*OWN_NAMESPACE, "sh", "-c", script])
    if not said:
        end(child)
        pytest.skip("this kernel gives us no mount namespace")
    server = process_of(child)
    with pytest.raises(Refusal) as refused:
        probedir.require_visible(folder, server)
    assert (refused.value.code, refused.value.message) == (
        "not-visible",
        f"the server (process {child.pid}) does not see `{folder}/table.json`",
    )
    with pytest.raises(Refusal) as refused:
        probedir.require_visible(folder, server, "")
    assert refused.value.message == f"the server (process {child.pid}) does not see `{folder}`"
    end(child)
    probedir.require_visible(folder, server)


def test_a_server_that_sees_it(folder, tmp_path):
    """Also where the way there is a symbolic link."""
    (tmp_path / "link").symlink_to(os.path.dirname(folder))
    child, _ = start(["sh", "-c", "echo ready; exec cat"])
    probedir.require_visible(folder, process_of(child))
    probedir.require_visible(folder, process_of(child), "")
    probedir.require_visible(str(tmp_path / "link" / "sgldbg-s-h"), process_of(child))
    end(child)
