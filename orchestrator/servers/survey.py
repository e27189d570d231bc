"""What a person wants to know of a running server, read off its command line and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.servers.adopt import DEFAULT_PORT, read_number, suggest

_SIZES = ("tp", "pp", "dp", "ep")


@dataclass(frozen=True, slots=True)
class Sight:
    """One server as it is seen. `port` is the one that it was told to listen on.

    What its arguments leave open is `None`, and `unsure` says why nobody can tell.

    `ranks` are the labels of its schedulers here, `logs` the files that its output goes to and
    `elsewhere` in words where else it goes, `gpus` is `None` where nobody can tell, `refusal` says
    why it could not be adopted, and `hints` what to write into the inventory then.
    """

    pid: int
    user: str
    uptime_s: int
    port: int | None
    model: str | None
    sizes: Mapping[str, int]
    node: tuple[int, int] | None
    role: str | None
    ranks: tuple[str, ...]
    gpus: tuple[Mapping[str, Any], ...] | None
    logs: tuple[str, ...]
    elsewhere: str
    run_by: str | None
    wrapper: str | None
    unsure: str
    refusal: str
    hints: tuple[str, ...]


def read_sight(row: Mapping[str, Any], *, is_taken: bool = False) -> Sight:
    """The sight of one row of the agent's `survey`; nothing in it is a secret.

    `is_taken`: the inventory says already in which way a session takes it, and that fits.
    """
    values: Mapping[str, str] = row["given"]["values"]
    sizes = {name: read_number(row, name) for name in _SIZES}
    nodes = read_number(row, "nnodes")
    outputs = [row[name] for name in ("stdout", "stderr")]
    files = [output["path"] for output in outputs if output["kind"] == "file"]
    return Sight(
        pid=row["pid"],
        user=row["user"],
        uptime_s=row["uptime_s"],
        port=_find_port(row),
        model=values.get("model") or None,
        sizes={name: size for name, size in sizes.items() if size is not None},
        node=_find_node(row, nodes),
        role=values.get("role"),
        ranks=tuple(sorted(filter(None, (_find_rank(w["title"]) for w in row["workers"])))),
        gpus=None if row["gpus"] is None else tuple(row["gpus"]),
        logs=tuple(dict.fromkeys(files)),
        elsewhere=_tell_elsewhere(outputs, (row["owner"] or {}).get("unit")),
        run_by=row["supervisor"],
        wrapper=row["wrapper"],
        unsure=row["given"]["why"],
        refusal="" if is_taken else row["why"],
        hints=() if is_taken or row["restorable"] else tuple(suggest(row, adopting=True)),
    )


def _tell_elsewhere(outputs: Sequence[Mapping[str, Any]], unit: str | None) -> str:
    """Where output goes that goes to no file, the error output's place last and so first named."""
    places = {
        "pipe": "to a pipe",
        # systemd hands its services a socket of the journal's.
        "socket": f"in the journal of {unit}" if unit else "to a socket",
        "tty": "on a terminal",
        "unknown": "unknown",
    }
    found = [places[output["kind"]] for output in outputs if output["kind"] in places]
    return found[-1] if found else "in no file"


def _find_port(row: Mapping[str, Any]) -> int | None:
    """The port of its arguments; where they cannot be read, the only one that it listens on."""
    given = read_number(row, "port")
    if given is not None or "port" not in row["given"]["unknown"]:
        return given if given is not None else DEFAULT_PORT
    return row["ports"][0] if len(row["ports"]) == 1 else None


def _find_node(row: Mapping[str, Any], nodes: int | None) -> tuple[int, int] | None:
    if nodes is None or "node_rank" in row["given"]["unknown"]:
        return None
    return read_number(row, "node_rank") or 0, nodes


def _find_rank(title: str) -> str:
    """`DP0 TP3` of `sglang::scheduler_DP0_TP3`; `scheduler` where there is one rank only."""
    name = title.partition("::")[2]
    if not name.startswith("scheduler"):
        return ""
    return name.removeprefix("scheduler").strip("_").replace("_", " ") or "scheduler"


def describe_sight(sight: Sight, name: str | None = None) -> list[str]:
    """Lines for a person, the most telling first; `name` is the inventory's for this server."""
    sizes = [f"{name} {size}" for name, size in sight.sizes.items()]
    node = [] if sight.node is None else [f"node {sight.node[0]} of {sight.node[1]}"]
    role = [] if sight.role in (None, "null") else [f"{sight.role} server"]
    port = "port unknown" if sight.port is None else f"port {sight.port}"
    up = f"up {_show_time(sight.uptime_s)}"
    head = ", ".join([f"pid {sight.pid} of {sight.user}", port, up, *sizes, *node, *role])
    lines = [f"server {f'{name}, ' if name else ''}{head}: {sight.model or 'model unknown'}"]
    if sight.ranks:
        lines.append(f"  ranks {', '.join(sight.ranks)}")
    if sight.gpus is not None:
        lines.append(f"  GPUs {', '.join(map(_show_gpu, sight.gpus)) or 'none'}")
    lines.append(f"  logs {', '.join(sight.logs) or sight.elsewhere}")
    if sight.run_by:
        lines.append(f"  run by {sight.run_by.rstrip(',')}")
    if sight.wrapper:
        lines.append(f"  child of {sight.wrapper}, which is not started again with it")
    if sight.unsure:
        lines.append(f"  not all of its arguments are known: {sight.unsure}")
    if sight.refusal:
        lines.append(f"  cannot be adopted: {sight.refusal}")
        lines += [f"  hint: {hint}" for hint in sight.hints]
    return lines


def describe_orphans(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines about workers whose server is gone, with what they hold and how to be rid of them."""
    return [*tell_orphans(rows), f"  hint: {tell_end(rows)}"] if rows else []


def tell_end(orphans: Sequence[Mapping[str, Any]]) -> str:
    """How to be rid of them."""
    return f"nobody else will end them: `kill -9 {' '.join(str(row['pid']) for row in orphans)}`"


def tell_orphans(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A text about each, with what it holds."""
    lines = []
    for row in rows:
        held = [f"port {port}" for port in row["ports"]]
        held += [f"GPU {_show_gpu(gpu)}" for gpu in row["gpus"] or ()]
        if row["shm_bytes"]:
            held.append(f"{row['shm_bytes'] / 1e6:.0f} MB of shared memory")
        holds = f", holds {', '.join(held)}" if held else ""
        lines.append(
            f"left of a server that is gone: pid {row['pid']} ({row['title']}) of {row['user']},"
            f" up {_show_time(row['uptime_s'])}{holds}"
        )
    return lines


def describe_origin(checked: Mapping[str, Any]) -> str:
    """Whether an install's files are as they were made, in words."""
    if checked["by"] is None:
        return "neither a RECORD nor a checkout tells whether it is pristine"
    counts = [
        f"{len(checked[kind])} {kind}" for kind in ("changed", "missing", "extra") if checked[kind]
    ]
    if not counts:
        return f"pristine: {checked['files']} files as in {checked['by']}"
    names = [*checked["changed"], *checked["missing"], *checked["extra"]]
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"not as in {checked['by']}: {', '.join(counts)} of {checked['files']} files ({shown})"


def _show_gpu(gpu: Mapping[str, Any]) -> str:
    used = "" if gpu["used_mib"] is None else f" {gpu['used_mib']} MiB"
    return f"{gpu['index']} ({gpu['name']}{used})"


def _show_time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((i for i, (n, _) in enumerate(parts) if n), 3)
    return " ".join(f"{n} {unit}" for n, unit in parts[first : first + 2])
