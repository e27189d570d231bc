"""Servers that somebody else runs: which way it is, and starting and stopping them that way.

A way stands in a server's description, so that whoever ends the session finds it there.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ..proc.launch import Change
from ..refusal import Refusal
from . import pair
from .systemd import unit


def start(way: Mapping[str, Any], description: Mapping[str, Any], change: Change) -> Dict[str, Any]:
    """Start the server in its way; value and errors are those of `process.start`."""
    if way["kind"] == "systemd":
        if change.session is None:
            return unit.start_original(way, description)
        return unit.start_debug(way, description, change)
    if way["kind"] == "pair":
        return pair.start(way, description, change)
    raise Refusal("bad-request", "there is no way `%s` to run a server" % way["kind"])


def stop(way: Mapping[str, Any], session: Optional[str], timeout_s: float) -> List[str]:
    """Have the server stopped, and what the debug life changed put back; in words what failed."""
    if way["kind"] == "systemd":
        return unit.stop(way, timeout_s, debug=session is not None)
    return pair.stop(way, timeout_s)
