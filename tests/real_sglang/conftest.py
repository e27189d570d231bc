"""What the scenarios share: the environment, its pristine install, and the hosts."""

from __future__ import annotations

import sys

import pytest

from tests.real_sglang import environment as building
from tests.real_sglang import install
from tests.real_sglang.environment import Environment


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
