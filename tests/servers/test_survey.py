"""What `sgldbg hosts` says of a server and of an install, as data and in words."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onhost.agent.look.pristine import check_package
from orchestrator.onhost.agent.proc.arguments import find_given
from orchestrator.servers.survey import describe_origin, describe_sight, read_sight

from .conftest import Bench

ROW = {
    "pid": 12,
    "user": "kim",
    "uptime_s": 11_553,
    "argv": [
        *("python", "-m", "sglang.launch_server", "--model", "/models/kimi", "--tp=8"),
        *("--dp-size", "2", "--nnodes", "2", "--node-rank", "1", "--disaggregation-mode", "decode"),
        *("--api-key", "hush-hush"),
    ],
    "ports": [30000],
    "stdout": {"kind": "file", "path": "/var/log/kimi.log"},
    "stderr": {"kind": "file", "path": "/var/log/kimi.log"},
    "workers": [
        {"pid": 14, "title": "sglang::scheduler_DP0_TP9"},
        {"pid": 13, "title": "sglang::scheduler_DP0_TP8"},
        {"pid": 15, "title": "sglang::detokenizer"},
    ],
    "gpus": [{"index": 0, "name": "NVIDIA H100", "used_mib": 70000}],
    "supervisor": None,
    "owner": None,
    "wrapper": None,
    "readable": True,
    "restorable": True,
    "needs_output": False,
    "why": "",
}


def with_given(row: dict) -> dict:
    """The row as the agent completes it from the command line."""
    argv = row["argv"] if len(row["argv"]) > 1 else []
    return {**row, "given": find_given(argv, "/")._asdict()}


def test_everything_is_shown():
    """Model, sizes, port, node, role, ranks, GPUs and logs stand in the lines, secrets do not."""
    sight = read_sight(with_given(ROW))
    assert describe_sight(sight) == [
        "server pid 12 of kim, port 30000, up 3 h 12 min, tp 8, dp 2, node 1 of 2,"
        " decode server: /models/kimi",
        "  ranks DP0 TP8, DP0 TP9",
        "  GPUs 0 (NVIDIA H100 70000 MiB)",
        "  logs /var/log/kimi.log",
    ]
    assert "hush-hush" not in repr(asdict(sight))


def owned(name: str, kind: str, **fields: str) -> dict[str, Any]:
    """What stands in a row of an owned server."""
    owner = {"kind": kind, "program": None, "unit": None, "manager": None, **fields}
    return {"supervisor": name, "owner": owner, "why": f"{name} owns it"}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            owned("systemd unit kimi.service", "unit", unit="kimi.service"),
            [
                "  run by systemd unit kimi.service",
                "  cannot be adopted: systemd unit kimi.service owns it",
                "  hint: have systemd stop and start it: `launch: {systemd: kimi.service}`",
            ],
        ),
        (
            owned("supervisord (pid 3)", "supervisor", program="supervisord"),
            [
                "  run by supervisord (pid 3)",
                "  cannot be adopted: supervisord (pid 3) owns it",
                "  hint: have it stopped and started: `launch: {stop: [supervisorctl, stop, NAME],"
                " start: [supervisorctl, start, NAME]}`",
            ],
        ),
        (
            owned("container 0123456789ab", "container"),
            [
                "  run by container 0123456789ab",
                "  cannot be adopted: container 0123456789ab owns it",
                "  hint: reach it from inside, with the container's name: `enter: [docker, exec,"
                " -i, NAME]` of the host; where it is the container's main process, have the"
                " container stopped and started: `launch: {stop: [docker, stop, NAME], start:"
                " [docker, start, NAME]}`",
            ],
        ),
        (
            owned("python watch.py (pid 3)", "unsure")
            | {"why": "python watch.py (pid 3) waits for it and may start it again"},
            [
                "  run by python watch.py (pid 3)",
                "  cannot be adopted: python watch.py (pid 3) waits for it and may start it again",
                "  hint: name the commands that stop and start it: `launch: {stop: [...], start:"
                " [...]}`",
                "  hint: or start the server so that nothing waits for it: by `exec`, as the last"
                " command of a script, or with `setsid nohup ... &`",
            ],
        ),
        (
            {"strangers": ["tail (pid 13)"], "why": "it would take along tail (pid 13)"},
            [
                "  cannot be adopted: it would take along tail (pid 13)",
                "  hint: name the commands that stop and start all of them: `launch: {stop: [...],"
                " start: [...]}`",
                "  hint: or start them apart: what a script has put into the background is below"
                " the server that it becomes by `exec`",
            ],
        ),
        (
            {"namespaces": ["net"], "why": "its network namespace is not the agent's, ..."},
            [
                "  cannot be adopted: its network namespace is not the agent's, ...",
                "  hint: have the agent work where the server does: `enter` of the host, such as"
                " `[ip, netns, exec, NAME]`, `[nsenter, --net=/run/netns/NAME]` or"
                " `[apptainer, exec, instance://NAME]`",
                "  hint: or name the commands that stop and start it: `launch: {stop: [...], start:"
                " [...]}`",
            ],
        ),
        (
            owned(
                "systemd unit llm.service of kim's own manager",
                "unit",
                unit="llm.service",
                manager="kim",
            ),
            [
                "  run by systemd unit llm.service of kim's own manager",
                "  cannot be adopted: systemd unit llm.service of kim's own manager owns it",
                "  hint: connect as that user, and have systemd stop and start it: `launch:"
                " {systemd: llm.service}`",
            ],
        ),
        (
            owned(
                "systemd unit llm.service of root's own manager",
                "unit",
                unit="llm.service",
                manager="root",
            )
            | {"user": "root"},
            [
                "  run by systemd unit llm.service of root's own manager",
                "  cannot be adopted: systemd unit llm.service of root's own manager owns it",
                "  hint: have its manager stop and start it: `launch: {stop: [systemctl, --user,"
                " stop, llm.service], start: [systemctl, --user, start, llm.service]}`",
            ],
        ),
        (
            owned("sh (pid 1), the main process of its container, which ends with it,", "init"),
            [
                "  run by sh (pid 1), the main process of its container, which ends with it",
                "  cannot be adopted: sh (pid 1), the main process of its container, which ends"
                " with it, owns it",
                "  hint: name the commands that stop and start it, outside of the container:"
                " `launch: {stop: [...], start: [...]}`",
            ],
        ),
        (
            {"readable": False, "why": "it belongs to kim, whose processes we may not read"},
            [
                "  cannot be adopted: it belongs to kim, whose processes we may not read",
                "  hint: connect as that user, or as root: `user` of the host, or `enter: [sudo,"
                " -n]`",
            ],
        ),
        (
            {"needs_output": True, "why": "its stdout goes to a terminal, ..."},
            [
                "  cannot be adopted: its stdout goes to a terminal, ...",
                "  hint: start it with its output in a file",
                "  hint: or name a file for the restored server: `launch: {adopt: {output: FILE}}`",
            ],
        ),
        (
            {"why": "its working directory, `/srv/x (deleted)`, is not there any more"},
            [
                "  cannot be adopted: its working directory, `/srv/x (deleted)`, is not there any"
                " more",
                "  hint: to have it started for the session, write `launch: {command: [...]}`",
            ],
        ),
        (
            {
                "argv": ["sglang::http_server/tokenizer_manager"],
                "why": "it has overwritten its own command line with a title",
            },
            [
                "  cannot be adopted: it has overwritten its own command line with a title",
                "  hint: write down the command line that it was started by: `launch: {command:"
                " [...]}`",
            ],
        ),
    ],
)
def test_what_to_write_instead(change, lines):
    """Each refusal names what to write into the inventory."""
    sight = read_sight(with_given({**ROW, **change, "restorable": False}))
    assert describe_sight(sight)[4:] == lines


@pytest.mark.parametrize(
    ("kinds", "owner", "told"),
    [
        (("socket", "socket"), ("unit", "llm.service"), "in the journal of llm.service"),
        (("socket", "socket"), None, "to a socket"),
        (("null", "pipe"), ("supervisor", None), "to a pipe"),
        (("pipe", "tty"), None, "on a terminal"),
        (("unknown", "unknown"), None, "unknown"),
        (("null", "null"), None, "in no file"),
    ],
)
def test_where_output_goes_that_goes_to_no_file(kinds, owner, told):
    """A reader of `hosts` looks for the log: a journal is one, and a pipe leads to somebody."""
    stdout, stderr = ({"kind": kind} for kind in kinds)
    found = owner and {"kind": owner[0], "unit": owner[1]}
    row = {**ROW, "stdout": stdout, "stderr": stderr, "owner": found}
    assert describe_sight(read_sight(with_given(row)))[3] == f"  logs {told}"


def test_a_live_server(agent, bench: Bench, port):
    """The agent's survey is what the sight is read from."""
    child = bench.run("--port", str(port))
    (row,) = agent.call("survey", {"package": bench.package}).value
    sight = read_sight(row)
    assert (sight.pid, sight.port, sight.logs) == (child.pid, port, (bench.stderr,))
    assert sight.uptime_s < 30
    assert sight.ranks == ()


