"""Takes the place of the agent's `__main__` in the zipapps of tests: the real loop, ops of ours."""

import os
import sys
import time

from .refusal import Refusal
from .wire.serve import serve


class Context:
    """Stands for the agent's state; notes down that the end of stdin was told."""

    writer = None

    def on_eof(self):
        where = os.environ.get("SGLDBG_TEST_EOF")
        if where:
            with open(where, "a") as stream:
                stream.write("eof\n")


def hello(context, args, raw):
    value = {
        "pid": os.getpid(),
        "python": list(sys.version_info[:3]),
        "executable": sys.executable,
        "argv": sys.argv,
        "flags": [sys.flags.isolated, sys.flags.no_site],
        "state_dir": os.environ["SGLDBG_STATE"],
    }
    return value, b""


def echo(context, args, raw):
    return args, raw


def wait_for(context, args, raw):
    """Wait for a file to appear, so that tests decide when."""
    until = time.monotonic() + 30
    while not os.path.exists(args["path"]) and time.monotonic() < until:
        time.sleep(0.01)
    return "seen", b""


def refuse(context, args, raw):
    raise Refusal("changed", "`a.py` was changed since the plan", file="a.py", expected=None)


def crash(context, args, raw):
    return {}["missing"]


def large(context, args, raw):
    return "x" * args["header"], b"y" * args["raw"]


def logs(context, args, raw):
    for number in range(args["count"]):
        header = {"event": "log", "stream": 1, "offset": number * args["size"]}
        context.writer.log(header, b"z" * args["size"])
    return "logged", b""


def chat(context, args, raw):
    """Print where frames used to go, and show what a child inherits."""
    print("a stray print", flush=True)
    os.system("echo a stray child; cat")
    with os.popen("ls /proc/self/fd") as stream:
        return stream.read().split(), b""


def flood(context, args, raw):
    line = b"e" * 1023 + b"\n"
    for _ in range(args["lines"]):
        os.write(2, line)
    return "flooded", b""


def kill(context, args, raw):
    os.kill(os.getpid(), args["signal"])
    return None, b""


def send_bytes(context, args, raw):
    os.write(context.writer._fd, raw)
    return None, b""


def renew(context, args, raw):
    return {"deadline_s": 1.0}, b""


_ALL = (hello, echo, wait_for, refuse, crash, large, logs, chat, flood, kill, send_bytes, renew)
OPS = {function.__name__.replace("_", "-"): function for function in _ALL}


def main(argv):
    code = serve(argv[1], ops=OPS, context=Context())
    os._exit(code)
