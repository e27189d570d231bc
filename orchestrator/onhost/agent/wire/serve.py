"""The agent's loop: requests in, one thread each, replies out, and a clean end at end of stdin."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from ..refusal import Refusal
from .frames import BrokenFrame, FrameTooLarge, Reader, Writer

Op = Callable[[Any, Dict[str, Any], bytes], Tuple[Any, bytes]]

# Answered by the reading thread itself: a heartbeat must not wait for a thread, nor credit for a
# slow request before it.
INLINE = frozenset(("hello", "renew", "credit"))
# A controller waits for most of its requests; more than this at once is a fault, not a load.
REQUESTS_LIMIT = 64
# After the end of stdin: time for the lease to be shortened (it waits for the step that is
# running) and for running steps to reach their journal's done line. The guard does not depend on
# either, so the agent never waits longer.
EOF_WAIT_S = 10.0
STEPS_WAIT_S = 5.0
FLUSH_WAIT_S = 1.0


def find_state_dir() -> str:
    """Return where this host keeps agent and sessions; `SGLDBG_STATE` overrides."""
    given = os.environ.get("SGLDBG_STATE")
    return given or os.path.join(os.path.expanduser("~"), ".local", "state", "sgldbg")


def serve(marker: str, ops: Optional[Mapping[str, Op]] = None, context: Any = None) -> int:
    """Speak frames over what were descriptors 0 and 1 until stdin ends; return the exit code.

    Announces itself by `<marker> ready`. Descriptors 0 and 1 lead to /dev/null and stderr
    afterwards, so that nothing that is started or printed here can break a frame. The caller must
    end the process at once: requests may still be running.
    """
    read_fd, write_fd = _take_descriptors()
    table = _load_ops() if ops is None else ops
    if context is None:
        from ..held.state import Context

        context = Context(find_state_dir())
    _write_all(write_fd, ("%s ready\n" % marker).encode("ascii"))
    return _Server(read_fd, write_fd, table, context).run()


class _Server:
    def __init__(self, read_fd: int, write_fd: int, ops: Mapping[str, Op], context: Any) -> None:
        self._reader = Reader(read_fd)
        self._writer = Writer(write_fd, self._nobody_reads)
        self._ops = ops
        self._context = context
        self._context.writer = self._writer
        self._running: Set[threading.Thread] = set()
        self._running_lock = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False

    def run(self) -> int:
        code = 0
        signal.signal(signal.SIGTERM, self._terminated)
        try:
            while True:
                frame = self._reader.read()
                if frame is None:
                    break
                self._accept(*frame)
        except BrokenFrame as error:
            sys.stderr.write("sgldbg: a broken frame from the controller: %s\n" % error)
            code = 3
        self._end()
        return code

    def _accept(self, header: Dict[str, Any], raw: bytes) -> None:
        number, op, args = header.get("id"), header.get("op"), header.get("args", {})
        if type(number) is not int or not isinstance(op, str) or not isinstance(args, dict):
            raise BrokenFrame("a request needs `id`, `op` and `args`")
        if op in INLINE:
            self._run_op(number, op, args, raw, wait=False)
            return
        with self._running_lock:
            if len(self._running) >= REQUESTS_LIMIT:
                message = "%d requests are running already" % REQUESTS_LIMIT
                self._refuse(number, Refusal("overloaded", message), wait=False)
                return
            thread = threading.Thread(
                target=self._run_thread, args=(number, op, args, raw), name=op, daemon=True
            )
            self._running.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            with self._running_lock:
                self._running.discard(thread)
            self._refuse(number, Refusal("overloaded", "no thread: %s" % error), wait=False)

    def _run_thread(self, number: int, op: str, args: Dict[str, Any], raw: bytes) -> None:
        try:
            self._run_op(number, op, args, raw, wait=True)
        finally:
            with self._running_lock:
                self._running.discard(threading.current_thread())

    def _run_op(self, number: int, op: str, args: Dict[str, Any], raw: bytes, wait: bool) -> None:
        try:
            run = self._ops.get(op)
            if run is None:
                raise Refusal("unknown-op", "this agent knows no op `%s`" % op)
            value, raw_reply = run(self._context, args, raw)
            self._writer.reply({"id": number, "ok": True, "value": value}, raw_reply, wait)
        except Refusal as refusal:
            self._refuse(number, refusal, wait)
        except FrameTooLarge as error:
            self._refuse(number, Refusal("too-large", "the reply is too large: %s" % error), wait)
        except BaseException as error:  # a crash of ours must become a reply, never a silence
            self._crashed(number, op, error, wait)

    def _refuse(self, number: int, refusal: Refusal, wait: bool, trace: str = "") -> None:
        header = {
            "id": number,
            "ok": False,
            "code": refusal.code,
            "message": refusal.message,
            "data": refusal.data,
            "trace": trace,
        }
        self._writer.reply(header, b"", wait)

    def _crashed(self, number: int, op: str, error: BaseException, wait: bool) -> None:
        trace = _trace()[-(32 << 10) :]
        message = "`%s` failed: %s: %.300s" % (op, type(error).__name__, error)
        self._refuse(number, Refusal("crash", message), wait, trace)

    def _end(self) -> None:
        """Shorten the lease, give running steps a moment; never waits longer than the limits."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            _bounded(self._context.on_eof, EOF_WAIT_S)
            with self._running_lock:
                running = list(self._running)
            _bounded(lambda: _join(running), STEPS_WAIT_S)
            self._writer.flush(FLUSH_WAIT_S)

    def _terminated(self, number: int, frame: Any) -> None:
        # A host that shuts down, or a controller that does not wait for the end of stdin. Not in
        # the main thread: the handler may have interrupted it anywhere.
        threading.Thread(target=self._leave, args=(0,), daemon=True).start()

    def _nobody_reads(self) -> None:
        # The controller is gone even if stdin is still open somewhere, and the main thread cannot
        # be woken from its read: the writing thread ends the process itself.
        self._leave(1)

    def _leave(self, code: int) -> None:
        self._end()
        os._exit(code)


def _trace() -> str:
    # Imported when needed: it brings a tokenizer and a disassembler, a tenth of the agent's start.
    import traceback

    return traceback.format_exc(limit=30)


def _join(threads: List[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _bounded(work: Callable[[], Any], limit_s: float) -> None:
    """Run `work` in a thread and wait for it, but not longer than `limit_s`."""

    def run() -> None:
        try:
            work()
        except BaseException:
            sys.stderr.write(_trace())

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        run()  # no more threads to be had; unbounded is better than not at all
        return
    thread.join(limit_s)


def _take_descriptors() -> Tuple[int, int]:
    """Move descriptors 0 and 1 to private ones that no child inherits."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return reader, writer


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _load_ops() -> Dict[str, Op]:
    from .. import ops_host, ops_session

    ops: Dict[str, Op] = {}
    ops.update(ops_host.OPS)
    ops.update(ops_session.OPS)
    return ops
