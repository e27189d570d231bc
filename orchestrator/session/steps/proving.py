"""What each host's own Python says of the code that is to run there, before anything is written."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        sites = dict.fromkeys(s.site for file in files for s in file.sites if s.site in plan.table)
        texts = {site: tuple(dict.fromkeys(_list_expressions(plan.table[site]))) for site in sites}
        # One piece for each site: with one for each expression the list of them may be too long.
        codes = [(f.file, f.after) for f in files]
        codes += [(site, _join(expressions)) for site, expressions in texts.items()]
        for number, ((name, code), error) in enumerate(_compile(member, codes)):
            if error is None:
                continue
            if number < len(files):
                raise _refusal(member, f"the patched `{name}`", code, error)
            each = [(text, _join([text])) for text in texts[name]]
            for (text, one), why in _compile(member, each):
                if why is not None:
                    raise _refusal(member, f"`{text}` of the probe `{name}`", one, why)
            raise _refusal(member, f"an expression of the probe `{name}`", code, error)

    return act


def _compile(
    member: Member, codes: Sequence[tuple[str, bytes]]
) -> list[tuple[tuple[str, bytes], str | None]]:
    """Each piece of code, which come by name, and what the host's interpreter has against it."""
    args = {
        "python": member.install["python"],
        "files": [{"file": name, "size": len(code)} for name, code in codes],
    }
    raw = b"".join(code for _, code in codes)
    reply = member.channel.call("check-code", args, raw, timeout_s=LOOK_S)
    return list(zip(codes, (row["error"] for row in reply.value["files"]), strict=True))


def _join(expressions: Sequence[str]) -> bytes:
    """As the runtime reads them, so that each may span lines."""
    return "".join(f"({text}\n)\n" for text in expressions).encode()


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
