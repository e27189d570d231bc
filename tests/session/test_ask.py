"""`sgldbg ask`: another question to a placed probe of an applied session, without a restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent.client import AgentClient, Reply
from orchestrator.cli.render import find_exit_code
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.model.record import Record
from orchestrator.onhost.agent.ops_host import OPS
from orchestrator.session.asking import (
    Asked,
    Posed,
    Question,
    hold_leases,
    open_asked,
    put_question,
    read_table,
    tell_states,
)
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.left.parts import is_of
from tests.session.command import Result, call, told
from tests.session.world import Project, World

Command = Callable[..., Result]
SITE = "eagle3-draft-input.1"
PATCHED = "hosts:\n  demo-0: files are still patched, the patched server still runs\n"
WIDTH = "hidden_states.shape[-1]"


@pytest.fixture
def sgldbg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command; both texts come with everything replaced that differs from run to run."""

    def run(*arguments: object) -> Result:
        result = call(monkeypatch, *arguments)
        return Result(
            result.code, told(result.out, tmp_path), told(result.err, tmp_path), result.stages
        )

    return run


@pytest.fixture
def applied(single: World, small: Project, sgldbg: Command, tmp_path: Path) -> Iterator[Path]:
    """The session of the demonstration, applied; put back afterwards."""
    session = small.write()
    assert sgldbg("apply", session, "--runs", tmp_path / "runs", "--lease", "10m").code == 0
    yield session
    assert sgldbg("revert", session).code == 0
    single.assert_as_before()


def test_ask(applied: Path, sgldbg: Command) -> None:
    """The same processes answer within seconds, and a question that cannot work is refused."""
    seen: list[set[int]] = []
    wrong = sgldbg("ask", applied, "--site", SITE, "--capture", "hidden_state")
    assert wrong.code == 4
    assert wrong.err == (
        "error: `hidden_state` is not bound in `LlamaModel.forward`, nor in its module\n"
        "hint: did you mean `hidden_states`?\n" + PATCHED
    )
    unknown = sgldbg("ask", applied, "--site", "x.1", "--capture", "embeds")
    assert (unknown.code, unknown.err) == (
        4,
        f"error: there is no site `x.1`\n ::: on demo-0\nhint: the sites there: `{SITE}`\n"
        + PATCHED,
    )
    for limit in ("1", "2"):
        asked = sgldbg(
            "ask", applied, "--site", SITE, "--capture", WIDTH, "--capture", "[w for w in [1]]",
            "--when", "hidden_states is not None", "--limit", limit, "--exercise", "--json",
        )  # fmt: skip
        assert asked.code == 0, asked.err
        records = [r for r in json.loads(asked.out) if r["kind"] == "hit"]
        seen.append({r["pid"] for r in records})
        assert all(isinstance(r["values"][WIDTH], int) for r in records)
        assert asked.err == "every host reverts by itself in N s\n"
    inventory = ("--inventory", applied.parents[1] / "inventory.yaml")
    (left,) = json.loads(sgldbg("status", *inventory, "--json").out)["demo-0"]["sessions"]
    assert 500 < left["deadline_s"] - left["now_s"] <= 600  # as long as `apply` said
    assert seen[1] <= seen[0] or seen[0] <= seen[1]


def test_nothing_is_applied(small: Project, sgldbg: Command) -> None:
    """Without an applied session there is nobody to ask."""
    asked = sgldbg("ask", small.write(), "--site", SITE, "--capture", "embeds")
    assert (asked.code, asked.err) == (
        6,
        "error: nothing of this session is applied\n"
        "hint: apply it first: `sgldbg apply TMP/project/sessions/session.yaml`\n"
        "hosts:\n  demo-0: nothing was written, server was not touched\n",
    )


SINCE = {"holder": "ann@desk", "host": "", "elsewhere": None, "taken_from": None}
PARTS = {"server": "debug life", "state": "patched", "files": [{"path": "/f", "state": "patched"}]}
DRIFT = {"server": "restored, and gone since", "files": [{"path": "/f", "state": "drift"}]}


def make_left(host: str, **changes: Any) -> dict[str, Any]:
    """What a host tells of an applied session."""
    return (
        {"session": "1-1-s-00000000", "controller": "detached"}
        | SINCE
        | PARTS
        | {"host": host}
        | changes
    )


