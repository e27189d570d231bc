"""From a file's bytes and the edits wanted in it to its new bytes: all of them, or an error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Probe
from orchestrator.model.plan import Insertion, Site
from orchestrator.patching.checking import check_together
from orchestrator.patching.making.conflicts import Claim, lies_in, refuse_conflicts
from orchestrator.patching.making.edits import imported_names, make_imports, runtime_import
from orchestrator.patching.making.room import make_room
from orchestrator.patching.making.splice import splice
from orchestrator.patching.proofs import prove
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.structure.match import same_code
from orchestrator.patching.structure.walk import Path, Statement
from orchestrator.patching.wanted import Fitted, Imported, Wanted, fit


@dataclass(frozen=True, slots=True)
class Edited:
    """A file with all edits in it; `insertions` taken out give the original."""

    data: bytes
    sha256: str
    insertions: tuple[Insertion, ...]
    sites: tuple[Site, ...]
    warnings: tuple[str, ...]


def edit_file(data: bytes, wanted: Sequence[Wanted]) -> Edited:
    """Make all the wanted edits, or raise `PatchError` for the first that does not fit.

    The order of edits at one place is that of `wanted`; otherwise it does not matter. Every
    result has passed the proofs of `orchestrator.patching.proofs`.
    """
    source = read_source(data, wanted[0].file if wanted else "")
    return edit_source(source, [fit(source, w) for w in wanted])


def edit_source(source: Source, fitted: Sequence[Fitted]) -> Edited:
    """The source with all these edits, proven; raises `PatchError` with state `proof`, or with
    `conflict` where they do not go together.
    """
    claims = [
        Claim(f.wanted.edit, site, made.change)
        for f in fitted
        for made, site in zip(f.made, f.sites, strict=False)
    ]
    refuse_conflicts(claims)
    made, roomy = make_room([m for f in fitted for m in f.made], [c.site for c in claims])
    gone = [m.change.path for m in made if m.change.side == "replace"]
    probes = [f for f in fitted if isinstance(f.wanted.edit.action, Probe)]
    warnings = [w for f in fitted for w in (*f.warnings, *_left_out(source, f, gone))] + roomy
    imports = [runtime_import(probes[0].wanted.package)] if probes else []
    imports += _distinct(i.node for f in fitted for i in f.imports if not _stays(i, gone))
    if imports:
        first = make_imports(source, imports, [m.change for m in made])
        if first.moves:
            what = "the import of the runtime has its own line"
            if imports[1:] or not probes:
                what = "the imports have lines of their own"
            warnings.append(f"`{source.file}`: {what}: the lines below move")
        made.insert(0, first)
    if not made:
        return Edited(source.data, _sha256(source.data), (), _sites(fitted), tuple(warnings))
    after, insertions = splice(source, [m.change for m in made])
    warnings += prove(
        source,
        after,
        insertions,
        probes_only=len(probes) == len(fitted),
        imported=frozenset(n for node in imports for n in imported_names(node)),
        lines_stay=not any(m.moves for m in made),
    )
    if probes and len(probes) < len(fitted):
        warnings += check_together(source.file, after, map(_asked, probes))
    told = tuple(dict.fromkeys(warnings))
    return Edited(after, _sha256(after), insertions, _sites(fitted), told)


def _stays(imported: Imported, gone: Sequence[Path]) -> Statement | None:
    """The import of the module itself that no edit takes away."""
    kept = (s for s in imported.there if not any(lies_in(s.path, path) for path in gone))
    return next(kept, None)


def _left_out(source: Source, fitted: Fitted, gone: Sequence[Path]) -> Iterator[str]:
    for one in fitted.imports:
        there = _stays(one, gone)
        if there is not None:
            code = source.module.code_for_node(one.node).strip().rstrip("; ")
            line = source.line_of(there.node)
            yield f"line {line} of `{source.file}` has `{code}` already"


def _asked(fitted: Fitted) -> tuple[str, Probe, PatchError | None]:
    probe = fitted.wanted.edit.action
    assert isinstance(probe, Probe)
    return fitted.wanted.edit.site, probe, fitted.doubt


def _sites(fitted: Sequence[Fitted]) -> tuple[Site, ...]:
    return tuple(s for f in fitted for s in f.sites)


def _distinct(nodes: Iterable[cst.BaseSmallStatement]) -> list[cst.BaseSmallStatement]:
    found: list[cst.BaseSmallStatement] = []
    for node in nodes:
        if not any(same_code(node, other) for other in found):
            found.append(node)
    return found


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
