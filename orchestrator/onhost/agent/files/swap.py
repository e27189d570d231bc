"""Stage, swap and revert of a session's files: the journaled order around what `files` does."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Dict, List, Optional, Sequence

from ..held import dirs, lease
from ..held.facts import PlannedFile
from ..held.state import SessionState
from ..refusal import Refusal
from . import claim, files, keeping, plan, pyc, runtime, shared, spare

Report = Dict[str, Any]


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
                    spare.keep(session, one)
        reports.append({"file": one.file, "path": one.path, "kept": kept})
    return reports


def swap(session: SessionState) -> List[Report]:
    """Make the planned bytes visible, in the plan's order; refuses before the first if any changed.

    A file that is in place already stays, so a swap may be repeated. Who shares the install waits
    until it reads what the owner put in.
    """
    if session.facts.sharing is not None:
        shared.wait_until_in(session)
        session.note("shared-swap", now_s=lease.now_s())
        return []
    waiting = [one for one in session.facts.files if not _is_in_place(one)]
    for one in waiting:
        _check_unchanged(one)
        _check_kept(one)
    _put_back_asides(session, waiting)
    _show_asides(session, waiting)
    for one in waiting:
        with files.refusing("cannot put in `%s`" % one.file):
            asides = pyc.record(one, session.facts.prefix)
            with session.step("swap:pyc", file=one.file, dirs=asides):
                pyc.set_aside(asides)
            with session.step("swap:file", file=one.file):
                _put_in(session, one)
    for one in session.facts.files:
        plan.expect(one.file, one.path, one.after_sha256, files.look(one.path).sha256)
    return [{"file": one.file, "sha256": one.after_sha256} for one in session.facts.files]


def _put_back_asides(session: SessionState, waiting: Sequence[PlannedFile]) -> None:
    """Where a swap before this one broke off: what it set aside is recorded anew, as it was."""
    for one in waiting:
        asides = session.facts.pycs.get(one.file)
        if asides is None:
            continue
        refusing = files.refusing("cannot put in `%s`" % one.file)
        with refusing, session.step("revert:pyc", file=one.file):
            pyc.put_back(one, asides)
            for aside in asides:
                if aside["before"] is not None:
                    dirs.restore(aside["dir"], aside["before"])


def _show_asides(session: SessionState, waiting: Sequence[PlannedFile]) -> None:
    """Tell the lock which compiled files will be set aside, as the journal is told one by one."""
    asides = {one.file: pyc.record(one, session.facts.prefix) for one in waiting}
    if waiting:
        claim.show_asides(session, asides)


def _put_in(session: SessionState, one: PlannedFile) -> None:
    """Check at the last moment: writing the step's line took a disk's time."""
    try:
        _check_kept(one)
        _check_unchanged(one)
    except Exception:
        session.note("not-swapped", file=one.file)
        raise
    files.put_in(one)


def _check_kept(one: PlannedFile) -> None:
    """Refuse to replace what could not be put back."""
    if one.before_sha256 is None:
        return
    kept = files.look(one.orig)
    if kept.sha256 != one.before_sha256:
        what = "is gone" if kept.kind == "missing" else "is not the original any more"
        message = "`%s`, which `%s` would be put back from, %s" % (one.orig, one.path, what)
        raise Refusal("not-kept", message, file=one.file, path=one.orig)


def _is_in_place(one: PlannedFile) -> bool:
    return files.look(one.path).sha256 == one.after_sha256


def _check_unchanged(one: PlannedFile) -> None:
    seen = files.look(one.path)
    if one.before_sha256 is None:
        if seen.kind != "missing":
            message = "`%s` should be created but is there already" % one.path
            raise Refusal("exists", message, file=one.file, path=one.path)
    else:
        plan.expect(one.file, one.path, one.before_sha256, seen.sha256)
    if not os.path.lexists(one.new):
        raise Refusal("fenced", "`%s` is no longer staged" % one.file, file=one.file)


def remove_staged(session: SessionState) -> None:
    """Take the staged files away first, so that no late swap of a fenced agent can succeed."""
    if claim.has_let_go(session):
        return
    claim.refuse_foreign(session)
    with session.step("revert:staged"):
        for one in session.facts.files:
            for path in (one.new, files.probe_path(one)):
                if one.file in session.facts.staging:
                    files.remove(path)


def put_back_early(session: SessionState) -> None:
    """Put the files back while those who run them are still ending; `revert` has to follow.

    A server takes seconds to end, and so long a file need not stay patched. Compiled files stay
    aside until then: who ends may still write one over that which was put back.
    """
    with session.locked():
        if claim.has_let_go(session):
            return
        claim.refuse_foreign(session)
        if shared.wait_for_members(session, 0.0):
            return
        for one in reversed(session.facts.files):
            _revert_one(session, one, False, compiled=False)


def revert(session: SessionState, force: bool = False) -> List[Report]:
    """Put every original back, last one first, and prove it; one failure stops no other file.

    The state of a file is `reverted`, `removed`, `untouched`, `drift` (somebody else changed it:
    left alone without `force`) or `failed`; `why` says more where there is more to say. Files that
    another host's server may still run from are `failed` until that one is over. `let_go` says of
    one that needs no more work that what stands there is somebody else's all the same. Once the
    install was given back nothing of it is touched any more.
    """
    with session.locked():
        if claim.has_let_go(session):
            return [_report_past(session, one) for one in session.facts.files]
        claim.refuse_foreign(session)
        if session.facts.sharing is not None:
            reports = shared.wait_until_back(session)[::-1]
        else:
            busy = shared.wait_for_members(session)
            planned = reversed(session.facts.files)
            reports = [
                _wait_for(one, busy) if busy else _revert_one(session, one, force)
                for one in planned
            ]
        with contextlib.suppress(OSError, Refusal):
            restore_dirs(session)
        clean = all(report["state"] in _BACK for report in reports)
        session.note("reverted", verified=clean)
    return reports[::-1]


def _report_past(session: SessionState, one: PlannedFile) -> Report:
    back = "removed" if one.before_sha256 is None else "reverted"
    state = back if one.file in session.facts.put_back else "untouched"
    report = {"file": one.file, "path": one.path, "state": state, "kept": [], "why": ""}
    return dict(report, sha256=_sha256_of(one), let_go=False)  # what is there may be a session's


def _see_whose(report: Report, one: PlannedFile) -> Report:
    """The report with what stands there now, and whether that is somebody else's for good."""
    now = _sha256_of(one)
    is_other = now != one.before_sha256 or (now is None and os.path.lexists(one.path))
    let_go = is_other and report["state"] in _BACK
    why = report["why"] or (_BEFORE_SWAP if let_go else "")
    return dict(report, sha256=now, let_go=let_go, why=why)


