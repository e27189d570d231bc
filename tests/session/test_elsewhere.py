"""What `revert --all` and `keep` pass over: other machines' sessions, and what is half-way."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Inventory
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.left.keeping import keep_sessions
from orchestrator.session.left.parts import all_sessions, find_answering
from orchestrator.session.left.undo import Undo
from tests.session.test_undo import CLEAN, FAILED, FakeAgent, Heard, left_on

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


BESIDE = {"lock": "/site/sglang/.sgldbg-lock", "files": [{"path": "/x.py", "state": "patched"}]}
IF_GONE = "if `k0` never comes back: `sgldbg revert --all --gone k0`"


class Asked(FakeAgent):
    """Says as well what it was asked to recover."""

    def call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        """One op."""
        if op == "recover":
            self._log.append(dict(args[0]))  # type: ignore[arg-type]
        return super().call(op, *args, **kwargs)


def unreached() -> Contact:
    """`k0`, whose machine is gone."""
    return Contact(Host("k0"), None, HostError("no route to host", host="k0", code="connect"))


def end(contacts: list[Contact], gone: tuple[str, ...] = ()) -> list[Any]:
    """What became of each host in an `Undo` of everything: state, server, message, hints."""
    inventory, transport = Inventory("inventory.yaml", {}, {}, {}, {}), Silent()
    undo = Undo(contacts, inventory, transport, Heard(), gone=gone)  # type: ignore[arg-type]
    return [(o.host, o.ok, o.state, o.message, o.hints) for o in undo.end(all_sessions)]


def test_an_owner_that_does_not_answer() -> None:
    """The host that shares its install says so; named as gone it is undone there, and only there.

    Nothing is said of the host that is gone, once another one could tell of it.
    """
    dead = unreached()
    log: list[Any] = []
    left = elsewhere("k0", "alpha") | BESIDE | {"server": "untouched", "ran": False}
    asked = [dead, contact("k1", Asked("k1", log, []), left), contact("k2", Silent(), left)]
    message = f"session `{NAME}` is of `k0` (machine `alpha`), which did not answer"
    silent = ("k0", False, "unknown", "no route to host", ())
    alone = [(name, False, "patched", message, (IF_GONE,)) for name in ("k1", "k2")]
    assert end(asked) == [silent, *alone]
    assert log == []
    assert end(asked, ("k9",)) == [silent, *alone]
    assert [row[:3] for row in end(asked, ("k0",))] == [
        ("k1", True, "reverted"),
        ("k2", True, "untouched"),
    ]
    mine = {"session": NAME, "host": "k0", "lock": BESIDE["lock"]}
    assert log == [mine | {"force": False, "gone": ["k0"]}, "k1 recover"]


def test_an_owner_that_nobody_else_tells_of() -> None:
    """That it is gone says nothing of what it left: it stays a host that was not reached."""
    dead = unreached()
    asked = [dead, contact("k1", Silent())]
    assert [row[:3] for row in end(asked, ("k0",))] == [
        ("k0", False, "unknown"),
        ("k1", True, "untouched"),
    ]


def test_who_answers_is_not_gone() -> None:
    """Unless another machine answers under its name, as a container does that was made anew."""
    log: list[Any] = []
    left = elsewhere("k0", "alpha") | BESIDE | {"server": "untouched", "ran": False}
    asked = [contact("k0", Silent()), contact("k1", Silent(), left)]
    assert find_answering(asked, ("k0", "k9")) == ["k0"]
    assert [row[1] for row in end(asked, ("k0",))] == [True, True]
    anew = [contact("k0", Asked("k0", log, []), left)]
    assert find_answering(anew, ("k0",)) == []
    said = f"session `{NAME}` is of the machine `alpha`, not of this"
    assert end(anew) == [("k0", False, "patched", said, (IF_GONE,))]
    assert [row[:3] for row in end(anew, ("k0",))] == [("k0", True, "reverted")]


def test_a_member_whose_owner_does_not_answer() -> None:
    """It says what to do; with the owner named as gone its own end covers both."""
    dead = unreached()
    log: list[Any] = []
    left = left_on("k1", True) | {"shared_with": "k0"}
    asked = [dead, contact("k1", Asked("k1", log, [FAILED, CLEAN]), left)]
    _, row = end(asked)
    assert (row[1:3], row[4]) == ((False, "patched"), (IF_GONE,))
    assert [row[:3] for row in end(asked, ("k0",))] == [("k1", True, "reverted")]
    assert [one["gone"] for one in log if isinstance(one, dict)] == [[], ["k0"]]


def test_what_was_taken_over_is_ended_where_it_is() -> None:
    """Also where the host that it is of answers again, after what waits for it."""
    log: list[Any] = []
    taken = left_on("k0", True) | {"taken_from": "alpha"}
    asked = [
        contact("k1", Asked("k1", log, []), taken, left_on("k1", True)),
        contact("k0", Silent()),
    ]
    assert [row[:2] for row in end(asked)] == [("k1", True), ("k0", True)]
    assert [one["host"] for one in log if isinstance(one, dict)] == ["k1", "k0"]


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
    assert log == ["k0 recover", "k0 finish"]
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
            "reverted",
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
