#!/usr/bin/python3
"""Plays `systemctl` and `journalctl` where no systemd runs: units and drop-ins of one folder.

Only what a service of `Type=simple` needs. As with the real one, files count from the next
`daemon-reload` on, and what a unit prints goes to a journal.
"""

import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

ROOT = os.environ["STANDIN_SYSTEMD"]
ETC, RUN, STATE = (os.path.join(ROOT, name) for name in ("etc", "run/systemd/system", "state"))
LISTS = ("ExecStart", "Environment", "EnvironmentFile", "UnsetEnvironment", "PassEnvironment")
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


def read_state(unit, kind):
    try:
        with open(os.path.join(STATE, f"{unit}.{kind}")) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def write_state(unit, kind, value):
    os.makedirs(STATE, exist_ok=True)
    with open(os.path.join(STATE, f"{unit}.{kind}"), "w") as file:
        json.dump(value, file)


def load(unit):
    """All settings of a unit and its drop-ins; an empty assignment forgets what was before."""
    paths = [os.path.join(ETC, unit)]
    paths += sorted(glob.glob(os.path.join(RUN, unit + ".d", "*.conf")))
    found = {}
    for path in paths:
        with open(path) as file:
            lines = [line.strip() for line in file if "=" in line and not line.startswith("#")]
        for line in lines:
            name, _, value = line.partition("=")
            if name not in LISTS:
                found[name] = value
            elif value:
                found.setdefault(name, []).append(value)
            else:
                found[name] = []
    return found


def reload_all():
    for name in os.listdir(ETC):
        write_state(name, "loaded", load(name))


def split(text):
    words = []
    for quoted, plain in WORD.findall(text):
        word = re.sub(
            r"\\(x[0-9a-f]{2}|.)",
            lambda m: chr(int(m.group(1)[1:], 16)) if len(m.group(1)) > 1 else m.group(1),
            quoted,
        )
        words.append((word or plain).replace("%%", "%"))
    return words


def read_environment(settings):
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for text in settings.get("Environment", []):
        for word in split(text):
            name, _, value = word.partition("=")
            environ[name] = value
    for path in settings.get("EnvironmentFile", []):
        with open(path) as file:
            for name, value in re.findall(r'^(\w+)="((?:[^"\\]|\\.)*)"$', file.read(), re.M | re.S):
                environ[name] = re.sub(r'\\(["\\`$])', r"\1", value)
    for name in settings.get("UnsetEnvironment", []):
        environ.pop(name, None)
    return environ


def open_output(invocation, text):
    if text.startswith("append:"):
        return open(text[len("append:") :].replace("%%", "%"), "ab")
    # The journal is at the other end of a socket.
    ours, theirs = socket.socketpair()
    with open(os.path.join(ROOT, invocation + ".journal"), "ab") as journal:
        subprocess.Popen(["cat"], stdin=ours, stdout=journal, stderr=subprocess.DEVNULL)
    ours.close()
    return theirs


def start(unit):
    if read_main(unit):
        return
    settings = read_state(unit, "loaded")
    (line,) = settings["ExecStart"]
    words = split(line)
    program = words.pop(0)
    if program.startswith("@"):
        program = program[1:]
    else:
        words.insert(0, program)
    words = [word.replace("$$", "$") for word in words]
    invocation = os.urandom(16).hex()
    out = open_output(invocation, settings.get("StandardOutput", "journal"))
    err = open_output(invocation, settings.get("StandardError", "journal"))
    child = subprocess.Popen(
        words,
        executable=program,
        env={**read_environment(settings), "INVOCATION_ID": invocation},
        cwd=settings.get("WorkingDirectory", "/").replace("%%", "%"),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )
    start_time = read_start(child.pid)
    write_state(unit, "main", {"pid": child.pid, "start": start_time, "invocation": invocation})


def read_start(pid):
    """The start time of a process that runs, else nothing."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def read_main(unit):
    known = read_state(unit, "main")
    return known["pid"] if known and read_start(known["pid"]) == known["start"] else 0


def stop(unit, number=signal.SIGTERM):
    pid = read_main(unit)
    if pid:
        os.killpg(pid, number)
        deadline = time.monotonic() + 20
        while read_main(unit) and time.monotonic() < deadline:
            time.sleep(0.02)
    write_state(unit, "main", {})


def show(unit, names):
    known = os.path.exists(os.path.join(ETC, unit))
    main = read_main(unit)
    state = "active" if main else ("failed" if read_state(unit, "main") else "inactive")
    values = {
        "Id": unit,
        "LoadState": "loaded" if known else "not-found",
        "ActiveState": state,
        "Result": "exit-code" if state == "failed" else "success",
        "MainPID": str(main),
        "InvocationID": read_state(unit, "main").get("invocation", ""),
        "FragmentPath": os.path.join(ETC, unit),
        "ConsistsOf": " ".join(n for n in os.listdir(ETC) if load(n).get("PartOf") == unit),
        "UnitPath": f"{ETC} {RUN}",
    }
    for name in names:
        print(f"{name}={values.get(name, '')}")


def main():
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if "--version" in options:
        print("systemd 252 (stand-in)")
    elif "--sync" in options:
        return  # its journal is a file that whoever prints writes to
    elif os.path.basename(sys.argv[0]) == "journalctl":
        with open(os.path.join(ROOT, words[-1].partition("=")[2] + ".journal")) as file:
            print("".join(file.readlines()[-30:]), end="")
    elif words[0] == "show":
        names = [o.partition("=")[2] for o in options if o.startswith("--property=")]
        show(words[1] if len(words) > 1 else "", names)
    elif words[0] == "daemon-reload":
        reload_all()
    elif words[0] in ("start", "stop"):
        {"start": start, "stop": stop}[words[0]](words[1])
    elif words[0] == "kill":
        stop(words[1], signal.SIGKILL)
    elif words[0] != "reset-failed":
        sys.exit(f"Unknown command verb {words[0]}.")


main()
