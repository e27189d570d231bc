"""The agent's command line: the loop for a controller, the guard, and help by hand on the host."""

from __future__ import annotations

import glob
import os
import sys
import time
from functools import partial
from typing import Any, Callable, Dict, List, Sequence

from .refusal import Refusal
from .wire.serve import find_state_dir, serve

USAGE = """usage: python3 AGENT.pyz status [PACKAGE_DIR...]     what is changed on this host
       python3 AGENT.pyz revert --all | SESSION [PACKAGE_DIR...] [--force] [--here]
                                [--gone HOST]   undo it, with no controller
       python3 AGENT.pyz serve MARKER | guard DIR   (used by sgldbg itself)
`--force` also undoes files that somebody changed after us; both versions are kept.
`--here` says that a session is of this machine, which had another name when it began.
`--gone HOST` says that HOST, which has this install as well, never comes back: what it left
patched here is undone in its place, once it has given no sign of life for its whole lease.
PACKAGE_DIR, with a slash in it, is where an install may still be held by a session whose state
directory was lost: what its lock says is enough to put the files back.
"""
NOT_RESTORED = 7
_THEIRS = ", but for what somebody else changed"
USAGE_WRONG = 2


def main(argv: List[str]) -> int:
    """Run one command; the exit code is 0, 2 for usage, or 7 where something is still changed."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command == "serve" and len(rest) == 1:
        code = serve(rest[0])
        # Requests may still run in threads; waiting for them could hang, and the journal is
        # written so that ending anywhere is safe.
        os._exit(code)
    if command == "guard" and len(rest) == 1:
        from .session import guard

        return guard.main(rest[0])
    gone = _take_values(rest, "--gone")
    packages = [word for word in rest if "/" in word]
    if command == "status" and rest == packages:
        return show_status(packages)
    force, here = "--force" in rest, "--here" in rest
    names = [word for word in rest if word not in ("--force", "--here", *packages)]
    known = len(names) == 1 and (names[0][:1] != "-" or (names[0] == "--all" and not here))
    if command == "revert" and known:
        return revert(names[0], force, here, packages, gone)
    sys.stderr.write(USAGE)
    return USAGE_WRONG


def _take_values(words: List[str], flag: str) -> List[str]:
    """The words that follow this flag, taken out with it; one that nothing follows stays."""
    values = []
    while flag in words[:-1]:
        at = words.index(flag)
        values.append(words[at + 1])
        del words[at : at + 2]
    return values


def show_status(packages: Sequence[str] = ()) -> int:
    """Print every session of this host's state directory, and those that only a lock beside an
    install still knows; 7 where one of them is not brought to its end, by its guard if by nobody
    else.
    """
    from .session import status

    state_dir = find_state_dir()
    sessions = status.sessions(state_dir, packages)
    if not sessions:
        print("nothing is changed: no session in %s" % state_dir)
        return 0
    for session in sessions:
        print("\n".join(describe(session)))
    return 0 if all(session.get("over") for session in sessions) else NOT_RESTORED


def describe(session: Dict[str, Any]) -> List[str]:
    """Return readable lines about one session, as `status` gives it."""
    name = "%s on %s" % (session.get("session"), session.get("host"))
    name = name if session.get("session") else "an unknown session"
    lines = ["%s: %s" % (name, session.get("state"))]
    holder = session.get("holder") or "an unknown holder"
    lines.append("  held by %s since %s" % (holder, _day(session.get("since"))))
    if session.get("lock") and (session.get("elsewhere") or not session.get("lost")):
        lines.append("  known from `%s`" % session["lock"])
    elif session.get("lock"):
        lines.append("  known from `%s`, `%s` is gone" % (session["lock"], session.get("lost")))
    lines.append("  " + _lease_line(session))
    for item in session.get("files") or []:
        lines.append("  %s: %s" % (item.get("path"), item.get("state")))
        if item.get("kept"):
            lines.append("    its original is `%s`" % item["kept"])
    if not session.get("elsewhere"):  # of another machine's nothing is known here
        lines.append("  server: %s" % session.get("server"))
    if session.get("why_not"):
        lines.append("  not undone from here: %s" % session["why_not"])
    lines.extend("  %s" % line for line in session.get("report") or [])
    return lines


def _day(wall_s: Any) -> str:
    if not isinstance(wall_s, (int, float)):
        return "an unknown time"
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(wall_s))


def _lease_line(session: Dict[str, Any]) -> str:
    guard = "the guard is %s" % session.get("guard")
    if not session.get("session"):
        return "nobody knows until when"
    deadline_s, now_s = session.get("deadline_s"), session.get("now_s")
    if session.get("elsewhere"):
        return "to be seen and undone there"
    if deadline_s is None and not session.get("expired"):
        return "kept until somebody reverts it, no guard watches it"
    if session.get("expired") or deadline_s is None or now_s is None:
        return "the lease is over, %s" % guard
    if session.get("until") is not None:
        return "until %s by its last word, %s" % (_day(session["until"]), guard)
    left_s = max(0, int(deadline_s - now_s))
    if session.get("guard") == "dead" and session.get("controller") != "alive":
        return "the lease ends in %d s, nobody is left to revert it then" % left_s
    return "reverts by itself in %d s, %s" % (left_s, guard)


def revert(
    which: str,
    force: bool,
    here: bool = False,
    packages: Sequence[str] = (),
    gone: Sequence[str] = (),
) -> int:
    """Undo one session, or all of them, on this host; 7 where something is left."""
    from .session import orphan, takeover

    state_dir = find_state_dir()
    lost = [o for o in orphan.find_all(packages) if which in ("--all", o.holder["session"])]
    codes, told = [], [one.holder["session"] for one in lost]
    for path in _find_directories(state_dir, which, packages):
        parent, host = os.path.split(path)
        told.append(os.path.basename(parent))
        name = "%s on %s" % (told[-1], host)
        undo = partial(takeover.recover_member, path, state_dir, force, gone, here)
        codes.append(_revert_one(name, undo))
    for one in lost:
        name = "%s on %s" % (one.holder["session"], one.holder["host"])
        codes.append(_revert_one(name, partial(orphan.recover_orphan, one, state_dir, force)))
    for away in takeover.find_all(packages):  # after the hosts that share with them let go
        if which in ("--all", away.names[0]):
            undo = partial(_revert_abroad, away, state_dir, force, gone)
            codes.append(_revert_one("%s on %s" % tuple(away.names), undo))
    codes += _tell_held(which, packages, told)
    if not codes:
        what = "no session" if which == "--all" else "no session `%s`" % which
        print("%s in %s" % (what, state_dir))
        return 0 if which == "--all" and not gone else USAGE_WRONG
    return max(codes)


def _tell_held(which: str, packages: Sequence[str], told: Sequence[str]) -> List[int]:
    """Print what else holds these packages, and is nobody's to undo here; a code for each."""
    from .session import foreign

    held = foreign.find_all(packages, told)
    held = [one for one in held if which in ("--all", one.holder.get("session"))]
    for one in held:
        print("not reverted (missing): %s" % foreign.describe(one))
    return [NOT_RESTORED for _ in held]


