"""Ends sessions outside of a run: after `apply`, and after a controller that died."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.outcome import Outcome
from orchestrator.session.contact import Contact

# Stopping a server takes 8 to 10 s as measured, up to 30 s where it drains; then it is killed.
_STOP_S = 30.0
_TAIL_S = 300.0
_THREADS = 32

Wanted = Callable[[Mapping[str, Any]], bool]


def is_of(session_name: str) -> Wanted:
    """Chooses the sessions that were made from the session file of this name."""
    return lambda left: str(left["session"])[: -len("-00000000")].endswith(f"-{session_name}")


def end_sessions(
    contacts: Sequence[Contact], wanted: Wanted, *, force: bool, take_live: bool
) -> list[Outcome]:
    """End every wanted session on every host that answered; one outcome per host, in order.

    A session that a live controller is working on is only taken from it with `take_live`. `force`
    puts the original back over a file that somebody else has changed meanwhile.
    """
    if not contacts:
        return []

    def end(contact: Contact) -> Outcome:
        return _end_on(contact, wanted, force=force, take_live=take_live)

    with ThreadPoolExecutor(min(_THREADS, len(contacts)), "sgldbg-undo") as pool:
        return list(pool.map(end, contacts))


def _end_on(contact: Contact, wanted: Wanted, *, force: bool, take_live: bool) -> Outcome:
    name = contact.host.name
    if contact.agent is None:
        message = contact.error.message if contact.error else ""
        return Outcome(name, "revert", False, "unknown", "unknown", message)
    chosen = [s for s in contact.sessions if wanted(s)]
    if not chosen:
        return Outcome(name, "revert", True, message="nothing was left")
    worst = Outcome(name, "revert", True, "reverted", "restored")
    for left in chosen:
        try:
            outcome = _end_one(contact, left, force=force, take_live=take_live)
        except HostError as error:
            state = "patched" if left["files"] else "unknown"
            outcome = Outcome(name, "revert", False, state, "unknown", error.message)
        if not outcome.ok:
            worst = outcome
    return worst


def _end_one(contact: Contact, left: Mapping[str, Any], *, force: bool, take_live: bool) -> Outcome:
    assert contact.agent is not None
    agent, name = contact.agent, contact.host.name
    if left["controller"] == "alive" and not take_live:
        raise HostError(
            f"session `{left['session']}` of {left['holder']} is at work; end it there, or take it"
            " with --take",
            host=name,
            code="busy",
        )
    mine = {"session": left["session"], "host": left["host"]}
    if not left["expired"]:
        # Ours now; then its time is let run out, so that the host's own tail does the rest.
        agent.call("attach", mine)
    value = agent.call("recover", mine | {"force": force}, timeout_s=_TAIL_S).value
    if value["left"]:
        state = "reverted" if value["verified"] else "drifted"
        server = "restored" if value["server"] else "not back"
        return Outcome(name, "revert", False, state, server, "; ".join(value["left"]))
    return Outcome(name, "revert", True, "reverted", "restored", str(left["session"]))


def keep_sessions(contacts: Sequence[Contact], wanted: Wanted) -> list[Outcome]:
    """End the leases of the wanted sessions; the files stay patched until a later revert."""
    outcomes = []
    for contact in contacts:
        name = contact.host.name
        if contact.agent is None:
            message = contact.error.message if contact.error else ""
            outcomes.append(Outcome(name, "keep", False, "unknown", "unknown", message))
            continue
        for left in contact.sessions:
            if not wanted(left):
                continue
            try:
                contact.agent.call("attach", {"session": left["session"], "host": left["host"]})
                contact.agent.call("keep")
            except HostError as error:
                outcomes.append(Outcome(name, "keep", False, "unknown", "unknown", error.message))
            else:
                outcomes.append(
                    Outcome(name, "keep", True, "patched", "debug life", str(left["session"]))
                )
    return outcomes
