"""What a site calls, and the table that says what it does: the last part of the runtime.

The parts of this folder are joined into one file, since a host gets no second one; it is placed in
the package as `_sgldbg.py`, followed by one `_start({...})` line. Standard library only; torch and
the server's modules are looked up in `sys.modules`, never imported. Nothing here raises into the
server (its own end excepted). Formats: `docs/reference/record.md`, reasons:
`docs/concepts/probes.md`.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import stat
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .deciding import consider, is_the_servers, report_cut, trouble
from .records import emit
from .rendering import describe
from .sites import Site, without
from .state import CUT, LIVE, STATE
from .worker import find_flags, forget_unsure

POLL_S = 0.2  # between two looks at the table; the session waits one poll after arming

THREAD = threading.local()
now = time.monotonic
next_poll = 0.0


def unbound() -> bool:
    """Stands in for `torch.compiler.is_compiling` until torch is there."""
    global is_compiling
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    asks = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if asks is None:
        return False
    if asks():
        return True
    is_compiling = asks
    return False


is_compiling: Callable[[], bool] = unbound


def off(site: str) -> bool:
    """Whether `hit` need not be called. Asks for compilation first: dynamo folds that to True."""
    if is_compiling():
        return True
    if now() >= next_poll:
        poll()
    if site in LIVE:
        return False
    CUT[site] = CUT.get(site, 0) + 1
    return True


def hit(site: str, loc: Dict[str, Any]) -> None:
    """Record what the table asks for at this site, if this hit qualifies."""
    take(site, loc, sys._getframe(1), loc)


def tap(site: str, value: Any, loc: Optional[Dict[str, Any]]) -> Any:
    """Pass a value on, seen as `value` by the expressions of this site, unless it is off."""
    if loc is not None:
        take(site, dict(loc, value=value), sys._getframe(1), loc)
    return value


tap_group = tap  # around an expression that stood without parentheses: taking it out needs to know


def take(site: str, loc: Dict[str, Any], frame: Any, owned: Dict[str, Any]) -> None:
    """One hit in this frame; `owned` is the dict that its `locals()` made, emptied where that is
    safe.
    """
    if getattr(THREAD, "busy", False):  # an expression reached a site, or a signal handler
        return
    clear = False
    try:
        THREAD.busy = True
        here = STATE.sites.get(site)
        if here is not None:
            clear = here.clear
            glob = frame.f_globals
            loc = dict(loc) if loc is glob else loc
            missing = here.list_unbound(frame.f_code, loc)
            consider(here, without(glob, missing) if missing else glob, loc)
    except BaseException as error:
        if is_the_servers(error):
            raise
        trouble(site, {"probe": describe(error)})
    finally:
        THREAD.busy = False
        # Up to Python 3.12 this dict keeps every tensor alive until the frame ends.
        if clear and sys.gettrace() is None:
            owned.clear()


def poll() -> None:
    """Look whether the table changed; at most one thread at a time does."""
    global next_poll
    next_poll = now() + POLL_S
    if not STATE.poll_lock.acquire(False):
        return
    before, THREAD.busy = getattr(THREAD, "busy", False), True  # no hit inside, see `hit`
    try:
        STATE.flags = find_flags()
        forget_unsure()
        stamp, table = read_table(STATE.stamp)
        if stamp != STATE.stamp:
            STATE.stamp = stamp
            adopt(table)
        report_cut(2)
    except Exception:
        adopt(None)
    finally:
        STATE.poll_lock.release()
        THREAD.busy = before


def read_table(known: Any) -> Tuple[Any, Any]:
    """The file's stamp and, where it differs from the known one, its content."""
    try:
        fd = os.open(os.path.join(STATE.dir, "table.json"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, None
    try:
        info = os.fstat(fd)
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        if stamp == known:
            return stamp, None
        # Its expressions are evaluated here: nobody else may be able to write them.
        ours = info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o022
        if not ours or not stat.S_ISREG(info.st_mode) or info.st_size > 4 << 20:
            return stamp, None
        data = b""
        while len(data) < info.st_size:
            chunk = os.read(fd, info.st_size - len(data))
            if not chunk:
                break
            data += chunk
        return stamp, json.loads(data.decode("utf-8"))
    finally:
        os.close(fd)


def adopt(table: Any) -> None:
    """Do what the table says from now on; counters start anew where it says something new."""
    if table is None or table.get("session") != STATE.session or table.get("over"):
        report_cut(1)
        LIVE.clear()
        STATE.sites, STATE.modules, STATE.table = {}, {}, None
        return
    asked = (table["generation"], table["phase"], table["sites"])
    if asked == STATE.table:
        return
    report_cut(1)
    armed = table["phase"] == "armed"
    sites = {name: Site(name, spec, armed) for name, spec in table["sites"].items()}
    modules: Dict[str, List[str]] = {}
    for name, spec in table["sites"].items():
        path = re.sub(r"(/__init__)?\.py$", "", str(spec.get("file", "")))
        modules.setdefault(path.replace("/", "."), []).append(name)
    STATE.table, STATE.generation, STATE.phase = asked, table["generation"], table["phase"]
    STATE.sites, STATE.modules = sites, modules
    with STATE.lock:
        CUT.clear()
        LIVE.clear()
        LIVE.update(sites)
    for module in modules:
        if module in sys.modules:
            announce(module)


def announce(module: str) -> None:
    for site in STATE.modules.get(module, ()):
        if site not in STATE.announced:
            STATE.announced.add(site)
            emit("import", site, note=module)


class Watcher:
    """Stands in `sys.meta_path`, finds nothing, and sees patched modules being imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        try:
            if is_compiling is unbound:  # bound late, it would cost dynamo a recompile
                unbound()
            if name in STATE.modules:
                announce(name)
        except Exception:
            return


def after_fork() -> None:
    """The child counts for itself; a lock that another thread held would stay locked for ever."""
    global next_poll
    next_poll = 0.0
    STATE.renew_locks()
    STATE.seq.clear()
    STATE.announced.clear()
    STATE.stamp = STATE.table = STATE.ranks = None
    STATE.title = ""


def leave() -> None:
    try:
        report_cut(1)
    except Exception:
        return


def _start(config: Dict[str, str]) -> None:
    """Called by the last line of the placed file, once per process."""
    try:
        STATE.session, STATE.host = config["session"], config["host"]
        STATE.dir = config["dir"]
        # This file is another host's where two share the install; its agent says so then.
        mark, shared = os.environ.get("SGLDBG_SESSION", ""), os.environ.get("SGLDBG_PROBE_DIR")
        if shared and mark.startswith(STATE.session + "/"):
            STATE.host, STATE.dir = mark[len(STATE.session) + 1 :], shared
        sys.meta_path.insert(0, Watcher())
        os.register_at_fork(after_in_child=after_fork)
        atexit.register(leave)
        poll()
    except Exception:
        return
