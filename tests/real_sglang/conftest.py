"""What the scenarios share: the environment, its pristine install, and the hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.inventory import Host
from tests.real_sglang import environment as building
from tests.real_sglang import install
from tests.real_sglang.environment import Environment
from tests.real_sglang.surroundings import own_cgroup
from tests.real_sglang.traces import Hosts
from tests.sshd import Sshd


@pytest.fixture(scope="session")
def environment() -> Environment:
    """The cached environment, its install as the wheel brought it.

    Every scenario proves that it left the install alone. Only one that was killed in the middle
    can have left it changed; then it is installed anew, and the output says so.
    """
    found = building.find()
    if found is None:
        pytest.fail("the environment of the real server is not built: make test-sglang builds it")
    if differences := install.record_differences(found.site_packages):
        print("repairing the install of an earlier, killed run:", *differences, file=sys.stderr)
        install.repair(found)
    assert install.record_differences(found.site_packages) == []
    return found


@pytest.fixture(scope="module")
def cgroup() -> Iterator[Path | None]:
    """A cgroup for the server of a module, where the machine lets us make one."""
    with own_cgroup(f"sgldbg-real-{os.getpid()}") as folder:
        yield folder


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts behind a real sshd, each with its own home, on addresses of this machine."""
    folder = tmp_path_factory.mktemp("hosts")
    names = ("real-0", "real-1")
    with Sshd(folder / "sshd", names) as sshd:
        yield Hosts(
            home=folder / "home-of-the-controller",
            inventory={name: _inventory_entry(sshd.host(name)) for name in names},
            states=[sshd.state_dir(name) for name in names],
        )


def _inventory_entry(host: Host) -> dict[str, Any]:
    """The host's keys as a user writes them."""
    keys = ("address", "user", "port", "identity_file", "ssh_options")
    return {key: getattr(host, key) for key in keys}
