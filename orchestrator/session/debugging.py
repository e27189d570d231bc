"""The debug life: from the stop of the originals until enough was seen."""

from __future__ import annotations

import threading
from dataclasses import asdict

from orchestrator.errors import HostError
from orchestrator.model.plan import Plan
from orchestrator.servers.exercise import exercise
from orchestrator.servers.ready import wait_ready
from orchestrator.servers.workers import Workers
from orchestrator.session.answer.collect import Collector
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.job import Job
from orchestrator.session.kept.rundir import RunDir
from orchestrator.session.steps import lives, stages
from orchestrator.session.steps.watch import Watch

# The runtime looks at its table every 0.2 s; one poll must have passed before the user's request.
_ARMING_S = 0.5


class DebugLife:
    """The life of one server on all its hosts with this plan's edits in place."""

    def __init__(
        self, job: Job, plan: Plan, fleet: Fleet, collector: Collector, run_dir: RunDir
    ) -> None:
        self._job = job
        self._plan = plan
        self._fleet = fleet
        self._collector = collector
        self._run_dir = run_dir
        self._first_ready = threading.Event()
        self._workers = {member.name: Workers() for member in fleet.members}

    def begin(self) -> None:
        """Stop the originals, swap, start patched, wait until ready, and arm the probes."""
        fleet, job = self._fleet, self._job
        if len(fleet.members) > 1:
            fleet.each("announce", lives.announce_stop(job.server))
        stop = lives.stop_server("original", job.server)
        fleet.each("stop", stop, [m for m in fleet.members if m.rank == 0])
        fleet.each("stop", stop, [m for m in fleet.members if m.rank != 0])
        fleet.each("swap", stages.swap)
        fleet.each("effective", stages.check_effective(self._plan, self._job.life))
        fleet.each("probes", stages.write_table(self._plan, 1, "start"))
        fleet.each("start", lives.start(job.life, job.server, job.install.package))
        self._collector.follow()
        fleet.each("ready", self._wait_ready, may_leave=True)
        self._arm()

    def observe(self) -> bool:
        """Send the traffic, and wait until enough was seen or the time is up."""
        fleet, session = self._fleet, self._job.session
        with Watch(fleet, self._job.server, self._workers):
            self._collector.look_at_workers()
            if session.exercise:
                fleet.each("exercise", self._exercise, fleet.members[:1], may_leave=True)
            return self._collector.wait_until_enough()

    def _wait_ready(self, member: Member) -> None:
        assert member.life is not None
        try:
            wait_ready(
                member.channel,
                self._job.server,
                member.life,
                member.rank,
                lambda text: self._fleet.progress.stage(member.name, "ready", "running", text),
                # One rank that dies early ends the wait of the others at once.
                lambda: self._fleet.stop.is_set() or any(m.error for m in self._fleet.members),
                lambda: self._first_ready.is_set(),
                self._workers[member.name],
            )
        except HostError as error:
            raise lives.say_which(error, lives.DEBUG_LIFE) from None
        if member.rank == 0:
            self._first_ready.set()

    def _arm(self) -> None:
        """Start all counters anew, and wait until every site must have seen it."""
        self._fleet.each("arm", stages.write_table(self._plan, 2, "armed"))
        self._fleet.stop.wait(_ARMING_S)
        self._fleet.stop.check()

    def _exercise(self, member: Member) -> str:
        """Send the session's traffic; a server that died of it is the session's failure."""
        assert member.life is not None
        responses = exercise(
            member.channel,
            self._job.server,
            self._job.session.exercise,
            member.life,
            on_response=lambda r: self._run_dir.append("exercise.jsonl", asdict(r)),
            cancelled=self._fleet.stop.is_set,
            workers=self._workers[member.name],
        )
        bad = [r for r in responses if not r.ok]
        if bad:
            raise HostError(
                f"{bad[0].method} {bad[0].path} failed: {bad[0].error}",
                host=member.name,
                code="exercise",
                notes=bad[0].notes,
                hints=bad[0].hints,
                tail=bad[0].tail,
            )
        return f"{len(responses)} answers"
