"""`sgldbg status`: what it advises about the sessions that it finds."""

from __future__ import annotations

import pytest

from orchestrator.cli.commands.revert import show_outcomes
from orchestrator.cli.commands.status import hints, session_lines
from orchestrator.model.outcome import Outcome

ENDS = "`sgldbg revert --all` ends what is left"
LIVE = "a session that is at work ends by itself; `sgldbg revert --all` passes it over"
COMPARE = (
    "compare the versions; `sgldbg revert --all --force` puts back the original that is kept, or"
    " where the install was made anew, leaves it as it is"
)
AWAY = "a session of another machine is ended there"


@pytest.mark.parametrize(
    ("controllers", "said"),
    [
        ([], []),
        (["alive"], [LIVE]),
        (["gone"], [ENDS]),
        (["detached", "kept"], [ENDS]),
        (["elsewhere"], [AWAY]),
        (["gone", "elsewhere", "alive"], [LIVE, AWAY, ENDS]),
    ],
)
def test_the_advice_is_true_of_what_is_there(controllers: list[str], said: list[str]) -> None:
    """Nobody is told to end what `revert --all` does not end."""
    assert hints([{"controller": controller} for controller in controllers]) == said


CLOSED = "what a guard has reverted is as it was; `sgldbg revert --all` takes its report away"


def test_what_a_guard_has_reverted_is_not_left() -> None:
    """Only its report is there to be taken away; what another session left is said as ever."""
    over = {"controller": "gone", "over": True}
    assert hints([over, over]) == [CLOSED]
    assert hints([over, {"controller": "gone", "over": False}]) == [ENDS, CLOSED]


def test_the_advice_about_what_drifted() -> None:
    """No revert ends it without force, and nobody is told to force before they have compared."""
    drift = {"controller": "gone", "files": [{"path": "/x.py", "state": "drift"}]}
    assert hints([drift, drift]) == [COMPARE]
    assert hints([drift, {"controller": "kept"}]) == [f"{ENDS}, but not what drifted", COMPARE]
    assert hints([drift | {"controller": "alive"}]) == [LIVE]


def test_what_a_guard_left_at_first_is_not_left_any_more() -> None:
    """It tried again, and what it could not do before is done."""
    report = [
        "the lease ran out: 3 of 3 files put back",
        "left: the server: exit status 3",
    ]
    session = BEFORE_ITS_FIRST_LINE | {"report": report}
    told = [f"  guard: {line}" for line in report]
    assert session_lines(session)[1:] == told
    assert session_lines(session | {"over": True})[1:] == told[:1]


def test_the_advice_about_a_host_that_does_not_answer() -> None:
    """How its part in a shared install is ended, once; not where it answers, and ends it itself."""
    seen = [
        {"controller": "elsewhere", "host": host, "lock": lock}
        for host, lock in (("k0", "/l"), ("k0", "/l"), ("k1", "/m"), ("k2", None))
    ]
    gone = "should that machine never come back: `sgldbg revert --all --gone k0`"
    assert hints(seen, {"k1", "k3"}) == [AWAY, gone]


