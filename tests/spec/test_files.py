"""What right files become, and that no shape of a file is taken for right or crashes."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import FileErrors
from orchestrator.model.inventory import LaunchAdopt, LaunchCommand, LaunchPair, LaunchSystemd
from orchestrator.model.patch import Insert, Probe
from orchestrator.spec.fields import parse_duration
from orchestrator.spec.inventory import read_inventory
from orchestrator.spec.kinds import KINDS, make_schema, read_file
from orchestrator.spec.patch import read_patch
from orchestrator.spec.project import load_project
from orchestrator.spec.session import read_session

ROOT = Path(__file__).resolve().parents[2]

INVENTORY = """
defaults: {user: root, port: 2222, ssh_options: {Compression: no, ServerAliveInterval: 5}}
hosts:
  a: {user: me, ssh_options: {Compression: yes}, enter: docker exec -i sglang}
  b:
  c: {address: 10.0.0.3, port: 22, transport: local, python: /usr/bin/python3, state_dir: /s}
groups: {pair: [b, c]}
installs: {env: {python: /opt/env/bin/python}, other: {package: vllm}}
servers:
  adopted: {install: env, hosts: [a, pair], launch: adopt, url: "http://127.0.0.1:30000/"}
  output: {install: env, hosts: [a], launch: {adopt: {output: /var/log/s}}, url: http://h}
  command:
    install: env
    hosts: [a]
    launch: {command: "python3 -m sglang.launch_server --port 30000 --name 'a b'", env: {N: 1.50}}
    url: http://[::1]:1
    ready: {path: /ready, timeout: 90s}
    stop_timeout: 500ms
  words: {install: env, hosts: [a], launch: {command: [serve, --port, 007, 30000]}, url: http://h}
  unit: {install: other, hosts: [a], launch: {systemd: sglang.service}, url: https://h}
  pair: {install: env, hosts: [a], launch: {stop: [a, stop], start: a start}, url: http://h}
"""

PATCH = """
patch: all-of-it
about: Everything that a patch can say today.
versions: ">=0.4.5,<0.6"
edits:
  - where:
      - file: sglang/a.py
        in: A.f
        before: 'x = $_'
        within: ["if a:", "with b as c:"]
        occurrence: 2
        of: 3
        which: 1
      - {module: sglang.b.c, after: "try:", occurrence: last}
    probe:
      capture: [x, {width: "y.shape[-1]"}]
      once_per: ["f(x, y)"]
      max_keys: 8
      limit: 3
      every: 2
      rate: 30/m
      when: x > 0
      emit_if: x.nan > 0
      ranks: [0, 7]
      expect:
        fused: {that: x == 1, when: y}
        other: {that: "'#' in y"}
  - where: {file: sglang/a.py, in: f, at: start}
    insert: |
      if x:
          y = 1
"""

SESSION = """
session: s
question: Why?
server: kimi
patches: [all-of-it]
restart: {add_args: [--tp, 2], remove_args: --disable-radix-cache, env: {A: 1, B: null}}
exercise:
  - get: /health
  - {post: /generate, json: {text: hi, n: 1, x: [true, null, 0.5]}, times: 3, timeout: 1m30s}
until: {records: all-of-it, from: any worker, count: 2, timeout: 1h}
lease: 90s
after: stopped
"""


def write(folder: Path, name: str, text: str) -> Path:
    """A file with this text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_hosts(tmp_path: Path) -> None:
    """Defaults hold where a host says nothing; options of ssh are joined by name."""
    hosts = read_inventory(write(tmp_path, "inventory.yaml", INVENTORY)).hosts
    assert (hosts["a"].user, hosts["a"].port, hosts["a"].address) == ("me", 2222, None)
    assert hosts["a"].ssh_options == {"Compression": "yes", "ServerAliveInterval": "5"}
    assert hosts["a"].enter == ("docker", "exec", "-i", "sglang")
    assert (hosts["b"].user, hosts["b"].transport) == ("root", "ssh")
    assert (hosts["c"].port, hosts["c"].transport) == (22, "local")
    assert (hosts["c"].python, hosts["c"].state_dir) == ("/usr/bin/python3", "/s")
    assert hosts["b"].span is not None
    assert str(hosts["b"].span) == f"{tmp_path}/inventory.yaml:5:3"


def test_servers(tmp_path: Path) -> None:
    """Groups are opened up in order, words keep their spelling, durations are seconds."""
    inventory = read_inventory(write(tmp_path, "inventory.yaml", INVENTORY))
    servers = inventory.servers
    assert servers["adopted"].hosts == ("a", "b", "c")
    assert servers["adopted"].url == "http://127.0.0.1:30000"
    assert (servers["adopted"].ready.path, servers["adopted"].ready.timeout_s) == ("/health", 1800)
    assert servers["adopted"].stop_timeout_s == 30
    assert (servers["command"].ready.timeout_s, servers["command"].stop_timeout_s) == (90, 0.5)
    words = ("python3", "-m", "sglang.launch_server", "--port", "30000", "--name", "a b")
    assert {name: server.launch for name, server in servers.items()} == {
        "adopted": LaunchAdopt(),
        "output": LaunchAdopt("/var/log/s"),
        "command": LaunchCommand(words, {"N": "1.50"}),
        "words": LaunchCommand(("serve", "--port", "007", "30000")),
        "unit": LaunchSystemd("sglang.service"),
        "pair": LaunchPair(("a", "stop"), ("a", "start")),
    }
    assert inventory.groups == {"pair": ("b", "c")}
    assert inventory.installs["other"].package == "vllm"


def test_patch(tmp_path: Path) -> None:
    """Every key of a patch arrives in its noun."""
    patch = read_patch(write(tmp_path, "p.yaml", PATCH))
    assert (patch.name, patch.package, patch.versions) == ("all-of-it", "sglang", ">=0.4.5,<0.6")
    assert [edit.site for edit in patch.edits] == ["all-of-it.1", "all-of-it.2"]
    first, second = patch.edits[0].where
    assert (first.position, first.code, first.scope) == ("before", "x = $_", "A.f")
    assert (first.occurrence, first.of, first.which) == (2, 3, 1)
    assert first.within == ("if a:", "with b as c:")
    assert (second.file, second.scope, second.occurrence) == ("sglang/b/c.py", None, -1)
    probe = patch.edits[0].action
    assert isinstance(probe, Probe)
    assert [(c.name, c.expression) for c in probe.capture] == [("x", "x"), ("width", "y.shape[-1]")]
    assert [c.expression for c in probe.once_per] == ["f(x, y)"]
    assert (probe.max_keys, probe.limit, probe.every, probe.rate_per_s) == (8, 3, 2, 0.5)
    assert probe.when is not None
    assert probe.emit_if is not None
    assert (probe.when.expression, probe.emit_if.expression) == ("x > 0", "x.nan > 0")
    assert probe.ranks == (0, 7)
    assert [(e.name, e.that, e.when) for e in probe.expect] == [
        ("fused", "x == 1", "y"),
        ("other", "'#' in y", None),
    ]
    assert patch.edits[1].action == Insert("if x:\n    y = 1\n")
    assert patch.edits[1].where[0].position == "start"
    assert patch.files() == ("sglang/a.py", "sglang/b/c.py")


def test_session(tmp_path: Path) -> None:
    """Every key of a session arrives in its noun, and bodies are plain JSON values."""
    session = read_session(write(tmp_path, "s.yaml", SESSION))
    assert session.restart.add_args == ("--tp", "2")
    assert session.restart.remove_args == ("--disable-radix-cache",)
    assert session.restart.env == {"A": "1", "B": None}
    get, post = session.exercise
    assert (get.method, get.path, get.json, get.times) == ("GET", "/health", None, 1)
    assert (post.method, post.times, post.timeout_s) == ("POST", 3, 90)
    assert post.json == {"text": "hi", "n": 1, "x": [True, None, 0.5]}
    assert type(post.json["n"]) is int
    assert session.until is not None
    assert (session.until.from_workers, session.until.count) == ("any worker", 2)
    assert (session.until.timeout_s, session.lease_s, session.after) == (3600, 90, "stopped")
    assert str(session.spans["until.records"]) == f"{tmp_path}/s.yaml:10:18"


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the checkout are right and belong together."""
    monkeypatch.chdir(ROOT)
    project = load_project("sessions/eagle3-zero-acceptance.yaml")
    assert project.inventory.path == "inventory.yaml"
    assert [patch.path for patch in project.patches] == ["patches/eagle3-draft-input.yaml"]
    assert [host.address for host in project.hosts] == ["10.0.0.10", "10.0.0.11"]


def test_patch_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch is taken from beside the inventory, then from named folders, then the library."""
    monkeypatch.chdir(tmp_path)
    session = SESSION.replace("kimi", "unit").replace("all-of-it", "eagle3-draft-input")
    write(tmp_path, "deep/sessions/s.yaml", session)
    write(tmp_path, "deep/inventory.yaml", INVENTORY.replace("package: vllm", "package: sglang"))

    def found() -> str:
        return load_project("deep/sessions/s.yaml", patch_dirs=["more"]).patches[0].path

    assert found() == str(ROOT / "patches/eagle3-draft-input.yaml")
    patch = PATCH.replace("all-of-it", "eagle3-draft-input")
    write(tmp_path, "more/eagle3-draft-input.yaml", patch)
    assert found() == "more/eagle3-draft-input.yaml"
    write(tmp_path, "deep/patches/eagle3-draft-input.yaml", patch)
    assert found() == "deep/patches/eagle3-draft-input.yaml"


def test_no_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands in a directory that was removed can still name whole paths."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    project = load_project(ROOT / "sessions/eagle3-zero-acceptance.yaml")
    assert project.inventory.path == str(ROOT / "inventory.yaml")
    with pytest.raises(FileErrors) as caught:
        load_project("s.yaml")
    assert [problem.message for problem in caught.value.problems] == [
        "cannot read `s.yaml`: no such file or directory",
        "there is no inventory `inventory.yaml`",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("90s", 90), ("1.5h", 5400), ("1h30m", 5400), ("2m", 120), ("168h", 604800)],
)
def test_duration(text: str, seconds: float) -> None:
    """A duration is a number with a unit, or several."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "5 s", "s", "-1s", "1d", "0s", "1e3s", "169h", "9" * 99 + "s"]
)
def test_no_duration(text: str) -> None:
    """Anything else is refused with what to write instead."""
    with pytest.raises(ValueError, match=r"write it like|at most 7 days"):
        parse_duration(text)


_SCALARS = [None, True, 0, -1, 1.5, "", " ", "x", "x = ", "$", "..", "\u0007", "a: b", "30", "5s"]
_LISTS = [[], [[]], [{}], [None], ["x", "x"]]
_MAPPINGS = [{}, {"x": "y"}, {"where": {}}, {"adopt": None}, {"": ""}]
_JUNK = st.sampled_from([*_SCALARS, *_LISTS, *_MAPPINGS])


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place below this one."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = []
    for key, child in inner:
        found += [(*place, key), *_places(child, (*place, key))]
    return found


def _plain(text: str) -> Any:
    from orchestrator.spec.document import as_plain
    from orchestrator.spec.reader import parse_document

    return as_plain(parse_document(text.encode(), "t").value)


RIGHT = [_plain(text) for text in (INVENTORY, PATCH, SESSION)]
READERS = [read_inventory, read_patch, read_session]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kind=st.integers(0, 2), data=st.data())
def test_any_shape(kind: int, data: st.DataObject, tmp_path: Path) -> None:
    """Any value in any place, or a key of any name, is read or refused with problems."""
    value = copy.deepcopy(RIGHT[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(value)
        if not places:
            break
        *parents, last = data.draw(st.sampled_from(places))
        target = value
        for key in parents:
            target = target[key]
        if isinstance(target, dict) and data.draw(st.booleans()):
            target[str(last)[:-1]] = target.pop(last)
        else:
            target[last] = copy.deepcopy(data.draw(_JUNK))
    path = write(tmp_path, "t.yaml", json.dumps(value, indent=1))
    try:
        READERS[kind](path)
    except FileErrors as errors:
        for problem in errors.problems:
            assert problem.span is not None


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_complete(kind: str) -> None:
    """Every key has a description, every mapping refuses unknown keys, no key may be empty."""
    schema = make_schema(kind)
    for name, part in [(kind, schema), *schema.get("$defs", {}).items()]:
        assert part["additionalProperties"] is False, name
        assert part["description"], name
        for key, value in part["properties"].items():
            assert value.get("description"), f"{name}.{key}"
            assert {"type": "null"} not in value.get("anyOf", []), f"{name}.{key}"


@pytest.mark.parametrize("kind", KINDS)
def test_reference(kind: str, tmp_path: Path) -> None:
    """The page on a kind of file names every key, and its examples are right."""
    text = (ROOT / f"docs/reference/{kind}.md").read_text(encoding="utf-8")
    schema = make_schema(kind)
    for part in (schema, *schema.get("$defs", {}).values()):
        for key in part["properties"]:
            assert re.search(rf"`{key}[`:]", text), f"`{key}` is missing"
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert examples
    for number, example in enumerate(examples):
        path = write(tmp_path, f"{number}.yaml", example)
        reader = READERS[KINDS.index(kind)]
        reader(path)
        if kind != "session":
            assert read_file(path) == kind
