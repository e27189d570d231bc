"""Types of the values in the three files: what is taken, and in which words it is refused."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from orchestrator.spec.code import (
    check_anchor,
    check_anchor_expression,
    check_expression,
    check_header,
    check_statements,
    check_template,
    make_problem,
)
from orchestrator.spec.document import Float, Int

NAME = r"[a-z0-9][a-z0-9-]{0,39}"
HOST_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # part of paths on hosts, so never `..` or `-x`
LABEL = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+"
_RATE = r"([0-9]+(?:\.[0-9]+)?)/(s|m|h)"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_DURATION_S = 7 * 24 * 3600.0
# A host renews a few times within its lease; below this a busy one could not.
MIN_LEASE_S = 2.0


class Strict(BaseModel):
    """One mapping of a file: no key but its own, no value bent into another type.

    `noun` names it in messages.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    noun: ClassVar[str]


def _check_name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        hint = "use small letters, digits and `-`, at most 40, not `-` first"
        raise make_problem(f"`{value}` cannot be a name", hint)
    return value


def _check_host_name(value: str) -> str:
    if not re.fullmatch(HOST_NAME, value):
        hint = "use letters, digits, `.`, `_` and `-`, at most 64, a letter or digit first"
        raise make_problem(f"`{value}` cannot be a name", hint)
    return value


def _check_label(value: str) -> str:
    if not re.fullmatch(LABEL, value):
        hint = "use letters, digits, `_`, `-` and `.`, at most 64, a letter or `_` first"
        raise make_problem(f"`{value}` cannot be a name", hint)
    return value


def _check_option_name(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9]+", value):
        hint = "write it as in ssh_config(5), like `UserKnownHostsFile`"
        raise make_problem(f"`{value}` cannot name an option of ssh", hint)
    return value


