"""Gathers what the debug life prints and records on every host, until enough was seen."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import HostError
from orchestrator.logs.follow import LogSink
from orchestrator.logs.parse import label_of_title
from orchestrator.logs.records import RecordReader, merge
from orchestrator.model.patch import Patch
from orchestrator.model.plan import Plan
from orchestrator.model.record import Record, Verdict, Worker
from orchestrator.model.session import Session
from orchestrator.session.answer.verdict import enough, judge
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.kept.rundir import RunDir

_POLL_S = 0.2
# The agent sends this much ahead of our thanks: enough for the wire never to idle, little enough
# for a revert to overtake it.
_CREDIT_BYTES = 1 << 20
# What a host printed but we have not taken yet, at 10 MB/s of a slow link, is a quarter of a GB.
_DRAIN_S = 30.0
# A pump waits at most for one op, which has 30 s.
_JOIN_S = 35.0
_STREAMS = {1: "stdout", 2: "stderr"}


class HostCollector:
    """The two logs and the spool of one host."""

    def __init__(self, member: Member, run_dir: RunDir, session_id: str) -> None:
        self.member = member
        self._session_id = session_id
        self._lock = threading.Lock()
        self._stderr = RecordReader(member.name, session_id)
        self._spools: dict[str, RecordReader] = {}
        self._offsets: dict[str, int] = {}
        self._seen: list[Record] = []
        self._owed = dict.fromkeys(_STREAMS, 0)
        self._ended: dict[int, Mapping[str, Any]] = {}
        self._begins = dict.fromkeys(_STREAMS, 0)
        # The pump's thread and the tail both pump; a piece of the spool must be read once.
        self._pumping = threading.Lock()
        self.sinks: dict[int, LogSink] = {}
        # Those of which the agent knows: a session may be interrupted before, or in between.
        self._followed: dict[int, LogSink] = {}
        for number, name in _STREAMS.items():
            run_dir.note_failure(
                f"hosts/{member.name}/{name}.log",
                functools.partial(self._open_sink, run_dir, number, name),
            )

    def _open_sink(self, run_dir: RunDir, number: int, name: str) -> None:
        self.sinks[number] = LogSink(run_dir.log_path(self.member.name, name))

    def follow(self) -> None:
        """Have the agent send both logs from their first byte.

        A server that somebody else starts may go on in a file that it had before, or in one for
        both: that one counts as stderr.
        """
        life = self.member.life
        assert life is not None
        if life["stdout"] == life["stderr"] and 1 in self.sinks:
            self.sinks.pop(1).close()
        self.member.channel.on_event(self._take)
        for number in self.sinks:
            name = _STREAMS[number]
            self._begins[number] = int(life.get(f"{name}_from", 0))
            args = {
                "stream": number,
                "path": life[name],
                "offset": self._begins[number],
                "credit": _CREDIT_BYTES,
            }
            self.member.channel.call("follow", args)
            self._followed[number] = self.sinks[number]

    def _take(self, header: dict[str, Any], raw: bytes) -> None:
        """An event, in the channel's reading thread: quick, and no calls."""
        number = header.get("stream")
        if number not in self.sinks:
            return
        begin = self._begins[number]
        header = {**header, "offset": header["offset"] - begin}
        with self._lock:
            if header["event"] == "end":
                self._ended[number] = {**header, "start": header["start"] - begin}
                return
            self.sinks[number].write(header["offset"], raw)
            self._owed[number] += len(raw)
            if _STREAMS[number] == "stderr":
                self._seen += self._stderr.feed(raw)

    def pump(self) -> None:
        """Thank for what was taken, and read what is new in the spool."""
        with self._pumping:
            self._pump()

    def _pump(self) -> None:
        channel = self.member.channel
        with self._lock:
            owed = {n: b for n, b in self._owed.items() if b}
            self._owed.update(dict.fromkeys(owed, 0))
        for number, size in owed.items():
            channel.call("credit", {"stream": number, "bytes": size})
        args = {"dir": self.member.probe_dir, "offsets": dict(self._offsets)}
        reply = channel.call("read-spool", args)
        at = 0
        for row in reply.value["files"]:
            data = reply.raw[at : at + row["size"]]
            at += row["size"]
            self._offsets[row["name"]] = row["offset"] + row["size"]
            reader = self._spools.setdefault(
                row["name"], RecordReader(self.member.name, self._session_id)
            )
            with self._lock:
                self._seen += reader.feed(data)

    def drain(self, timeout_s: float) -> str:
        """Take what is left of both logs and the spool; a sentence if something is missing."""
        for number in self._followed:
            self.member.channel.call("unfollow", {"stream": number, "drain": True})
        deadline = time.monotonic() + timeout_s
        while len(self._ended) < len(self._followed) and time.monotonic() < deadline:
            self.pump()
            time.sleep(0.02)
        self.pump()
        lost = [
            _STREAMS[n]
            for n, sink in self._followed.items()
            if n not in self._ended or not sink.matches(self._ended[n])
        ]
        return f"{' and '.join(lost)} of {self.member.name} are not whole" if lost else ""

    def records(self) -> list[Record]:
        """Everything seen so far, each record once."""
        with self._lock:
            return merge(self._seen)

    def damaged(self) -> int:
        """Records in stderr that could not be read and are not in the spool either."""
        return sum(r.damaged for r in self._spools.values())

    def close(self) -> None:
        """Close the files."""
        for sink in self.sinks.values():
            sink.close()


