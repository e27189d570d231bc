"""Stage, swap and revert of a session's files: the journaled order around what `files` does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import Any, Dict, List, Optional, Sequence

from . import dirs, files, lock, pyc
from .facts import PlannedFile
from .refusal import Refusal
from .state import SessionState

Report = Dict[str, Any]


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
        message = "`%s` is %s" % (real, "missing" if seen.kind == "missing" else "not a plain file")
        code = "missing" if seen.kind == "missing" else "unsupported"
        raise Refusal(code, message, file=name, path=real)
    else:
        _expect(name, real, item["before_sha256"], seen.sha256)
        stat = files.attributes(seen.stat)
    return PlannedFile(
        name, real, shown, item["before_sha256"], item["after_sha256"], item["size"], stat
    )


def _expect(file: str, path: str, expected: str, found: Optional[str]) -> None:
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


def stage(session: SessionState, contents: Dict[str, bytes]) -> List[Report]:
    """Write the planned bytes beside their targets and keep the originals; nothing is visible."""
    reports = []
    for one in session.facts.files:
        data = contents[one.file]
        if len(data) != one.size or hashlib.sha256(data).hexdigest() != one.after_sha256:
            raise Refusal("changed", "the bytes of `%s` came damaged" % one.file, file=one.file)
        kept = None
        with files.refusing("cannot stage `%s`" % one.file):
            with session.step("stage:new", file=one.file):
                files.write_new(one, data)
                files.probe_names(one)
            if one.before_sha256 is not None:
                with session.step("stage:keep", file=one.file) as outcome:
                    kept = outcome["kept"] = files.keep(one)
        reports.append({"file": one.file, "path": one.path, "kept": kept})
    return reports


def swap(session: SessionState) -> List[Report]:
    """Make the planned bytes visible, in the plan's order; refuses before the first if any changed.

    A file that is in place already stays, so a swap may be repeated.
    """
    waiting = [one for one in session.facts.files if not _is_in_place(one)]
    for one in waiting:
        _check_unchanged(one)
    for one in waiting:
        with files.refusing("cannot put in `%s`" % one.file):
            asides = pyc.record(one, session.facts.prefix)
            with session.step("swap:pyc", file=one.file, dirs=asides):
                pyc.set_aside(asides)
            _check_unchanged(one)
            with session.step("swap:file", file=one.file):
                files.put_in(one)
    for one in session.facts.files:
        _expect(one.file, one.path, one.after_sha256, files.look(one.path).sha256)
    return [{"file": one.file, "sha256": one.after_sha256} for one in session.facts.files]


def _is_in_place(one: PlannedFile) -> bool:
    return files.look(one.path).sha256 == one.after_sha256


def _check_unchanged(one: PlannedFile) -> None:
    seen = files.look(one.path)
    if one.before_sha256 is None:
        if seen.kind != "missing":
            message = "`%s` should be created but is there already" % one.path
            raise Refusal("exists", message, file=one.file, path=one.path)
    else:
        _expect(one.file, one.path, one.before_sha256, seen.sha256)
    if not os.path.lexists(one.new):
        raise Refusal("fenced", "`%s` is no longer staged" % one.file, file=one.file)


def remove_staged(session: SessionState) -> None:
    """Take the staged files away first, so that no late swap of a fenced agent can succeed."""
    with session.step("revert:staged"):
        for one in session.facts.files:
            for path in (one.new, files.probe_path(one)):
                files.remove(path)


def revert(session: SessionState, force: bool = False) -> List[Report]:
    """Put every original back, last one first, and prove it; one failure stops no other file.

    The state of a file is `reverted`, `removed`, `untouched`, `drift` (somebody else changed it:
    left alone without `force`) or `failed`; `why` says more where there is more to say.
    """
    with session.locked():
        reports = [_revert_one(session, one, force) for one in reversed(session.facts.files)]
        with contextlib.suppress(OSError, Refusal):
            restore_dirs(session)
        clean = all(report["state"] in ("reverted", "removed", "untouched") for report in reports)
        session.note("reverted", verified=clean)
    return reports[::-1]


def _revert_one(session: SessionState, one: PlannedFile, force: bool) -> Report:
    report: Report = {"file": one.file, "path": one.path, "state": "failed", "kept": [], "why": ""}
    try:
        with session.step("revert:file", file=one.file):
            for path in (one.new, files.probe_path(one)):
                files.remove(path)
            report.update(_take_back(session, one, force))
        if one.file in session.facts.pycs and report["state"] != "drift":
            with session.step("revert:pyc", file=one.file):
                pyc.put_back(one, session.facts.pycs[one.file])
        if report["state"] != "drift":
            report.update(_verify(session, one))
    except Exception as error:
        if isinstance(error, Refusal) and error.code == "fenced":
            raise
        report.update(state="failed", why=str(error))
    report["sha256"] = _sha256_of(one)
    return report


def _take_back(session: SessionState, one: PlannedFile, force: bool) -> Report:
    seen = files.look(one.path)
    touched = one.file in session.facts.swapping
    if not touched:
        files.remove(one.orig)
        return {"state": "untouched"}
    if one.before_sha256 is None:
        if seen.kind == "missing":
            return {"state": "removed"}
        if seen.sha256 == one.after_sha256:
            files.remove(one.path)
            return {"state": "removed"}
    elif seen.sha256 == one.before_sha256:
        files.remove(one.orig)
        return {"state": "reverted"}
    elif seen.sha256 == one.after_sha256 and _original_is_whole(one):
        files.put_back(one)
        return {"state": "reverted"}
    return _drift(session, one, seen, force)


def _original_is_whole(one: PlannedFile) -> bool:
    """Whether the kept original may take its place: the same inode, or a copy with the same bytes.

    An inode whose bytes somebody changed through another link is still the file that belongs here.
    """
    kept = files.look(one.orig)
    return kept.kind == "file" and (kept.is_inode(one) or kept.sha256 == one.before_sha256)


def _drift(session: SessionState, one: PlannedFile, seen: files.Look, force: bool) -> Report:
    lost = one.before_sha256 is not None and not _original_is_whole(one)
    if seen.sha256 == one.after_sha256:
        return {"state": "drift", "why": "planned bytes are in place, the kept original is gone"}
    if not force:
        kept = [one.orig] if os.path.lexists(one.orig) else []
        return {"state": "drift", "kept": kept, "why": _DRIFT[seen.kind] + _LOST[lost]}
    if lost:
        return {"state": "untouched", "why": "left as it is" + _LOST[lost]}
    saved = _save(session, one, seen)
    if one.before_sha256 is None:
        files.remove(one.path)
        return {"state": "removed", "kept": saved}
    files.put_back(one)
    return {"state": "reverted", "kept": saved}


_DRIFT = {
    "missing": "it was removed after the swap",
    "file": "it was changed after the swap",
    "other": "something that is no plain file stands there",
}
_LOST = {True: ", and its kept original is gone", False: ""}


def _save(session: SessionState, one: PlannedFile, seen: files.Look) -> List[str]:
    """Keep what somebody else put there, in the state directory, before force takes it away."""
    if seen.kind == "missing":
        return []
    if seen.kind != "file":
        raise Refusal("unsupported", "`%s` is not a plain file" % one.path)
    folder = os.path.join(session.state_dir, "kept", session.name, session.host)
    os.makedirs(folder, 0o700, exist_ok=True)
    name = "%d-%s" % (len(os.listdir(folder)) + 1, os.path.basename(one.path))
    target = os.path.join(folder, name)
    shutil.copy2(one.path, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())
    return [target]


def _verify(session: SessionState, one: PlannedFile) -> Report:
    seen = files.look(one.path)
    if one.before_sha256 is None:
        return {} if seen.kind == "missing" else {"state": "untouched", "why": "not ours"}
    if one.file not in session.facts.swapping:
        changed = seen.sha256 != one.before_sha256
        return {"why": "somebody else changed it before the swap" if changed else ""}
    if seen.sha256 != one.before_sha256:
        return {"state": "drift", "why": "the original itself was changed through another link"}
    return {"why": files.describe_differences(one, seen)}


def _sha256_of(one: PlannedFile) -> Optional[str]:
    with contextlib.suppress(OSError):
        return files.look(one.path).sha256
    return None


def restore_dirs(session: SessionState) -> None:
    """Give every directory that is again as it was its time back."""
    targets = [one.path for one in session.facts.files]
    recorded: Dict[str, Any] = dict(session.facts.dirs)
    for asides in session.facts.pycs.values():
        for aside in asides:
            recorded.setdefault(aside["dir"], aside["before"])
    if not any(recorded.values()):
        return
    with session.step("revert:dirs"):
        for folder, before in recorded.items():
            if before is not None:
                dirs.restore(folder, before, targets)


def changed_files(session: SessionState) -> Sequence[str]:
    """Paths that still hold planned bytes of ours, or names of ours that are left beside them."""
    left = []
    for one in session.facts.files:
        if one.file in session.facts.swapping and _sha256_of(one) == one.after_sha256:
            left.append(one.path)
        left.extend(p for p in (one.new, one.orig, files.probe_path(one)) if os.path.lexists(p))
    return left
