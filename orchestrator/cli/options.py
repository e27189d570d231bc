"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cli.given import note_given
from orchestrator.model.inventory import Host, Inventory

F = TypeVar("F", bound=Callable[..., Any])


class UserPath(click.Path):
    """The path that a user names; an empty one, as of an unset variable, is no path."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay)

    def convert(self, value: Any, parameter: click.Parameter | None, context: Any) -> Any:
        """The path; raises `BadParameter` where there is none."""
        if value == "":
            self.fail("the name is empty", parameter, context)
        return super().convert(value, parameter, context)


inventory_option = click.option(
    "--inventory",
    type=UserPath(),
    metavar="FILE",
    callback=note_given,
    help="The inventory; default: inventory.yaml beside the session, above it, or here.",
)
patches_option = click.option(
    "--patches",
    type=UserPath(file_okay=False),
    multiple=True,
    metavar="DIR",
    callback=note_given,
    help="One more folder in which patches are looked for by name.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    # Before what another option may find wrong with itself, so that this is told as JSON, too.
    is_eager=True,
    callback=note_given,
    help="Print JSON on stdout.",
)
session_argument = click.argument(
    "session_file", metavar="SESSION", type=UserPath(), callback=note_given
)


def project_options(function: F) -> F:
    """`--inventory` and `--patches`: where a session's inventory and patches are found."""
    return inventory_option(patches_option(function))


def duration(text: str) -> float:
    """Type of an option: seconds, written like `30m`, `90s`, `500ms` or `1h30m`."""
    from orchestrator.spec.fields import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def lease_length(text: str) -> float:
    """Type of an option: a duration that is long enough for a lease."""
    from orchestrator.spec.fields import parse_lease

    try:
        return parse_lease(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_inventory_file(path: Path | None) -> Inventory:
    """The named inventory, or that of the working directory; raises `FileErrors`."""
    from orchestrator.spec.project import read_project_inventory

    return read_project_inventory(path)


def find_hosts(book: Inventory, names: Sequence[str]) -> tuple[Host, ...]:
    """The hosts of the inventory that `names` (hosts or groups) mean; all of them for no name.

    Each once, in the order of `names`. An unknown name is an error of usage.
    """
    from orchestrator.spec.problems import suggest

    found: dict[str, Host] = {}
    for name in names or book.hosts:
        if name not in book.hosts and name not in book.groups:
            hints = "; ".join(suggest(name, [*book.hosts, *book.groups]))
            raise click.UsageError(
                f"unknown host or group `{name}` in {book.path}" + (f"; {hints}" if hints else "")
            )
        for host in book.groups.get(name, (name,)):
            found[host] = book.hosts[host]
    return tuple(found.values())