@pytest.mark.parametrize(
    ("words", "ports", "head", "unsure"),
    [
        ("--config c.yaml", [31000], "port 31000, up 3 h 12 min, tp 4: /models/kimi", ""),
        (
            "--config c.yaml --po 31001 --tp=2",
            [],
            "port 31001, up 3 h 12 min, tp 2: /models/kimi",
            "",
        ),
        ("--config no.yaml", [31000], "port 31000, up 3 h 12 min: model unknown", "no.yaml"),
        ("--config no.yaml", [1, 2], "port unknown, up 3 h 12 min: model unknown", "no.yaml"),
        ("--model-p /m --config no.yaml", [], "port unknown, up 3 h 12 min: /m", "no.yaml"),
        ("--model-p /m", [], "port 30000, up 3 h 12 min: /m", ""),
    ],
)
def test_a_server_of_a_file(tmp_path: Path, words, ports, head, unsure):
    """What `--config` says counts below the command line; a file nobody can read is no default."""
    (tmp_path / "c.yaml").write_text("port: 31000\ntp-size: 4\nmodel: /models/kimi\n")
    argv = ["python", "-m", "sglang.launch_server", *words.split()]
    given = find_given(argv, str(tmp_path))._asdict()
    row = {**ROW, "argv": argv, "ports": ports, "given": given, "workers": [], "gpus": None}
    lines = describe_sight(read_sight(row))
    assert lines[0] == f"server pid 12 of kim, {head}"
    assert lines[2:] == [
        f"  not all of its arguments are known: `{tmp_path}/{unsure}` cannot be read: No such file"
        " or directory"
        for _ in [unsure]
        if unsure
    ]