def _find_directories(state_dir: str, which: str, packages: Sequence[str]) -> List[str]:
    from .session import moved, takeover

    pattern = "*" if which == "--all" else glob.escape(which)
    found: List[str] = []
    for top in takeover.list_roots(state_dir):
        root = os.path.join(glob.escape(top), "sessions", pattern, "*")
        found += sorted(path for path in glob.glob(root) if os.path.isdir(path))
    for one in moved.find_all(state_dir, packages):
        if which in ("--all", one.session):
            found.append(one.directory)
    return found


def _revert_abroad(one: Any, state_dir: str, force: bool, gone: Sequence[str]) -> Dict[str, Any]:
    from .session import takeover

    host = one.names[1]
    if host not in gone:
        message = "%s: it ends there, or with `--gone %s` if that never comes back"
        raise Refusal("busy", message % (takeover.describe(one), host))
    result = takeover.take_over(one, state_dir, force)
    print("%s on %s: %s" % (*one.names, result["report"][0]))
    return result


def _revert_one(name: str, undo: Callable[[], Dict[str, Any]]) -> int:
    try:
        result = undo()
    except Refusal as refusal:
        print("%s: not reverted (%s): %s" % (name, refusal.code, refusal.message))
        if refusal.code == "elsewhere":
            return 0  # nothing of it is on this machine
        return NOT_RESTORED
    for item in result.get("files") or []:
        said = ", ".join(text for text in (item.get("state"), item.get("why")) if text)
        print("%s: %s: %s" % (name, item.get("path"), said))
        for kept in item.get("kept") or []:
            print("%s:   kept: %s" % (name, kept))
    left = result.get("left") or []
    for item in left:
        print("%s: left: %s" % (name, item))
    lost = result.get("lost") is not None
    for text in result["report"] if lost else ():
        print("%s: %s" % (name, text))
    done = bool(result.get("verified")) and not left
    theirs = any(item.get("let_go") for item in result.get("files") or [])
    said = "reverted and verified%s" % (_THEIRS if theirs else "") if done else "not finished"
    print("%s: %s" % (name, said))
    return 0 if done and not lost else NOT_RESTORED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
