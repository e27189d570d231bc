"""A host in a directory: an install with traps in it, a server, and sessions on them."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from orchestrator.onhost.agent import ops_session
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.state import Context, SessionState
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.session import begin, guard, recover, status
from tests.onhost.tree import Tree, differences, snapshot

SESSION, PACKAGE = "s1", "sglang"
# A debug life is ended by its session's and host's names, which two tests at once must not share;
# the processes that a test starts go on with the same.
HOST = os.environ.setdefault(
    "SGLDBG_TEST_HOST_" + os.environ.get("PYTEST_XDIST_WORKER", ""), f"gpu{os.getpid()}"
)
RUNTIME = b"# runtime\nSEEN = []\n"
EDITED = {
    "sglang/srt/models/llama.py": b"WIDTH = 64; PROBED = 1\n",
    "sglang/srt/layers.py": b"X = 'probed'\n",
}
# The server of these tests: all that matters is that it runs and leaves on SIGTERM.
SERVER = ("sleep", "86391")
DEBUG = ("sleep", "86392")
# What a test's agent renews; short, since tests wait for its end.
LEASE_S = 1.5
# A holder that is gone: what kills the holder of an expired lease would kill the test itself.
NOBODY = lease.Process(2**22 - 1, 1)


def sha256(data: bytes) -> str:
    """The checksum of the protocol."""
    return hashlib.sha256(data).hexdigest()


def wait_for(fact: Callable[[], Any], limit_s: float = 30.0) -> Any:
    """Poll for a fact and return it."""
    end_s = time.monotonic() + limit_s
    while True:
        found = fact()
        if found:
            return found
        assert time.monotonic() < end_s, "it did not come true in time"
        time.sleep(0.01)


class Place:
    """Everything of one test on one host."""

    def __init__(self, root: Path, disk: Path | None = None) -> None:
        """Everything below `root`, but the install on a file system of its own, `disk`."""
        self.top = root
        self.disk = root if disk is None else disk
        self.state = str(root / "state")
        self.root = self.disk / "site"
        self.package_dir = self.root / PACKAGE
        self.children: list[subprocess.Popen[bytes]] = []
        if not self.root.exists():
            make_install(self.root, self.disk / "cache")
        self.before = self.tree()

    @classmethod
    def at(cls, directory: str) -> Place:
        """The place that another process made there."""
        return cls(Path(directory))

    def tree(self) -> Tree:
        """The install and the cache that shares inodes with it."""
        return {
            **{f"site/{k}": v for k, v in snapshot(self.root).items()},
            **{f"cache/{k}": v for k, v in snapshot(self.disk / "cache").items()},
        }

    def changes(self) -> list[str]:
        """How the install differs from the start; empty is what every test wants."""
        return differences(self.before, self.tree())

    def stage_args(
        self, edits: dict[str, bytes] | None = None, runtime: bool = True
    ) -> tuple[dict[str, Any], bytes]:
        """The `stage` request of a plan that creates the runtime and edits files."""
        edits = EDITED if edits is None else edits
        files = [(f"{PACKAGE}/_sgldbg.py", None, RUNTIME)] if runtime else []
        for name, after in edits.items():
            files.append((name, sha256((self.root / name).read_bytes()), after))
        items = [
            {"file": n, "before_sha256": b, "after_sha256": sha256(a), "size": len(a)}
            for n, b, a in files
        ]
        args = {
            "root": str(self.root),
            "package": PACKAGE,
            "pycache_prefix": None,
            "tag": "cpython-311",
            "files": items,
        }
        return args, b"".join(after for _, _, after in files)

    def begin_args(self, lease_s: float = 60.0, session: str = SESSION) -> dict[str, Any]:
        """The `begin` request."""
        return {
            "session": session,
            "host": HOST,
            "holder": "ann@desk",
            "lease_s": lease_s,
            "grace_s": 5.0,
        }

    def begin(
        self, session: str = SESSION, with_guard: bool = False, on_line: Any = None
    ) -> Context:
        """A context that holds a new session; without a guard unless asked for."""
        context = Context(self.state)
        start = guard.start if with_guard else no_guard
        context.session = begin.begin(self.state, self.begin_args(session=session), start, on_line)
        return context

    def directory(self, session: str = SESSION) -> str:
        """Where the session's journal is."""
        return os.path.join(self.state, "sessions", session, HOST)

    def expire(self, session: str = SESSION, **changes: Any) -> None:
        """Let the lease be over, as if its time had passed."""
        directory = self.directory(session)
        with lease.exclusive(directory):
            held = lease.read(directory)
            if held is not None:
                lease.write(directory, replace(held, **{"deadline_s": 0.0, **changes}))

    def recover(self, session: str = SESSION, **kw: Any) -> dict[str, Any]:
        """Let the lease run out and undo the session as the next contact would."""
        self.expire(session)
        return recover.recover(self.directory(session), **kw)

    def start_server(self, argv: tuple[str, ...] = SERVER) -> Any:
        """A server that runs in the install's directory and writes to a file; as `Process`."""
        with open(self.top / "server.log", "ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=self.environ(),
                start_new_session=True,
            )
        self.children.append(child)
        wait_for(lambda: procfs.read_environ(child.pid) == self.environ())
        return lease.find_process(child.pid)

    def environ(self) -> dict[str, str]:
        """What the server of this place runs with."""
        return {"PATH": os.environ["PATH"], "MARK": str(self.top), "API_KEY": "s3cret"}

    def servers(self) -> list[int]:
        """Pids of servers of this place, debug lives and restored ones included."""
        mark = str(self.top)
        return [pid for pid in procfs.list_pids() if _carries(pid, mark)]

    def originals(self) -> list[int]:
        """Those that run as the original did."""
        return [p for p in self.servers() if procfs.read_environ(p) == self.environ()]

    def end_processes(self) -> None:
        """End whatever this test started and may have left."""
        for pid in [*self.servers(), *self.guards()]:
            found = lease.find_process(pid)
            if found is not None:
                lease.end(found)
        for child in self.children:
            child.wait()

    def guards(self) -> list[int]:
        """Guards of this place's sessions."""
        marks = (str(self.top).encode(), b"guard import main")
        return [
            pid
            for pid, stat in procfs.read_all().items()
            if stat.alive
            and pid != os.getpid()
            and all(mark in procfs.read_cmdline(pid) for mark in marks)
        ]

    def status(self) -> list[dict[str, Any]]:
        """What `status` says."""
        return status.sessions(self.state)

    def journal(self, session: str = SESSION) -> list[dict[str, Any]]:
        """The lines of the session's journal, wherever it is."""
        for folder in ("sessions", "ended"):
            path = Path(self.state, folder, session, HOST, "journal.jsonl")
            if path.exists():
                return [json.loads(line) for line in path.read_bytes().splitlines()]
        return []


