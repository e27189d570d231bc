"""Agents for tests: the real package with a few ops of ours in place of the real ones."""

from __future__ import annotations

import hashlib
import io
import zipfile

from orchestrator.agent.ship import Zipapp, make_zipapp

# Only `serve` is asked to take other ops; frames, loop, descriptors and end are the real ones.
_MAIN = """
import os, signal, sys, threading, time
from .refusal import Refusal
from .serve import serve

class Context:
    writer = None
    def on_eof(self):
        where = os.environ.get("SGLDBG_TEST_EOF")
        if where:
            with open(where, "a") as stream:
                stream.write("eof\\n")

def hello(context, args, raw):
    return {"pid": os.getpid(), "python": list(sys.version_info[:3]), "argv0": sys.argv[0],
            "flags": [sys.flags.isolated, sys.flags.no_site], "home": os.environ["SGLDBG_STATE"]}, b""

def echo(context, args, raw):
    return args, raw

def wait(context, args, raw):
    time.sleep(args["s"])
    return "waited", b""

def refuse(context, args, raw):
    raise Refusal("changed", "`a.py` was changed since the plan", file="a.py", expected=None)

def crash(context, args, raw):
    return {}["missing"]

def large(context, args, raw):
    return "x" * args["header"], b"y" * args["raw"]

def logs(context, args, raw):
    for n in range(args["n"]):
        context.writer.log({"event": "log", "stream": 1, "offset": n * args["size"]}, b"z" * args["size"])
    return "logged", b""

def chat(context, args, raw):
    print("a stray print")
    os.system("echo a stray child; cat")
    return sorted(os.listdir("/proc/self/fd")), b""

def kill(context, args, raw):
    os.kill(os.getpid(), args["signal"])
    return None, b""

def break_frame(context, args, raw):
    os.write(context.writer._fd, bytes(args["bytes"]))
    time.sleep(30)

def renew(context, args, raw):
    return {"deadline_s": 1.0}, b""

OPS = {name.replace("_", "-"): value for name, value in list(globals().items())
       if callable(value) and name.islower()}

def main(argv):
    code = serve(argv[1], ops=OPS, context=Context())
    os._exit(code)
"""


def make_test_zipapp(**members: str) -> Zipapp:
    """The packed agent with test ops; `members` replace further modules of the package."""
    replaced = {"sgldbg_agent/__main__.py": _MAIN}
    replaced.update({f"sgldbg_agent/{name}.py": text for name, text in members.items()})
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(make_zipapp().data)) as packed,
        zipfile.ZipFile(buffer, "w") as archive,
    ):
        for name in packed.namelist():
            archive.writestr(name, replaced.get(name, packed.read(name)))
    data = buffer.getvalue()
    return Zipapp(data, hashlib.sha256(data).hexdigest())