@pytest.mark.parametrize(
    ("ends", "hint"),
    [
        (
            "user",
            "what is the user `ann`'s is ended as that user: `sgldbg revert --all`; how root does"
            " it in their place: docs/guides/when-a-revert-fails.md",
        ),
        ("guard", "what a guard is about to undo ends by itself"),
        ("there", "a session whose processes are not seen from here is ended where it was begun"),
        (
            "hand",
            "what cannot be read no revert ends: put the files back by hand,"
            " docs/guides/when-a-revert-fails.md",
        ),
    ],
)
def test_the_advice_about_what_no_revert_ends(ends: str, hint: str) -> None:
    """Nobody is told that a revert would: by whom it is ended is said instead, once."""
    session = {"controller": "gone", "ends": ends, "user": "ann"}
    assert hints([session, session]) == [hint]
    assert hints([session, {"controller": "gone"}]) == [ENDS, hint]
    roots = session | {"ends": "user", "user": "root"}
    assert hints([roots]) == ["what is root's is ended as root: `sgldbg revert --all`"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"until": 7200.0},
            "session s1 of ann@desk since 1970-01-01 00:00:00 UTC: patched, until 1970-01-01"
            " 02:00:00 UTC by its last word, guard alive, server unknown",
        ),
        (
            {"until": None},
            "session s1 of ann@desk since 1970-01-01 00:00:00 UTC: patched, kept without an end,"
            " guard alive, server unknown",
        ),
        (
            {"until": 7200.0, "expired": True},
            "session s1 of ann@desk since 1970-01-01 00:00:00 UTC: patched, its lease is over,"
            " guard alive, server unknown",
        ),
        (
            {"until": None, "session": "", "holder": "", "since": None, "state": "unknown"},
            "session of an unknown name of an unknown holder since an unknown time: unknown, for"
            " an unknown time, guard alive, server unknown",
        ),
    ],
    ids=["live", "kept", "over", "unreadable"],
)
def test_a_session_that_is_known_by_its_lock(changes: dict[str, object], said: str) -> None:
    """Holder, since and until, and why nobody here undoes it."""
    session = BEFORE_ITS_FIRST_LINE | {"holder": "ann@desk", "since": 0, "state": "patched"}
    session |= {"guard": "alive", "server": "unknown", "lock": "/site/x/.sgldbg-lock"}
    session |= {"expired": False, "lost": None, "why_not": "it is another user's"} | changes
    assert session_lines(session) == [
        said,
        "  known from /site/x/.sgldbg-lock",
        "  not undone from here: it is another user's",
    ]


BEFORE_ITS_FIRST_LINE = {
    "session": "s1",
    "holder": "",
    "since": None,
    "state": "begun",
    "deadline_s": None,
    "expired": True,
    "guard": "unknown",
    "server": "untouched",
    "files": [],
    "report": [],
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "session s1 of an unknown holder since an unknown time: begun, its lease is over,"
            " guard unknown, server untouched",
        ),
        (
            {"holder": "ann@desk", "since": 0, "expired": False, "state": "patched"},
            "session s1 of ann@desk since 1970-01-01 00:00:00 UTC: patched, without an end,"
            " no guard, server untouched",
        ),
        (
            {"elsewhere": "gpu9", "state": "is of the machine `gpu9`"},
            "session s1 of an unknown holder since an unknown time: is of the machine `gpu9`, to"
            " be seen there",
        ),
        (
            {"expired": False, "deadline_s": 9.0, "now_s": 5.0, "controller": "gone"}
            | {"guard": "alive"},
            "session s1 of an unknown holder since an unknown time: begun, reverts by itself in"
            " 4 s, guard alive, server untouched",
        ),
        (
            {"expired": False, "deadline_s": 9.0, "now_s": 5.0, "controller": "alive"}
            | {"guard": "dead"},  # the next heartbeat makes another
            "session s1 of an unknown holder since an unknown time: begun, reverts by itself in"
            " 4 s, guard dead, server untouched",
        ),
        (
            {"expired": False, "deadline_s": 9.0, "now_s": 5.0, "controller": "detached"}
            | {"guard": "dead"},
            "session s1 of an unknown holder since an unknown time: begun, its lease ends in 4 s,"
            " nobody is left to revert it then, guard dead, server untouched",
        ),
        (
            {"expired": False, "deadline_s": 9.0, "now_s": 5.0, "controller": "gone"}
            | {"guard": "alive", "state": "drift"},
            "session s1 of an unknown holder since an unknown time: drift, its lease ends in 4 s,"
            " what drifted stays, guard alive, server untouched",
        ),
    ],
)
def test_a_session_in_words(changes: dict[str, object], said: str) -> None:
    """What is not known of it is said to be unknown, and a lease that is over never to be none."""
    assert session_lines(BEFORE_ITS_FIRST_LINE | changes) == [said]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("a", "revert", True), "nothing was written, server was not touched"),
        (Outcome("a", "revert", True, message="nothing was left"), "nothing was left"),
    ],
)
def test_no_host_without_words(
    outcome: Outcome, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session that had done nothing yet has neither files nor a message to tell of."""
    show_outcomes([outcome], as_json=False)
    assert capsys.readouterr() == (f"a: {said}\n", "")
