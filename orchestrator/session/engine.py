"""A warm worker process in which patches are planned, so that no input can take us down."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from orchestrator.errors import PatchError
from orchestrator.model.patch import Patch, Probe
from orchestrator.model.plan import Plan
from orchestrator.planning.view import HostView

if TYPE_CHECKING:
    from orchestrator.patching.finding.suggestion import Suggestion
    from orchestrator.planning.survey import Survey

_GIB = 1 << 30
# LibCST generates code by recursion, about three Python frames for each level of nesting: 330
# nested operators end at Python's usual limit of 1,000. This one carries 7,000 levels.
_RECURSION = 20_000
# Stack for that recursion where it passes through native code (and for the parser's own).
_STACK_BYTES = 256 << 20
# How long an idle worker may take to end by itself.
_LEAVE_S = 2.0


class Engine:
    """Plans in a process of its own, started on entering so that its imports overlap.

    A worker that crashes, runs out of memory or takes too long is replaced, and the plan that it
    was at becomes a `PatchError` with state `engine`. To be used from one thread.
    """

    def __init__(self, timeout_s: float = 60.0, memory_bytes: int = 4 * _GIB) -> None:
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self._worker: tuple[BaseProcess, Connection] | None = None

    def __enter__(self) -> Engine:
        self._ready_worker()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def plan(
        self,
        session_id: str,
        patches: Sequence[Patch],
        views: Sequence[HostView],
        runtime_source: bytes,
    ) -> Plan:
        """`make_plan` of `orchestrator.planning.plan`, with its errors and those of the worker."""
        plan = self._ask("plan", session_id, tuple(patches), tuple(views), runtime_source)
        assert isinstance(plan, Plan)
        return plan

    def survey(
        self, patch: Patch, view: HostView, elsewhere: Mapping[str, bytes] | None = None
    ) -> Survey:
        """`survey` of `orchestrator.planning.survey`, with the worker's errors."""
        found = self._ask("survey", patch, view, dict(elsewhere or {}))
        return cast("Survey", found)

    def suggest(self, data: bytes, file: str, line: int, others: Sequence[bytes]) -> Suggestion:
        """`suggest` of `orchestrator.patching.finding.suggestion`, with the worker's errors."""
        return cast("Suggestion", self._ask("suggest", data, file, line, tuple(others)))

    def check_question(self, data: bytes, file: str, site: str, probe: Probe) -> tuple[str, ...]:
        """`check_question` of `orchestrator.patching.question`, with the worker's errors."""
        found = self._ask("check_question", data, file, site, probe)
        return cast("tuple[str, ...]", found)

    def _ask(self, what: str, *args: object) -> object:
        process, connection = self._ready_worker()
        try:
            connection.send((what, args))
            if not connection.poll(self.timeout_s):
                raise _engine_error(f"planning took longer than {self.timeout_s:g} s")
            answer: object = connection.recv()
        except (EOFError, OSError):
            process.join(_LEAVE_S)
            fate = _fate(process)
            self._end_worker(at_once=True)
            raise _engine_error(f"the process that plans died ({fate})") from None
        except BaseException:
            self._end_worker(at_once=True)
            raise
        if isinstance(answer, PatchError):
            raise answer
        return answer

    def close(self) -> None:
        """End the worker; may be called again."""
        self._end_worker(at_once=False)

    def _ready_worker(self) -> tuple[BaseProcess, Connection]:
        if self._worker is not None and not self._worker[0].is_alive():
            self._end_worker(at_once=True)
        if self._worker is None:
            # Never forked: the controller has threads, and theirs are the locks.
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            limits = (self.timeout_s, self.memory_bytes)
            process = context.Process(
                target=_work, args=(theirs, *limits), name="sgldbg-engine", daemon=True
            )
            try:
                with _deaf_to_interrupts(), _somewhere():
                    process.start()
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._worker = (process, ours)
        return self._worker

    def _end_worker(self, *, at_once: bool) -> None:
        if self._worker is None:
            return
        process, connection = self._worker
        self._worker = None
        connection.close()  # an idle worker ends by that
        if not at_once:
            process.join(_LEAVE_S)
        if process.is_alive():
            process.kill()
        process.join()
        process.close()


