"""The source of a release: an unpacked tree, a checkout, or a wheel, read file by file."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from orchestrator.errors import FileError, FileErrors
from orchestrator.releases.wheels import fetch_wheel


class Release(Protocol):
    """Files of a package, by their paths from the package's own name on."""

    @property
    def label(self) -> str:
        """What a table calls it."""

    @property
    def version(self) -> str | None:
        """Its version, where it is known."""

    def read(self, file: str) -> bytes | None:
        """The bytes of a file; `None` where there is none."""

    def files(self) -> Iterator[str]:
        """Every Python file of the package."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that holds the package."""

    label: str
    version: str | None
    root: Path
    package: str

    def read(self, file: str) -> bytes | None:
        path = self.root / file
        return path.read_bytes() if path.is_file() else None

    def files(self) -> Iterator[str]:
        for path in sorted((self.root / self.package).rglob("*.py")):
            yield path.relative_to(self.root).as_posix()


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel, read without being unpacked."""

    label: str
    version: str | None
    path: Path
    package: str

    def read(self, file: str) -> bytes | None:
        with zipfile.ZipFile(self.path) as archive:
            try:
                return archive.read(file)
            except KeyError:
                return None

    def files(self) -> Iterator[str]:
        with zipfile.ZipFile(self.path) as archive:
            names = archive.namelist()
        yield from sorted(
            n for n in names if n.startswith(f"{self.package}/") and n.endswith(".py")
        )


def open_release(text: str, package: str, cache: Path) -> Release:
    """The release that `text` names: a path of a checkout, a tree or a wheel, or a version.

    A version comes from the package index, by way of the folder `cache`. Raises `FileErrors` where
    there is nothing of the kind.
    """
    path = Path(text)
    if path.is_dir():
        return _tree(path, package)
    if path.is_file():
        return _wheel(path, text, package)
    try:
        Version(text)
    except InvalidVersion:
        message = f"`{text}` is no path here, and no version"
        hint = "name a checkout, an unpacked wheel, a wheel, or a version like `0.5.6`"
        raise FileErrors([FileError(message, hints=[hint])]) from None
    return _wheel(fetch_wheel(package, text, cache), text, package)


def _wheel(path: Path, label: str, package: str) -> Wheel:
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        raise FileErrors([FileError(f"`{path}` is neither a folder nor a wheel")]) from None
    if re.sub(r"[-_.]+", "-", name) != re.sub(r"[-_.]+", "-", package).lower():
        message = f"`{path}` is a wheel of {name}, the patches are for {package}"
        raise FileErrors([FileError(message)])
    short = str(version) if label == str(path) else label
    return Wheel(short, str(version), path, package)


def _tree(path: Path, package: str) -> Tree:
    """The folder above the package, wherever a checkout or an install has it."""
    for root in (path, path / "python", path / "src", path.resolve().parent):
        if (root / package).is_dir() and (root != path.resolve().parent or path.name == package):
            return Tree(str(path), _version_of(root, package), root, package)
    message = f"`{path}` holds no package `{package}`"
    hint = f"name the folder that holds `{package}/`, a checkout of it, or the package itself"
    raise FileErrors([FileError(message, hints=[hint])])


def _version_of(root: Path, package: str) -> str | None:
    """The version in `version.py`, else in the metadata beside the package."""
    for file in ("version.py", "_version.py", "__init__.py"):
        path = root / package / file
        found = _assigned_version(path.read_bytes()) if path.is_file() else None
        if found is not None:
            return found
    for metadata in root.glob(f"{package}-*.dist-info/METADATA"):
        line = re.search(r"^Version: (\S+)", metadata.read_text("utf-8", "replace"), re.M)
        if line:
            return line[1]
    return None


def _assigned_version(data: bytes) -> str | None:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            if "__version__" in names and isinstance(node.value.value, str):
                return node.value.value
    return None