def make_install(root: Path, cache: Path) -> None:
    """A package with compiled files, links into a cache, attributes and odd modes."""
    package = root / PACKAGE
    (package / "srt" / "models").mkdir(parents=True)
    cache.mkdir()
    sources = {
        "__init__.py": b"",
        "srt/__init__.py": b"",
        "srt/models/__init__.py": b"",
        "srt/models/llama.py": b"WIDTH = 64\n",
        "srt/models/other.py": b"Y = 1\n",
        "srt/layers.py": b"X = 'original'\n",
    }
    for name, text in sources.items():
        (package / name).write_bytes(text)
        os.utime(package / name, ns=(10**18, 1_600_000_000_123_456_789))
    os.link(package / "srt/models/llama.py", cache / "llama.py")
    os.chmod(package / "srt/layers.py", 0o640)
    os.setxattr(package / "srt/layers.py", "user.note", b"hello")
    for name in sources:
        if name != "srt/models/other.py":  # one that was never imported
            for optimization in ("", "1"):
                cached = cache_from_source(str(package / name), optimization=optimization)
                py_compile.compile(str(package / name), cfile=cached, doraise=True)
    for folder in (package, package / "srt", package / "srt/models"):
        os.utime(folder, ns=(10**18, 1_500_000_000_987_654_321))


def _carries(pid: int, mark: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    if f"MARK={mark}".encode() not in environ.split(b"\0"):
        return False
    stat = procfs.read_stat(pid)
    return stat is not None and stat.alive


def no_guard(directory: str) -> dict[str, int]:
    """In the place of a guard where a test wants nobody to interfere: a process that is gone."""
    return NOBODY.as_json()


def op(context: Context, name: str, raw: bytes = b"", **args: Any) -> Any:
    """Call one op as the loop would and return its value."""
    return ops_session.OPS[name](context, args, raw)[0]


def stage(place: Place, context: Context, **kw: Any) -> Any:
    """Stage the usual plan."""
    args, raw = place.stage_args(**kw)
    return ops_session.OPS["stage"](context, args, raw)[0]


def start_debug(place: Place, context: Context) -> None:
    """The debug life of a server that did not run before."""
    op(context, "describe-server", pid=None, argv=list(SERVER), env=place.environ(), cwd=None)
    op(context, "start-server", argv=list(DEBUG), env_set={}, env_unset=[], cwd=None)


def apply(place: Place, context: Context) -> None:
    """All that `sgldbg apply` leaves on a host."""
    stage(place, context)
    op(context, "swap")
    start_debug(place, context)


def requests_of(
    place: Place, main: Any, debug: tuple[str, ...] = DEBUG
) -> list[tuple[str, dict[str, Any], bytes]]:
    """All ops of a session in the order of the main job, from `stage` to `finish`."""
    stage_args, raw = place.stage_args()
    stop = {"timeout_s": 5, "port": None}
    start = {"argv": list(debug), "env_set": {}, "env_unset": [], "cwd": None}
    return [
        ("stage", stage_args, raw),
        ("describe-server", {"pid": main.pid, "start_time": main.start_time}, b""),
        ("stop-server", {"which": "original", "announce": True, **stop}, b""),
        ("stop-server", {"which": "original", **stop}, b""),
        ("swap", {}, b""),
        ("probe-table", {"table": {"session": SESSION}}, b""),
        ("start-server", start, b""),
        ("stop-server", {"which": "debug", **stop}, b""),
        ("revert", {}, b""),
        ("restore-server", {}, b""),
        ("finish", {}, b""),
    ]


def whole_session(place: Place, context: Context, main: Any) -> None:
    """Carry out all of them."""
    for name, args, raw in requests_of(place, main):
        op(context, name, raw, **args)


def session_of(context: Context) -> SessionState:
    """The session that a context holds."""
    assert context.session is not None
    return context.session
