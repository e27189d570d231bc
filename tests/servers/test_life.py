"""Command lines before and after a session's changes, and what of them may be shown."""

from __future__ import annotations

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.model.inventory import Host, LaunchCommand
from orchestrator.model.session import Restart
from orchestrator.onhost.agent.proc import arguments
from orchestrator.servers.base import (
    Life,
    debug_life,
    for_host,
    join,
    restart_for_host,
    shown,
)
from orchestrator.servers.life import is_secret
from orchestrator.servers.options import NAMES, SWITCH_NAMES

BASE = ("python", "-m", "sglang.launch_server")
QUIET = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}


def test_placeholders_of_a_session():
    """What differs from host to host is filled in as in the inventory; the rest is left alone."""
    restart = Restart(
        ("--log-dir=/tmp/{host}", "--nodes", "{nodes}", '{"rank": 1}'),
        ("--at", "{address}"),
        {"NCCL_DEBUG_FILE": "/tmp/nccl.{rank}", "LANG": None, "HERE": "${host}"},
    )
    assert restart_for_host(restart, Host("gpu1", address="10.0.0.2"), 1, 2) == Restart(
        ("--log-dir=/tmp/gpu1", "--nodes", "2", '{"rank": 1}'),
        ("--at", "10.0.0.2"),
        {"NCCL_DEBUG_FILE": "/tmp/nccl.1", "LANG": None, "HERE": "${host}"},
    )


@pytest.mark.parametrize(
    ("before", "restart", "after", "notes"),
    [
        ("--tp 2", Restart(), "--tp 2", ()),
        ("--tp 2", Restart(("--disable-cuda-graph",)), "--tp 2 --disable-cuda-graph", ()),
        ("--tp 2 --x", Restart(("--tp", "4")), "--x --tp 4", ("`--tp 2` is replaced by `--tp 4`",)),
        ("--tp=2 --x", Restart(("--tp", "4")), "--x --tp 4", ("`--tp=2` is replaced by `--tp 4`",)),
        ("--tp 2", Restart(("--tp=4",)), "--tp=4", ("`--tp 2` is replaced by `--tp=4`",)),
        ("--tp 2 --x", Restart(("--tp", "2")), "--x --tp 2", ()),
        ("--a 1 2 3 --b", Restart((), ("--a",)), "--b", ()),
        ("--a -1 --b", Restart((), ("--a", "--b")), "", ()),
        ("--a", Restart((), ("--b",)), "--a",
         ("`--b` is not among its arguments: nothing to remove",)),
        ("--api-key x", Restart(("--api-key", "y")), "--api-key y",
         ("`--api-key [secret]` is replaced by `--api-key [secret]`",)),
        ("--ab 1", Restart(("--a", "2")), "--ab 1 --a 2", ()),
        ("--tensor-parallel-size 2", Restart(("--tp", "4")), "--tp 4",
         ("`--tensor-parallel-size 2` is replaced by `--tp 4`",)),
        ("--tensor-par=2 --x", Restart((), ("--tp-size",)), "--x", ()),
        ("--trust-remote-code m", Restart((), ("--trust-remote-code",)), "m", ()),
        ("--lora-paths a b", Restart(("--lora-paths", "c")), "--lora-paths c",
         ("`--lora-paths a b` is replaced by `--lora-paths c`",)),
        ("--x 1 2 --y", Restart((), ("--x", "1", "2")), "--y", ()),
        ("--mem-fraction-static .8", Restart((), ("--mem-frac",)), "--mem-fraction-static .8",
         ("`--mem-frac` is not among its arguments: nothing to remove; `--mem-fraction-static` is",
          )),
    ],
)  # fmt: skip
def test_arguments(before, restart, after, notes):
    """Added flags replace those that are there, removed ones take their values along."""
    life = debug_life(Life((*BASE, *before.split())), restart)
    assert life.argv == (*BASE, *after.split())
    assert life.notes == notes


