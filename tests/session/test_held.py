"""Installs that somebody holds whose session no revert from here ends: told, and left alone."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.inventory import Host, Inventory
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.hosts.held import tell_who_ends
from orchestrator.session.left.parts import all_sessions
from orchestrator.session.left.undo import Undo
from tests.session.test_undo import FakeAgent, Heard, left_on

HELD = {
    "session": "20260101-000000-q-bbbbbbbb",
    "host": "k0",
    "holder": "ann@desk",
    "since": 0,
    "until": 7200.0,
    "expired": False,
    "controller": "unknown",
    "elsewhere": None,
    "lock": "/site/sglang/.sgldbg-lock",
    "state": "patched",
    "files": [{"path": "/x.py", "state": "patched"}],
    "server": "unknown",
    "ran": True,
    "ends": "user",
    "user": "ann",
    "why_not": "the lock is another user's (ann, uid 1000), who alone can undo it",
}


@pytest.mark.parametrize(
    ("changes", "state", "message"),
    [
        (
            {},
            "patched",
            "session `20260101-000000-q-bbbbbbbb` of ann@desk since 1970-01-01 00:00:00 UTC, until"
            " 1970-01-01 02:00:00 UTC by its last word: the lock is another user's (ann, uid 1000),"
            " who alone can undo it",
        ),
        (
            {"session": "", "holder": "", "state": "unknown", "files": []}
            | {"ends": "hand", "why_not": "what the lock says cannot be read"},
            "unknown",
            "`/site/sglang/.sgldbg-lock` holds its install: what the lock says cannot be read",
        ),
    ],
    ids=["another user's", "unreadable"],
)
def test_what_is_not_ours_to_end_is_told(changes: Any, state: str, message: str) -> None:
    """Nothing is tried on it, and nobody takes the host for one on which nothing was left."""
    heard, left = Heard(), HELD | changes
    agent: Any = FakeAgent("k0", heard.log, [])
    transport: Any = None
    contacts = [Contact(Host("k0"), agent, None, (left,))]
    inventory = Inventory("inventory.yaml", {}, {}, {}, {})
    (outcome,) = Undo(contacts, inventory, transport, heard).end(all_sessions)

    assert heard.log == []
    assert (outcome.ok, outcome.state, outcome.server) == (False, state, "unknown")
    assert (outcome.message, outcome.hints) == (message, (tell_who_ends(left),))


def test_another_users_session_hides_nothing_of_ours() -> None:
    """Ours on the same host is ended all the same."""
    heard = Heard()
    agent: Any = FakeAgent("k0", heard.log, [])
    transport: Any = None
    contacts = [Contact(Host("k0"), agent, None, (left_on("k0", True), HELD))]
    inventory = Inventory("inventory.yaml", {}, {}, {}, {})
    (outcome,) = Undo(contacts, inventory, transport, heard).end(all_sessions)

    assert heard.log[0] == "k0 recover"
    assert (outcome.ok, outcome.state) == (False, "patched")