def contact(host: str, *sessions: dict[str, Any]) -> Contact:
    """A host that answered."""
    return Contact(Host(host), cast("AgentClient", object()), None, sessions)


def test_who_is_asked_by_somebody_else_is_refused() -> None:
    """Exit code 5, with the state that every host is in: it is the one before, not the original."""
    gone = Contact(Host("c"), None, HostError("it is off", host="c", code="unreachable"))
    contacts = [contact("a", make_left("a", controller="alive")), contact("b"), gone]
    contacts += [contact("d", make_left("d", **DRIFT)), contact("e", make_left("e"))]
    with pytest.raises(HostError) as caught:
        open_asked(contacts, is_of("s"))
    caught.value.outcomes = tell_states(contacts, is_of("s"), {"e"})
    assert find_exit_code(caught.value) == 5
    assert render(caught.value) == (
        "error: session `1-1-s-00000000` is driven by ann@desk right now\n"
        " --> host a\n"
        "hint: ask when it has detached\n"
        "hosts:\n"
        "  a: files are still patched, the patched server still runs\n"
        "  b: nothing was written, server was not touched\n"
        "  c, e: state of the files is unknown, state of the server is unknown\n"
        "  d: files were changed by somebody else, server is not back"
    )


def test_several_sessions_are_refused() -> None:
    """None of them is taken at a guess."""
    two = [make_left("a"), make_left("a", session="2-2-s-00000000")]
    with pytest.raises(HostError) as caught:
        open_asked([contact("a", *two)], is_of("s"))
    assert find_exit_code(caught.value) == 5
    assert render(caught.value) == (
        "error: several sessions are applied: 1-1-s-00000000, 2-2-s-00000000\n"
        " --> host a\n"
        "hint: end them, and apply it anew: `sgldbg revert SESSION`\n"
        "hosts:\n"
        "  a: state of the files is unknown, state of the server is unknown"
    )


class _HeldAgent:
    """A host that notes its renewals; the first is lost, as on a bad line."""

    def __init__(self) -> None:
        self.renewed: list[object] = []
        self.enough = threading.Event()

    def call(self, op: str, args: dict[str, Any], timeout_s: float) -> Reply:
        """The lease goes on; the third time is enough for a test."""
        assert (op, timeout_s) == ("renew", 0.01)
        self.renewed.append(args["lease_s"])
        if len(self.renewed) == 1:
            raise HostError("no answer", host="a", code="timeout")
        if len(self.renewed) == 3:
            self.enough.set()
        return Reply({"guard": "alive"})


def test_no_lease_runs_out_over_a_question() -> None:
    """However long the answers take; what was kept has no lease, and is left as it is."""
    agent, kept = _HeldAgent(), _HeldAgent()
    both = [
        Asked(name, cast("AgentClient", held), {"controller": controller}, "/p", {})
        for name, held, controller in (("a", agent, "detached"), ("b", kept, "kept"))
    ]
    with hold_leases(both, 0.04):
        assert agent.enough.wait(30)
    assert (set(agent.renewed), kept.renewed) == ({0.04}, [])
    assert not [t for t in threading.enumerate() if t.name == "sgldbg-renewal"]


USAGE = "Usage: sgldbg ask [OPTIONS] SESSION\nTry 'sgldbg ask --help' for help.\n\nError: "
TWICE = "given more than once: a question is for one site, with one condition\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--limit", "0"), "Invalid value for '--limit': 0 is not in the range x>=1.\n"),
        (("--site", "p.2"), f"Invalid value for '--site': {TWICE}"),
        (("--when", "x", "--when", "y"), f"Invalid value for '--when': {TWICE}"),
        (("--when", ""), "Invalid value: ``: the code is empty\n"),
    ],
)
def test_a_question_that_nobody_can_answer(
    sgldbg: Command, words: tuple[str, ...], error: str
) -> None:
    """It is refused at once, and no part of it is dropped without a word."""
    asked = sgldbg("ask", "none.yaml", "--site", SITE, "--capture", "x", *words)
    assert (asked.code, asked.err) == (2, USAGE + error)


class _HereAgent:
    """The agent's own ops, called in this process."""

    def call(self, op: str, args: dict[str, Any]) -> Reply:
        return Reply(*OPS[op](None, args, b""))


