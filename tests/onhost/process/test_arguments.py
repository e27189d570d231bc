"""What a server was told: by its command line as argparse reads it, and by its `--config` file."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import yaml

from orchestrator.onhost.agent.proc import arguments, flatfile

MAIN = ("python", "-m", "sglang.launch_server")


def given(words: str, folder: Path | None = None) -> tuple[dict[str, str], list[str]]:
    found = arguments.find_given([*MAIN, *words.split()], str(folder or "/"))
    return found.values, found.unknown


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("", {}),
        ("--model-path /m --port 1", {"model": "/m", "port": "1"}),
        ("--model /m --tp 8 --dp=2", {"model": "/m", "tp": "8", "dp": "2"}),
        ("--model-p /m --po=1 --tensor 4 --node 1", {"model": "/m", "port": "1", "tp": "4"}),
        ("--tp 2 --tp-size 4 --tensor-parallel-size=8", {"tp": "8"}),
        ("--tensor-parallel-size=8 --tp 2", {"tp": "2"}),
        ("--disaggregation-m decode --skip-server-w", {"role": "decode", "skip_warmup": "true"}),
        ("--mode x --e 1 --ports 2 --port", {}),  # unclear, longer, and without its value
        ("--model-loader-extra-config {} --host-x 1 --modelopt-quant fp8", {}),
    ],
)
def test_a_command_line(words, values):
    """Every spelling that argparse takes, the last one counting; nothing else."""
    assert given(words) == ({**values, **({"node_rank": "1"} if "--node" in words else {})}, [])


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        ("python -m sglang.cli.main serve /m --port 1", {"model": "/m", "port": "1"}),
        ("/v/bin/python /v/bin/sglang serve --model-path /m", {"model": "/m"}),
        ("python -m sglang.cli.main serve /m --model /n", {"model": "/n"}),
        ("numactl -N 0 python -m sglang.launch_server --host ::1", {"host": "::1"}),
    ],
)
def test_other_programs(argv, values):
    """`sglang serve` takes a model without a flag; wrappers stand before the server's words."""
    assert arguments.find_given(argv.split(), "/").values == values


CONFIG = """\
# how it runs
model-path: "meta-llama/Llama 3"   # the model
tp: 4
"port": 31000
dp-size : 2
json-model-override-args: '{"a": 1}'
lora-paths: ["a", 'b']
cuda-graph-bs:
- 1
- 2
chat: |
  port: 1

  tp: 1
extra: {a: {b: 1}}
node-rank: 0x1
skip-server-warmup: yes
"""


def test_a_file(tmp_path: Path):
    """The command line outranks it, wherever it stands; what is not plain there is unknown."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    values = {"model": "meta-llama/Llama 3", "tp": "4", "dp": "2", "skip_warmup": "true"}
    assert given("--port 1 --config c.yaml", tmp_path) == (values | {"port": "1"}, ["node_rank"])
    assert given("--config c.yaml --node-r 1", tmp_path) == (
        values | {"port": "31000", "node_rank": "1"},
        [],
    )


ALL = sorted(arguments._OPTIONS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("port: 1\n  - x: [\n{a: b}\n", "is not flat: line 3 is not `key: value`"),
        ("x: [1,\nport: 2]\n", "is not flat: line 1 is not `key: value`"),
        ("x: 'a\nport: 2'\n", "is not flat: line 1 is not `key: value`"),
        ("<<: *a\nport: 2\n", "is not flat: line 1 is not `key: value`"),
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_file_that_tells_nothing(tmp_path: Path, text, why):
    """Nothing is taken from it, not even what looks plain, and the reason is said."""
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = arguments.find_given([*MAIN, "--tp", "2", "--config", str(path)], "/")
    assert (found.values, found.unknown) == ({"tp": "2"}, [n for n in ALL if n != "tp"])
    assert found.why == f"`{path}` {why}"
    assert arguments.find_host(found._asdict()) is None


def test_a_file_that_was_changed_since(tmp_path: Path, monkeypatch):
    """The server runs by what stood there when it read it; a pipe is not waited for."""
    path = tmp_path / "c.yaml"
    path.write_text("port: 1\n")
    monkeypatch.setattr(arguments, "_read_start", lambda pid: time.time() - 3600)
    found = arguments.find_given([*MAIN, "--config", str(path)], "/", os.getpid())
    assert (found.unknown, found.why) == (
        ALL,
        f"`{path}` was changed since the server read it",
    )
    path.unlink()
    os.mkfifo(path)
    found = arguments.find_given([*MAIN, "--config", str(path)], "/", os.getpid())
    assert (found.unknown, found.why) == (ALL, f"`{path}` is no file of options")


def test_only_the_word_that_sglang_looks_for(tmp_path: Path):
    """It reads no file for `--config=FILE` or an abbreviation, and ends where two are named."""
    (tmp_path / "c.yaml").write_text("port: 1\n")
    for words in (
        "--config=c.yaml",
        "--conf c.yaml",
        "--config c.yaml --config c.yaml",
        "--config",
    ):
        assert given(words, tmp_path) == ({}, [])


PIECES = (
    *("port: 1", "tp: 08", "tp: 1_0", "tp: 0x10", "tp: 1:30", "tp: 1e3", "tp: -1", "tp: +1"),
    *("model: a b", "model: ./m", "model: ~/m", "model: ~", "model: null", "model: NULL", "model:"),
    *(
        "model: 'a b' # c",
        'model: "a#b"',
        "model: 'it''s'",
        "model: a #b",
        "model: a#b",
        "model: .5",
    ),
    *(
        "model: yes",
        "model: On",
        "model: oN",
        "model: false",
        "model: 2024-01-01",
        "model: y",
        "model: .5",
    ),
    *("model: &x /m", "model: *x", "model: !!str 1", "model: >", "model: |", "model: a: b"),
    *("  more", "  port: 5", "- 1", "- a: b", "", "# port: 9", "---", "...", "? port", ": 1"),
    *("x: [1, 2]", "x: [1,", "2]", "x: {a: b}", "x: {a:", "port: 3}", "x: 'a", "b'", 'x: "a\\"'),
    *("tp : 3", "'tp': 4", '"port": 6', "tp:5", "\ttp: 6", "tp:\t7", "[a]", "{port: 1}", "port"),
    *("<<: {port: 7}", "%YAML 1.2", "model: @a", "model: `a`", "model: /m\u2028port: 8", "port: ²"),
)


def test_never_another_value_than_yaml_s():
    """Of random files it says what the real reader says, or that it does not know."""
    chosen = random.Random(4)
    told = 0
    for _ in range(4000):
        text = "\n".join(chosen.choices(PIECES, k=chosen.randint(1, 4)))
        try:
            ours = flatfile.parse(text)
        except ValueError:
            continue
        try:
            theirs = yaml.safe_load(text) or {}
        except yaml.YAMLError:
            continue  # no server runs by it
        if not isinstance(theirs, dict):
            assert ours == {}, text
            continue
        assert list(ours) == [str(key) for key in theirs], text
        for key, value in ours.items():
            real = theirs[key]
            said = str(real).lower() if isinstance(real, bool) else str(real)
            assert value is None or value == said, text
            told += value is not None
    assert told > 800