@pytest.mark.parametrize(
    ("before", "restart", "after"),
    [
        # What stands before the server's program is not its own.
        ("numactl -m 0 python -m p.launch_server --x", Restart(("-m", "3"), ("-m",)),
         "numactl -m 0 python -m p.launch_server --x -m 3"),
        ("python /b/p/launch_server.py --x 1", Restart((), ("--x",)),
         "python /b/p/launch_server.py"),
        ("python /b/sglang serve m --x 1", Restart((), ("--x",)), "python /b/sglang serve m"),
        ("python /b/sglang serve --x 1 --model m", Restart((), ("--x",)),
         "python /b/sglang serve --model m"),
        # Without a model elsewhere a word after a flag may be it.
        ("fork serve --trust-remote-code m", Restart(("--trust-remote-code",)),
         "fork serve m --trust-remote-code"),
        ("fork serve --new m", Restart(("--new",)), "fork serve m --new"),
        ("fork serve --tp 2 m", Restart(("--tp", "4")), "fork serve m --tp 4"),
        ("fork serve --new 1", Restart(("--new=2",)), "fork serve --new=2"),
        ("fork serve --new 1", Restart((), ("--new", "1")), "fork serve"),
        ("fork serve --new m", Restart((), ("--new=",)), "fork serve m"),
        # The place of arguments stays where it was, and ends a flag's values.
        ("./up --tp 2 --new @ end", Restart(("--tp", "4"), ("--new",)), "./up --tp 4 end"),
    ],
)  # fmt: skip
def test_whose_a_word_is(before, restart, after):
    """A value goes with its flag, a word of its own stays, and other programs keep theirs."""
    words = before.split()
    slot = words.index("@") if "@" in words else None
    argv = tuple(word for word in words if word != "@")
    assert join(debug_life(Life(argv, slot=slot), restart).argv) == after


@pytest.mark.parametrize(
    ("before", "restart", "shown_words"),
    [
        ("fork serve --new m", Restart((), ("--new",)), "--new m"),
        ("./up --new 1 m", Restart(("--new", "2")), "--new 1 m"),
    ],
)
def test_words_that_may_be_anything(before, restart, shown_words):
    """Where nobody says how many values a flag has, none is guessed."""
    with pytest.raises(OrchestratorError) as refused:
        debug_life(Life(tuple(before.split())), restart)
    assert (refused.value.message, refused.value.hints) == (
        f"which words of `{shown_words}` are the values of `--new` is unclear",
        ("name it under `remove_args` as it stands, `--new VALUE`, or `--new=` where it has no"
         " value",),
    )  # fmt: skip


def test_one_table_of_names():
    """What the host reads of a command line by several names is one option here as well."""
    assert set(arguments._OPTIONS.values()) <= set(NAMES + SWITCH_NAMES)


def test_environment():
    """Variables are set and unset; health polls stay quiet unless the session wants them."""
    original = Life(BASE, {"A": "1", "B": "2"}, ("OLD",), "/srv")
    life = debug_life(original, Restart(env={"A": None, "C": "3"}))
    assert life == Life(BASE, {"B": "2", **QUIET, "C": "3"}, ("OLD", "A"), "/srv")
    name = next(iter(QUIET))
    assert debug_life(Life(BASE), Restart(env={name: "1"})).env_set == {name: "1"}
    assert debug_life(Life(BASE), Restart(env={name: None})).env_unset == (name,)


def test_what_is_shown():
    """Secrets are masked wherever they stand; everything else is as it is."""
    argv = (*BASE, "--api-key", "k1", "--admin-api-key=k2", "--max-total-tokens", "2048")
    argv = (*argv, "--speculative-token-map", "map.pt", "--url", "http://me:pw@host/x")
    life = Life(argv, {"HF_TOKEN": "t", "NCCL_DEBUG": "WARN"}, ("A",))
    words = ["env", "-u", "A", "HF_TOKEN=[secret]", "NCCL_DEBUG=WARN", *BASE]
    words += ["--api-key", "[secret]", "--admin-api-key=[secret]", "--max-total-tokens", "2048"]
    words += ["--speculative-token-map", "map.pt", "--url", "http://[secret]@host/x"]
    assert shown(life) == tuple(words)
    assert shown(Life(("env", "HF_TOKEN=t", *BASE))) == ("env", "HF_TOKEN=[secret]", *BASE)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("--api-key", True),
        ("db_password", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("--max-total-tokens", False),
        ("--tokenizer-path", False),
        ("--ssl-keyfile", False),
        ("SSH_AUTH_SOCK", False),
        ("PATH", False),
        ("", False),
    ],
)
def test_names_of_secrets(name, secret):
    """A name that only contains such a word is none."""
    assert is_secret(name) is secret


def test_the_command_of_a_host():
    """The four placeholders are filled in everywhere; other braces are left as they are."""
    command = (*BASE, "--node-rank", "{rank}", "--nnodes={nodes}", '{"a": {"b": 1}}', "${host}")
    launch = LaunchCommand(command, {"HOST": "{host}", "ADDR": "{address}"}, "/srv/{host}")
    filled = (*BASE, "--node-rank", "1", "--nnodes=2", '{"a": {"b": 1}}', "${host}")
    life = for_host(launch, Host("gpu02", address="10.0.0.2"), 1, 2)
    assert life == Life(filled, {"HOST": "gpu02", "ADDR": "10.0.0.2"}, (), "/srv/gpu02")
    assert for_host(launch, Host("gpu02"), 1, 2).env_set["ADDR"] == "gpu02"
