"""What the planner is shown of a host; the plan depends on these bytes, never on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostView:
    """What one host holds of the files that patches name.

    `files` maps a path to its bytes, or to `None` where no such file exists there; the path of
    the probe runtime may be among them. `probe_dir` is where that host's runtime finds its table.
    """

    host: str
    package_version: str | None
    files: Mapping[str, bytes | None]
    probe_dir: str