def _wait_for(one: PlannedFile, busy: List[str]) -> Report:
    why = "; ".join(busy)
    report = {"file": one.file, "path": one.path, "state": "failed", "kept": [], "why": why}
    return _see_whose(report, one)


def _revert_one(
    session: SessionState, one: PlannedFile, force: bool, compiled: bool = True
) -> Report:
    report: Report = {"file": one.file, "path": one.path, "state": "failed", "kept": [], "why": ""}
    if one.file not in session.facts.staging:
        return _see_whose(dict(report, state="untouched"), one)
    try:
        importer = runtime.find_importer(session, one)
        if importer is not None:
            return _see_whose(dict(report, **runtime.leave_in(session, importer)), one)
        with session.step("revert:file", file=one.file) as done:
            for path in (one.new, files.probe_path(one)):
                files.remove(path)
            drifted = one.file in session.facts.drifted
            report.update(_take_back(session, one, force))
            done["state"] = report["state"]
            # Whoever took out what had drifted: a server that began meanwhile runs that.
            if report.pop("taken_out", False) or (drifted and report["state"] in _PUT_BACK):
                done.update(back_s=round(lease.now_s(), 3), boot_id=lease.read_boot_id())
        if one.file in session.facts.let_go:
            # Not before that line: a file without it would else count as one that lost it.
            files.remove(one.orig)
        ours = report["state"] != "drift" and report["why"] != _GIVEN_UP
        if compiled and one.file in session.facts.pycs and ours:
            with session.step("revert:pyc", file=one.file):
                pyc.put_back(one, session.facts.pycs[one.file])
        if report["state"] != "drift" and not report["why"]:
            report.update(_verify(session, one, force))
    except Exception as error:
        if isinstance(error, Refusal) and error.code == "fenced":
            raise
        report.update(state="failed", why=files.explain(error))
    return _see_whose(report, one)


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
            return {"state": "removed", "taken_out": True}
    elif seen.sha256 == one.before_sha256:
        files.remove(one.orig)
        return {"state": "reverted"}
    elif one.file in session.facts.let_go or _is_other_name(one, seen):
        return {"state": "untouched", "why": _BEFORE_SWAP}
    elif seen.sha256 == one.after_sha256 and (
        _original_is_whole(one) or spare.give_back(session, one)
    ):
        seen = files.look(one.path)  # once more: reading the original took its time
        if seen.sha256 == one.after_sha256:
            files.put_back(one)
            return {"state": "reverted", "taken_out": True}
    if one.file in session.facts.put_back and not os.path.lexists(one.orig):
        return {"state": "untouched", "why": "somebody else changed it after it was put back"}
    return _drift(session, one, seen, force)


