"""A session file with everything that it names: its inventory and its patches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import orchestrator
from orchestrator.errors import FileError, FileErrors
from orchestrator.model.inventory import ARGS, Host, Inventory, LaunchPair, Server
from orchestrator.model.patch import Patch
from orchestrator.model.session import Session
from orchestrator.spec.inventory import read_inventory
from orchestrator.spec.patch import read_patch
from orchestrator.spec.problems import raise_problems, suggest
from orchestrator.spec.session import read_session

T = TypeVar("T")

INVENTORY = "inventory.yaml"


@dataclass(frozen=True, slots=True)
class Project:
    """A session whose names are all resolved."""

    inventory: Inventory
    session: Session
    patches: tuple[Patch, ...]

    @property
    def server(self) -> Server:
        """The server that the session is about."""
        return self.inventory.servers[self.session.server]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The server's hosts in node-rank order."""
        return tuple(self.inventory.hosts[name] for name in self.server.hosts)


def load_project(
    session_path: str | Path,
    inventory_path: str | Path | None = None,
    patch_dirs: Sequence[str | Path] = (),
) -> Project:
    """The session with its inventory and patches; raises `FileErrors` with all their problems.

    The inventory is `inventory.yaml` beside the session file, else in the folder above it, else
    in the working directory. A patch is looked for by name in `patches/` beside the inventory,
    in `patch_dirs`, and in the library that comes with the package; a name with a slash or the
    ending `.yaml` is a path, relative to the session file.
    """
    problems: list[FileError] = []
    session = _collect(problems, partial(read_session, session_path))
    path = Path(inventory_path) if inventory_path else find_inventory(Path(session_path))
    inventory = _collect(problems, partial(read_project_inventory, path))
    if session is None:
        raise_problems(problems)
        raise AssertionError("a session that was not read left no problem")
    patches: list[Patch] = []
    folders = list_patch_folders(path.parent, patch_dirs)
    for number in range(len(session.patches)):
        patch = _collect(problems, partial(_patch, session, number, folders))
        if patch is not None:
            patches.append(patch)
    if inventory is not None:
        problems += _check_server(session, inventory, patches)
        problems += _check_arguments(session, inventory)
    if len(patches) == len(session.patches):
        problems += _check_names(session, patches)
    raise_problems(problems)
    assert inventory is not None
    return Project(inventory, session, tuple(patches))


def read_project_inventory(path: str | Path | None = None) -> Inventory:
    """The inventory at `path`, by default of the working directory; raises `FileErrors`."""
    path = Path(path or INVENTORY)
    if path.exists():
        return read_inventory(path)
    hint = "write one, or name it with `--inventory`"
    raise FileErrors([FileError(f"there is no inventory `{path}`", hints=[hint])])


def find_inventory(session_path: Path) -> Path:
    """The inventory of a session; where there is none, the path that it could have."""
    folder = make_absolute(session_path).parent
    for candidate in (folder / INVENTORY, folder.parent / INVENTORY):
        if candidate.exists():
            return shorten(candidate)
    return Path(INVENTORY)


def list_patch_folders(inventory_dir: Path, patch_dirs: Sequence[str | Path]) -> list[Path]:
    """Where a patch is looked for by name, in this order; some may not exist."""
    return [inventory_dir / "patches", *map(Path, patch_dirs), _find_library()]


def is_shipped(patch: Patch) -> bool:
    """Whether this is one of the library's, which is taken where no folder has one of its name."""
    return make_absolute(Path(patch.path)).parent == _find_library()


def _find_library() -> Path:
    package = Path(orchestrator.__file__).parent
    library = package / "library"
    return library if library.is_dir() else package.parent / "patches"  # run from a checkout


def shorten(path: Path) -> Path:
    """The path as seen from the working directory, where it is below it."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # not below it, or it was removed
        return path


def make_absolute(path: Path) -> Path:
    """The path from the root on; as it is where the working directory was removed."""
    try:
        return path.absolute()
    except OSError:
        return path


def _collect(problems: list[FileError], read: Callable[[], T]) -> T | None:
    """What `read` returns; `None`, with its problems collected, where it fails."""
    try:
        return read()
    except FileErrors as errors:
        problems += errors.problems
        return None


def _patch(session: Session, number: int, folders: Sequence[Path]) -> Patch:
    name = session.patches[number]
    span = session.spans[f"patches.{number}"]
    if "/" in name or name.endswith(".yaml"):
        path = shorten(Path(os.path.normpath(make_absolute(Path(session.path)).parent / name)))
        if not path.exists():
            raise FileErrors([FileError(f"there is no file `{path}`", span=span)])
        return read_patch(path)
    for folder in folders:
        path = folder / f"{name}.yaml"
        if os.path.lexists(path):  # a link to nowhere is a mistake, and no reason to look further
            break
    else:
        known = [file.stem for folder in folders for file in sorted(folder.glob("*.yaml"))]
        looked = [f"looked in {shorten(folder)}/" for folder in folders[:-1] if folder.is_dir()]
        looked.append("looked in the library that comes with sgldbg")
        problem = FileError(
            f"unknown patch `{name}`", span=span, notes=looked, hints=suggest(name, known)
        )
        raise FileErrors([problem])
    patch = read_patch(path)
    if patch.name != name:
        message = f"this file is found as patch `{name}`, but calls itself `{patch.name}`"
        raise FileErrors([FileError(message, span=patch.spans["patch"])])
    return patch


def _check_server(
    session: Session, inventory: Inventory, patches: Sequence[Patch]
) -> Iterator[FileError]:
    server = inventory.servers.get(session.server)
    if server is None:
        hints = suggest(session.server, inventory.servers)
        message = f"unknown server `{session.server}` in {inventory.path}"
        yield FileError(message, span=session.spans["server"], hints=hints)
        return
    package = inventory.installs[server.install].package
    for number, patch in enumerate(patches):
        if patch.package != package:
            message = (
                f"patch `{patch.name}` is for package `{patch.package}`,"
                f" install `{server.install}` is of package `{package}`"
            )
            yield FileError(message, span=session.spans[f"patches.{number}"])


def _check_arguments(session: Session, inventory: Inventory) -> Iterator[FileError]:
    """Arguments that a session adds need a place in a start command of the user's."""
    server = inventory.servers.get(session.server)
    if server is None or not isinstance(server.launch, LaunchPair):
        return
    if session.restart.add_args and ARGS not in server.launch.start:
        yield FileError(
            f"server `{server.name}` is started by a command that takes no arguments of a session",
            span=session.spans["server"],
            hints=[f"write `{ARGS}` among the words of `start`, where they belong"],
        )


def _check_names(session: Session, patches: Sequence[Patch]) -> Iterator[FileError]:
    names: dict[str, Patch] = {}
    for number, patch in enumerate(patches):
        if patch.name in names:
            message = f"patch `{patch.name}` stands twice"
            yield FileError(message, span=session.spans[f"patches.{number}"])
        names[patch.name] = patch
    until = session.until
    if until is not None and until.records not in names:
        message = f"`until` waits for patch `{until.records}`, which the session does not use"
        hints = suggest(until.records, names) or [f"its patches: {', '.join(names)}"]
        yield FileError(message, span=session.spans["until.records"], hints=hints)