# Ctrl-C and Ctrl-\ go to the whole group of processes; the controller decides what they mean.
_OF_A_KEY = (signal.SIGINT, signal.SIGQUIT)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started meanwhile inherits the mask: no Ctrl-C of its first imports is shown.

    One that comes in between reaches us right afterwards.
    """
    # Where the first process of all is started, this one comes along, and lifts the mask too early.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_KEY)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _somewhere() -> Iterator[None]:
    """Stand in the root meanwhile where our directory was removed: `spawn` asks for its name."""
    here = None
    try:
        Path.cwd()
    except FileNotFoundError:
        here = os.open(".", os.O_PATH)
        os.chdir("/")
    try:
        yield
    finally:
        if here is not None:
            os.fchdir(here)
            os.close(here)


def _engine_error(
    message: str,
    notes: Sequence[str] = (),
    hint: str = "a file that the patches name may be nested too deeply, or be too large",
) -> PatchError:
    return PatchError(
        message,
        state="engine",
        notes=[*notes, "nothing was written on any host"],
        hints=[hint] if hint else (),
    )


def _fate(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"by signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _work(connection: Connection, timeout_s: float, memory_bytes: int) -> None:
    """The worker: answers one request after another until the connection ends."""
    for number in _OF_A_KEY:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_A_KEY)
    # A native crash prints its stack; what became of the worker is told by its exit status.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.close(silence)
    _limit_memory(memory_bytes)
    sys.setrecursionlimit(_RECURSION)
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_serve, args=(connection, timeout_s))
    thread.start()
    thread.join()


def _limit_memory(memory_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(connection: Connection, timeout_s: float) -> None:
    able = _import_able()
    gc.collect()
    gc.freeze()
    # Trees are large and live until the plan is made: collecting in between is 13 % of the parse.
    gc.disable()
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        except Exception as error:
            connection.send(_unforeseen(error))
            continue
        # A controller that was killed cannot end a worker that hangs: this does.
        signal.alarm(int(timeout_s) + 5)
        answer = _answer(able, *request)
        signal.alarm(0)
        try:
            connection.send(answer)
        except OSError:
            return
        except Exception as error:  # what cannot be pickled has not been sent in part
            connection.send(_unforeseen(error))
        gc.collect()


def _import_able() -> Mapping[str, Any] | PatchError:
    """What the worker is able to do, imported here while it waits; the error where that fails."""
    try:
        from orchestrator.patching.finding.suggestion import suggest
        from orchestrator.patching.question import check_question
        from orchestrator.planning.making import make_for_hosts
        from orchestrator.planning.survey import survey
    except BaseException as error:
        return _engine_error(
            f"the process that plans could not begin: {type(error).__name__}: {error}",
            [_last_frames(error, 1)],
            "install sgldbg anew, in an environment of its own: something it needs does not load",
        )
    return {"plan": make_for_hosts, "survey": survey, "suggest": suggest,
            "check_question": check_question}  # fmt: skip


def _answer(able: Mapping[str, Any] | PatchError, what: str, args: tuple[Any, ...]) -> object:
    if isinstance(able, PatchError):
        return able
    try:
        return able[what](*args)
    except PatchError as error:
        return error
    except RecursionError:
        return _engine_error("the source is nested too deeply to be patched")
    except MemoryError:
        return _engine_error("planning needs more memory than it may have")
    except BaseException as error:  # LibCST's native parser panics outside of Exception
        return _unforeseen(error)


def _unforeseen(error: BaseException) -> PatchError:
    """A bug of ours or LibCST's: nothing is known that a user could do about it."""
    said = f"planning failed: {type(error).__name__}: {error}"
    return _engine_error(said, [_last_frames(error, 2)], "")


def _last_frames(error: BaseException, count: int) -> str:
    return "".join(traceback.format_exception(error)[-count - 1 :]).strip()