class Collector:
    """All hosts' collectors and the thread that keeps them going."""

    def __init__(self, fleet: Fleet, run_dir: RunDir, session: Session, session_id: str) -> None:
        self._fleet = fleet
        self._run_dir = run_dir
        self._session = session
        self._session_id = session_id
        self._hosts: dict[str, HostCollector] = {}
        self._workers: dict[tuple[str, int], Worker] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def follow(self) -> None:
        """Begin on every host; call after the debug life was started."""
        for member in self._fleet.members:
            host = HostCollector(member, self._run_dir, self._session_id)
            self._hosts[member.name] = host
        self._fleet.each("follow", lambda m: self._hosts[m.name].follow())
        for host in self._hosts.values():
            thread = threading.Thread(
                target=self._keep_pumping,
                args=(host,),
                name=f"sgldbg-collect-{host.member.name}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def _keep_pumping(self, host: HostCollector) -> None:
        while not self._over.wait(_POLL_S):
            try:
                host.pump()
            except HostError as error:
                # A lost host ends the session through its heartbeat, which says so.
                if error.code in ("lost", "crash"):
                    return

    def look_at_workers(self) -> None:
        """Learn which processes the server has now; those that go away stay known."""
        alive = [m for m in self._fleet.members if m.life is not None]
        self._fleet.each("workers", self._look_at_workers, alive, may_leave=True)

    def _look_at_workers(self, member: Member) -> str:
        assert member.life is not None
        args = {"pid": member.life["pid"], "start_time": member.life["start_time"], "port": None}
        processes = member.channel.call("life", args).value["processes"]
        found = [(p["pid"], label_of_title(p["title"])) for p in processes]
        workers = [Worker(member.name, label, pid) for pid, label in found if label]
        with self._lock:
            self._workers.update({(w.host, w.pid): w for w in workers})
        return "1 worker" if len(workers) == 1 else f"{len(workers)} workers"

    def records(self) -> list[Record]:
        """All records of all hosts, each once, in order of host and time."""
        return [r for host in self._hosts.values() for r in host.records()]

    def workers(self) -> tuple[Worker, ...]:
        """Every worker seen: by its process title, or by its records."""
        with self._lock:
            known = dict(self._workers)
        for record in self.records():
            key = (record.host, record.pid)
            if key not in known:
                label = label_of_title(record.title) or f"pid {record.pid}"
                known[key] = Worker(record.host, label, record.pid)
        return tuple(sorted(known.values()))

    def wait_until_enough(self) -> bool:
        """Wait for `until`; false where its time ran out. What was collected stays."""
        until = self._session.until
        if until is None:
            return True
        deadline = time.monotonic() + until.timeout_s
        while True:
            if enough(self._session, self.records(), self.workers()):
                return True
            if time.monotonic() >= deadline:
                return False
            self._fleet.stop.wait(_POLL_S)
            self._fleet.stop.check()

    def drain(self, member: Member) -> str:
        """Take what is left of a host's logs, to their end; what is missing becomes a note."""
        host = self._hosts.get(member.name)
        if host is None:
            return ""
        try:
            missing = host.drain(_DRAIN_S)
        except HostError as error:
            # The verdict has less to go by then, but the host is none the worse for it.
            missing = f"its logs are not whole: {error.message}"
        if missing:
            member.notes.append(missing)
        return missing

    def close(self) -> None:
        """Close the logs and write the records down."""
        self._over.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._threads = []
        for host in self._hosts.values():
            host.close()
        self._run_dir.append_records(self.records())

    def verdict(self, patches: Sequence[Patch], plan: Plan, met: bool | None) -> Verdict:
        """Judge what was collected; `met` is `None` where nobody waited to the end."""
        return judge(
            self._session,
            patches,
            plan.sites(),
            self.records(),
            self.workers(),
            sum(h.damaged() for h in self._hosts.values()),
            bool(met),
            met is None,
        )
