"""What is refused because a host's Python does not read it: files, and what their probes ask."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from orchestrator.agent.client import AgentClient, Reply
from orchestrator.agent.frames import encode
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.model.plan import FilePlan, Plan, Site
from orchestrator.onhost.agent.ops_host import OPS
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.proving import check_code, find_needed

FILE = "sglang/m.py"
NOTHING: dict[str, Any] = {
    "capture": [{"name": "x", "code": "x"}],
    "once_per": [],
    "when": None,
    "emit_if": None,
    "expect": {},
}
BAD = "x y"


class _HereAgent:
    """The agent's own op, with this interpreter; files in `older` are beyond what it can read."""

    def __init__(self, older: dict[str, str] | None = None) -> None:
        self.older = older or {}

    def call(self, op: str, args: dict[str, Any], raw: bytes, timeout_s: float) -> Reply:
        """What that interpreter says of what a frame can hold."""
        encode({"id": 1, "op": op, "args": args}, raw)
        value, _ = OPS[op](None, args, raw)
        for row in value["files"]:
            row["error"] = self.older.get(row["file"], row["error"])
        return Reply(value)


def check(entry: dict[str, Any], after: bytes = b"x = 1\n", agent: Any = None) -> None:
    """The stage, for a plan of one file with one probe."""
    member = Member(Host("k0"), 0, cast("AgentClient", agent or _HereAgent()))
    member.install = {"python": sys.executable, "version": "3.8.10"}
    sites = (Site("p.1", "p", FILE, "f", 1, "x = 1"),)
    elsewhere = FilePlan("sglang/n.py", "1", "2", b")", "", ("k1",))
    plan = Plan("s", (FilePlan(FILE, "1", "2", after, "", ("k0",), sites=sites), elsewhere), {
        "p.1": entry, "on-another-host.1": {**NOTHING, "when": BAD},
    })  # fmt: skip
    check_code(plan)(member)


@pytest.mark.parametrize(
    "entry",
    [
        {"capture": [{"name": "a", "code": "x"}, {"name": "b", "code": BAD}]},
        {"once_per": ["x", BAD]},
        {"when": BAD},
        {"emit_if": BAD},
        {"expect": {"e": {"that": BAD, "when": None}}},
        {"expect": {"e": {"that": "x", "when": BAD}}},
    ],
)
def test_every_expression_is_read_by_the_host(entry: dict[str, Any]) -> None:
    """It would be an error entry in each record of a session that nobody can use."""
    with pytest.raises(HostError) as caught:
        check({**NOTHING, **entry})
    # Which words the compiler has for it depends on the Python that runs this.
    rendered = render(caught.value)
    error = rendered.partition("(Python 3.8.10): ")[2].partition("\n")[0]
    assert error.startswith("SyntaxError: ")
    assert error.endswith(" (line 1)")
    assert rendered == (
        f"error: `x y` of the probe `p.1` does not compile with {sys.executable} (Python 3.8.10): "
        f"{error}\n --> host k0\nhint: write it as Python 3.8 reads it"
    )


def test_what_can_be_read_is_let_through() -> None:
    """Expressions over several lines, and with comments, as the runtime takes them."""
    check(
        {
            **NOTHING,
            "once_per": ["x +\n1", "x  # this"],
            "expect": {"e": {"that": "1", "when": None}},
        }
    )


def test_as_many_expressions_as_a_table_holds() -> None:
    """Forty thousand short ones are within what one question to a host may be."""
    check({**NOTHING, "capture": [{"name": f"{n}", "code": f"{n}"} for n in range(40_000)]})


def test_syntax_that_is_too_new_is_told_with_its_version() -> None:
    """The host's Python by name and number, and the one that the code is written for."""
    after = b"try:\n    pass\nexcept* E:\n    pass\n"
    agent = _HereAgent({FILE: "SyntaxError: invalid syntax (line 3)"})
    with pytest.raises(HostError) as caught:
        check(NOTHING, after, agent)
    assert render(caught.value) == (
        f"error: the patched `{FILE}` does not compile with {sys.executable} (Python 3.8.10): "
        "SyntaxError: invalid syntax (line 3)\n --> host k0\n"
        "note: it is syntax of Python 3.11 and newer\n"
        "hint: write it as Python 3.8 reads it"
    )


@pytest.mark.parametrize(
    ("code", "minor"),
    [
        ("x = 1", 8),
        ("match x:\n  case 1: pass", 10),
        ("try: pass\nexcept* E: pass", 11),
        ("x y", None),
    ],
)
def test_since_when_code_can_be_read(code: str, minor: int | None) -> None:
    """As far as the parser knows; code that is none is of no version."""
    assert find_needed(code.encode()) == minor
