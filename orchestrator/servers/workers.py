"""The workers of a server: which ended in silence while the rest waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Server
from orchestrator.servers.output import read_last_words, tell_full

Processes = Sequence[Mapping[str, Any]]
Key = tuple[int, int]

# A main process that hears of a worker's death ends within seconds and says more of it; one that
# waits for another worker's word first would wait for ever.
PATIENCE_S = 5.0
_MARK = "::"
MEMORY_HINT = "give it more memory, or a higher limit for its cgroup or container"


class Workers:
    """The processes of one life that gave themselves a title, as they come and go."""

    def __init__(self) -> None:
        self._titles: dict[Key, str] = {}
        self._gone_at_s: dict[Key, float] = {}

    def note(self, processes: Processes, now_s: float) -> None:
        """Take in what runs now below the main process, which comes first.

        A child with its parent's title is a fork that has not become its own program yet.
        """
        titles = {p["pid"]: p["title"] for p in processes}
        for process in processes[1:]:
            title = process["title"]
            if _MARK in title and titles.get(process["ppid"]) != title:
                self._titles[process["pid"], process["start_time"]] = title
        here = {(p["pid"], p["start_time"]) for p in processes}
        for key in self._titles:
            if key not in here:
                self._gone_at_s.setdefault(key, now_s)

    def find_lost(self, now_s: float) -> dict[Key, str]:
        """Those that ended, with their titles; none as long as the patience lasts for all."""
        if all(now_s - at < PATIENCE_S for at in self._gone_at_s.values()):
            return {}
        return {key: self._titles[key] for key in self._gone_at_s}

    def list_all(self) -> list[Key]:
        """Every one that was ever seen."""
        return sorted(self._titles)

    def list_running(self) -> list[str]:
        """The titles of those that were there at the last look."""
        return sorted(title for key, title in self._titles.items() if key not in self._gone_at_s)


def tell_killed(agent: AgentClient, processes: Sequence[Key]) -> list[str]:
    """A note for each of these that the kernel ended for want of memory, with its own line."""
    asked = [{"pid": pid, "start_time": start_time} for pid, start_time in processes]
    killed = agent.call("killed", {"processes": asked}).value
    return [f"the kernel says: {killed[pid]}" for pid in sorted(killed)]


def worker_died(
    agent: AgentClient,
    server: Server,
    life: Mapping[str, Any],
    lost: Mapping[Key, str],
    running: Sequence[str],
    seconds: float | None = None,
) -> HostError:
    """The error of a server of which workers ended, with the kernel's word where it has one.

    `seconds` are those since its start, where it was not ready yet.
    """
    said = tell_killed(agent, list(lost))
    are, them = ("is", "it") if len(lost) == 1 else ("are", "them")
    names = f"{', '.join(sorted(lost.values()))} {are}"
    notes = [*said]
    if running:
        notes.append(f"still there, waiting: {', '.join(running)}")
    notes += tell_full(agent, life)
    when = "" if seconds is None else f", {seconds:.1f} s after its start"
    return HostError(
        f"server `{server.name}` ended in part{when}: {names} gone without a word, and the rest"
        f" waits for {them}",
        host=agent.host,
        code="died",
        notes=notes,
        hints=[MEMORY_HINT] if said else [],
        tail=read_last_words(agent, life),
    )
