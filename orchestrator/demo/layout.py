"""The files of the demonstration: installs on each host, and what the user would have written."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

PACKAGE = "sglang"
VERSION = "0.5.16"  # a release that the patch library is tested against
PATCH = "eagle3-draft-input"
SESSION = "eagle3-zero-acceptance"
SERVER = "miniature"
READY_S = 30


class DemoError(Exception):
    """The demonstration could not be set up; the text says why."""


@dataclass(frozen=True, slots=True)
class DemoHost:
    """One make-believe machine: what is its own though all share one kernel."""

    name: str
    rank: int
    home: Path
    site: Path
    env: Mapping[str, str]

    @property
    def stdout(self) -> Path:
        """Where the server's access lines go."""
        return self.home / "server.out"

    @property
    def stderr(self) -> Path:
        """Where the server's log lines go."""
        return self.home / "server.err"


@dataclass(frozen=True, slots=True)
class FileFact:
    """What of a file must be as before: its bytes, and that it is the same file."""

    sha256: str
    inode: int
    mtime_ns: int
    mode: int
    links: int


def make_host(folder: Path, name: str, rank: int, inherited: Mapping[str, str]) -> DemoHost:
    """Lay out a host's home directory and install; `inherited` is what its shell has anyway."""
    home, site, temporary = folder / "home", folder / "site", folder / "tmp"
    for directory in (home, site, temporary):
        directory.mkdir(parents=True, mode=0o700)
    install_miniature(site)
    env = {
        **inherited,
        "HOME": str(home),
        "USER": "demo",
        "LOGNAME": "demo",
        "SHELL": "/bin/sh",
        "TMPDIR": str(temporary),
    }
    return DemoHost(name, rank, home, site, env)


def install_miniature(site: Path) -> None:
    """Copy the miniature into `site` as an installer would, with metadata and checksums."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    source = resources.files("orchestrator.demo").joinpath("miniature", PACKAGE)
    with resources.as_file(source) as tree:
        shutil.copytree(tree, site / PACKAGE, ignore=ignored)
    info = site / f"{PACKAGE}-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
    (info / "INSTALLER").write_text("sgldbg-demo\n")
    record = info / "RECORD"
    lines = [_record_line(site, path) for path in sorted(site.rglob("*")) if path.is_file()]
    record.write_text("\n".join([*lines, f"{record.relative_to(site)},,\n"]))


def _record_line(site: Path, path: Path) -> str:
    """Name, checksum and size in the form of the wheel format's RECORD."""
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path.relative_to(site)},sha256={digest},{len(data)}"


def read_patch_source() -> bytes:
    """The library's patch, from the installed package or, in a checkout, from beside it."""
    packaged = resources.files("orchestrator").joinpath("library", f"{PATCH}.yaml")
    checkout = Path(__file__).parents[2] / "patches" / f"{PATCH}.yaml"
    for candidate in (packaged, checkout):
        if candidate.is_file():
            return candidate.read_bytes()
    raise DemoError(f"the patch library of this installation has no {PATCH}.yaml")


def inventory_text(
    hosts: Sequence[tuple[DemoHost, int]],
    *,
    command: Sequence[str],
    url: str,
    keys: Path,
    user: str,
) -> str:
    """The inventory of these hosts, each with the port of its SSH server.

    The server is named by its command line, which holds its ports: `adopt` would take any server
    of that node rank, and all clusters of this machine share one table of processes.
    """
    site = hosts[0][0].site
    sites = str(site.parent.parent / "{host}" / site.name)
    options = {
        "UserKnownHostsFile": str(keys / "known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
    }
    # JSON strings are YAML strings whatever a path may hold.
    lines = [
        "# Written by the demonstration. The hosts are SSH servers on loopback.",
        "defaults:",
        f"  user: {user}",
        f"  identity_file: {json.dumps(str(keys / 'id_ed25519'))}",
        "  ssh_options:",
        *[f"    {name}: {json.dumps(value)}" for name, value in options.items()],
        "hosts:",
        *[f"  {host.name}: {{address: 127.0.0.1, port: {port}}}" for host, port in hosts],
        "installs:",
        f"  miniature: {{python: {json.dumps(command[0])}, package: {PACKAGE}}}",
        "servers:",
        f"  {SERVER}:",
        "    install: miniature",
        f"    hosts: [{', '.join(host.name for host, _ in hosts)}]",
        "    # It runs already: what stands here says which process it is.",
        "    launch:",
        f"      command: {json.dumps(list(command))}",
        f"      env: {{PYTHONPATH: {json.dumps(sites)}}}",
        f"    url: {url}",
        f"    ready: {{path: /health, timeout: {READY_S}s}}",
    ]
    return "\n".join(lines) + "\n"


def session_text() -> str:
    """The session that the demonstration runs."""
    return f"""\
session: {SESSION}
question: Do fused auxiliary hidden states reach the draft model?
server: {SERVER}
patches: [{PATCH}]
restart: {{add_args: [--disable-cuda-graph]}}
exercise:
  - post: /generate
    json:
      text: The capital of France is
      sampling_params: {{max_new_tokens: 16, temperature: 0}}
    times: 3
until: {{records: {PATCH}, from: every worker, timeout: 30s}}
lease: 30s
after: restore
"""


def read_facts(hosts: Sequence[DemoHost]) -> dict[str, FileFact]:
    """Every file of every install, by host and path."""
    facts = {}
    for host in hosts:
        for path in sorted(host.site.rglob("*")):
            if path.is_file():
                stat = path.stat()
                facts[f"{host.name}:{path.relative_to(host.site)}"] = FileFact(
                    hashlib.sha256(path.read_bytes()).hexdigest(),
                    stat.st_ino,
                    stat.st_mtime_ns,
                    stat.st_mode,
                    stat.st_nlink,
                )
    return facts
