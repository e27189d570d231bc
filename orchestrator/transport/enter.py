"""A further step from a host into a container: `docker exec -i NAME`, `kubectl exec -i POD --`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host

# Words that every login shell takes as they are. Names of containers and pods hold no others.
_PLAIN = re.compile(r"[A-Za-z0-9/=._+:@,-]+")
_EXEC = "exec "


def enter(host: Host, command: str) -> str:
    """The command line that runs `command` where the host's `enter` leads.

    `command` begins with `exec` and a program, so that the words of `enter` only have to stand
    before that program: nothing is quoted twice. Raises `HostError` (`bad-enter`).
    """
    if not host.enter:
        return command
    odd = _find_odd(host.enter)
    if odd is not None:
        raise HostError(
            f"`enter` holds `{odd}`, which not every shell takes as it is",
            host=host.name,
            code="bad-enter",
            hints=("write letters, digits and `/=._+:@,-` only, or put it into a script",),
        )
    if not command.startswith(_EXEC):
        raise ValueError("only a command that begins with `exec` can be entered with")
    return _EXEC + " ".join((*host.enter, command[len(_EXEC) :]))


def _find_odd(words: Sequence[str]) -> str | None:
    return next((word for word in words if not _PLAIN.fullmatch(word)), None)