def _is_other_name(one: PlannedFile, seen: files.Look) -> bool:
    """Whether the kept original is that very file still: no rename happened, nor would one now."""
    kept = files.look(one.orig).stat
    return kept is not None and seen.stat is not None and os.path.samestat(kept, seen.stat)


def _original_is_whole(one: PlannedFile) -> bool:
    """Whether the kept original may take its place: the same inode, or a copy with the same bytes.

    An inode whose bytes somebody changed through another link is still the file that belongs here.
    """
    kept = files.look(one.orig)
    return kept.kind == "file" and (kept.is_inode(one) or kept.sha256 == one.before_sha256)


def _drift(session: SessionState, one: PlannedFile, seen: files.Look, force: bool) -> Report:
    lost = one.before_sha256 is not None and not _original_is_whole(one)
    if seen.sha256 == one.after_sha256:
        return {"state": "failed", "why": "still patched, the kept original is gone"}
    if not force:
        kept = [one.orig] if os.path.lexists(one.orig) else spare.find(session, one)
        lost = lost and not kept
        return {"state": "drift", "kept": kept, "why": _DRIFT[seen.kind] + _LOST[lost]}
    if lost and not claim.is_gone(session):
        lost = not spare.give_back(session, one)
    if lost and (os.path.lexists(one.orig) or not claim.is_gone(session)):
        return {"state": "drift", "why": "left as it is" + _LOST[lost]}
    if lost:  # the install was made anew: by force the session lets it go
        return {"state": "untouched", "why": _GIVEN_UP, "kept": keeping.save_spare(session, one)}
    saved = keeping.save(session, one, seen)
    if one.before_sha256 is None:
        files.remove(one.path)
        return {"state": "removed", "kept": saved, "taken_out": True}
    files.put_back(one)
    return {"state": "reverted", "kept": saved, "taken_out": True}


_PUT_BACK = ("reverted", "removed")
_BACK = (*_PUT_BACK, "untouched")
_DRIFT = {
    "missing": "it was removed after the swap",
    "file": "it was changed after the swap",
    "other": "something that is no plain file stands there",
}
_LOST = {True: ", and its kept original is gone", False: ""}
_BEFORE_SWAP = "somebody else changed it before the swap"
_THROUGH_LINK = "the original itself was changed through another link"
_GIVEN_UP = "left as it is: the install was made anew, nothing of the session is in it"


def _verify(session: SessionState, one: PlannedFile, force: bool) -> Report:
    seen = files.look(one.path)
    if one.before_sha256 is None:
        return {} if seen.kind == "missing" else {"state": "untouched", "why": "not ours"}
    if one.file not in session.facts.swapping:
        changed = seen.sha256 != one.before_sha256
        return {"why": _BEFORE_SWAP if changed else ""}
    if seen.sha256 != one.before_sha256:
        # That inode belongs there, and its bytes are somebody's: nothing is left to be put back.
        return {"state": "reverted" if force else "drift", "why": _THROUGH_LINK}
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


def patched_files(session: SessionState) -> Sequence[str]:
    """Paths that a server started now would run planned bytes from, or that cannot be read."""
    left = shared.changed_files(session)
    for one in session.facts.files:
        try:
            seen = files.look(one.path)
        except OSError:
            left.append(one.path)
            continue
        planned = one.file in session.facts.swapping and seen.sha256 == one.after_sha256
        if planned and runtime.find_importer(session, one) is None:
            left.append(one.path)
    return left


def changed_files(session: SessionState) -> Sequence[str]:
    """Paths that still hold planned bytes of ours, or names of ours that are left beside them."""
    left = shared.changed_files(session)
    for one in session.facts.files if not claim.has_let_go(session) else ():
        if one.file in session.facts.swapping and _sha256_of(one) == one.after_sha256:
            left.append(one.path)
        if one.file in session.facts.staging:
            names = (one.new, one.orig, files.probe_path(one))
            left.extend(path for path in names if os.path.lexists(path))
    return left
