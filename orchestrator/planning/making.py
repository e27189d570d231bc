"""Makes a plan of patches and of the bytes that the hosts hold."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from orchestrator.errors import PatchError, StandsAlreadyError
from orchestrator.model.patch import Patch, Probe
from orchestrator.model.plan import FilePlan, Plan
from orchestrator.model.source import Span
from orchestrator.patching.engine import Edited, edit_source
from orchestrator.patching.wanted import Fitted
from orchestrator.planning.diffs import make_diff
from orchestrator.planning.fitting import Holding, Sources, choose
from orchestrator.planning.table import make_sites
from orchestrator.planning.versions import check_versions
from orchestrator.planning.view import HostView

# The table travels in one header of at most 1 MiB, with what else stands there (session, phase);
# what `ask` adds to a site later must fit as well.
_TABLE_BYTES = 960 << 10

# A file's path, its checksum and the edits to make in it, by site and alternative.
_Key = tuple[str, str, tuple[tuple[str, int], ...]]


def make(
    session_id: str,
    patches: Sequence[Patch],
    views: Sequence[HostView],
    runtime_source: bytes,
    sources: Sources | None = None,
) -> Plan:
    """See `orchestrator.planning.plan.make_plan`; `sources` are those that were read already."""
    problems: list[PatchError] = []
    warnings: list[str] = []
    for patch in patches:
        try:
            warnings += check_versions(patch, views)
        except PatchError as error:
            problems.append(error)
    sources = sources or Sources()
    works: dict[_Key, tuple[list[Fitted], list[str]]] = {}
    for holding in _holdings(patches, views):
        for file, fitted in _fit_all(sources, patches, holding, problems).items():
            data = holding.files[file]
            assert data is not None
            edits = tuple((f.wanted.edit.site, f.wanted.alternative) for f in fitted)
            key = (file, hashlib.sha256(data).hexdigest(), edits)
            works.setdefault(key, (fitted, []))[1].extend(holding.hosts)
    warnings += _left_alone(problems, bool(works))
    files: list[FilePlan] = []
    for (file, sha256, _), (fitted, hosts) in works.items():
        source = sources.source(file, sha256)
        try:
            made = edit_source(source, fitted)
        except PatchError as error:
            error.hosts = tuple(hosts)
            raise
        edited = _edited(source.data, made, file, sha256, hosts)
        files.append(edited[0])
        warnings += edited[1]
    files = [*_runtimes(session_id, patches, views, runtime_source), *_in_order(files, patches)]
    sites = [site for file in files for site in file.sites]
    table = make_sites(patches, sites)
    _refuse_too_long(table)
    return Plan(session_id, tuple(files), table, tuple(dict.fromkeys(warnings)))


def _refuse_too_long(table: Mapping[str, Mapping[str, object]]) -> None:
    size_bytes = len(json.dumps(table))
    if size_bytes > _TABLE_BYTES:
        raise PatchError(
            f"the probes of this session make a table of {size_bytes >> 10} KiB, and a host takes "
            f"{_TABLE_BYTES >> 10} KiB",
            state="refused",
            hints=("use fewer patches at once, or shorter expressions",),
        )


def make_for_hosts(
    session_id: str, patches: Sequence[Patch], views: Sequence[HostView], runtime_source: bytes
) -> Plan:
    """The same; where something was not found, with the command that looks further.

    A host shows only the files that patches name: what moved to another one is found in a release.
    """
    try:
        return make(session_id, patches, views, runtime_source)
    except PatchError as error:
        lost = [e for e in (error, *error.others) if e.state == "not found" and e.span is not None]
        names = dict.fromkeys(_name_of(e.span) for e in lost if e.span is not None)
        if names:
            versions = {view.package_version for view in views}
            release = versions.pop() if len(versions) == 1 else None
            if release is not None and re.search(r"dev|\+", release):
                release = None  # the package index has none such
            command = f"sgldbg check {' '.join(names)} --against {release or 'VERSION'} --explain"
            lost[-1].hints = (*lost[-1].hints, f"to look in all files of the release: `{command}`")
        raise


def _name_of(span: Span) -> str:
    """A patch is called like its file."""
    return span.path.rsplit("/", 1)[-1].removesuffix(".yaml")


def _holdings(patches: Sequence[Patch], views: Sequence[HostView]) -> list[Holding]:
    """Hosts grouped by the bytes of all files that some patch names."""
    names = list(dict.fromkeys(file for patch in patches for file in patch.files()))
    groups: dict[tuple[bytes | None, ...], list[str]] = {}
    for view in views:
        groups.setdefault(tuple(view.files.get(n) for n in names), []).append(view.host)
    return [
        Holding(tuple(hosts), dict(zip(names, held, strict=True))) for held, hosts in groups.items()
    ]


def _fit_all(
    sources: Sources,
    patches: Sequence[Patch],
    holding: Holding,
    problems: list[PatchError],
) -> dict[str, list[Fitted]]:
    """What each file of these hosts gets, in order of the patches; problems are collected."""
    files: dict[str, list[Fitted]] = {}
    for patch in patches:
        for edit in patch.edits:
            try:
                fitted = choose(sources, patch, edit, holding)
            except PatchError as error:
                problems.append(error)
                continue
            files.setdefault(fitted.wanted.file, []).append(fitted)
    return files


def _left_alone(problems: Sequence[PatchError], some_fit: bool) -> list[str]:
    """What is told of edits whose code stands already, where that is all that is the matter.

    Raises all problems together where there are others, or where nothing at all is left to do.
    """
    there = [p for p in problems if isinstance(p, StandsAlreadyError)]
    if not problems:
        return []
    error = _first_of(problems)
    if len(there) != len(problems) or not some_fit:
        raise error
    return [
        f"on {', '.join(one.hosts)}, {one.message}: it is left alone"
        for one in (error, *error.others)
    ]


def _first_of(problems: Sequence[PatchError]) -> PatchError:
    """The first problem with all others in it; what is the same on several hosts stands once."""
    groups: dict[tuple[object, ...], PatchError] = {}
    for one in problems:
        key = (one.message, one.span, one.notes, one.hints, one.file)
        same = groups.setdefault(key, one)
        if same is not one:
            same.hosts = tuple(dict.fromkeys((*same.hosts, *one.hosts)))
    first, *others = groups.values()
    first.others = tuple(others)
    return first


def _edited(
    before: bytes, edited: Edited, file: str, sha256: str, hosts: Sequence[str]
) -> tuple[FilePlan, tuple[str, ...]]:
    plan = FilePlan(
        file=file,
        before_sha256=sha256,
        after_sha256=edited.sha256,
        after=edited.data,
        diff=make_diff(file, before, edited.data),
        hosts=tuple(hosts),
        insertions=edited.insertions,
        sites=edited.sites,
    )
    return plan, edited.warnings


def _in_order(files: Sequence[FilePlan], patches: Sequence[Patch]) -> list[FilePlan]:
    """Files in the order in which the patches name them."""
    names = list(dict.fromkeys(file for patch in patches for file in patch.files()))
    return sorted(files, key=lambda plan: names.index(plan.file))


def _runtimes(
    session_id: str,
    patches: Sequence[Patch],
    views: Sequence[HostView],
    runtime_source: bytes,
) -> list[FilePlan]:
    """The runtime of each host and each package that holds a probe; its start line differs."""
    packages = dict.fromkeys(
        p.package for p in patches if any(isinstance(e.action, Probe) for e in p.edits)
    )
    plans: list[FilePlan] = []
    for package in packages:
        file = f"{package.replace('.', '/')}/_sgldbg.py"
        standing = [v.host for v in views if v.files.get(file) is not None]
        if standing:
            raise PatchError(
                f"`{file}` already exists",
                state="already there",
                hints=(
                    "end the session that put it there: `sgldbg status`, then"
                    " `sgldbg revert --all`",
                ),
                file=file,
                hosts=standing,
            )
        for view in views:
            config = {"session": session_id, "host": view.host, "dir": view.probe_dir}
            after = runtime_bytes(runtime_source, config)
            diff = make_diff(file, None, after)
            sha256 = hashlib.sha256(after).hexdigest()
            plans.append(FilePlan(file, None, sha256, after, diff, (view.host,)))
    return plans


def runtime_bytes(runtime_source: bytes, config: Mapping[str, str]) -> bytes:
    """The runtime file: its source, then one line that starts it, in ASCII."""
    newline = b"" if runtime_source.endswith(b"\n") else b"\n"
    # JSON of texts alone is a Python literal too.
    return runtime_source + newline + f"_start({json.dumps(dict(config))})\n".encode("ascii")
