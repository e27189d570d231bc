"""Command line, environment and directory of one life of a server, and a session's changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.errors import OrchestratorError
from orchestrator.model.inventory import PLACEHOLDERS, Host, LaunchCommand
from orchestrator.model.session import Restart
from orchestrator.servers.options import UnclearValuesError, is_flag, take_option

MASK = "[secret]"
# Each health poll runs the model otherwise, and its records would drown those of the session.
HEALTH_VARIABLE = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
_DEBUG_ENV = {HEALTH_VARIABLE: "0"}

_SECRET_PARTS = frozenset(
    ["key", "apikey", "secret", "password", "passwd", "passphrase", "credential", "credentials"]
)
_AUTH_PARTS = frozenset(["auth", "cookie", "bearer"])
_TOKEN_PARTS = frozenset(["token", "accesstoken", "authtoken"])
_PUBLIC_PARTS = frozenset(["file", "keyfile", "path", "sock"])
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a server: `env_set` and `env_unset` change the environment it runs in.

    That environment is the running server's own, or where it did not run, the agent's. `slot` is
    the place in `argv` for a session's arguments, where that is not its end. `notes` say what does
    not come back with it, and what a session's changes replaced or did not find.
    """

    argv: tuple[str, ...]
    env_set: Mapping[str, str] = field(default_factory=dict)
    env_unset: tuple[str, ...] = ()
    cwd: str | None = None
    slot: int | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)


def for_host(launch: LaunchCommand, host: Host, rank: int, nodes: int) -> Life:
    """The life that a `command` of the inventory means on one host.

    Only the four placeholders are replaced: arguments may hold JSON with braces of its own.
    """
    names, values = tuple(launch.env), tuple(launch.env.values())
    return Life(
        argv=fill_words(launch.command, host, rank, nodes),
        env_set=dict(zip(names, fill_words(values, host, rank, nodes), strict=True)),
        cwd=None if launch.cwd is None else fill_words((launch.cwd,), host, rank, nodes)[0],
    )


def fill_words(words: Sequence[str], host: Host, rank: int, nodes: int) -> tuple[str, ...]:
    """Words of the inventory with their placeholders replaced; `${host}` is a shell's own."""
    values = (str(rank), str(nodes), host.name, host.address or host.name)
    by_name = dict(zip(PLACEHOLDERS, values, strict=True))
    pattern = rf"(?<!\$)(?:{'|'.join(map(re.escape, by_name))})"
    return tuple(re.sub(pattern, lambda m: by_name[m.group()], word) for word in words)


def restart_for_host(restart: Restart, host: Host, rank: int, nodes: int) -> Restart:
    """A session's changes with their placeholders replaced, as those of a `command` are."""

    def fill(words: Sequence[str]) -> tuple[str, ...]:
        return fill_words(words, host, rank, nodes)

    env = {n: v if v is None else fill([v])[0] for n, v in restart.env.items()}
    return Restart(fill(restart.add_args), fill(restart.remove_args), env)


def debug_life(original: Life, restart: Restart) -> Life:
    """The original life with a session's changes; flags that are added twice are replaced.

    Health polls are kept from running the model unless the session says otherwise. Raises
    `OrchestratorError` where nobody can tell which words belong to a flag.
    """
    argv, notes = _change_arguments(original, restart)
    env = {**_DEBUG_ENV, **restart.env}
    env_set = {**original.env_set, **{n: v for n, v in env.items() if v is not None}}
    unset = [name for name, value in env.items() if value is None]
    for name in unset:
        env_set.pop(name, None)
    kept = [name for name in original.env_unset if name not in env]
    return replace(
        original,
        argv=argv,
        env_set=env_set,
        env_unset=(*kept, *unset),
        notes=(*original.notes, *notes),
    )


def _change_arguments(original: Life, restart: Restart) -> tuple[tuple[str, ...], list[str]]:
    slot = len(original.argv) if original.slot is None else original.slot
    line: list[str | None] = [*original.argv[:slot], None, *original.argv[slot:]]
    notes: list[str] = []
    for group in _group(restart.remove_args):
        name = group[0].partition("=")[0]
        if not _take(line, group):
            missed = f"`{name}` is not among its arguments: nothing to remove"
            notes.append(missed + "".join(f"; `{word}` is" for word in _find_similar(line, name)))
    for group in _group(restart.add_args):
        removed = _take(line, group, added=True) if is_flag(group[0]) else []
        if removed and removed != group:
            was, now = (join(_mask_words(words)) for words in (removed, group))
            notes.append(f"`{was}` is replaced by `{now}`")
    # Where the place is may have moved: words before it were taken.
    place = line.index(None)
    words = [word for word in line if word is not None]
    return (*words[:place], *restart.add_args, *words[place:]), notes


def _find_similar(line: Sequence[str | None], name: str) -> list[str]:
    """Flags of which one is the beginning of the other: argparse takes some for abbreviations."""
    flags = [word.partition("=")[0] for word in line if word is not None and word[:2] == "--"]
    return [f for f in flags if f.startswith(name) or (f != "--" and name.startswith(f))]


def _take(line: list[str | None], group: Sequence[str], *, added: bool = False) -> list[str]:
    try:
        return take_option(line, group, added=added)
    except UnclearValuesError as unclear:
        words, flag = join(_mask_words(unclear.words)), unclear.words[0]
        raise OrchestratorError(
            f"which words of `{words}` are the values of `{flag}` is unclear",
            hints=[
                f"name it under `remove_args` as it stands, `{flag} VALUE`,"
                f" or `{flag}=` where it has no value"
            ],
        ) from None


def shown(life: Life) -> tuple[str, ...]:
    """The words of a life as `env` would take them, with everything that looks secret masked."""
    words = [word for name in life.env_unset for word in ("-u", name)]
    words += [f"{name}={mask_value(name, value)}" for name, value in life.env_set.items()]
    return tuple((["env", *words] if words else []) + _mask_words(life.argv))


def join(words: Sequence[str]) -> str:
    """Words that `shown` made, as one line for a shell; masks stay readable."""
    return " ".join(word if MASK in word else shlex.quote(word) for word in words)


def mask_value(name: str, value: str) -> str:
    """The value of a variable or flag, or a mask where its name says that it is a secret."""
    if is_secret(name):
        return MASK
    return _USER_IN_URL.sub(f"{MASK}@", value)


def is_secret(name: str) -> bool:
    """Whether a name such as `HF_TOKEN` or `--api-key` stands for a secret.

    `--max-total-tokens` and `--speculative-token-map` do not.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", name.lower()) if part]
    if not parts or parts[-1] in _PUBLIC_PARTS:
        return False
    return bool((_SECRET_PARTS | _AUTH_PARTS).intersection(parts)) or parts[-1] in _TOKEN_PARTS


def _mask_words(words: Sequence[str]) -> list[str]:
    masked: list[str] = []
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if is_flag(word):
            masked.append(f"{name}={mask_value(name, value)}" if equals else word)
            flag = "" if equals else name
        elif re.fullmatch(r"[A-Za-z_]\w*", name) and equals:  # `env HF_TOKEN=... python`
            masked.append(f"{name}={mask_value(name, value)}")
        else:
            masked.append(mask_value(flag, word))
            flag = flag if is_secret(flag) else ""
    return masked


def _group(words: Sequence[str]) -> list[list[str]]:
    """Words as groups that begin with a flag each."""
    groups: list[list[str]] = []
    for word in words:
        if is_flag(word) or not groups:
            groups.append([])
        groups[-1].append(word)
    return groups