def _check_package_name(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*", value):
        raise make_problem(f"`{value}` is not the name of a top-level package")
    return value


def _check_variable(value: str) -> str:
    if not re.fullmatch(VARIABLE, value):
        raise make_problem(f"`{value}` cannot name an environment variable")
    return value


def read_word(value: Any) -> Any:
    """A word of a command line or environment: a number stands for the text that was written."""
    if isinstance(value, (Int, Float)):
        return value.text
    if isinstance(value, bool):
        shown = str(value).lower()
        hint = f'write `"{shown}"`, or `"{int(value)}"`'
        raise make_problem(f"text is needed, and `{shown}` is not text here", hint)
    return value


def _split_words(value: Any) -> Any:
    """A command line as one text, split the way a shell would, but with nothing expanded."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise make_problem(f"cannot be split into words: {str(error).lower()}") from None


def _read_duration(value: Any) -> Any:
    if isinstance(value, (Int, Float)):
        raise make_problem("a duration needs its unit", f"write `{value.text}s` or `{value.text}m`")
    if isinstance(value, str):
        if not re.fullmatch(_DURATION, value) or len(value) > 40:
            hint = "write it like `500ms`, `90s`, `30m` or `1h30m`"
            raise make_problem(f"`{value[:60]}` is not a duration", hint)
        parts = re.findall(r"([0-9.]+)(ms|s|m|h)", value)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if not 0 < seconds <= MAX_DURATION_S:
            raise make_problem(f"`{value}` is out of range", "more than 0, at most 7 days (`168h`)")
        return seconds
    raise make_problem("a duration is needed", "write it like `500ms`, `90s`, `30m` or `1h30m`")


def parse_duration(text: str) -> float:
    """Seconds of `30m`, `90s`, `500ms` or `1h30m`; raises `ValueError` that says what is wrong."""
    try:
        seconds: float = _read_duration(text)
    except PydanticCustomError as error:
        parts = [str((error.context or {}).get(key)) for key in ("message", "hint")]
        raise ValueError("; ".join(part for part in parts if part)) from None
    return seconds


def _check_lease(seconds: float) -> float:
    if seconds < MIN_LEASE_S:
        message = f"a lease of less than {MIN_LEASE_S:g} s is over before it can be renewed"
        raise make_problem(
            message, "`2m` is usual: a host waits so long for a controller that died"
        )
    return seconds


def parse_lease(text: str) -> float:
    """`parse_duration`, long enough for a lease."""
    try:
        return _check_lease(parse_duration(text))
    except PydanticCustomError as error:
        raise ValueError(str((error.context or {})["message"])) from None


def parse_expression(text: str) -> str:
    """An expression of Python as a probe takes it; raises `ValueError` that says what is wrong."""
    try:
        return check_expression(text)
    except PydanticCustomError as error:
        parts = [str((error.context or {}).get(key)) for key in ("message", "hint")]
        raise ValueError("; ".join(part for part in parts if part)) from None


def _read_rate(value: Any) -> Any:
    found = re.fullmatch(_RATE, value) if isinstance(value, str) else None
    if found is None or float(found.group(1)) <= 0:
        raise make_problem("a rate is needed", "write it like `10/s` or `5/m`")
    return float(found.group(1)) / _UNITS[found.group(2)]


def _check_url(value: str) -> str:
    hint = "write it like `http://127.0.0.1:30000`"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise make_problem(f"`{value}` is not a URL: {str(error).lower()}", hint) from None
    if parts.scheme not in ("http", "https"):
        raise make_problem(f"`{value}` is not an http or https URL", hint)
    if not parts.hostname or port == 0 or re.search(r"\s", value):
        raise make_problem(f"`{value}` names no host and port", hint)
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        raise make_problem("only scheme, host and port belong into `url`", hint)
    return value.rstrip("/")


def _check_path(value: str) -> str:
    if not value.startswith("/") or re.search(r"[\s\x00-\x1f]", value):
        raise make_problem(f"`{value}` is not a path of a URL", "begin it with `/`, without blanks")
    return value


def _check_plain(value: str) -> str:
    """What becomes an argument of ssh must not look like one of its options."""
    if not value or value.startswith("-") or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise make_problem(f"`{value}` is empty, begins with `-` or holds blanks")
    return value


def _check_file(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or "\\" in value or {"", ".", ".."} & set(parts):
        hint = "write it like `sglang/srt/models/llama.py`, from the package's own name on"
        raise make_problem(f"`{value}` is not a path inside the package", hint)
    if not value.endswith(".py") or len(parts) < 2:
        raise make_problem(f"`{value}` is not a Python file of the package")
    return value


def _check_module(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", value):
        hint = "write it like `sglang.srt.models.llama`"
        raise make_problem(f"`{value}` is not the name of a module", hint)
    return value


def _check_qualified_name(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.(<locals>|[^\W\d]\w*))*(?<!>)", value):
        hint = "write it like `Class.method` or `function.inner`, without `()`"
        raise make_problem(f"`{value}` is not the name of a function or class", hint)
    return value


def _check_text(value: str) -> str:
    if not value.strip():
        raise make_problem("the text is empty")
    return value.strip()


_WORD = {"type": ["string", "number"]}
_WORDS = {"anyOf": [{"type": "array", "items": _WORD}, {"type": "string"}]}

Name = Annotated[str, AfterValidator(_check_name)]
HostName = Annotated[str, AfterValidator(_check_host_name)]
Label = Annotated[str, AfterValidator(_check_label)]
Variable = Annotated[str, AfterValidator(_check_variable)]
OptionName = Annotated[str, AfterValidator(_check_option_name)]
PackageName = Annotated[str, AfterValidator(_check_package_name)]
Plain = Annotated[str, AfterValidator(_check_plain)]
Text = Annotated[str, AfterValidator(_check_text)]
Word = Annotated[str, BeforeValidator(read_word), WithJsonSchema(_WORD)]
Words = Annotated[list[Word], BeforeValidator(_split_words), WithJsonSchema(_WORDS)]
Duration = Annotated[
    float,
    BeforeValidator(_read_duration),
    WithJsonSchema({"type": "string", "pattern": f"^{_DURATION}$"}),
]
Lease = Annotated[Duration, AfterValidator(_check_lease)]
Rate = Annotated[
    float, BeforeValidator(_read_rate), WithJsonSchema({"type": "string", "pattern": f"^{_RATE}$"})
]
Url = Annotated[str, AfterValidator(_check_url)]
UrlPath = Annotated[str, AfterValidator(_check_path)]
PackageFile = Annotated[str, AfterValidator(_check_file)]
Module = Annotated[str, AfterValidator(_check_module)]
QualifiedName = Annotated[str, AfterValidator(_check_qualified_name)]
Expression = Annotated[str, AfterValidator(check_expression)]
AnchorCode = Annotated[str, AfterValidator(check_anchor)]
AnchorExpression = Annotated[str, AfterValidator(check_anchor_expression)]
Header = Annotated[str, AfterValidator(check_header)]
Statements = Annotated[str, AfterValidator(check_statements)]
Template = Annotated[str, AfterValidator(check_template)]
