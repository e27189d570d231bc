"""The user's ssh configuration is honoured as OpenSSH itself reads it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.config import (
    Asked,
    SshConfig,
    expand_tokens,
    make_asked,
    parse_hop,
    parse_resolved,
    read_config,
)


def read(tmp_path: Path, text: str, host: Host) -> SshConfig:
    """The host as a configuration file with this text resolves it."""
    path = tmp_path / "ssh_config"
    path.write_text(text)
    options = {"ConfigFile": str(path), **host.ssh_options}
    return read_config(
        Asked(
            host.name, host.address or host.name, host.user, host.port, host.identity_file, options
        )
    )


def test_everything_comes_from_the_configuration(tmp_path: Path) -> None:
    """Includes, blocks and tokens count; what the inventory leaves open is filled in."""
    (tmp_path / "more").write_text("Host gpu*\n  Port 2200\n  User train\n")
    text = f"""
Include {tmp_path}/more
Match originalhost other
  HostName 10.9.9.9
Host gpu01
  HostName 10.0.0.1
  IdentityFile ~/.ssh/%r_key
  IdentitiesOnly yes
  HostKeyAlias the-alias
  UserKnownHostsFile /known1 /of/%r
  ProxyJump admin@bastion:2222,inner
  ConnectTimeout 7
"""
    config = read(tmp_path, text, Host("gpu01"))
    home = os.environ["HOME"]
    assert (config.hostname, config.port, config.user) == ("10.0.0.1", 2200, "train")
    assert config.identity_files == (f"{home}/.ssh/train_key",)
    assert config.identities_only
    assert config.key_name == "the-alias"
    assert config.known_hosts == ("/known1", "/of/train")
    assert config.proxy_jump == ("admin@bastion:2222", "inner")
    assert config.connect_timeout_s == 7.0
    assert not config.accept_new


def test_the_inventory_wins(tmp_path: Path) -> None:
    """Address, user, port, key and options of the inventory come before the configuration."""
    text = "Host *\n  User train\n  Port 2200\n  UserKnownHostsFile /a\n"
    host = Host(
        "gpu01",
        address="10.0.0.2",
        user="root",
        port=22,
        identity_file="/keys/my own",
        ssh_options={"UserKnownHostsFile": "/b", "StrictHostKeyChecking": "Accept-New"},
    )
    config = read(tmp_path, text, host)
    assert (config.hostname, config.port, config.user) == ("10.0.0.2", 22, "root")
    assert config.identity_files[0] == "/keys/my own"
    assert config.known_hosts == ("/b",)
    assert config.accept_new
    assert config.key_name == "10.0.0.2"


def test_lax_key_checking_of_the_user_does_not_count(tmp_path: Path) -> None:
    """Unknown keys are only ever accepted by the inventory's own word."""
    config = read(tmp_path, "Host *\n  StrictHostKeyChecking no\n", Host("gpu01"))
    assert not config.accept_new
    for value in ("no", "off", "ask", "yes"):
        host = Host("gpu01", ssh_options={"StrictHostKeyChecking": value})
        assert not read(tmp_path, "", host).accept_new


def test_no_jump_by_the_word_none(tmp_path: Path) -> None:
    """`none` switches a jump, a command or an agent off."""
    text = "Host *\n  ProxyJump none\n  ProxyCommand none\n  IdentityAgent none\n"
    config = read(tmp_path, text, Host("gpu01"))
    assert (config.proxy_jump, config.proxy_command, config.identity_agent) == ((), None, None)


def test_agent_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is that of the environment, or the one that the configuration names."""
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER", "/run/other")
    text = "Host named\n  IdentityAgent /run/sock\nHost variable\n  IdentityAgent $OTHER\n"
    names = ("x", "named", "variable")
    found = [read(tmp_path, text, Host(name)).identity_agent for name in names]
    assert found == ["/run/agent", "/run/sock", "/run/other"]


def test_proxy_command_is_filled_in(tmp_path: Path) -> None:
    """A command's tokens stand for this very host."""
    text = "Host *\n  ProxyCommand nc -x 100%% %h %p %r %n\n"
    host = Host("gpu01", address="10.0.0.3", user="root", port=2022)
    config = read(tmp_path, text, host)
    assert config.proxy_command == "nc -x 100% 10.0.0.3 2022 root 10.0.0.3"


def test_refused_configuration_is_quoted(tmp_path: Path) -> None:
    """What `ssh -G` objects to is the message."""
    with pytest.raises(HostError) as caught:
        read(tmp_path, "Host *\n  Bogus yes\n", Host("gpu01"))
    assert caught.value.code == "unreachable"
    assert render(caught.value) == (
        "error: the ssh configuration of `gpu01` is refused by `ssh -G`\n"
        " --> host gpu01\n"
        f"note: {tmp_path}/ssh_config: line 2: Bad configuration option: bogus\n"
        f"note: {tmp_path}/ssh_config: terminating, 1 bad configuration options"
    )


def test_address_that_looks_like_an_option() -> None:
    """An address can never become an option of a program."""
    with pytest.raises(HostError) as caught:
        read_config(make_asked(Host("evil", address="-oProxyCommand=touch x")))
    assert render(caught.value) == (
        "error: `-oProxyCommand=touch x` is no address: it looks like an option\n --> host evil"
    )


def test_without_the_ssh_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `ssh` the inventory alone counts, and it is said that no file was read."""
    monkeypatch.setenv("PATH", "")
    host = Host("gpu01", address="10.0.0.4", ssh_options={"Port": "2201", "IdentitiesOnly": "yes"})
    config = read_config(make_asked(host))
    home = os.environ["HOME"]
    assert (config.hostname, config.port, config.user) == ("10.0.0.4", 2201, getpass.getuser())
    assert config.identities_only
    assert config.known_hosts == (f"{home}/.ssh/known_hosts", f"{home}/.ssh/known_hosts2")
    assert f"{home}/.ssh/id_ed25519" in config.identity_files
    assert config.notes == ("there is no `ssh` binary here, so no ssh configuration file was read",)


@pytest.mark.parametrize(
    ("text", "target", "user", "port"),
    [
        ("bastion", "bastion", None, None),
        ("admin@bastion:2222", "bastion", "admin", 2222),
        ("ssh://admin@bastion:2222", "bastion", "admin", 2222),
        ("[fe80::1]:22", "fe80::1", None, 22),
        ("a@b@bastion", "bastion", "a@b", None),
    ],
)
def test_hops(tmp_path: Path, text: str, target: str, user: str | None, port: int | None) -> None:
    """A hop is read as OpenSSH writes it and shares only the configuration file."""
    base = read(tmp_path, "", Host("gpu01", ssh_options={"UserKnownHostsFile": "/b"}))
    hop = parse_hop(text, base)
    assert (hop.target, hop.user, hop.port) == (target, user, port)
    assert hop.options == {"ConfigFile": f"{tmp_path}/ssh_config"}


def test_parsing_is_plain() -> None:
    """Options that come several times keep their order; unknown tokens stay."""
    assert parse_resolved("IdentityFile a\nidentityfile b c\nuser \n") == {
        "identityfile": ["a", "b c"],
        "user": [""],
    }
    assert expand_tokens("%% %h %x %", {"%": "%", "h": "host"}) == "% host %x %"
