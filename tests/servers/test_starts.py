"""However a person starts a server, it is found as itself, described, and started as it was."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Launch, LaunchAdopt, LaunchPair
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe, with_output
from orchestrator.onhost.agent.proc.mains import find_mains
from orchestrator.onhost.agent.server import process
from orchestrator.servers.base import find
from orchestrator.servers.ready import wait_ready
from orchestrator.servers.survey import read_sight
from orchestrator.transport.routes import open_transport
from tests.onhost.process.conftest import Stage, key_of, wait_for

from .conftest import Bench
from .test_ways import note_all

AS_ROOT = os.geteuid() == 0
USER = procfs.user_name(os.getuid())
SERVE = """#!{shebang}
import runpy, sys
del sys.argv[1]
sys.path.insert(0, {folder!r})
runpy.run_module("{package}.launch_server", run_name="__main__")
"""
# What uv and pip write where the interpreter's path is too long or holds a space.
TRAMPOLINE = "/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''"
# `uv run` stays, hands signals on, and ends with what it runs.
UV = """#!{python}
import signal, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
sys.exit(child.wait())
"""


class Scene:
    """A bench, the arguments of its server, and the folder for scripts around it."""

    def __init__(self, bench: Bench, port: int) -> None:
        self.bench = bench
        self.port = port
        self.words = ["--port", str(port), "--api-key", "a b"]
        self.argv = bench.argv(*self.words)

    def script(self, name: str, text: str) -> str:
        """An executable file among those of the environment."""
        path = self.bench.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def serve(self, shebang: str) -> list[str]:
        """The console script's command line."""
        words = {"folder": str(self.bench.folder), "package": self.bench.package}
        return [self.script(self.bench.package, SERVE.format(shebang=shebang, **words)), "serve"]

    def shell(self, line: str) -> list[str]:
        """A start script that ends with this line, `{}` being the server's command line."""
        text = "#!/bin/sh\nexport NOTE=1\n" + line.format(shlex.join(self.argv)) + "\n"
        return [self.script("run.sh", text)]


TOOLS = frozenset(["numactl", "taskset", "prlimit", "chrt", "ionice"])
Words = Callable[[Scene], list[str]]
# What is typed, what stays as its parent, and what of its description tells that it was so.
STARTS: dict[str, tuple[Words, str | None, dict[str, Any]]] = {
    "sglang serve": (lambda s: [*s.serve(sys.executable), *s.words], None, {}),
    "sglang serve, long path": (
        lambda s: [*s.serve(TRAMPOLINE.format(python=sys.executable)), *s.words],
        None,
        {},
    ),
    "a script that execs": (lambda s: s.shell("exec {}"), None, {}),
    "a script that waits": (lambda s: s.shell("{}\necho over"), "sh {folder}/bin/run.sh", {}),
    "a script in a script": (
        lambda s: [s.script("outer.sh", f"#!/bin/sh\n{s.shell('{}; exit 1')[0]}\ntrue\n")],
        "sh {folder}/bin/run.sh",
        {},
    ),
    "numactl --membind": (
        lambda s: ["numactl", "--membind=0", "--physcpubind=0", *s.argv],
        None,
        {"numa": "bind:0", "affinity": [0]},
    ),
    "numactl --interleave": (
        lambda s: ["numactl", "--interleave=all", *s.argv],
        None,
        {"numa": "interleave:0"},
    ),
    "all at once": (
        lambda s: [
            *("nohup", "nice", "-n", "7", "prlimit", "--nofile=200:300", "taskset", "-c", "0"),
            *("chrt", "--batch", "0", "ionice", "-c", "2", "-n", "6"),
            *("numactl", "--preferred=0", *s.argv),
        ],
        None,
        {
            "ignored": [1],
            "nice": os.nice(0) + 7,
            "rlimits": {"RLIMIT_NOFILE": [200, 300]},
            "affinity": [0],
            "numa": "prefer:0",
            "scheduler": [3, 0],
            "disk": 2 << 13 | 6,
        },
    ),
    "env": (lambda s: ["env", "-u", "LANG", "NOTE=x y", *s.argv], None, {}),
    "setsid": (lambda s: ["setsid", "--fork", *s.argv], None, {}),
    "uv run": (
        lambda s: [s.script("uv", UV.format(python=sys.executable)), "run", *s.argv],
        "{python} {folder}/bin/uv",
        {},
    ),
}  # fmt: skip


