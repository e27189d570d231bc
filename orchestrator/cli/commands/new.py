"""`sgldbg new patch`: a patch for a line of source, with its case, ready to be filled in."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import click

from orchestrator.cli.options import patches_option
from orchestrator.errors import FileError, FileErrors
from orchestrator.model.outcome import ExitCode
from orchestrator.patching.finding.suggestion import Suggestion
from orchestrator.releases.source import Release, Tree, open_release
from orchestrator.releases.wheels import cache_dir
from orchestrator.session.engine import Engine
from orchestrator.spec.fields import NAME
from orchestrator.spec.patch import read_patch
from orchestrator.spec.reader import read_bytes


@click.group("new")
def command() -> None:
    """Write a file to begin with."""


@command.command("patch")
@click.argument("place", metavar="FILE:LINE")
@click.option("--name", help="Name of the patch; default: from the function and the line's code.")
@click.option("--package", default="sglang", show_default=True, help="The top-level package.")
@click.option(
    "--against",
    multiple=True,
    metavar="PATH|VERSION",
    help="Sources in which the anchor is to fit as well; FILE may be a path inside the first.",
)
@patches_option
def patch(
    place: str, name: str | None, package: str, against: tuple[str, ...], patches: tuple[Path, ...]
) -> int:
    """Write a patch that probes the statement at FILE:LINE, and a case for it.

    The anchor is the smallest that is unique in its function; with --against, the one that fits
    most of those sources. The files go to the first --patches folder, else to patches/ here.
    """
    path, line = _split(place)
    releases = [open_release(text, package, cache_dir()) for text in against]
    file, data = _find_source(path, package, releases)
    others = [release.read(file) or b"" for release in releases]
    with Engine() as engine:
        found = engine.suggest(data, file, line, others)
        chosen = name or _make_name(found)
        folder = patches[0] if patches else Path("patches")
        target, case = folder / f"{chosen}.yaml", folder / "cases" / chosen / "as-written"
        _refuse_existing(target, case, chosen)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            target.write_text(_text(chosen, package, found, releases), encoding="utf-8")
            _write_case(engine, target, case, found)
        except BaseException:
            # What is not whole would be in the way of the next try.
            target.unlink(missing_ok=True)
            shutil.rmtree(case, ignore_errors=True)
            raise
    for written in (target, case):
        click.echo(written)
    for release, fits in zip(releases, found.fits, strict=True):
        if not fits:
            click.echo(f"does not fit {release.label}: add a place for it to `where`", err=True)
    return ExitCode.DONE


def _split(place: str) -> tuple[str, int]:
    path, colon, line = place.rpartition(":")
    if not colon or not line.isdigit() or int(line) < 1:
        raise click.UsageError(f"`{place}` names no line: write it like `path/model.py:160`")
    return path, int(line)


def _find_source(text: str, package: str, releases: list[Release]) -> tuple[str, bytes]:
    """The file's path from the package's name on, and its bytes."""
    path = Path(text)
    if path.exists():
        parts = path.resolve().parts
        if package in parts:
            at = len(parts) - 1 - parts[::-1].index(package)
            return "/".join(parts[at:]), read_bytes(path)
        message = f"`{text}` is not below a folder `{package}`"
        raise FileErrors([FileError(message, hints=["name its package with --package"])])
    for release in releases[:1]:
        data = release.read(text)
        if data is not None:
            return text, data
    where = f", nor in {releases[0].label}" if releases else ""
    raise FileErrors([FileError(f"there is no file `{text}` here{where}")])


def _make_name(found: Suggestion) -> str:
    """A name from the file, the function and what the statement is about."""
    stem = found.anchor.file.rsplit("/", 1)[-1].removesuffix(".py")
    scope = (found.anchor.scope or "module").rsplit(".", 1)[-1]
    words = re.findall("[a-z0-9]+", f"{stem}-{scope}-{found.line}".lower())
    return "-".join(words)[-40:].strip("-")


def _refuse_existing(target: Path, case: Path, name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise click.UsageError(f"`{name}` cannot be a name: small letters, digits and `-`")
    for path in (target, case):
        if path.exists():
            raise FileErrors([FileError(f"`{path}` exists", hints=["choose another --name"])])


def _text(name: str, package: str, found: Suggestion, releases: list[Release]) -> str:
    """The patch as YAML; JSON texts are YAML too, and need no thought about quotes."""
    anchor = found.anchor
    fits = [r.label for r, fit in zip(releases, found.fits, strict=True) if fit]
    labels = [r.label for r in releases if not isinstance(r, Tree)]
    known = f"# The place was found in {', '.join(fits)}.\n" if fits and labels else ""
    lines = [
        f"{known}patch: {name}",
        'about: "TODO: the question that this patch answers"',
        "edits:",
        "  - where:",
        f"      file: {anchor.file}",
    ]
    if anchor.scope:
        lines.append(f"      in: {anchor.scope}")
    if anchor.which is not None:
        lines.append(f"      which: {anchor.which}")
    lines.append(f"      {anchor.position}: {json.dumps(anchor.code, ensure_ascii=False)}")
    if anchor.of is not None:
        lines += [f"      occurrence: {anchor.occurrence}", f"      of: {anchor.of}"]
    lines += ["    probe:", f"      capture: [{', '.join(found.captures)}]"]
    return "\n".join(lines) + "\n"


def _write_case(engine: Engine, target: Path, case: Path, found: Suggestion) -> None:
    """The function alone, and what the patch makes of it."""
    from orchestrator.planning.view import HostView

    written = read_patch(target)
    view = HostView("the case", None, {found.anchor.file: found.example}, "/")
    made = engine.survey(written, view)
    case.mkdir(parents=True)
    (case / "before.py").write_bytes(found.example)
    if made.error is not None:
        from orchestrator.cli.checking.casework import error_text

        (case / "error.txt").write_text(error_text(written, made.error), encoding="utf-8")
        return
    (case / "after.py").write_bytes(made.files[0].after)
