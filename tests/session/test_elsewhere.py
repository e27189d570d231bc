"""What `revert --all` and `keep` pass over: other machines' sessions, and what is half-way."""

from __future__ import annotations

from typing import Any

from orchestrator.model.inventory import Host, Inventory
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.undo import Undo, all_sessions, keep_sessions
from tests.session.test_undo import FakeAgent, Heard, left_on

NAME = "20260101-000000-q-aaaaaaaa"


def contact(name: str, agent: Any, *sessions: dict[str, Any]) -> Contact:
    """A host that answered."""
    return Contact(Host(name), agent, None, sessions)


class Silent:
    """An agent that must not be asked anything."""

    is_open, lost = True, None

    def call(self, op: str, *args: Any, **kwargs: Any) -> None:
        """Fails the test."""
        raise AssertionError(f"it was asked for `{op}`")


def elsewhere(host: str, machine: str) -> dict[str, Any]:
    """A session as another machine with the same home shows it."""
    known = {"elsewhere": machine, "controller": "elsewhere", "files": []}
    return {**left_on(host, False), **known, "state": f"on another machine: {machine}"}


def test_another_machines_session_is_named_and_left() -> None:
    """Nothing is done to it through this host, which says where it is to be ended."""
    asked = [contact("k1", Silent(), elsewhere("k0", "alpha"))]
    inventory, transport = Inventory("inventory.yaml", {}, {}, {}, {}), Silent()
    (outcome,) = Undo(asked, inventory, transport, Heard()).end(all_sessions)  # type: ignore[arg-type]
    assert outcome.ok
    assert outcome.message == (
        f"nothing was left; session `{NAME}` is of the machine `alpha`, end it there"
    )
    assert keep_sessions(asked, all_sessions) == []


def test_its_own_machine_ends_it_under_another_name() -> None:
    """Where both answer it is ended through the one that it is of, whichever comes first."""
    log: list[str] = []
    own = left_on("old-name", True)
    asked = [
        contact("k1", Silent(), elsewhere("old-name", "alpha")),
        contact("k0", FakeAgent("k0", log, []), own | {"elsewhere": None}),
    ]
    inventory, transport = Inventory("inventory.yaml", {}, {}, {}, {}), Silent()
    first, second = Undo(asked, inventory, transport, Heard()).end(all_sessions)  # type: ignore[arg-type]
    assert log == ["k0 recover"]
    assert (first.ok, second.ok, second.state) == (True, True, "reverted")


def test_only_a_whole_debug_life_is_kept() -> None:
    """A host that is half-way, or at work, is not touched and says what it is."""
    half = left_on("k0", False) | {"server": "stopped", "state": "patched"}
    back = left_on("k0", False) | {
        "state": "reverted",
        "files": [{"path": "/x", "state": "original"}],
    }
    work = left_on("k0", False) | {"controller": "alive"}
    said = []
    for left in (half, back, work):
        (outcome,) = keep_sessions([contact("k0", Silent(), left)], all_sessions)
        said.append((outcome.ok, outcome.state, outcome.server, outcome.message))
    assert said == [
        (
            False,
            "patched",
            "stopped",
            "only a whole debug life can be kept: patched, server stopped",
        ),
        (
            False,
            "staged",
            "debug life",
            "only a whole debug life can be kept: reverted, server debug life",
        ),
        (
            False,
            "patched",
            "debug life",
            f"session `{NAME}` of me is at work; end it there, or take it with --take",
        ),
    ]
