"""Host keys: strict against known_hosts as OpenSSH writes them, and clear in what is wrong."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.transport.config import Asked, SshConfig, make_config
from orchestrator.transport.hostkeys import (
    KnownKey,
    add_key,
    fingerprint,
    judge,
    parse_line,
    read_known_host,
)
from tests.sshd import make_key

KEY = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00 " + b"k" * 32
OTHER = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00 " + b"o" * 32
TEXT = base64.b64encode(KEY).decode()
OTHER_TEXT = base64.b64encode(OTHER).decode()
COMPARE = (
    "hint: on the host itself, this shows its keys to compare with:"
    " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done"
)


def config(known: Path, port: int = 22, **options: str) -> SshConfig:
    values = {"userknownhostsfile": [str(known)], "globalknownhostsfile": ["none"]}
    values.update({name: [value] for name, value in options.items()})
    asked = Asked("gpu01", "10.0.0.1", "root", port, None, options)
    return make_config(asked, values)


def refused(given: SshConfig, blob: bytes = KEY) -> str:
    with pytest.raises(HostError) as caught:
        judge(given, read_known_host(given), "ssh-ed25519", blob)
    return f"{caught.value.code}\n{render(caught.value)}"


@pytest.mark.parametrize(
    ("line", "name", "matches"),
    [
        ("10.0.0.1 ssh-ed25519 {}", "10.0.0.1", True),
        ("GPU01,10.0.0.1 ssh-ed25519 {} comment", "gpu01", True),
        ("gpu* ssh-ed25519 {}", "gpu01", True),
        ("gpu?? ssh-ed25519 {}", "gpu01", True),
        ("gpu*,!gpu01 ssh-ed25519 {}", "gpu01", False),
        ("[10.0.0.1]:2222 ssh-ed25519 {}", "[10.0.0.1]:2222", True),
        ("[10.0.0.1]:2222 ssh-ed25519 {}", "10.0.0.1", False),
        ("10.0.0.1 ssh-ed25519 {}", "[10.0.0.1]:2222", False),
        ("[gpu]01 ssh-ed25519 {}", "g01", False),
        ("# 10.0.0.1 ssh-ed25519 {}", "10.0.0.1", False),
        ("   ", "10.0.0.1", False),
        ("|1|bad|worse ssh-ed25519 {}", "10.0.0.1", False),
    ],
)
def test_names(line: str, name: str, matches: bool) -> None:
    """Names, lists, wildcards, negation and ports as in sshd(8)."""
    found = parse_line(line.format(TEXT), name, "f", 3)
    want = KnownKey("f", 3, "", "ssh-ed25519", KEY) if matches else None
    assert found == want


def test_lines_that_cannot_be_used_are_skipped_with_a_note(tmp_path: Path) -> None:
    """One bad line spoils neither the file nor the reader; other hosts' bad lines are no news."""
    known = tmp_path / "known_hosts"
    known.write_text(
        "10.0.0.1 ssh-ed25519 !!!\n"
        "10.0.0.1\n"
        "@maybe 10.0.0.1 ssh-ed25519 AAAA\n"
        "elsewhere ssh-ed25519 !!!\n"
        f"@cert-authority *.1 ssh-ed25519 {OTHER_TEXT}\n"
        f"10.0.0.1 ssh-ed25519 {TEXT}"
    )
    found = read_known_host(config(known))
    assert [key.line for key in found.trusted()] == [6]
    assert found.notes == (
        f"{known}:1 was skipped: its key is not base64",
        f"{known}:2 was skipped: it has no key",
        f"{known}:3 was skipped: the marker `@maybe` is not known",
        f"{known}:5 was skipped: certificates of hosts are not checked here",
    )