def make_record(host: str, pid: int, kind: str = "hit", generation: int = 1) -> Record:
    """A record of the site by a scheduler whose rank is its pid's last digit."""
    title = f"sglang::scheduler_TP{pid % 10}"
    kind, note = ("skip", "rank 1 is not asked") if kind == "left out" else (kind, "")
    return Record(
        "s", kind, SITE, host, pid, title, 1, "armed", 0.0, 0.0, note=note, generation=generation
    )


@pytest.mark.parametrize(
    ("earlier", "answers", "missing", "answered"),
    [
        ([("a", 10), ("b", 11)], [], ["a TP0", "b TP1"], False),
        ([("a", 10), ("b", 11)], [("a", 10, "hit")], ["b TP1"], False),
        ([("a", 10), ("b", 11)], [("a", 10, "hit"), ("b", 10, "hit")], ["b TP1"], False),
        ([("a", 10), ("b", 11)], [("a", 10, "hit"), ("b", 11, "skip")], ["b TP1"], False),
        ([("a", 10), ("b", 11)], [("b", 11, "error"), ("a", 10, "hit")], [], True),
        ([("a", 10), ("b", 11)], [("a", 10, "hit"), ("b", 11, "left out")], [], True),
        ([("a", 10), ("b", 11)], [("b", 11, "left out")], ["a TP0"], False),
        ([], [("a", 10, "skip")], [], False),
        ([], [("a", 10, "hit")], [], True),
    ],
)
def test_everybody_who_knows_the_site_is_waited_for(
    earlier: list[Any], answers: list[Any], missing: list[str], answered: bool
) -> None:
    """One worker's answer is not shown alone where others have reached the site before."""
    posed = Posed(SITE, 2, {key: f"TP{key[1] % 10}" for key in earlier})
    records = [make_record(*answer, generation=2) for answer in answers]
    assert (posed.missing(records), posed.is_answered(records)) == (missing, answered)


class _SpoolAgent:
    """A host with nothing new in its spool."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}

    def call(self, op: str, args: dict[str, Any]) -> Reply:
        """The new table is kept."""
        assert op in ("read-spool", "probe-table")
        self.table = args.get("table", self.table)
        return Reply({"files": []})


IMPORTED = [
    make_record("a", 13, "import"),
    replace(make_record("a", 5, "import"), title="python -m sglang.launch_server --port 1"),
]


@pytest.mark.parametrize(
    ("earlier", "known"),
    [
        (
            [
                *IMPORTED,
                make_record("a", 10),
                replace(make_record("a", 10), title="python"),
                make_record("a", 11, "skip"),
                replace(make_record("a", 12), title="python"),
            ],
            {("a", 10): "TP0", ("a", 11): "TP1", ("a", 12): "pid 12"},
        ),
        ([*IMPORTED, make_record("a", 13, "left out"), make_record("a", 14)], {("a", 14): "TP4"}),
        (IMPORTED, {("a", 13): "TP3"}),
        ([*IMPORTED, make_record("a", 13, "left out")], {}),
        (IMPORTED[1:], {}),
    ],
)
def test_a_question_knows_who_was_there_before(
    earlier: list[Record], known: dict[tuple[str, int], str]
) -> None:
    """From the records of its site; those of others do not count.

    Who only imported the module is no worker of the site, such as SGLang's main process, which
    would be waited for in vain; as long as nobody reached it, those who may are the schedulers.
    """
    earlier = [*earlier, replace(make_record("a", 12), site="other.1")]
    agent = _SpoolAgent()
    table = {"generation": 4, "sites": {SITE: {}}}
    asked = Asked("a", cast("AgentClient", agent), {"session": "s"}, "/p", table)
    asked.records += earlier
    posed = put_question([asked], Question(SITE, ()))
    assert posed == Posed(SITE, 5, known)
    assert (asked.records, agent.table["generation"]) == ([], 5)


def test_a_table_of_any_length_is_read(tmp_path: Path) -> None:
    """Sixty sites and more make a table beyond what `tail` sends; one that is gone is said so."""
    agent = cast("AgentClient", _HereAgent())
    with pytest.raises(HostError) as caught:
        read_table("h", agent, str(tmp_path))
    assert (caught.value.message, caught.value.code) == ("its probe table is gone", "table")
    table = {"sites": {f"p.{n}": {"capture": "x" * 1000} for n in range(300)}}
    (tmp_path / "table.json").write_text(json.dumps(table))
    assert read_table("h", agent, str(tmp_path)) == table
