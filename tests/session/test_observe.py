"""What a look at a host says of it."""

from __future__ import annotations

import pytest

from orchestrator.model.inventory import Host
from orchestrator.servers.base import Found, Life
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.observe import summarize


@pytest.mark.parametrize(
    ("package", "version", "description", "said"),
    [
        ("sglang", "0.5.16", {"pid": 7}, "sglang 0.5.16, pid 7"),
        ("forked", None, {"pid": 7}, "forked of unknown version, pid 7"),
        ("forked", "1.0", None, "forked 1.0, no server running"),
    ],
)
def test_the_package_is_the_install_s(
    package: str, version: str | None, description: dict[str, int] | None, said: str
) -> None:
    """Whose version is told is said by its own name, which need not be SGLang's."""
    member = Member(Host("a"), 0)
    member.found = Found("a", description, Life(argv=("x",)))
    member.install = {"package_version": version}
    assert summarize(member, package) == said