@pytest.fixture
def scene(bench: Bench, port: int) -> Iterator[Scene]:
    """Whatever was started ends with the test."""
    yield Scene(bench, port)
    note_all(bench)


def find_server(scene: Scene, agent: Any, launch: LaunchAdopt | None = None) -> dict[str, Any]:
    """The one that the inventory means, as `find` chooses it, and its whole description."""
    bench = scene.bench
    found = find(agent, bench.server(scene.port, launch), bench.install, bench.host, 0, 1)
    assert found.description is not None
    return describe(found.description["pid"], found.description["start_time"])


def give_back(scene: Scene, agent: Any, before: dict[str, Any]) -> dict[str, Any]:
    """Stop the described server, start it as it was, and wait until it answers."""
    main = {"pid": before["pid"], "start_time": before["start_time"]}
    stopped = process.stop(main, None, 20, scene.port, before)
    assert (stopped["left"], stopped["killed"]) == ([], [])
    again = process.start(json.loads(json.dumps(before)), None, None)
    scene.bench.stage.note(again["pid"])
    wait_ready(agent, scene.bench.server(scene.port), again, 0)
    assert process.compare(before, again["pid"]) == []
    return again


@pytest.mark.parametrize("name", STARTS)
def test_a_way_to_start(scene: Scene, agent, name: str):
    """Wrappers that became the server are the server; those that wait are told."""
    make, wrapper, telling = STARTS[name]
    words = make(scene)
    for tool in TOOLS.intersection(words):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    with open(scene.bench.stderr, "ab") as log:
        scene.bench.stage.run(words, cwd=scene.bench.folder, stderr=log)
    before = find_server(scene, agent)
    assert before["argv"][-4:] == scene.words
    assert os.path.basename(before["argv"][0]) == os.path.basename(sys.executable)
    told = before.get("wrapper") or ""
    names = {"folder": scene.bench.folder, "python": os.path.basename(sys.executable)}
    assert told.partition(" (pid")[0] == (wrapper or "").format(**names)
    for key, value in telling.items():
        shown = before[key]
        assert (shown if not isinstance(value, dict) else {k: shown[k] for k in value}) == value
    (row,) = agent.call("survey", {"package": scene.bench.package}).value
    sight = read_sight(row)
    assert (sight.pid, sight.port, sight.refusal) == (before["pid"], scene.port, "")
    again = give_back(scene, agent, before)
    assert "wrapper" not in describe(again["pid"])


class Tmux:
    """A tmux server of its own, in which somebody types."""

    def __init__(self, folder: Path) -> None:
        self._command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]

    def type(self, line: str) -> None:
        """A new window with a shell, and a line typed into it."""
        self._call("new-session", "-d", "sh")
        self._call("send-keys", line, "Enter")

    def close(self) -> None:
        self._call("kill-server")

    def _call(self, *words: str) -> None:
        subprocess.run([*self._command, *words], check=True, stdin=subprocess.DEVNULL, timeout=30)


