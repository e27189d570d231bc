"""The agent gets onto a host through whatever login shell is there, once, and whole."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.bootstrap import make_command
from orchestrator.agent.ship import Zipapp, make_zipapp, open_agent
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.local import LocalChannel, LocalTransport
from tests.agent.conftest import OpenAgent

SHELLS = [shell for shell in ("sh", "dash", "bash", "zsh", "fish", "tcsh") if shutil.which(shell)]


class Through:
    """This machine through a shell of our choice; keeps what was written to it."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self.written = 0

    def open(self, host: Host, command: str, timeout_s: float) -> LocalChannel:
        words = [word.replace("COMMAND", command) for word in self.command]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        channel = LocalChannel(host.name, process)
        write = channel.write

        def counted(data: bytes) -> None:
            self.written += len(data)
            write(data)

        channel.write = counted  # type: ignore[method-assign]
        return channel


def refused(
    transport: Any, zipapp: Zipapp | None = None, timeout_s: float = 30.0, **host: Any
) -> str:
    with pytest.raises(HostError) as caught:
        open_agent(transport, Host("here", **host), timeout_s, zipapp)
    return f"{caught.value.code}\n{render(caught.value)}"


def test_equal_sources_make_equal_bytes() -> None:
    """The agent's name on a host depends on its sources and on nothing else."""
    first, second = make_zipapp(), make_zipapp()
    assert first == second
    with zipfile.ZipFile(io.BytesIO(first.data)) as archive:
        names = archive.namelist()
        assert names == sorted(names)
        assert names[0] == "__main__.py"
        assert {"sgldbg_agent/wire/serve.py", "sgldbg_agent/wire/frames.py"} <= set(names)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_every_shipped_module_is_python_3_8() -> None:
    """No syntax of later releases travels to a host."""
    with zipfile.ZipFile(io.BytesIO(make_zipapp().data)) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 8))


def test_command_line_is_plain() -> None:
    """One line that every shell reads alike: nothing that one of them treats as special."""
    outside = "".join(make_command().split("'")[::2])
    inside = "".join(make_command().split("'")[1::2])
    assert re.fullmatch(r"[A-Za-z0-9 /=._+-]*", outside)
    assert re.fullmatch(r"[ -~]*", inside)
    assert not set(inside) & set("\\!'")
    assert len(make_command()) < 8192


@pytest.mark.parametrize("shell", SHELLS)
def test_login_shells(shell: str, zipapp: Zipapp) -> None:
    """The same line starts the agent under every login shell."""
    agent = open_agent(Through(shell, "-c", "COMMAND"), Host("here"), 30.0, zipapp)
    assert agent.call("echo", {"n": 1}).value == {"n": 1}
    assert agent.hello["flags"] == [1, 1]
    agent.close()


def test_agent_is_sent_once(zipapp: Zipapp, tmp_path: Path) -> None:
    """It stays on the host under its checksum, private to the user, and is not sent again."""
    sent = []
    for _ in range(2):
        transport = Through("sh", "-c", "COMMAND")
        agent = open_agent(transport, Host("here"), 30.0, zipapp)
        agent.close()
        sent.append(transport.written)
    assert sent[0] - sent[1] == len(zipapp.data)
    kept = tmp_path / "state" / "agent"
    assert (kept / f"{zipapp.sha256}.pyz").read_bytes() == zipapp.data
    assert sorted(path.name for path in kept.iterdir()) == [zipapp.sha256, f"{zipapp.sha256}.pyz"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state", kept)] == [0o700] * 2


def test_damaged_agent_is_replaced(zipapp: Zipapp, tmp_path: Path, start_agent: OpenAgent) -> None:
    """A kept file with other bytes is never run."""
    kept = tmp_path / "state" / "agent"
    kept.mkdir(parents=True, mode=0o755)
    (kept / f"{zipapp.sha256}.pyz").write_bytes(zipapp.data[:-1])
    assert start_agent().call("echo").value == {}
    assert (kept / f"{zipapp.sha256}.pyz").read_bytes() == zipapp.data


def test_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_agent: OpenAgent
) -> None:
    """`SGLDBG_STATE` on the host, else the inventory's, else under the home."""
    given = str(tmp_path / "given")
    assert start_agent(state_dir=given).hello["state_dir"] == str(tmp_path / "state")
    monkeypatch.delenv("SGLDBG_STATE")
    assert start_agent(state_dir=given).hello["state_dir"] == given
    assert start_agent().hello["state_dir"] == str(tmp_path / ".local/state/sgldbg")


def test_noise_is_skipped(zipapp: Zipapp) -> None:
    """What a login shell prints of its own accord, newline or not, disturbs nothing."""
    noise = f"i=0; while [ $i -lt 3000 ]; do echo welcome; i=$((i+1)); done; printf {'ab' * 16}; "
    agent = open_agent(Through("bash", "-c", noise + "COMMAND"), Host("here"), 30.0, zipapp)
    assert agent.call("echo").value == {}
    agent.close()


