"""Reading the flat part of a YAML file with the standard library: what is not plain stays open."""

from __future__ import annotations

import re
from typing import Dict, Optional

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_ENTRY = re.compile(r"""(["']?)([A-Za-z0-9][A-Za-z0-9_-]*)\1 *:(?: +(.*))?$""")
_COMMENT = re.compile(r"(?:^| +)#.*$")
_QUOTED = re.compile(r"""(?:'([^'\\]*)'|"([^"\\]*)") *(?:#.*)?$""")
_NUMBER = re.compile(r"(0|[1-9]\d*)$")
# A text that no resolver of YAML 1.1 takes for a number, a date or a word of its own.
_TEXT = re.compile(r"(?:[A-Za-z_/]|\.{1,2}/|~/)")
# A list or mapping in brackets that holds no other one.
_CLOSED = re.compile(r"""[\[{](?:[^'"\[\]{}]|'[^']*'|"[^"\\]*")*[\]}]$""")
# By lower case; `tRue` is a text.
_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false"}
_WORDS.update(off="false", null="")


def parse(text: str) -> Dict[str, Optional[str]]:
    """Keys of the outermost mapping in order, each with its text, or `None` where it is not plain.

    Words such as `yes` are `true` or `false`, in small letters.

    Raises `ValueError` where one cannot tell what belongs to which key: the caller then knows
    nothing, rather than something wrong.
    """
    found: Dict[str, Optional[str]] = {}
    key: Optional[str] = None
    for number, line in enumerate(_LINE_END.split(text)):
        if not line.strip(" ") or line.lstrip(" ").startswith("#"):
            continue
        if line == "---" and not found:
            continue
        entry = _ENTRY.match(line)
        if entry is not None:
            key = entry.group(2)
            found[key] = _parse_value(entry.group(3) or "", number)
        elif key is not None and (line.startswith(" ") or _is_item(line, found[key])):
            found[key] = None  # a list, a mapping, or more of a text
        else:
            raise _unclear(number)
    return found


def _parse_value(value: str, number: int) -> Optional[str]:
    """The text of a value that ends on its own line."""
    quoted = _QUOTED.match(value)
    if quoted is not None:
        return quoted.group(1) if quoted.group(1) is not None else quoted.group(2)
    plain = _COMMENT.sub("", value).rstrip(" ")
    if plain[:1] in ("'", '"') or _is_open(plain):
        raise _unclear(number)  # it may go on, and hold what looks like keys
    if _NUMBER.match(plain):
        return plain
    if not _TEXT.match(plain):
        return None
    if plain.lower() in _WORDS and plain in (plain.lower(), plain.upper(), plain.capitalize()):
        return _WORDS[plain.lower()] or None
    return None if ": " in plain or plain.endswith(":") or "\t" in plain else plain


def _is_open(plain: str) -> bool:
    """Whether a list or mapping in brackets may go on behind this line."""
    if plain[:1] not in ("[", "{") or _CLOSED.match(plain):
        return False
    opened, closed = (sum(map(plain.count, pair)) for pair in ("[{", "]}"))
    return opened != closed or "'" in plain or '"' in plain


def _is_item(line: str, value: Optional[str]) -> bool:
    """An item of a list may stand as far left as its key, which has no value then."""
    return value is None and (line == "-" or line.startswith("- "))


def _unclear(number: int) -> ValueError:
    return ValueError("is not flat: line %d is not `key: value`" % (number + 1))
