"""A user's project on a demonstration cluster, to be spoiled, and the text of what is said."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.demo.cluster import Cluster

TEXTS = Path(__file__).parent / "texts"
# A progress line. Of what went well the tests of sessions speak; hosts of one stage end in any
# order, and how far a start came is chance.
_PROGRESS = re.compile(r"\[ *[\d.]+ s\] (\S+): (.+?) (running|done|failed)\b(.*)")
_NAMES = (
    (r"\[ *[\d.]+ s\]", "[TIME]"),
    (r"\b\d{8}-\d{6}-([\w-]+)-[0-9a-f]{8}\b", r"<id of \1>"),
    (r"\b\d{8}-\d{6}-", "<time>-"),
    (r"\b\d{4}-\d\d-\d\d[ T][\d:.+-]+Z?", "<time>"),
    (r"(192\.0\.2\.1 port [^:]+): [a-z0-9 ]+", r"\1: <reason>"),
    (r"SHA256:[\w+/]{43}", "<fingerprint>"),
    (r"AAAA[\w+/=]{40,}", "<key>"),
    (r"\b(pid|process) \d+", r"\1 <pid>"),
    (r"(?<=pid <pid> of )[\w.-]+", "<user>"),
    (r"\b\d+\.\d s\b", "<seconds> s"),
    # A command line is cut at a number of characters, whatever the lengths of its numbers.
    (r"--[\w-]*\.\.\.$", "--<cut>"),
    (r"\b[0-9a-f]{64}\b", "<sha256>"),
    # Which worker logs first, and how much of it stands in the last lines, is chance.
    (r"  \| \[<time> TP\d\] .*\n", ""),
    (r"\(\w+@[\w.-]+\)", "(<user>@<machine>)"),
)


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and, normalised, the whole of its stderr."""

    code: int
    error: str


def check(ran: Ran, name: str, code: int, folder: Path = TEXTS) -> None:
    """Exit code and whole stderr; the text stands in `<folder>/<name>.txt`.

    `SGLDBG_REWRITE_CASES=1` writes the texts anew, to be read before they are kept.
    """
    expected = folder / f"{name}.txt"
    if os.environ.get("SGLDBG_REWRITE_CASES"):
        expected.write_text(ran.error)
    assert ran.error == expected.read_text()
    assert ran.code == code


@dataclass
class Project:
    """A folder with the cluster's inventory, its session and its patch, free to be spoiled."""

    folder: Path
    cluster: Cluster
    words: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, folder: Path, cluster: Cluster) -> Project:
        """Copy the files; nothing of the user's own ssh configuration is read."""
        project = cls(folder, cluster)
        (folder / "patches").mkdir(parents=True)
        for path in (cluster.workdir / "patches").iterdir():
            (folder / "patches" / path.name).write_bytes(path.read_bytes())
        (folder / "session.yaml").write_text(cluster.session.read_text())
        (folder / "inventory.yaml").write_text(cluster.inventory.read_text())
        project.replace("inventory.yaml", "  ssh_options:", "  ssh_options:\n    ConfigFile: none")
        ports = re.findall(r"127\.0\.0\.1, port: (\d+)", cluster.inventory.read_text())
        project.words = {
            str(folder): "<project>",
            str(cluster.workdir): "<cluster>",
            sys.executable: "<python>",
            cluster.url.rpartition(":")[2]: "<server port>",
            **{port: f"<port of demo-{rank}>" for rank, port in enumerate(ports)},
            cluster.url.rpartition(":")[2][:-1] + "9": "<port between nodes>",
            str(find_free_port()): "<free port>",
        }
        return project

    def replace(self, file: str, old: str, new: str) -> None:
        """Change every `old` in a file; it is an error of the test if there is none."""
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new))

    def fill(self, text: str) -> str:
        """`{python}`, `{cluster}` and other names of `normalise` by what they stand for here."""
        for word, name in self.words.items():
            text = text.replace("{" + name[1:-1] + "}", word)
        return text

    def normalise(self, text: str) -> str:
        """What differs from run to run, and nothing else, replaced by names."""
        for word in sorted(self.words, key=len, reverse=True):
            text = re.sub(rf"(?<!\d){re.escape(word)}(?!\d)", self.words[word], text)
        lines = _order_progress(text.splitlines())
        text = "".join(f"{line}\n" for line in lines)
        for pattern, name in _NAMES:
            text = re.sub(pattern, name, text, flags=re.MULTILINE)
        return text


def find_free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _order_progress(lines: Sequence[str]) -> list[str]:
    """The failures of one stage in order of host; what was done or began is dropped."""
    done: list[str] = []
    stage: list[tuple[str, str]] = []
    name = ""
    for line in lines:
        match = _PROGRESS.fullmatch(line)
        if match is None or match[2] != name:
            done += [text for _, text in sorted(stage)]
            stage = []
        if match is None:
            done.append(line)
            name = ""
            continue
        name = match[2]
        if match[3] == "failed":
            stage.append((match[1], line))
    return done + [text for _, text in sorted(stage)]