def test_a_known_hosts_that_is_no_file_is_passed_over_with_a_note(tmp_path: Path) -> None:
    """A pipe is not waited for; /dev/null is the usual name of a file without keys."""
    pipe, known = tmp_path / "pipe", tmp_path / "known_hosts"
    os.mkfifo(pipe)
    known.write_text(f"10.0.0.1 ssh-ed25519 {TEXT}\n")
    found = read_known_host(config(known, userknownhostsfile=f"{pipe} /dev/null {known}"))
    assert [key.path for key in found.trusted()] == [str(known)]
    assert found.notes == (f"{pipe} cannot be read: it is a pipe, not a file",)


def test_openssh_agrees_on_names_and_fingerprints(tmp_path: Path) -> None:
    """Hashed names and fingerprints are those of `ssh-keygen`."""
    public = make_key(tmp_path / "key").with_suffix(".pub")
    words = public.read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"[10.0.0.1]:2222 {words[0]} {words[1]}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert known.read_text().startswith("|1|")
    (key,) = read_known_host(config(known, 2222)).trusted()
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True
    ).stdout
    assert fingerprint(key.blob) in shown
    assert read_known_host(config(known, 2223)).keys == ()


def test_known_key_is_accepted(tmp_path: Path) -> None:
    """Any listed key will do; without a line for the port, one without a port vouches too."""
    known = tmp_path / "known_hosts"
    known.write_text(f"10.0.0.1 ssh-rsa {OTHER_TEXT}\n10.0.0.1 ssh-ed25519 {TEXT}\n")
    for port in (22, 2222):
        given = config(known, port)
        judge(given, read_known_host(given), "ssh-ed25519", KEY)
    assert read_known_host(config(known)).key_types() == ("ssh-rsa", "ssh-ed25519")


def test_unknown_key(tmp_path: Path) -> None:
    """An unknown key is refused with its fingerprint and the line that adds it."""
    known = tmp_path / "known_hosts"
    assert refused(config(known, 2222)) == (
        "host-key-unknown\n"
        "error: the host key of `[10.0.0.1]:2222` is not known:"
        f" ssh-ed25519 {fingerprint(KEY)}\n"
        " --> host gpu01\n"
        f"note: there is no {known}\n"
        "hint: on the host itself, this shows its keys to compare with:"
        " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done\n"
        f"hint: this adds the key: echo '[10.0.0.1]:2222 ssh-ed25519 {TEXT}' >> {known}"
    )