@pytest.fixture
def tmux(scene: Scene, tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Tmux(tmp_path)
    yield made
    note_all(scene.bench)
    made.close()


def run_in_tmux(scene: Scene, tmux: Tmux, output: str) -> None:
    """Start the server as a person does in a terminal."""
    ready = scene.bench.folder / "typed.ready"
    environ = f"cd {scene.bench.folder}; READY={ready}"
    tmux.type(f"{environ} {shlex.join(scene.argv)} {output}")
    wait_for(ready.exists, "the server in tmux")


def test_in_tmux_with_a_log(scene: Scene, agent, tmux: Tmux):
    """The shell in which it was typed is no wrapper and lives on; the log goes on."""
    run_in_tmux(scene, tmux, f">{scene.bench.stderr} 2>&1")
    before = find_server(scene, agent)
    assert (before.get("supervisor"), before.get("wrapper")) == (None, None)
    give_back(scene, agent, before)
    assert Path(scene.bench.stderr).read_text().count("server_args=") == 2


def test_in_tmux_on_the_terminal(scene: Scene, agent, tmux: Tmux):
    """Refused with what to write; with a file in its place it is given back."""
    run_in_tmux(scene, tmux, "")
    with pytest.raises(HostError) as error:
        find_server(scene, agent)
    assert (error.value.code, error.value.message, error.value.hints) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: its stdout goes to a terminal, which"
        " cannot be given back",
        (
            "start it with its output in a file",
            "or name a file for the restored server: `launch: {adopt: {output: FILE}}`",
        ),
    )
    path = str(scene.bench.folder / "given.log")
    before = with_output(find_server(scene, agent, LaunchAdopt(path)), path)
    give_back(scene, agent, before)
    assert Path(path).read_text() == "server_args=ServerArgs(api_key='hush-hush')\n"


@pytest.mark.skipif(not AS_ROOT, reason="only root can become somebody else")
@pytest.mark.parametrize("launch", [LaunchAdopt(), LaunchPair(("true",), ("true", "{args}"))])
def test_whose_processes_we_may_not_read(open_dir: Path, port: int, launch: Launch):
    """Refused with whom to connect as, whoever runs it: its own port would look like another's."""
    stage = Stage(open_dir)
    bench = Bench(open_dir, stage)
    for path in (open_dir, open_dir / bench.package):
        path.chmod(0o777)
    enter = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    host = Host(
        *("gpu01", None, None, None, None, enter, "local", "/usr/bin/python3"),
        state_dir=str(open_dir / "state"),
    )
    try:
        child = bench.run("--port", str(port))
        with (
            closing(open_agent(open_transport(), host)) as agent,
            pytest.raises(HostError) as error,
        ):
            find(agent, bench.server(port, launch), bench.install, host, 0, 1)
        (row,) = find_mains(bench.package)
    finally:
        stage.close()
    may_not = f"belongs to {USER}, whose processes we may not read"
    could_not = "could not be started again as it is: it "
    argv = shlex.join(bench.argv("--port", str(port)))
    assert (error.value.code, error.value.message, error.value.notes, error.value.hints) == (
        "not-restorable",
        f"server `kimi` {could_not if launch == LaunchAdopt() else ''}{may_not}",
        (f"seen: pid {child.pid} of {USER}, listening on none: {argv}",),
        ("connect as that user, or as root: `user` of the host, or `enter: [sudo, -n]`",),
    )
    assert row["readable"]  # to root it is


@pytest.mark.skipif(not AS_ROOT, reason="only root can become somebody else")
def test_as_another_user(open_dir: Path, agent, port: int):
    """What `su` started for somebody runs as that user again, with that user's groups."""
    stage = Stage(open_dir)
    bench = Bench(open_dir, stage)
    scene = Scene(bench, port)
    for path in (open_dir, open_dir / bench.package):
        path.chmod(0o777)
    argv = ["/usr/bin/python3", *scene.argv[1:]]
    line = f"cd {open_dir}; exec {shlex.join(argv)} 2>>{bench.stderr}"
    try:
        stage.run(["su", "nobody", "-s", "/bin/sh", "-c", line], cwd="/")
        before = find_server(scene, agent)
        assert (before["user"], before.get("wrapper")) == ("nobody", None)
        again = give_back(scene, agent, before)
        assert describe(again["pid"])["user"] == "nobody"
        assert key_of(again["pid"]) != {n: before[n] for n in ("pid", "start_time")}
    finally:
        note_all(bench)
        stage.close()
