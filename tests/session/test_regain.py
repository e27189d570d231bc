"""A lost host that comes back without its session: what its lock still says, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import regain
from orchestrator.session.steps.regain import tell_recovered

LOCK = "/opt/sglang/.sgldbg-lock"
MINE = {"session": "s", "host": "k0"}
BACK = {
    "files": [{"file": "x.py", "path": "/x.py", "state": "reverted", "why": "", "kept": []}],
    "verified": True,
    "server": None,
    "left": [],
    "report": [f"its directory was lost: undone from `{LOCK}`"],
    "lost": [["python3", "-m", "sglang.launch_server", "--api-key", "s3cret"]],
}


class FakeAgent:
    """A host without the session's directory; `sessions` is what `status` finds all the same."""

    def __init__(self, sessions: list[dict[str, Any]], recovered: dict[str, Any]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._sessions, self._recovered = sessions, recovered

    def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
        """One op."""
        self.asked.append((op, args))
        if op == "attach":
            raise HostError("there is no session", host="k0", code="missing", data={"ended": False})
        return Reply({"sessions": self._sessions} if op == "status" else self._recovered)

    def close(self) -> None:
        """Nothing is open."""


def come_back(
    monkeypatch: pytest.MonkeyPatch, sessions: list[dict[str, Any]], recovered: dict[str, Any]
) -> tuple[FakeAgent, Member]:
    """Regain a member whose files were patched and whose server was stopped."""
    agent: Any = FakeAgent(sessions, recovered)
    monkeypatch.setattr(regain, "open_agent", lambda *rest, **more: agent)
    monkeypatch.setattr(regain, "_GUARD_SEES_S", 0.0)
    install = {"package_dir": "/opt/sglang"}
    member = Member(
        Host("k0"), 0, install=install, begun=True, staged=True, swapped=True, stopping=True
    )
    transport: Any = None
    regain.regain(transport, "s", member, 0.0)
    return agent, member


def left(server: str, ran: bool) -> dict[str, Any]:
    """The session as `status` finds it by its lock."""
    return {**MINE, "lock": LOCK, "server": server, "ran": ran}


def test_undone_from_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are back; the server is not, and what is known of it is told without secrets."""
    agent, member = come_back(monkeypatch, [left("unknown", True)], BACK)

    assert agent.asked[1:] == [
        ("status", {"packages": ["/opt/sglang"]}),
        ("recover", {**MINE, "lock": LOCK}),
    ]
    assert (member.begun, member.state, member.server) == (False, "reverted", "not back")
    error = member.error
    assert error is not None
    assert (error.code, error.message) == (
        "lost-state",
        "the session's directory was lost on this host",
    )
    assert error.notes == (
        f"its directory was lost: undone from `{LOCK}`",
        "the debug life ran as `python3 -m sglang.launch_server --api-key [secret]`",
    )
    assert error.hints == (regain.START_BY_HAND,)


@pytest.mark.parametrize(
    ("server", "ran", "word"), [("untouched", False, "untouched"), ("unknown", False, "restored")]
)
def test_a_server_that_nobody_stopped(
    monkeypatch: pytest.MonkeyPatch, server: str, ran: bool, word: str
) -> None:
    """One that was left alone, or did not run before, has nothing to be given back."""
    _, member = come_back(monkeypatch, [left(server, ran)], {**BACK, "lost": []})

    assert (member.state, member.server) == ("reverted", word)
    assert member.error is not None
    assert member.error.hints == ()


def test_nothing_is_left_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lock nothing can be proven: unknown, and where to go on."""
    _, member = come_back(monkeypatch, [{**left("unknown", True), "session": "other"}], BACK)

    assert (member.begun, member.state, member.server) == (False, "unknown", "unknown")
    assert member.error is not None
    assert member.error.message == (
        "the session's directory is gone from this host, with the journal that would undo it"
    )
    assert member.error.hints == (
        "put the state directory back and run `sgldbg revert --all`, or undo it by hand:"
        " docs/guides/when-a-revert-fails.md",
    )


def test_what_is_somebody_else_s_is_told() -> None:
    """A file that force has let go is not as it was: its host says so."""
    files = [
        {"path": "/l.py", "state": "reverted", "why": "", "kept": ["/kept/1-l.py"]},
        {"path": "/i.py", "state": "reverted", "why": "other than before: inode", "kept": []},
        {"path": "/n.py", "state": "untouched", "why": "shared with k1", "kept": []},
        {"path": "/d.py", "state": "drift", "why": "it was changed", "kept": ["/.d.py.orig"]},
        {
            "path": "/m.py",
            "state": "untouched",
            "why": "left as it is: the install was made anew",
            "let_go": True,
            "kept": ["/kept/2-m.py"],
        },
    ]
    value = {"report": ["the lease ran out"], "files": files, "left": [], "server": None}
    assert tell_recovered(value) == [
        "the lease ran out",
        "what stood in /l.py is kept as /kept/1-l.py",
        "the original of /d.py is kept as /.d.py.orig",
        "the original of /m.py is kept as /kept/2-m.py",
        "/i.py: other than before: inode",
        "/m.py: left as it is: the install was made anew",
    ]
