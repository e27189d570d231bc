"""The inventory file: hosts, groups, installs, servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from orchestrator.errors import FileError
from orchestrator.model.inventory import (
    Host,
    Install,
    Inventory,
    Launch,
    LaunchAdopt,
    LaunchCommand,
    LaunchPair,
    LaunchSystemd,
    Ready,
    Server,
)
from orchestrator.model.near import find_near
from orchestrator.spec.document import Document, Place
from orchestrator.spec.fields import (
    Duration,
    HostName,
    OptionName,
    PackageName,
    Plain,
    Strict,
    Text,
    Url,
    UrlPath,
    Variable,
    Word,
    Words,
)
from orchestrator.spec.placeholders import find_misplaced
from orchestrator.spec.problems import raise_problems, suggest, validate
from orchestrator.spec.reader import read_document


class HostKeys(Strict):
    """How a host is reached; what is left out comes from the user's ssh configuration."""

    noun: ClassVar[str] = "a host"
    address: Plain | None = Field(None, description="Name or IP address; default: the host's name")
    user: Plain | None = Field(None, description="Whom to log in as")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="Port of sshd")
    identity_file: Text | None = Field(None, description="Private key to log in with")
    enter: Words = Field([], description="Command that leads from the host into a container")
    transport: Literal["ssh", "local"] = Field("ssh", description="`local` is this machine")
    python: Text | None = Field(None, description="Interpreter that runs the agent (3.8 or newer)")
    state_dir: Text | None = Field(None, description="Where the agent keeps journals and originals")
    ssh_options: dict[OptionName, Word] = Field(
        {}, description="Options of ssh_config(5) by name, for this host"
    )


class InstallKeys(Strict):
    """One installation of SGLang."""

    noun: ClassVar[str] = "an install"
    python: Text | None = Field(
        None, description="Interpreter that imports the package; default: the running server's own"
    )
    package: PackageName = Field("sglang", description="Name of the top-level package")


class AdoptKeys(Strict):
    """What a server that somebody else started needs to be given back."""

    noun: ClassVar[str] = "`adopt`"
    output: Text | None = Field(
        None, description="File for the restored server's output where its own cannot be given back"
    )


class LaunchByAdopting(Strict):
    """The server is found running and restored as it was."""

    noun: ClassVar[str] = "a launch"
    adopt: AdoptKeys | None = Field(description="`adopt: {output: FILE}`")


class LaunchByCommand(Strict):
    """The server is started by a command line."""

    noun: ClassVar[str] = "a launch"
    command: Annotated[Words, Field(min_length=1)] = Field(
        description="Command line; `{rank}`, `{host}`, `{address}` and `{nodes}` are filled in"
    )
    env: dict[Variable, Word] = Field({}, description="Variables added to the environment")
    cwd: Text | None = Field(None, description="Directory in which it starts")


class LaunchByUnit(Strict):
    """The server is a unit of systemd."""

    noun: ClassVar[str] = "a launch"
    systemd: Plain = Field(description="Name of the unit")


class LaunchByPair(Strict):
    """The server is stopped and started by commands of the user's."""

    noun: ClassVar[str] = "a launch"
    stop: Annotated[Words, Field(min_length=1)] = Field(description="Command that stops it")
    start: Annotated[Words, Field(min_length=1)] = Field(
        description="Command that starts it; `{args}` is the place of a session's arguments"
    )


_LAUNCHES = {
    key: f"<{model.__name__}>"
    for model in (LaunchByAdopting, LaunchByCommand, LaunchByUnit, LaunchByPair)
    for key in model.model_fields
}


def _launch_kind(value: Any) -> str | None:
    """The alternative that this launch was meant to be."""
    if value == "adopt":
        return "<adopt>"
    if not isinstance(value, dict):
        return None
    for key in (*value, *(find_near(key, _LAUNCHES) for key in value)):
        if key in _LAUNCHES:
            return _LAUNCHES[key]
    return None


LaunchKeys = Annotated[
    Annotated[Literal["adopt"], Tag("<adopt>")]
    | Annotated[LaunchByAdopting, Tag("<LaunchByAdopting>")]
    | Annotated[LaunchByCommand, Tag("<LaunchByCommand>")]
    | Annotated[LaunchByUnit, Tag("<LaunchByUnit>")]
    | Annotated[LaunchByPair, Tag("<LaunchByPair>")],
    Discriminator(
        _launch_kind,
        custom_error_type="launch",
        custom_error_message="write `adopt`, or a mapping with `adopt`, `command`, `systemd`"
        " or `stop` and `start`",
    ),
]


class ReadyKeys(Strict):
    """When a server counts as ready."""

    noun: ClassVar[str] = "`ready`"
    path: UrlPath = Field("/health", description="Path that answers 200 when the server is ready")
    timeout: Duration = Field("30m", validate_default=True, description="How long a start may take")


class ServerKeys(Strict):
    """A running SGLang service."""

    noun: ClassVar[str] = "a server"
    install: HostName = Field(description="Name of one of `installs`")
    hosts: Annotated[list[HostName], Field(min_length=1)] = Field(
        description="Hosts or groups, in node-rank order"
    )
    launch: LaunchKeys = Field(description="How it is started, or `adopt`")
    url: Url = Field(description="Where it answers, as seen from its first host")
    ready: ReadyKeys = Field({}, validate_default=True, description="When it counts as ready")
    stop_timeout: Duration = Field(
        "30s", validate_default=True, description="Time between SIGTERM and SIGKILL"
    )