@pytest.mark.parametrize(
    ("files", "notes", "hint"),
    [
        (
            "{0}/no folder/known",
            ["there is no {0}/no folder/known", "looked in {0}/global"],
            "this adds the key: mkdir -m 700 -p '{0}/no folder' && {1} '{0}/no folder/known'",
        ),
        (
            "{0}/folder|{0}/second",
            ["looked in {0}/folder, {0}/global", "{0}/folder cannot be read: is a directory"],
            "this adds the key: {1} {0}/second",
        ),
        (
            "{0}/folder|/dev/null",
            [
                "looked in {0}/folder, /dev/null, {0}/global",
                "{0}/folder cannot be read: is a directory",
            ],
            "make {0}/folder or /dev/null a file, or name one with `UserKnownHostsFile`, then:"
            " {1} FILE",
        ),
    ],
    ids=["no folder", "a folder", "none that keeps a line"],
)
def test_where_a_key_can_be_added(tmp_path: Path, files: str, notes: list[str], hint: str) -> None:
    """The line of the hint works as it stands, whatever is missing; what is missing is named."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "global").touch()
    given = replace(
        config(tmp_path),
        known_hosts=tuple(files.format(tmp_path).split("|")),
        global_known_hosts=(f"{tmp_path}/global",),
    )
    line = f"echo '10.0.0.1 ssh-ed25519 {TEXT}' >>"
    said = refused(given).splitlines()
    assert said[3:] == [
        *(f"note: {note.format(tmp_path)}" for note in notes),
        COMPARE,
        f"hint: {hint.format(tmp_path, line)}",
    ]
    if "adds the key: " in hint:
        added = subprocess.run(["sh", "-c", said[-1].partition("adds the key: ")[2]], check=False)
        assert added.returncode == 0
        judge(given, read_known_host(given), "ssh-ed25519", KEY)


def test_accept_new_where_no_key_can_be_added(tmp_path: Path) -> None:
    """Then it is as unknown as without, and the reason is told."""
    said = refused(replace(config(tmp_path), accept_new=True))
    assert said.splitlines()[3:] == [
        f"note: looked in {tmp_path}",
        f"note: {tmp_path} cannot be read: is a directory",
        f"note: the key could not be added to {tmp_path}: is a directory",
        COMPARE,
        f"hint: make {tmp_path} a file, or name one with `UserKnownHostsFile`, then:"
        f" echo '10.0.0.1 ssh-ed25519 {TEXT}' >> FILE",
    ]


def test_another_server_on_that_machine_says_nothing(tmp_path: Path) -> None:
    """A line without a port that does not fit makes the key unknown, not changed."""
    known = tmp_path / "known_hosts"
    known.write_text(f"10.0.0.1 ssh-ed25519 {OTHER_TEXT}\n")
    assert refused(config(known, 2222)).startswith("host-key-unknown\n")
    assert refused(config(known)).startswith("host-key-changed\n")


def test_changed_key(tmp_path: Path) -> None:
    """A changed key shows both fingerprints, the line that knows better, and how to forget it."""
    known = tmp_path / "known&hosts"
    known.write_text(f"\n10.0.0.1 ssh-ed25519 {OTHER_TEXT}\n")
    assert refused(config(known)) == (
        "host-key-changed\n"
        "error: the host key of `10.0.0.1` has changed\n"
        " --> host gpu01\n"
        f"note: the host shows ssh-ed25519 {fingerprint(KEY)}\n"
        f"note: known is ssh-ed25519 {fingerprint(OTHER)} ({known}:2)\n"
        "note: either the host was installed anew, or somebody else answers in its place\n"
        "hint: on the host itself, this shows its keys to compare with:"
        " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done\n"
        "hint: if the change is right, this forgets the old key:"
        f" ssh-keygen -R '10.0.0.1' -f '{known}'"
    )


@pytest.mark.parametrize("mode", ["yes", "accept-new"])
def test_a_host_that_is_known_by_another_type(tmp_path: Path, mode: str) -> None:
    """Said as that: nothing has changed, and the old line need not go; nor is the host new."""
    known = tmp_path / "known_hosts"
    known.write_text(f"10.0.0.1 ssh-rsa {OTHER_TEXT}\n")
    given = config(known, stricthostkeychecking=mode)
    assert refused(given) == (
        "host-key-unknown\n"
        "error: the host key of `10.0.0.1` is known by ssh-rsa only, and ssh-ed25519 is offered:"
        f" {fingerprint(KEY)}\n"
        " --> host gpu01\n"
        f"note: known is ssh-rsa {fingerprint(OTHER)} ({known}:1)\n"
        "note: the host was asked for ssh-rsa first, and does not offer that\n"
        "hint: on the host itself, this shows its keys to compare with:"
        " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done\n"
        "hint: if it is the host's own, this adds the key:"
        f" echo '10.0.0.1 ssh-ed25519 {TEXT}' >> {known}"
    )
    known.write_text(f"10.0.0.1 ssh-rsa {OTHER_TEXT}\n10.0.0.1 ssh-ed25519 {OTHER_TEXT}\n")
    assert refused(given).startswith("host-key-changed\n")


def test_accept_new_never_accepts_a_changed_key(tmp_path: Path) -> None:
    """`accept-new` adds what is new and refuses what is other than before."""
    known = tmp_path / "deeper" / "known_hosts"
    given = config(known, 2222, stricthostkeychecking="accept-new")
    judge(given, read_known_host(given), "ssh-ed25519", KEY)
    assert known.read_text() == f"[10.0.0.1]:2222 ssh-ed25519 {TEXT}\n"
    assert known.stat().st_mode & 0o777 == 0o600
    judge(given, read_known_host(given), "ssh-ed25519", KEY)
    assert known.read_text().count("\n") == 1
    assert refused(given, OTHER).startswith("host-key-changed\n")


def test_revoked_key(tmp_path: Path) -> None:
    """A revoked key is refused even where another line knows it, and with `accept-new`."""
    known = tmp_path / "known_hosts"
    known.write_text(f"@revoked * ssh-ed25519 {TEXT}\n10.0.0.1 ssh-ed25519 {TEXT}\n")
    given = config(known, stricthostkeychecking="accept-new")
    assert refused(given) == (
        "host-key-changed\n"
        f"error: the host key of `10.0.0.1` is revoked by {known}:1\n"
        " --> host gpu01\n"
        f"note: the host shows ssh-ed25519 {fingerprint(KEY)}\n"
        "note: whoever revoked it holds that others have its private part, and can pass for the"
        " host\n"
        "hint: give the host a new key, `ssh-keygen -A` once the old one is removed there, and"
        " make that one known"
    )


def test_a_listed_key_is_refused(tmp_path: Path) -> None:
    """`RevokedHostKeys` outranks a known line and `accept-new`; other keys are not concerned."""
    known, listed = tmp_path / "known_hosts", tmp_path / "revoked"
    known.write_text(f"10.0.0.1 ssh-ed25519 {TEXT}\n")
    listed.write_text(f"# lost\n\nssh-ed25519 {TEXT} of gpu01\n")
    given = config(known, stricthostkeychecking="accept-new", revokedhostkeys=str(listed))
    assert refused(given).startswith(
        "host-key-changed\n"
        f"error: the host key of `10.0.0.1` is revoked by {listed}:3\n"
        " --> host gpu01\n"
    )
    known.write_text(f"10.0.0.1 ssh-ed25519 {OTHER_TEXT}\n")
    judge(given, read_known_host(given), "ssh-ed25519", OTHER)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file or directory"),
        (b"SSHKRL\n\x00rest", "it is a binary key revocation list"),
        (b"ssh-ed25519\n", "line 1 is no public key"),
        (b"\nssh-ed25519 no/base=64\n", "line 2 is no public key"),
        (os.mkfifo, "it is a pipe, not a file"),
    ],
)
def test_without_a_readable_list_no_key_is_good(
    tmp_path: Path, content: bytes | Callable[[Path], object] | None, why: str
) -> None:
    """Like OpenSSH: a key that may be revoked is refused, though known_hosts has it."""
    known, listed = tmp_path / "known_hosts", tmp_path / "revoked"
    known.write_text(f"10.0.0.1 ssh-ed25519 {TEXT}\n")
    if isinstance(content, bytes):
        listed.write_bytes(content)
    elif content is not None:
        content(listed)
    assert refused(config(known, revokedhostkeys=str(listed))) == (
        "host-key-unknown\n"
        f"error: `RevokedHostKeys {listed}` cannot be read, so no host key is trusted: {why}\n"
        " --> host gpu01\n"
        "hint: a list of public keys is read, one a line as in `.pub` files"
    )
    judge(config(known, revokedhostkeys="none"), read_known_host(config(known)), "x", KEY)


def test_added_lines_are_whole(tmp_path: Path) -> None:
    """Threads that add keys at once, to a file without a last newline, keep lines apart."""
    known = tmp_path / "known_hosts"
    known.write_text(f"first ssh-ed25519 {TEXT}")
    given = [config(known, port, hashknownhosts="yes") for port in range(2000, 2040)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: add_key(one, "ssh-ed25519", KEY), given))
    lines = [line for line in known.read_text().split("\n") if line]
    assert len(lines) == 41
    assert all(len(read_known_host(one).trusted()) == 1 for one in given)
    found = subprocess.run(
        ["ssh-keygen", "-F", "[10.0.0.1]:2007", "-f", str(known)], check=True, capture_output=True
    )
    assert TEXT.encode() in found.stdout
