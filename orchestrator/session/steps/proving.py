"""What each host's own Python says of the code that is to run there, before anything is written."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.plan import Plan
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.locating import LOOK_S

_OLDEST = 8  # the minor version of the first Python 3 that a host may have


def check_code(plan: Plan) -> Callable[[Member], None]:
    """The stage in which each host's own interpreter compiles the planned files, and every
    expression of their probes, which would else be an error entry in each record.
    """

    def act(member: Member) -> None:
        files = plan.of_host(member.name)
        sites = {s.site for file in files for s in file.sites}
        asked = [(site, text) for site in plan.table if site in sites
                 for text in dict.fromkeys(_list_expressions(plan.table[site]))]  # fmt: skip
        # As the runtime reads them, so that they may span lines.
        codes = [*(f.after for f in files), *(f"({text}\n)".encode() for _, text in asked)]
        names = [*(f.file for f in files), *(site for site, _ in asked)]
        args = {
            "python": member.install["python"],
            "files": [{"file": n, "size": len(c)} for n, c in zip(names, codes, strict=True)],
        }
        reply = member.channel.call("check-code", args, b"".join(codes), timeout_s=LOOK_S)
        errors = [row["error"] for row in reply.value["files"]]
        number = next((n for n, error in enumerate(errors) if error), None)
        if number is None:
            return
        what = f"the patched `{names[number]}`"
        if number >= len(files):
            site, text = asked[number - len(files)]
            what = f"`{text}` of the probe `{site}`"
        raise _refusal(member, what, codes[number], errors[number])

    return act


def _list_expressions(entry: Mapping[str, Any]) -> Iterator[str]:
    """All that the runtime evaluates at a site."""
    yield from (capture["code"] for capture in entry["capture"])
    yield from entry["once_per"]
    others = [entry["when"], entry["emit_if"]]
    for prediction in entry["expect"].values():
        others += [prediction["that"], prediction["when"]]
    yield from (text for text in others if text is not None)


def _refusal(member: Member, what: str, code: bytes, error: str) -> HostError:
    version = member.install["version"]
    minor = int(version.split(".")[1])
    needed = find_needed(code)
    return HostError(
        f"{what} does not compile with {member.install['python']} (Python {version}): {error}",
        host=member.name,
        code="proof",
        notes=[f"it is syntax of Python 3.{needed} and newer"] if (needed or 0) > minor else (),
        hints=[f"write it as Python 3.{minor} reads it"],
    )


def find_needed(code: bytes) -> int | None:
    """The minor version of the first Python 3 that reads the code, as far as this one can tell.

    Its parser does not know of all that is new since when it is. `None`: it reads it in none.
    """
    for minor in range(_OLDEST, sys.version_info[1] + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ast.parse(code, feature_version=(3, minor))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
        return minor
    return None