def make_install(folder: Path) -> Path:
    """A package of two files with a RECORD."""
    (folder / "pkg/deep").mkdir(parents=True)
    (folder / "pkg/__init__.py").write_text("A = 1\n")
    (folder / "pkg/deep/mod.py").write_text("B = 2\n")
    info = folder / "pkg-1.dist-info"
    info.mkdir()
    lines = []
    for path in sorted(folder.rglob("*.py")):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
        name = path.relative_to(folder)
        lines.append(f"{name},sha256={digest.rstrip(b'=').decode()},{path.stat().st_size}")
    (info / "RECORD").write_text("\n".join([*lines, "pkg/__pycache__/x.pyc,,", ""]))
    return info


def test_a_wheel(tmp_path: Path):
    """Every Python file is compared with RECORD; what is changed, missing or extra is named."""
    info = make_install(tmp_path)
    checked = check_package(str(tmp_path), "pkg", str(info))
    assert describe_origin(checked) == "pristine: 2 files as in RECORD"
    (tmp_path / "pkg/deep/mod.py").write_text("B = 3\n")
    (tmp_path / "pkg/_sgldbg.py").touch()
    (tmp_path / "pkg/__init__.py").unlink()
    checked = check_package(str(tmp_path), "pkg", str(info))
    assert describe_origin(checked) == (
        "not as in RECORD: 1 changed, 1 missing, 1 extra of 2 files"
        " (pkg/deep/mod.py, pkg/__init__.py, pkg/_sgldbg.py)"
    )


def test_a_checkout(tmp_path: Path):
    """An editable install is compared with its commit, and nothing of the checkout is written."""
    make_install(tmp_path / "python")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "python/pkg"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    root = str(tmp_path / "python")
    head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    checked = check_package(root, "pkg", None)
    assert describe_origin(checked) == f"pristine: 2 files as in HEAD {head}"
    (tmp_path / "python/pkg/__init__.py").write_text("A = 2\n")
    checked = check_package(root, "pkg", None)
    assert describe_origin(checked) == (
        f"not as in HEAD {head}: 1 changed of 2 files (pkg/__init__.py)"
    )


def test_nobody_tells(tmp_path: Path):
    """Without RECORD and checkout nothing is claimed."""
    (tmp_path / "pkg").mkdir()
    text = describe_origin(check_package(str(tmp_path), "pkg", None))
    assert text == "neither a RECORD nor a checkout tells whether it is pristine"
