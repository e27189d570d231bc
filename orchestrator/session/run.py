"""The main job: from the first look at the hosts to the verdict, with the tail that always runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.diagnostics import fold_hosts
from orchestrator.errors import (
    FleetError,
    OrchestratorError,
    PatchError,
    SessionError,
)
from orchestrator.model.outcome import is_as_before
from orchestrator.model.plan import Plan
from orchestrator.model.record import Verdict
from orchestrator.session.answer.collect import Collector
from orchestrator.session.debugging import DebugLife
from orchestrator.session.engine import Engine
from orchestrator.session.hosts.fleet import Cancelled, Fleet, FleetFailure, Progress
from orchestrator.session.hosts.heartbeat import Heartbeat
from orchestrator.session.hosts.member import Member
from orchestrator.session.hosts.pause import blame_pause
from orchestrator.session.job import Job
from orchestrator.session.kept.ending import Ending
from orchestrator.session.kept.rundir import RunDir, full_disk
from orchestrator.session.signals import signals_end
from orchestrator.session.steps import leftovers, lives, observe, stages
from orchestrator.session.steps.graphs import note_graphs
from orchestrator.session.steps.links import note_compiled, note_links
from orchestrator.session.steps.proving import check_code
from orchestrator.session.steps.tail import Tail
from orchestrator.spec.project import is_shipped

# In the grace a controller whose link broke may come back before the guard reverts.
_LONGEST_GRACE_S = 15.0
# Planning one patch takes a second at most, on a machine that is not busy; a library of 19 took
# over a minute on one that was.
_PLAN_S = 60.0


class Run:
    """One execution of a session. `execute` may be called once."""

    def __init__(self, job: Job, progress: Progress, run_dir: RunDir, session_id: str) -> None:
        self.job = job
        self.run_dir = run_dir
        self.session_id = session_id
        members = [Member(host, rank) for rank, host in enumerate(job.hosts)]
        self.fleet = Fleet(members, progress)
        self.grace_s = min(_LONGEST_GRACE_S, job.session.lease_s)
        self.collector = Collector(self.fleet, run_dir, job.session, session_id)
        self.verdict: Verdict | None = None
        self.applied = False

    def execute(self) -> Ending:
        """Do the job and its tail. Raises nothing that a host, a user or a bug can cause."""
        return self._conclude(self._job)

    def apply(self, lease_s: float) -> Ending:
        """Patch, restart and arm, then leave the hosts to their guards for `lease_s`."""
        return self._conclude(lambda: self._apply(lease_s))

    def _conclude(self, work: Callable[[], None]) -> Ending:
        cause: OrchestratorError | None = None
        bug: Exception | None = None
        interrupted = False
        try:
            with signals_end(self.fleet):
                try:
                    work()
                except Cancelled as cancelled:
                    cause = cancelled.error or SessionError(cancelled.reason)
                    interrupted = cancelled.interrupted
                except FleetFailure as failure:
                    cause = _cause(failure)
                except OrchestratorError as error:
                    cause = error
                except Exception as error:
                    cause = full_disk(error)
                    bug = None if cause is not None else error
        finally:
            self._close()
        if self.run_dir.problem:
            self.fleet.progress.note(f"warning: {self.run_dir.problem}")
        if not interrupted:
            cause = blame_pause(cause, self.fleet)
        return self._ending(cause, bug or next(iter(self.fleet.bugs), None), interrupted)

    def look(self) -> Plan:
        """Connect, look and plan, then leave; raises what a session would report as its cause."""
        try:
            with Engine(_PLAN_S * max(1, len(self.job.patches))) as engine:
                return self.plan(engine, writes=False)
        except (FleetFailure, OrchestratorError) as failure:
            cause = _cause(failure) if isinstance(failure, FleetFailure) else failure
            hosts = self.fleet.outcomes("look")
            cause.outcomes = tuple(replace(o, message="", hints=()) for o in hosts)
            raise cause from failure
        finally:
            self._close()

    def plan(self, engine: Engine, *, writes: bool) -> Plan:
        """Connect, look and plan; with `writes` what a dead session left is ended first."""
        fleet, job = self.fleet, self.job
        fleet.each("connect", observe.connect(job.transport), may_leave=True)
        if writes:
            fleet.each("leftovers", leftovers.end_leftovers)
        restart, first = job.session.restart, fleet.members[0]
        look = observe.look(self.session_id, job.server, job.install, job.patches, restart, first)
        for members in observe.in_turns(job.server, fleet.members):
            fleet.each("look", look, members, may_leave=True)
        views = [m.view for m in fleet.members if m.view is not None]
        try:
            plan = engine.plan(self.session_id, job.patches, views, job.runtime_source)
        except PatchError as error:
            error.notes = (*error.notes, *note_compiled({m.name: m.files for m in fleet.members}))
            raise
        fleet.each("check", check_code(plan), may_leave=True)
        return plan

    def list_notes(self, plan: Plan) -> list[str]:
        """What there is to know of the debug lives, of what comes back, of probes that graphs
        silence and of files that have other names, each once.
        """
        lives = {m.name: self.job.life(m) for m in self.fleet.members if m.found is not None}
        hosts: dict[str, list[str]] = {}
        for name, life in lives.items():
            for note in life.notes:
                hosts.setdefault(note, []).append(name)
        notes = [f"{fold_hosts(names)}: {note}" for note, names in hosts.items()]
        notes += note_graphs(plan, {name: life.argv for name, life in lives.items()})
        return notes + note_links(plan, {m.name: m.files for m in self.fleet.members})

    def _close(self) -> None:
        for member in self.fleet.members:
            if member.agent is not None:
                member.agent.close()

    def _job(self) -> None:
        plan = self._make_plan()
        met = None  # as long as nobody has waited to the end
        with Heartbeat(self.fleet, self.job.session.lease_s):
            try:
                met = self._patch(plan).observe()
            finally:
                self._end(plan, met)

    def _apply(self, lease_s: float) -> None:
        plan = self._make_plan()
        session_lease_s = self.job.session.lease_s
        try:
            # A beat that came after the detachment would shorten the lease again.
            with Heartbeat(self.fleet, session_lease_s):
                self._patch(plan)
            self.fleet.each("detach", stages.detach(lease_s))
            self.applied = True
            self.collector.close()
        finally:
            if not self.applied:
                with Heartbeat(self.fleet, session_lease_s):
                    self._end(plan, None)

    def _patch(self, plan: Plan) -> DebugLife:
        """Stage the edits, and start the server with them."""
        self._stage(plan)
        life = DebugLife(self.job, plan, self.fleet, self.collector, self.run_dir)
        life.begin()
        return life

    def _make_plan(self) -> Plan:
        with Engine(_PLAN_S * max(1, len(self.job.patches))) as engine:
            plan = self.plan(engine, writes=True)
        self.run_dir.write_plan(plan)
        for patch in filter(is_shipped, self.job.patches):
            note = f"patch `{patch.name}` is the one that comes with sgldbg, {patch.path}"
            self.fleet.progress.note(f"note: {note}")
        for warning in plan.warnings:
            self.fleet.progress.note(f"warning: {warning}")
        for note in self.list_notes(plan):
            self.fleet.progress.note(f"note: {note}")
        return plan

    def _end(self, plan: Plan, met: bool | None) -> None:
        """The tail; what was seen before a failure is judged as well."""
        job = self.job
        for member in self.fleet.members:
            member.error = None
        Tail(
            self.fleet,
            job.server,
            job.transport,
            self.session_id,
            job.session.after,
            self.grace_s,
            self.collector.drain,
        ).run()
        self.collector.close()
        if self.collector.records() or met is not None:
            self.verdict = self.collector.verdict(job.patches, plan, met)
            self.run_dir.write_verdict(self.verdict)

    def _stage(self, plan: Plan) -> None:
        job, fleet = self.job, self.fleet
        lease_s = job.session.lease_s
        fleet.each("begin", stages.begin(self.session_id, job.holder, lease_s, self.grace_s))
        fleet.each("stage", stages.stage(plan, job.install.package))
        fleet.each("describe", lives.describe(job.server))

    def _ending(
        self, cause: OrchestratorError | None, bug: Exception | None, interrupted: bool
    ) -> Ending:
        outcomes = self.fleet.outcomes("end")
        ending = Ending(
            session_id=self.session_id,
            question=self.job.session.question,
            outcomes=outcomes,
            verdict=self.verdict,
            cause=cause,
            bug=bug,
            interrupted=interrupted,
            applied=self.applied,
            changed=any(m.stopping for m in self.fleet.members),
            run_dir=self.run_dir.path,
        )
        if self.applied or is_as_before(outcomes):
            return ending
        found = cause.errors if isinstance(cause, FleetError) else (cause,)
        later = [m.error for m in self.fleet.members if m.error and m.error not in found]
        reasons = [*([cause] if cause else []), *later]
        return replace(ending, cause=ending.without_end(reasons))


def _cause(failure: FleetFailure) -> OrchestratorError:
    """One host's failure is the cause itself; those of several travel together."""
    if len(failure.errors) == 1:
        return failure.errors[0]
    hosts = fold_hosts(e.host for e in failure.errors)
    return FleetError(f"`{failure.stage}` failed on {hosts}", failure.errors)
