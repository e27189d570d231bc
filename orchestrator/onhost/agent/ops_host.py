"""The agent's ops that change nothing on the host; the protocol's page says what each takes."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from .look import http, tail
from .look.kernel import find_killed
from .look.locate import check_code, locate
from .look.observe import observe
from .look.pristine import check_package
from .look.survey import find_orphans, survey
from .proc import below, procfs
from .proc.describe import describe, public
from .proc.launch import read_exit
from .proc.mains import find_mains
from .server import ports, shm
from .server.process import is_alive, name_owner
from .server.systemd import unit
from .session.status import sessions
from .space import find_full

if TYPE_CHECKING:
    from .held.state import Context

Args = Dict[str, Any]
Result = Tuple[Any, bytes]
Op = Callable[["Context", Args, bytes], Result]

PROTOCOL = 1
# A reply may hold 64 MiB; smaller ones let others pass in between.
_SPOOL_LIMIT = 4 << 20


def _hello(context: Context, args: Args, raw: bytes) -> Result:
    uid = os.getuid()
    value = {
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "uid": uid,
        "user": procfs.user_name(uid),
        "hostname": socket.gethostname(),
        "boot_id": (procfs.read_bytes("/proc/sys/kernel/random/boot_id") or b"").decode().strip(),
        "now_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "python": list(sys.version_info[:3]),
        "executable": sys.executable,
        "state_dir": context.state_dir,
        "tmp_dir": tempfile.gettempdir(),
        "home": os.path.expanduser("~"),
    }
    return value, b""


def _find_servers(context: Context, args: Args, raw: bytes) -> Result:
    return find_mains(args["package"]), b""


def _survey(context: Context, args: Args, raw: bytes) -> Result:
    return survey(args["package"]), b""


def _unit(context: Context, args: Args, raw: bytes) -> Result:
    return unit.look(args["unit"], args["package"]), b""


def _pristine(context: Context, args: Args, raw: bytes) -> Result:
    return check_package(args["root"], args["package"], args.get("dist_info")), b""


def _describe(context: Context, args: Args, raw: bytes) -> Result:
    return public(describe(args["pid"], args.get("start_time"))), b""


def _differing(context: Context, args: Args, raw: bytes) -> Result:
    """Names alone: no value of an environment leaves the host."""
    environ = describe(args["pid"], args["start_time"]).get("environ") or {}
    return sorted(name for name, value in args["env"].items() if environ.get(name) != value), b""


def _locate(context: Context, args: Args, raw: bytes) -> Result:
    env = args.get("env") or {}
    return (
        locate(
            args.get("python"),
            args["package"],
            args.get("pid"),
            env,
            args.get("cwd"),
            args.get("program"),
            args.get("known"),
        ),
        b"",
    )


def _observe(context: Context, args: Args, raw: bytes) -> Result:
    files, data = observe(args["root"], args["package"], args["files"], args.get("dist_info"))
    return {"files": files}, data


def _check_code(context: Context, args: Args, raw: bytes) -> Result:
    return {"files": check_code(args["python"], args["files"], raw)}, b""


def _http(context: Context, args: Args, raw: bytes) -> Result:
    return http.request(args["method"], args["url"], args.get("json"), args["timeout_s"])


def _life(context: Context, args: Args, raw: bytes) -> Result:
    pid: Optional[int] = args.get("pid")
    tree: List[procfs.Stat] = []
    if pid is not None and is_alive(pid, args["start_time"]):
        processes = procfs.read_all()
        family = below.find_family(pid, below.find_package(pid), processes)
        tree = [stat for stat in family if stat.alive]
        if context.session is not None and context.session.facts.debug == _key(tree):
            shm.note(context.session, pid, processes)
    pids, network, port = [stat.pid for stat in tree], pid if tree else None, args.get("port")
    host = args.get("address")
    owned = port is not None and ports.do_answer(port, host, pids, network)
    rivals: List[ports.Rival] = []
    if port is not None and not owned:
        wanted = None if host is None else ports.resolve(host)
        rivals = ports.find_rivals(port, wanted, pids, network)
    value = {
        "alive": bool(tree),
        "exit": read_exit(pid) if pid is not None and not tree else None,
        "full": {} if tree else find_full(args.get("outputs") or []),
        "owns_port": owned,
        "owner": name_owner(rivals[0].pid) if rivals else None,
        "ports": procfs.find_ports(pid) if pid is not None and tree else [],
        "processes": [
            {
                "pid": stat.pid,
                "ppid": stat.ppid,
                "start_time": stat.start_time,
                "title": procfs.read_title(stat.pid),
            }
            for stat in tree
        ],
    }
    return value, b""


def _key(tree: List[procfs.Stat]) -> Optional[Dict[str, int]]:
    """The first of them as the journal names a process."""
    return {"pid": tree[0].pid, "start_time": tree[0].start_time} if tree else None


def _rivals(context: Context, args: Args, raw: bytes) -> Result:
    found = ports.find_in_the_way(
        args["port"], args.get("pid"), args.get("start_time"), args["argv"], args["cwd"]
    )
    return [dict(rival._asdict(), owner=name_owner(rival.pid)) for rival in found], b""


def _orphans(context: Context, args: Args, raw: bytes) -> Result:
    return find_orphans(args["package"]), b""


def _killed(context: Context, args: Args, raw: bytes) -> Result:
    return find_killed(args["processes"]), b""


def _tail(context: Context, args: Args, raw: bytes) -> Result:
    if args.get("unit"):
        return None, unit.read_journal(args["unit"], args["lines"], args.get("invocation"))
    start, without = args.get("start") or 0, args.get("without") or ""
    return None, tail.read_tail(args["path"], args["lines"], start, without)


def _follow(context: Context, args: Args, raw: bytes) -> Result:
    follower = tail.find_follower(context)
    follower.follow(args["stream"], args["path"], args["offset"], args["credit"])
    return None, b""


def _credit(context: Context, args: Args, raw: bytes) -> Result:
    tail.find_follower(context).credit(args["stream"], args["bytes"])
    return None, b""


def _unfollow(context: Context, args: Args, raw: bytes) -> Result:
    tail.find_follower(context).unfollow(args["stream"], bool(args.get("drain")))
    return None, b""


def _read_spool(context: Context, args: Args, raw: bytes) -> Result:
    found = tail.read_spool(args["dir"], args.get("offsets") or {}, _SPOOL_LIMIT)
    files = [{"name": f["name"], "offset": f["offset"], "size": len(f["data"])} for f in found]
    return {"files": files}, b"".join(f["data"] for f in found)


def _status(context: Context, args: Args, raw: bytes) -> Result:
    return {"sessions": sessions(context.state_dir, args.get("packages") or ())}, b""


OPS: Dict[str, Op] = {
    "hello": _hello,
    "find-servers": _find_servers,
    "survey": _survey,
    "unit": _unit,
    "describe": _describe,
    "differing": _differing,
    "locate": _locate,
    "observe": _observe,
    "pristine": _pristine,
    "check-code": _check_code,
    "http": _http,
    "life": _life,
    "rivals": _rivals,
    "orphans": _orphans,
    "killed": _killed,
    "tail": _tail,
    "follow": _follow,
    "credit": _credit,
    "unfollow": _unfollow,
    "read-spool": _read_spool,
    "status": _status,
}