class InventoryKeys(Strict):
    """Inventory of sgldbg: hosts, groups, installs and servers."""

    noun: ClassVar[str] = "an inventory"
    defaults: HostKeys = Field(
        {}, validate_default=True, description="Keys for every host that does not set them"
    )
    hosts: Annotated[dict[HostName, HostKeys | None], Field(min_length=1)] = Field(
        description="Machines by name"
    )
    groups: dict[HostName, list[HostName]] = Field({}, description="Named lists of hosts")
    installs: dict[HostName, InstallKeys] = Field({}, description="Installations by name")
    servers: dict[HostName, ServerKeys] = Field({}, description="Services by name")


def read_inventory(path: str | Path) -> Inventory:
    """The inventory in this file; raises `FileErrors` with everything that is wrong in it."""
    document = read_document(path)
    problems: list[FileError] = []
    keys = validate(InventoryKeys, document, problems, _may_be_empty)
    problems += _unknown_names(document)
    raise_problems(problems)
    assert keys is not None
    groups = {name: tuple(hosts) for name, hosts in keys.groups.items()}
    return Inventory(
        path=str(path),
        hosts={name: _host(keys, name, document) for name in keys.hosts},
        groups=groups,
        installs={
            name: Install(name, i.python, i.package, document.key_span(("installs", name)))
            for name, i in keys.installs.items()
        },
        servers={name: _server(name, s, groups, document) for name, s in keys.servers.items()},
    )


def _may_be_empty(place: Place) -> bool:
    """A host of which everything comes from the user's ssh configuration; `{adopt: }`."""
    return (place[0] == "hosts" and len(place) == 2) or place[2:] == ("launch", "adopt")


def _host(keys: InventoryKeys, name: str, document: Document) -> Host:
    own = keys.hosts[name] or HostKeys.model_validate({})
    values = {
        key: getattr(own if key in own.model_fields_set else keys.defaults, key)
        for key in HostKeys.model_fields
    }
    values["enter"] = tuple(values["enter"])
    values["ssh_options"] = {**keys.defaults.ssh_options, **own.ssh_options}
    return Host(name=name, span=document.key_span(("hosts", name)), **values)


def _server(
    name: str, keys: ServerKeys, groups: Mapping[str, tuple[str, ...]], document: Document
) -> Server:
    return Server(
        name=name,
        install=keys.install,
        hosts=tuple(host for item in keys.hosts for host in groups.get(item, (item,))),
        launch=_launch(keys.launch),
        url=keys.url,
        ready=Ready(keys.ready.path, keys.ready.timeout),
        stop_timeout_s=keys.stop_timeout,
        span=document.key_span(("servers", name)),
    )


def _launch(keys: Any) -> Launch:
    match keys:
        case LaunchByCommand():
            return LaunchCommand(tuple(keys.command), keys.env, keys.cwd)
        case LaunchByUnit():
            return LaunchSystemd(keys.systemd)
        case LaunchByPair():
            return LaunchPair(tuple(keys.stop), tuple(keys.start))
        case LaunchByAdopting(adopt=AdoptKeys(output=output)):
            return LaunchAdopt(output)
    return LaunchAdopt()


def _unknown_names(document: Document) -> Iterator[FileError]:
    """Names that nothing bears; looks at the plain values, whatever else is wrong with them."""
    hosts, groups = _mapping(document.value, "hosts"), _mapping(document.value, "groups")
    installs = _mapping(document.value, "installs")
    for name in groups:
        if name in hosts:
            span = document.key_span(("groups", name))
            yield FileError(f"`{name}` is the name of a host too", span=span)
        for index, member in _texts(groups[name]):
            if member not in hosts:
                span = document.value_span(("groups", name, index))
                hints = suggest(member, hosts)
                yield FileError(f"unknown host `{member}`", span=span, hints=hints)
    for name, server in _mapping(document.value, "servers").items():
        if not isinstance(server, dict):
            continue
        install = server.get("install")
        if isinstance(install, str) and install not in installs:
            span = document.value_span(("servers", name, "install"))
            hints = suggest(install, installs) or ["name it under `installs`"]
            yield FileError(f"unknown install `{install}`", span=span, hints=hints)
        yield from find_misplaced(document, name, server)
        yield from _server_hosts(document, name, server.get("hosts"), hosts, groups)


def _server_hosts(
    document: Document, name: str, items: Any, hosts: Mapping[str, Any], groups: Mapping[str, Any]
) -> Iterator[FileError]:
    seen: set[str] = set()
    for index, item in _texts(items):
        span = document.value_span(("servers", name, "hosts", index))
        if item not in hosts and item not in groups:
            hints = suggest(item, [*hosts, *groups]) or ["name it under `hosts`"]
            yield FileError(f"unknown host or group `{item}`", span=span, hints=hints)
        members = [host for _, host in _texts(groups[item])] if item in groups else [item]
        for host in members:
            if host in seen:
                yield FileError(f"host `{host}` stands twice in server `{name}`", span=span)
            seen.add(host)


def _mapping(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _texts(value: Any) -> Iterator[tuple[int, str]]:
    """The texts among the items of a list, with their index."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            yield index, item
