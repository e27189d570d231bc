"""One state directory on several machines: each ends its own sessions, and only names the rest."""

from __future__ import annotations

import pytest

from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.held import lease, machine
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import recover
from tests.onhost.transaction.place import (
    HOST,
    NOBODY,
    SESSION,
    Place,
    op,
    stage,
)

OTHER = "the session is of the machine `alpha`, which shares this state directory"


class Network:
    """Two machines with a disk each, whose home is one; this process is on one of them."""

    def __init__(self, monkeypatch, place):
        self._patch = monkeypatch
        self.alpha = place
        beta = place.top / "beta"
        beta.mkdir()
        self.beta = Place(place.top, beta)
        self.be("alpha")

    def be(self, name):
        """Go on as that machine."""
        self._patch.setattr(machine, "read_name", lambda: name)
        self._patch.setattr(lease, "read_boot_id", lambda: f"boot of {name}")


@pytest.fixture
def network(monkeypatch, place):
    """A session of `alpha` has its files patched; we are on `beta` now."""
    net = Network(monkeypatch, place)
    net.context = place.begin()
    stage(place, net.context)
    op(net.context, "swap")
    net.be("beta")
    return net


def test_it_is_shown_as_it_is(network):
    """`status` names the machine and says nothing that only that one knows."""
    (seen,) = network.alpha.status()
    told = {k: seen[k] for k in ("state", "expired", "controller", "guard", "files", "elsewhere")}
    assert told == {
        "state": "on another machine: alpha",
        "expired": False,
        "controller": "elsewhere",
        "guard": "unknown",
        "files": [],
        "elsewhere": "alpha",
    }
    network.be("alpha")
    (seen,) = network.alpha.status()
    assert (seen["state"], seen["elsewhere"]) == ("patched", None)


def test_nobody_else_ends_it(network):
    """Neither `recover` nor `attach` touches it, lease or no lease; its own end works."""
    for _ in range(2):
        for name in ("recover", "attach"):
            with pytest.raises(Refusal) as refused:
                op(Context(network.alpha.state), name, session=SESSION, host=HOST)
            assert (refused.value.code, refused.value.message) == ("elsewhere", OTHER)
        network.alpha.expire()
    network.alpha.expire(deadline_s=lease.now_s() + 60.0)
    network.be("alpha")
    assert op(network.context, "revert")["verified"]
    op(network.context, "finish")
    assert network.alpha.changes() == network.beta.changes() == []


def test_a_session_beside_it(network):
    """Another session of the same paths on the other machine is not in its way, and ends it not."""
    beta = network.beta.begin(session="s2")
    assert stage(network.beta, beta)["recovered"] == []
    op(beta, "swap")
    assert op(beta, "revert")["verified"]
    op(beta, "finish")
    network.be("alpha")
    assert network.alpha.status()[0]["state"] == "patched"
    assert network.alpha.recover()["left"] == []
    assert network.alpha.changes() == network.beta.changes() == []


def test_a_name_that_is_taken_there(network):
    """A session of the same name and host is refused, whatever became of the other's lease."""
    network.alpha.expire()
    with pytest.raises(Refusal) as refused:
        network.beta.begin()
    assert refused.value.code == "exists"


def test_its_own_guard_outlives_a_new_name(network):
    """Where a machine was renamed in the middle, what began there still ends there."""
    network.be("alpha")
    network.alpha.expire()
    network._patch.setattr(machine, "read_name", lambda: "renamed")
    session = recover.take_over(network.alpha.directory(), lease.GUARD, 5.0)
    try:
        assert recover.run_tail(session)["verified"]
    finally:
        session.close()


def test_by_hand(network, capsys):
    """`revert --all` passes it over and says why; `--here` is for a machine that was renamed."""
    assert by_hand.main(["status"]) == by_hand.NOT_RESTORED
    shown = capsys.readouterr().out
    assert f"s1 on {HOST}: on another machine: alpha\n" in shown
    assert "  to be seen and undone there\n" in shown
    assert by_hand.main(["revert", "--all"]) == 0
    assert capsys.readouterr().out == f"s1 on {HOST}: not reverted (elsewhere): {OTHER}\n"
    assert by_hand.main(["revert", "--all", "--here"]) == by_hand.USAGE_WRONG
    network.be("alpha")
    network.alpha.expire()
    network._patch.setattr(machine, "read_name", lambda: "renamed")
    network.context.session.close()
    assert by_hand.main(["revert", SESSION, "--here"]) == 0
    assert network.alpha.changes() == []


def test_what_tells_machines_apart(monkeypatch, tmp_path):
    """The name and the number both count; one without a number has its name alone."""
    number = tmp_path / "machine-id"
    monkeypatch.setattr(machine, "_MACHINE_ID", (str(tmp_path / "none"), str(number)))
    monkeypatch.setattr(machine, "read_name", lambda: "a")
    seen = {machine.read_id()}
    number.write_text("0123\n")
    seen.add(machine.read_id())
    monkeypatch.setattr(machine, "read_name", lambda: "b")
    seen.add(machine.read_id())
    assert len(seen) == 3
    assert machine.find_other({"hostname": "b", "machine": machine.read_id()}) is None
    assert machine.find_other({"hostname": "b"}) is None  # of before machines were journaled
    assert machine.find_other(None) is None


def test_another_state_directory_of_ours(place, monkeypatch, capsys):
    """The lock leads to a session that has its own one: shown beside its package, and ended there.

    Nobody is told that nothing is changed while the install is patched.
    """
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    context.session.close()
    other, package = str(place.top / "other"), str(place.package_dir)
    monkeypatch.setenv("SGLDBG_STATE", other)
    assert by_hand.main(["status", package]) == by_hand.NOT_RESTORED
    said = capsys.readouterr().out
    assert said.startswith(f"{SESSION} on {HOST}: patched\n")
    assert f"  known from `{package}/.sgldbg-lock`\n" in said
    assert by_hand.main(["revert", "--all", package]) == by_hand.NOT_RESTORED
    live = f"{SESSION} on {HOST}: not reverted (busy): the session's lease is live for another "
    assert capsys.readouterr().out.startswith(live)
    place.expire(agent=NOBODY)
    assert by_hand.main(["status"]) == 0  # nobody named the package
    assert by_hand.main(["revert", "--all", package]) == 0
    assert capsys.readouterr().out.endswith(f"{SESSION} on {HOST}: reverted and verified\n")
    assert (place.changes(), place.status()) == ([], [])
