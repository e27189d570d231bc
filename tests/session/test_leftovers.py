"""What a run ends before it begins, and what it says of that."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Install, LaunchAdopt, Server
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.leftovers import blame_session, end_leftovers, refuse_leftovers
from orchestrator.session.steps.stages import COMPARE
from tests.session.test_regain import BACK, LOCK, left


class FakeAgent:
    """A host on which an earlier session has lost its directory."""

    def __init__(self, refusal: HostError | None = None) -> None:
        self.refusal = refusal

    def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
        """One op; a session that is only known by its lock is only undone with it."""
        if op == "status":
            found = left("unknown", True) | {"expired": True, "elsewhere": None}
            return Reply({"sessions": [found]})
        assert (op, args) == ("recover", {"session": "s", "host": "k0", "lock": LOCK})
        if self.refusal is not None:
            raise self.refusal
        return Reply(BACK)


def test_an_earlier_session_that_lost_its_directory() -> None:
    """It is ended, and its server, which nobody can start, is named with the new run's outcome."""
    agent: Any = FakeAgent()
    member = Member(Host("k0"), 0, agent=agent)

    assert end_leftovers(member) == "ended s"
    assert member.notes == [
        "ended the earlier session `s` first",
        f"its directory was lost: undone from `{LOCK}`",
        "the debug life ran as `python3 -m sglang.launch_server --api-key [secret]`",
    ]


def test_an_earlier_session_that_cannot_be_ended() -> None:
    """It is told and not this run's end: it may be on another install, and be anybody's."""
    said = "the lock is another user's (uid 1234), who alone can undo it"
    agent: Any = FakeAgent(HostError(said, host="k0", code="missing"))
    member = Member(Host("k0"), 0, agent=agent)

    assert end_leftovers(member) == "none"
    assert member.notes == [said]


def test_a_host_that_is_lost_meanwhile() -> None:
    """That is no matter of the earlier session."""
    agent: Any = FakeAgent(HostError("the connection broke", host="k0", code="lost"))

    with pytest.raises(HostError, match="the connection broke"):
        end_leftovers(Member(Host("k0"), 0, agent=agent))


class BusyAgent:
    """A host with a session of which the interpreter cannot say whether it is on this install."""

    def __init__(self, left: dict[str, Any]) -> None:
        self.left = left

    def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
        """One op."""
        if op == "status":
            over = {"session": "t", "over": True}
            return Reply({"sessions": [over, self.left]})
        raise HostError("the interpreter does not answer", host="k0", code="interpreter")


SEE = "see `sgldbg status`; `sgldbg revert --all` ends it"
ALIVE = {"controller": "alive", "files": [], "state": "begun", "server": "stopped"}
APPLIED = {
    "controller": "detached",
    "files": [{"path": "/f", "state": "patched"}],
    "state": "patched",
    "server": "debug life",
}
NOT_BACK = {
    "controller": "gone",
    "files": [{"path": "/f", "state": "original"}],
    "state": "reverted",
    "server": "restored, and gone since",
}


@pytest.mark.parametrize("code", ["server-not-found", "interpreter"])
@pytest.mark.parametrize(
    ("left", "note", "hint"),
    [
        (
            ALIVE,
            "is at work on this host",
            "wait for it; `sgldbg revert --all --take` ends it all the same",
        ),
        (
            APPLIED,
            "is not ended on this host, left so by `sgldbg apply`: files are still patched, the"
            " patched server still runs",
            "if its owner does not need it any more, `sgldbg revert --all` ends it",
        ),
        (
            NOT_BACK,
            "is not ended on this host, its controller is gone: files are as they were, server is"
            " not back",
            SEE,
        ),
        (
            NOT_BACK | {"expired": True},
            "is not ended on this host, its lease is over: files are as they were, server is not"
            " back",
            SEE,
        ),
    ],
    ids=["at work", "applied", "not back", "not back, later"],
)
def test_who_may_have_the_server(left: dict[str, Any], note: str, hint: str, code: str) -> None:
    """A server that is not there may be down for a session, at work or left: then nothing is wrong
    with the inventory, and what is left there is said.
    """
    seen = {"session": "s", "host": "k0", "holder": "ann@desk", "expired": False} | left
    agent: Any = BusyAgent(seen)
    server = Server("k", "i", ("k0",), LaunchAdopt(), "http://127.0.0.1:30000")
    error = HostError("no server", host="k0", code=code, hints=("start it, or correct `url`",))

    blamed = blame_session(
        Member(Host("k0"), 0, agent=agent), server, Install("i", "python3"), 1, error
    )

    assert blamed is error
    own = ("start it, or correct `url`",) if code == "interpreter" else ()
    assert (error.notes, error.hints) == ((f"session `s` of ann@desk {note}",), (*own, hint))


