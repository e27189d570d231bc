"""Asking a host what is left there: what one install hides does not hide the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import (
    Host,
    Install,
    Inventory,
    LaunchAdopt,
    LaunchCommand,
    Server,
)
from orchestrator.session.hosts import contact
from orchestrator.session.hosts.contact import list_notes, open_contacts
from orchestrator.transport.base import Transport

NAMES = ("slow", "absent", "fine")
BOOK = Inventory(
    path="inventory.yaml",
    groups={},
    hosts={"h": Host("h")},
    installs={n: Install(n, n, "sglang") for n in NAMES},
    servers={n: Server(n, n, ("h",), LaunchAdopt(), "http://127.0.0.1:1") for n in NAMES},
)
SLOW = HostError("no answer to `locate` within 10 s", host="h", code="timeout")
ABSENT = HostError("there is no interpreter `absent`", host="h", code="no-interpreter")
GONE = HostError("process 7 is gone", host="h", code="gone")
LOST = HostError("the link broke", host="h", code="lost")
CRASH = HostError("`status` failed: \x1b[31mKeyError", host="h", code="crash")
KNOWN, HIDDEN = {"session": "known"}, {"session": "hidden"}
NOTE = "h: beside install `slow` no lost session was sought: no answer to `locate` within 10 s"


GIVEN = {"values": {}, "unknown": []}
RUNNING = [
    {"pid": 7, "given": GIVEN, "readable": True, "ports": [1], "listening": [["127.0.0.1", 1]]},
    {"pid": 8, "given": GIVEN, "readable": True, "ports": [2], "listening": [["127.0.0.1", 2]]},
]
CLOSED = {"readable": False, "user": "ann"}


class Agent:
    """A host that knows one session by itself, and one beside its install `fine`."""

    host = "h"

    def __init__(self, answers: Mapping[Any, Any]) -> None:
        self._answers, self.closed = answers, False
        self.packages: list[str] = []

    def call(self, op: str, args: Mapping[str, Any], timeout_s: float = 30.0) -> Reply:
        """`status`, `find-servers` or `locate`."""
        if op == "find-servers":
            assert timeout_s == 10
            answer = self._answers.get("servers", [])
        elif op == "locate":
            assert timeout_s == 10
            name = args.get("env", {}).get("PYTHONPATH") or args["python"] or args["pid"]
            answer = self._answers.get(name, {"package_dir": f"/{name}/sglang"})
        elif args["packages"]:
            self.packages = args["packages"]
            answer = self._answers.get("beside", {"sessions": [KNOWN, HIDDEN]})
        else:
            answer = {"sessions": [KNOWN]}
        if isinstance(answer, HostError):
            raise answer
        return Reply(answer)

    def close(self) -> None:
        """Given up."""
        self.closed = True


@pytest.mark.parametrize(
    ("answers", "sessions", "notes", "error"),
    [
        ({}, (KNOWN, HIDDEN), [], None),
        ({"slow": SLOW, "absent": ABSENT}, (KNOWN, HIDDEN), [NOTE], None),
        ({"slow": SLOW, "absent": ABSENT, "fine": ABSENT}, (KNOWN,), [NOTE], None),
        ({"beside": CRASH}, (KNOWN,),
         ["h: no lost session was sought: `status` failed: \\x1b[31mKeyError"],
         None),
        ({"absent": LOST}, (), [], LOST),
        ({"beside": LOST}, (), [], LOST),
    ],
    ids=["all", "slow", "none", "crash", "lost", "lost later"],
)  # fmt: skip
def test_what_is_left_is_told_whatever_an_install_does(
    monkeypatch: pytest.MonkeyPatch,
    answers: Mapping[str, Any],
    sessions: tuple[Any, ...],
    notes: list[str],
    error: HostError | None,
) -> None:
    """Only a host that is lost has no answer; who did not say where an install is, is named."""
    agent = Agent(answers)
    monkeypatch.setattr(contact, "open_agent", lambda *args, **kwargs: agent)
    contacts = open_contacts(cast("Transport", None), [Host("h")], BOOK)
    (one,) = contacts
    assert (one.sessions, list_notes(contacts), one.error) == (sessions, notes, error)
    assert (one.agent is None, agent.closed) == (error is not None,) * 2


@pytest.mark.parametrize(
    ("answers", "packages", "notes"),
    [
        ({}, [], []),
        ({"servers": RUNNING}, ["/7/sglang", "/8/sglang"], []),
        ({"servers": RUNNING, 7: GONE}, ["/8/sglang"], []),
        ({"servers": RUNNING, 7: SLOW}, ["/8/sglang"], [NOTE]),
        ({"servers": SLOW}, [], [NOTE]),
        ({"servers": [RUNNING[0], {**RUNNING[1], **CLOSED}]}, ["/7/sglang"], []),
        (
            {"servers": [{**RUNNING[0], **CLOSED}]},
            [],
            [
                "h: beside install `slow` no lost session was sought: its server (process 7)"
                " belongs to ann, whose processes we may not read"
            ],
        ),
    ],
    ids=[
        "none runs",
        "two",
        "one that ends",
        "one without an answer",
        "no answer",
        "one that is closed to us",
        "only one that is closed",
    ],
)
def test_an_install_without_an_interpreter_is_where_its_servers_run(
    monkeypatch: pytest.MonkeyPatch, answers: Any, packages: list[str], notes: list[str]
) -> None:
    """So a session is found of which only a lock is left, also once `/tmp` was emptied."""
    agent = Agent(answers)
    monkeypatch.setattr(contact, "open_agent", lambda *args, **kwargs: agent)
    servers = {"slow": BOOK.servers["slow"]}
    book = replace(BOOK, installs={"slow": Install("slow", None, "sglang")}, servers=servers)
    contacts = open_contacts(cast("Transport", None), [Host("h")], book)
    found = (KNOWN, HIDDEN) if packages else (KNOWN,)
    assert (agent.packages, list(contacts[0].sessions)) == (packages, list(found))
    assert list_notes(contacts) == notes


def test_an_install_whose_interpreter_alone_does_not_find_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment of its server leads to it, as by PYTHONPATH; no other server is asked."""
    agent = Agent({"python3": ABSENT, "servers": RUNNING})
    monkeypatch.setattr(contact, "open_agent", lambda *args, **kwargs: agent)
    installs = {"slow": Install("slow", "python3", "sglang")}
    book = replace(BOOK, installs=installs, servers={"slow": BOOK.servers["slow"]})
    contacts = open_contacts(cast("Transport", None), [Host("h")], book)
    assert agent.packages == ["/7/sglang"]
    assert list(contacts[0].sessions) == [KNOWN, HIDDEN]


def test_an_install_that_only_a_command_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment and directory count while its server is down, as for a session."""
    agent = Agent({"python3": ABSENT})
    monkeypatch.setattr(contact, "open_agent", lambda *args, **kwargs: agent)
    launch = LaunchCommand(("python3", "-m", "x"), {"PYTHONPATH": "/src/{host}"}, "/srv")
    servers = {"slow": replace(BOOK.servers["slow"], launch=launch)}
    for python in (None, "python3"):
        book = replace(BOOK, installs={"slow": Install("slow", python, "sglang")}, servers=servers)
        contacts = open_contacts(cast("Transport", None), [Host("h")], book)
        assert agent.packages == ["//src/h/sglang"]
        assert list(contacts[0].sessions) == [KNOWN, HIDDEN]