def test_host_that_says_something_else() -> None:
    """When no agent answers, the message is what the host said instead."""
    text = refused(Through("sh", "-c", "echo Please change your password; echo oops >&2; exit 3"))
    assert text == (
        "bootstrap\n"
        "error: the agent did not start: the host ended it\n"
        " --> host here\n"
        "the last lines from the host:\n"
        "  | Please change your password\n"
        "  | oops\n"
        "  | (the process ended with status 3)"
    )


def test_account_without_a_shell() -> None:
    """An account that runs nothing is recognised."""
    text = refused(Through("sh", "-c", "echo This account is currently not available.; exit 1"))
    assert text.endswith("hint: the login shell of this account runs nothing: set another `user`")


def test_echo_is_no_answer() -> None:
    """A host that sends our own lines back is not taken for an agent."""
    text = refused(Through("cat"), timeout_s=1.0)
    assert text.startswith(
        "bootstrap\nerror: the agent did not start: it was not ready within 1 s\n --> host here"
    )


def test_silent_host_is_left_in_time() -> None:
    """A login shell that waits for something is not waited for."""
    text = refused(Through("sh", "-c", "echo Token:; exec sleep 60"), timeout_s=0.5)
    assert text == (
        "bootstrap\n"
        "error: the agent did not start: it was not ready within 0.5 s\n"
        " --> host here\n"
        "the last lines from the host:\n"
        "  | Token:\n"
        "  | (the process ended with status -15)"
    )


def test_state_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason why the agent cannot be kept is the host's own."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "file" / "state"))
    assert refused(LocalTransport()) == (
        "bootstrap\n"
        f"error: the agent did not start: cannot use `{tmp_path}/file/state`: not a directory\n"
        " --> host here\n"
        "hint: mend that, or name another folder: `state_dir` of this host"
    )


def test_state_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is never run from a place where others could put theirs, and its mode is left alone."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("SGLDBG_STATE", str(shared))
    assert refused(LocalTransport()).startswith(
        f"bootstrap\nerror: the agent did not start: {shared} can be written by other users\n"
    )
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert list(shared.iterdir()) == []


def test_python_of_the_inventory_is_missing() -> None:
    """The named interpreter is the only one tried; a path may hold blanks."""
    assert refused(LocalTransport(), python="/opt/no such/python3") == (
        "no-python\n"
        "error: no Python of 3.8 or newer was found (none of: /opt/no such/python3)\n"
        " --> host here\n"
        "hint: name an interpreter for this host in the inventory, `python: /path/python3`"
    )


def test_python_path_of_two_lines_is_refused() -> None:
    """User text can never become a second line of the greeting."""
    assert refused(LocalTransport(), python="/usr/bin/python3\nrm") == (
        "no-python\nerror: `python: '/usr/bin/python3\\nrm'` is no path of one line\n --> host here"
    )


def test_python_path_is_not_read_by_a_shell(tmp_path: Path) -> None:
    """Quotes and substitutions in the inventory's path stay what they are."""
    name = "/x/$(touch evil)'\"`touch evil`;touch evil"
    text = refused(Through("bash", "-c", f"cd {tmp_path}; COMMAND"), python=name)
    assert f"(none of: {name})" in text
    assert not (tmp_path / "evil").exists()


def find_pythons(minor_from: int, minor_to: int) -> list[str]:
    """Interpreters of these releases that run, on PATH or under pyenv, each once."""
    names = [f"python3.{minor}" for minor in range(minor_from, minor_to + 1)]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = {}
    for name in names:
        for path in (*root.glob(f"versions/*/bin/{name}"), shutil.which(name)):
            if (
                path is not None
                and subprocess.run([path, "-IS", "-c", ""], check=False).returncode == 0
            ):
                found.setdefault(os.path.realpath(path), str(path))
    return list(found.values())


OLD = find_pythons(4, 7)
ABLE = find_pythons(8, 20)


@pytest.mark.skipif(not OLD, reason="no Python older than 3.8 on this machine")
def test_python_too_old() -> None:
    """An interpreter below 3.8 says so itself."""
    text = refused(LocalTransport(), python=OLD[0])
    assert re.match(
        r"no-python\nerror: no Python of 3\.8 or newer was found \(\S+: it is Python 3\.[4-7]", text
    )


@pytest.mark.skipif(not OLD, reason="no Python older than 3.8 on this machine")
def test_old_python_hands_over(zipapp: Zipapp, tmp_path: Path) -> None:
    """Where `python3` is too old, the next candidate is tried."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(OLD[0])
    (tmp_path / "bin" / "python3.9").symlink_to(ABLE[0])
    # /usr/bin/python3 comes first by its path, so this shell's command line begins after it.
    command = make_command().replace(" /usr/bin/python3 ", " ")
    transport = Through("sh", "-c", f"PATH={tmp_path}/bin:$PATH; {command}")
    agent = open_agent(transport, Host("here"), 30.0, zipapp)
    assert agent.hello["python"] >= [3, 8]
    agent.close()


@pytest.mark.parametrize("python", ABLE)
def test_every_python_that_is_there(python: str, start_agent: OpenAgent) -> None:
    """The loop runs on each release from 3.8 on that this machine has."""
    agent = start_agent(python=python)
    assert agent.hello["python"] >= [3, 8]
    assert agent.call("echo", {"n": 1}, b"x").raw == b"x"