def test_a_session_whose_server_is_not_back_is_not_ended() -> None:
    """Only the session knows how it ran: it is refused, also when its lease is over."""
    times = {"since": 0, "deadline_s": 9.0, "now_s": 5.0, "root": "/site"}
    seen = {"session": "s", "host": "k0", "holder": "ann@desk", "expired": True} | NOT_BACK | times
    seen["guard"] = "alive"
    member = Member(Host("k0"), 0)
    member.install = {"root": "/site", "package_dir": "/site/sglang"}

    class Seen:
        def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
            assert op == "status"
            return Reply({"sessions": [seen]})

    member.agent = Seen()  # type: ignore[assignment]
    assert end_leftovers(member) == "none"
    who = "session `s` of ann@desk since 1970-01-01 00:00:00 UTC"
    state = "files are as they were, server is not back"
    for expired, drift, said in (
        (True, False, ("not-reverted", f"the install still holds {who}, whose lease is over",
                       (state, "/f: original"), (SEE,))),
        (False, False, ("locked", f"the install is in use by {who}",
                        ("its controller is gone, reverts by itself in 4 s", state), (SEE,))),
        (False, True, ("locked", f"the install is in use by {who}",
                       ("its controller is gone, its lease ends in 4 s, what drifted stays",
                        "files are staged, none is in place, server is not back"),
                       (COMPARE,))),
    ):  # fmt: skip
        seen |= {"expired": expired, "state": "drift" if drift else seen["state"]}
        with pytest.raises(HostError) as caught:
            refuse_leftovers(member)
        error = caught.value
        assert (error.code, error.message, error.notes, error.hints) == said


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"until": 7200.0, "expired": False},
            "the install is in use: session `s` of ann@desk since 1970-01-01 00:00:00 UTC, until"
            " 1970-01-01 02:00:00 UTC by its last word",
            "what is the user `ann`'s is ended as that user: `sgldbg revert --all`; how root does"
            " it in their place: docs/guides/when-a-revert-fails.md",
        ),
        (
            {"until": None, "expired": False, "session": "", "ends": "hand"},
            f"the install is in use: `{LOCK}` holds its install",
            "what cannot be read no revert ends: put the files back by hand,"
            " docs/guides/when-a-revert-fails.md",
        ),
    ],
    ids=["another user's", "unreadable"],
)
def test_an_install_that_is_not_ours_to_end(
    changes: dict[str, Any], message: str, hint: str
) -> None:
    """Its patched files are no originals for a plan; who ends it is told, nothing is tried."""
    seen = left("unknown", True) | {"expired": True, "elsewhere": None, "root": "/site"}
    seen |= {"holder": "ann@desk", "since": 0, "lock": LOCK, "controller": "unknown"}
    seen |= {"files": [{"path": "/f", "state": "patched"}]}
    seen |= {"ends": "user", "user": "ann", "why_not": "it is another user's"} | changes
    member = Member(Host("k0"), 0)
    member.install = {"root": "/site", "package_dir": "/site/sglang"}

    class Seen:
        def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
            assert (op, args) == ("status", {"packages": ["/site/sglang"]})
            return Reply({"sessions": [seen]})

    member.agent = Seen()  # type: ignore[assignment]
    assert end_leftovers(member) == "none"
    with pytest.raises(HostError) as refused:
        refuse_leftovers(member)
    error = refused.value
    assert (error.code, error.message, error.hints) == ("locked", message, (hint,))
    assert error.notes == ("it is another user's", "/f: patched")


@pytest.mark.parametrize("is_held", [True, False])
def test_a_server_that_is_away_for_another_users_session(is_held: bool) -> None:
    """Nothing but the lock beside the install tells of that one; else the first error stands."""
    seen = left("unknown", True) | {"elsewhere": None, "root": "/site", "holder": "bob@desk"}
    seen |= {"since": 0, "until": None, "expired": False, "lock": LOCK, "files": []}
    seen |= {"ends": "user", "user": "bob", "why_not": "it is another user's"}
    at = {"root": "/site", "package_dir": "/site/sglang", "other": None}

    class Seen:
        def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
            if op == "locate":
                return Reply(at)
            return Reply({"sessions": [seen] if args["packages"] and is_held else []})

    member = Member(Host("k0"), 0, agent=Seen())  # type: ignore[arg-type]
    server = Server("k", "i", ("k0",), LaunchAdopt(), "http://127.0.0.1:30000")
    error = HostError("no server", host="k0", code="server-not-found")
    blamed = blame_session(member, server, Install("i", "python3"), 1, error)
    if not is_held:
        assert (blamed, error.notes, error.hints, member.install) == (error, (), (), {})
        return
    assert (blamed.code, blamed.message) == (
        "locked",
        "the install is in use: session `s` of bob@desk since 1970-01-01 00:00:00 UTC, kept without"
        " an end",
    )


@pytest.mark.parametrize("lock", [LOCK, None], ids=["beside it", "in a shared home"])
def test_an_install_that_another_machine_holds(lock: str | None) -> None:
    """Its patched files are no originals for a plan; what only the home tells is no matter here."""
    away = left("untouched", False) | {"elsewhere": "alpha", "root": "/site", "lock": lock}
    away |= {"holder": "ann@desk", "since": 0}
    member = Member(Host("k1"), 0)
    member.install = {"root": "/site", "package_dir": "/site/sglang"}

    class Seen:
        def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
            assert (op, args) == ("status", {"packages": ["/site/sglang"]})
            return Reply({"sessions": [away]})

    member.agent = Seen()  # type: ignore[assignment]
    if lock is None:
        refuse_leftovers(member)
        return
    with pytest.raises(HostError) as refused:
        refuse_leftovers(member)
    error = refused.value
    assert (error.code, error.message, error.notes, error.hints) == (
        "locked",
        "the install is in use by session `s` of ann@desk since 1970-01-01 00:00:00 UTC",
        ("it is of `k0` (machine `alpha`), which shares it",),
        ("it ends there; should that never come back: `sgldbg revert --all --gone k0`",),
    )
