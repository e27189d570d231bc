"""What a plan says of files with other names, and of hosts that see one install."""

from __future__ import annotations

from typing import Any

from orchestrator.model.plan import FilePlan, Plan
from orchestrator.session.steps.links import note_compiled, note_links

A, B, NEW = "p/a.py", "p/b.py", "p/_sgldbg.py"


def plan(**hosts: tuple[str, ...]) -> Plan:
    """Two files and the runtime, on these hosts."""
    files = {"new": (NEW, None), "a": (A, "1"), "b": (B, "2")}
    made = [FilePlan(*files[key], "3", b"", "", names) for key, names in hosts.items()]
    return Plan("s", tuple(made), {})


def row(nlink: int, place: str, path: str = "/site/p/a.py") -> dict[str, Any]:
    """What a host says of a file that is there."""
    return {"nlink": nlink, "place": place, "path": path}


ABSENT = {"nlink": None, "place": None, "path": f"/site/{NEW}"}


def test_nothing_is_said_of_files_that_stand_alone() -> None:
    """Nor of what is created; equal numbers on disks of their own are not one file."""
    rows = {h: {NEW: ABSENT, A: row(1, f"boot-{h} 9")} for h in ("k0", "k1")}
    assert note_links(plan(new=("k0", "k1"), a=("k0", "k1")), rows) == []


def test_a_package_cache() -> None:
    """Which file, on which hosts, and what becomes of the other names; each count for itself."""
    rows = {
        "k0": {A: row(3, "x 1"), B: row(1, "x 1", "/site/p/b.py")},
        "k1": {A: row(3, "y 1"), B: row(2, "y 1", "/site/p/b.py")},
        "k2": {A: row(3, "z 1"), B: row(2, "z 1", "/site/p/b.py")},
    }
    rest = (
        "names of the same file, as in a package cache: the others stay as they are, and it is one"
        " of them again after the revert"
    )
    assert note_links(plan(a=("k0", "k1", "k2"), b=("k0", "k1")), rows) == [
        f"k[0-2]: p/a.py is one of 3 {rest}",
        f"k1: p/b.py is one of 2 {rest}",
    ]


def test_hosts_that_see_one_install() -> None:
    """Each group once, however many files; another name of one inode is not the same file."""
    rows = {h: {A: row(1, "nas:/x 7"), B: row(1, "nas:/x 7", "/site/p/b.py")} for h in ("k0", "k1")}
    rows["k2"] = {A: row(1, "nas:/x 8"), B: row(1, "nas:/x 8", "/site/p/b.py")}
    rows["k3"] = {A: row(1, "nas:/x 7", "/site/p/other.py"), B: row(1, "local 1", "/p/b.py")}
    every = tuple(rows)
    assert note_links(plan(a=every, b=every), rows) == [
        "k[0-1]: one and the same install: it is patched once and reverted once"
    ]


def test_a_file_without_a_source() -> None:
    """Named with what stands there instead, for all hosts at once; one that is absent is not."""
    rows = {h: {A: ABSENT | {"compiled": "a.pyc"}, B: ABSENT} for h in ("k0", "k1")}
    assert note_compiled(rows) == [
        "k[0-1]: p/a.py has no source, only `a.pyc` stands there, which no patch can change"
    ]
