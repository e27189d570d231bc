"""Host keys and user keys against a real OpenSSH server, with the whole text of refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.transport.hostkeys import fingerprint
from tests.fixtures_sshd import StartSshd
from tests.sshd import Sshd, make_key
from tests.transport.opening import refused, run, shown_fingerprint


def test_unknown_host_key(sshd: Sshd) -> None:
    """An unknown key is refused, with its fingerprint and the line that adds it."""
    sshd.known_hosts.write_text("")
    line = sshd.known_line("h0").strip()
    name, key_type, _ = line.split()
    assert refused(sshd.host("h0")) == (
        "host-key-unknown\n"
        f"error: the host key of `{name}` is not known: {key_type} {shown_fingerprint(sshd)}\n"
        " --> host h0\n"
        f"note: looked in {sshd.known_hosts}, /dev/null\n"
        "hint: on the host itself, this shows its keys to compare with:"
        " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done\n"
        f"hint: this adds the key: echo '{line}' >> {sshd.known_hosts}"
    )


def test_the_printed_line_adds_the_key(sshd: Sshd) -> None:
    """Running the hint's command makes the host known, and nothing else does."""
    sshd.known_hosts.write_text("")
    command = refused(sshd.host("h0")).rpartition("this adds the key: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert run(sshd.host("h0"), "echo in") == b"in\n"


def test_changed_host_key(sshd: Sshd, tmp_path: Path) -> None:
    """A changed key is refused with both fingerprints and the place of the old one."""
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()
    name, key_type, _ = sshd.known_line("h0").split()
    sshd.known_hosts.write_text(f"# old\n{name} {other[0]} {other[1]}\n")
    text = refused(sshd.host("h0"))
    assert text.startswith(
        "host-key-changed\n"
        f"error: the host key of `{name}` has changed\n"
        " --> host h0\n"
        f"note: the host shows {key_type} {shown_fingerprint(sshd)}\n"
        f"note: known is {key_type} "
    )
    assert f"({sshd.known_hosts}:2)\n" in text
    assert text.endswith(f"ssh-keygen -R '{name}' -f {sshd.known_hosts}")


def test_known_key_type_is_asked_for_first(start_sshd: StartSshd) -> None:
    """A host with several keys of which only the RSA one is known is no mismatch."""
    sshd = start_sshd(key_types=["ed25519", "ecdsa", "rsa"])
    lines = sshd.known_line("h0").splitlines()
    for line in lines:
        sshd.known_hosts.write_text(f"{line}\n")
        assert run(sshd.host("h0"), "echo in") == b"in\n"


def test_accept_new(sshd: Sshd) -> None:
    """Only where the inventory says so, an unknown key is added."""
    sshd.known_hosts.unlink()
    host = sshd.host("h0", ssh_options={"StrictHostKeyChecking": "accept-new"})
    assert run(host, "echo in") == b"in\n"
    assert sshd.known_hosts.read_text() == sshd.known_line("h0")


HINT = "hint: check the user and the key: sgldbg uses ssh keys and the ssh agent only"


def test_wrong_key(sshd: Sshd, tmp_path: Path) -> None:
    """Every key that was tried is named, and what the host would take."""
    wrong = make_key(tmp_path / "wrong")
    locked = make_key(tmp_path / "locked", passphrase="secret")
    host = sshd.host("h0", identity_file=str(wrong), ssh_options={"CertificateFile": "none"})
    name = sshd.known_line("h0").split()[0]
    assert refused(host) == (
        "auth\n"
        f"error: the host does not let `{sshd.user}@{name}` in\n"
        " --> host h0\n"
        f"note: {wrong}: not accepted\n"
        "note: the host takes: publickey\n"
        f"{HINT}"
    )
    assert f"note: {locked}: needs its passphrase; `ssh-add {locked}` gives it to the agent\n" in (
        refused(sshd.host("h0", identity_file=str(locked)))
    )
    nothing = sshd.host("h0", identity_file=str(tmp_path / "none"))
    assert f"note: {tmp_path}/none: no such file\n" in refused(nothing)
    os.mkfifo(tmp_path / "pipe")
    assert f"note: {tmp_path}/pipe: it is a pipe, not a file\n" in (
        refused(sshd.host("h0", identity_file=str(tmp_path / "pipe")))
    )
    (tmp_path / "text").write_text("no key")
    assert f"note: {tmp_path}/text: is no key that can be used" in (
        refused(sshd.host("h0", identity_file=str(tmp_path / "text")))
    )


def test_no_key_at_all(sshd: Sshd) -> None:
    """The user's default keys are looked for; where there is none, that is said."""
    text = refused(sshd.host("h0", identity_file=None))
    assert "\nnote: there was no key to offer\nnote: the host takes: publickey\n" in text


def test_default_key_is_found(sshd: Sshd) -> None:
    """A key at its usual place needs no entry in the inventory."""
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir()
    shutil.copy(sshd.user_key, folder / "id_ed25519")
    assert run(sshd.host("h0", identity_file=None), "echo in") == b"in\n"


@contextmanager
def ssh_agent(path: Path, key: Path) -> Iterator[None]:
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env=env, capture_output=True)
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_key_of_the_ssh_agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is used; with `IdentitiesOnly` only where its public half is listed."""
    sock = Path(f"/tmp/sgldbg-test-{os.getpid()}.sock")
    private = tmp_path / "gone"
    shutil.copy(sshd.user_key, private)
    shutil.copy(f"{sshd.user_key}.pub", f"{private}.pub")
    with ssh_agent(sock, private):
        private.unlink()
        by_agent = {"IdentityAgent": str(sock), "IdentitiesOnly": "no"}
        assert run(sshd.host("h0", identity_file=None, ssh_options=by_agent), "echo in") == b"in\n"
        by_agent["IdentitiesOnly"] = "yes"
        assert refused(sshd.host("h0", identity_file=None, ssh_options=by_agent)).startswith("auth")
        listed = sshd.host("h0", identity_file=str(private), ssh_options=by_agent)
        assert run(listed, "echo in") == b"in\n"
        by_agent["IdentityAgent"] = "SSH_AUTH_SOCK"
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        assert run(sshd.host("h0", identity_file=str(private), ssh_options=by_agent), "pwd")


def test_certificate_of_the_user(sshd: Sshd, tmp_path: Path) -> None:
    """A certificate beside the key is offered before the plain key."""
    authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "key")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", sshd.user, f"{key}.pub"]
    subprocess.run(sign, check=True)
    allowed = Path(f"{sshd.user_key}.pub")
    allowed.write_text(f"cert-authority {(tmp_path / 'ca.pub').read_text()}")
    assert run(sshd.host("h0", identity_file=str(key)), "echo in") == b"in\n"


def test_no_agent_forwarding(sshd: Sshd, tmp_path: Path) -> None:
    """The user's ssh agent is never lent to a host, also where the configuration says so."""
    options = {"ForwardAgent": "yes"}
    host = sshd.host("h0", ssh_options=options)
    assert run(host, "echo [$SSH_AUTH_SOCK]") == b"[]\n"


def test_fingerprint_is_openssh_s(sshd: Sshd) -> None:
    """The fingerprint in messages is the one that `ssh-keygen -lf` prints."""
    import base64

    blob = base64.b64decode(Path(f"{sshd.host_keys[0]}.pub").read_text().split()[1])
    assert fingerprint(blob) == shown_fingerprint(sshd)
