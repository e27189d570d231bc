"""The plan of a session's files on this host: looked at, refused or journaled; nothing changes."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from ..held import dirs, lock
from ..held.facts import PlannedFile
from ..held.state import SessionState
from ..refusal import Refusal
from . import files, pyc


def make_plan(args: Dict[str, Any]) -> List[PlannedFile]:
    """Look at every target and refuse what cannot be changed and restored; writes nothing."""
    root, package = os.path.abspath(args["root"]), args["package"]
    package_dir = os.path.join(root, package)
    if not os.path.isdir(package_dir):
        raise Refusal("missing", "there is no package directory `%s`" % package_dir)
    behind = os.path.dirname(os.path.realpath(os.path.join(package_dir, "__init__.py")))
    allowed = {os.path.realpath(root), os.path.realpath(package_dir), behind}
    mounts = files.read_mounts()
    planned = []
    for item in args["files"]:
        with files.refusing("cannot change `%s`" % item["file"]):
            one = _plan_file(root, package, allowed, item)
            _check(one, item["before_sha256"], mounts, args["pycache_prefix"])
        planned.append(one)
    if len({one.path for one in planned}) != len(planned):
        raise Refusal("unsupported", "two files of the plan are one and the same file")
    return planned


def _plan_file(root: str, package: str, allowed: Any, item: Dict[str, Any]) -> PlannedFile:
    name = item["file"]
    shown = os.path.normpath(os.path.join(root, name))
    real = os.path.realpath(shown)
    inside = any(real.startswith(folder.rstrip("/") + "/") for folder in allowed)
    if "\0" in name or not shown.startswith(os.path.join(root, package) + "/") or not inside:
        message = "`%s` leaves the install (it is `%s`)" % (name, real)
        raise Refusal("outside", message, file=name, path=real)
    seen = files.look(real)
    if item["before_sha256"] is None:
        if seen.kind != "missing":
            message = "`%s` should be created but is there already" % real
            raise Refusal("exists", message, file=name, path=real)
        stat = files.attributes_of_new(os.path.dirname(real))
    elif seen.kind != "file" or seen.stat is None:
        if seen.kind == "missing" and os.path.exists(real + "c"):
            message = "`%s` has no source, only compiled code stands there" % real
            raise Refusal("unsupported", message, file=name, path=real)
        message = "`%s` is %s" % (real, "missing" if seen.kind == "missing" else "not a plain file")
        code = "missing" if seen.kind == "missing" else "unsupported"
        raise Refusal(code, message, file=name, path=real)
    else:
        expect(name, real, item["before_sha256"], seen.sha256)
        stat = files.attributes(seen.stat)
    return PlannedFile(
        name, real, shown, item["before_sha256"], item["after_sha256"], item["size"], stat
    )


def expect(file: str, path: str, expected: str, found: Optional[str]) -> None:
    """Refuse a file whose checksum is not the one that the plan saw."""
    if found != expected:
        message = "`%s` is not what the plan saw" % path
        raise Refusal("changed", message, file=file, path=path, expected=expected, found=found)


def _check(one: PlannedFile, before: Optional[str], mounts: Any, prefix: Optional[str]) -> None:
    if one.after_sha256 == before:
        raise Refusal("unsupported", "the plan for `%s` changes nothing" % one.file, file=one.file)
    for path in (one.new, one.orig):
        if os.path.lexists(path):
            message = "`%s` is there already, left by a session that never ended" % path
            raise Refusal("exists", message, file=one.file, path=path)
    files.check_writable(os.path.dirname(one.path), one.file)
    if before is not None:
        files.check_replaceable(one, mounts)
    for folder in pyc.find_folders(one, prefix):
        if pyc.list_module(folder, one) and not os.access(folder, os.W_OK):
            message = "the compiled files in `%s` cannot be set aside" % folder
            raise Refusal("not-permitted", message, file=one.file, path=folder)


def journal_plan(session: SessionState, args: Dict[str, Any], planned: List[PlannedFile]) -> None:
    """Write down what a revert needs to know, before anything beside the install is written."""
    root = os.path.abspath(args["root"])
    locks = lock.find_paths(os.path.join(root, args["package"]))
    targets = [one.path for one in planned]
    folders = dict.fromkeys(map(os.path.dirname, [*locks, *targets]))
    detail = {
        "root": root,
        "package": args["package"],
        "pycache_prefix": args["pycache_prefix"],
        "files": [one._asdict() for one in planned],
        "dirs": {folder: dirs.record(folder, targets) for folder in folders},
        "locks": locks,
    }
    with files.refusing("the journal could not be written"), session.step("plan", **detail):
        pass
