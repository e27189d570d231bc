"""The session file: which server, which patches, what traffic, when enough was seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from orchestrator.errors import FileError
from orchestrator.model.near import find_near
from orchestrator.model.session import Request, Restart, Session, Until
from orchestrator.spec.document import Document, Place, as_plain
from orchestrator.spec.fields import (
    Duration,
    HostName,
    Lease,
    Name,
    Strict,
    Text,
    UrlPath,
    Variable,
    Word,
    Words,
)
from orchestrator.spec.placeholders import find_misplaced_in_restart
from orchestrator.spec.problems import raise_problems, validate
from orchestrator.spec.reader import read_document

# Words that Python or older YAML would not take for text; here they are text and seldom meant so.
_LOOKS_TYPED = {
    "True": "true",
    "TRUE": "true",
    "False": "false",
    "FALSE": "false",
    "None": "null",
    "Null": "null",
    "NULL": "null",
    "~": "null",
}


class RestartKeys(Strict):
    """What differs between the server as it was and its debug life."""

    noun: ClassVar[str] = "`restart`"
    add_args: Words = Field([], description="Arguments added to the end of the command line")
    remove_args: Words = Field([], description="Flags to drop, each with its values")
    env: dict[Variable, Word | None] = Field(
        {}, description="Variables to set; `null` takes one away"
    )


class RequestKeys(Strict):
    """One HTTP request, sent from the server's first host."""

    noun: ClassVar[str] = "a request"
    post: UrlPath | None = Field(None, description="Path to send a POST request to")
    get: UrlPath | None = Field(None, description="Path to send a GET request to")
    body: Any = Field(None, alias="json", description="Body of a POST request")
    times: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1, description="How often it is sent, one after another"
    )
    timeout: Duration = Field(
        "2m", validate_default=True, description="How long one answer may take"
    )


class UntilKeys(Strict):
    """When enough was seen."""

    noun: ClassVar[str] = "`until`"
    records: Name = Field(description="Name of the patch whose records are counted")
    from_workers: Literal["every worker", "any worker"] = Field(
        "every worker", alias="from", description="Who must have reported"
    )
    count: Annotated[int, Field(ge=1)] = Field(1, description="Records from each such worker")
    timeout: Duration = Field(
        "5m", validate_default=True, description="After this time the session goes on without"
    )


class SessionKeys(Strict):
    """Session of sgldbg: a question to a server, and how to find the answer."""

    noun: ClassVar[str] = "a session"
    session: Name = Field(description="Name of the session")
    question: Text = Field(description="What the session wants to know")
    server: HostName = Field(description="Name of one of the inventory's `servers`")
    patches: Annotated[list[Text], Field(min_length=1)] = Field(
        description="Names of patches, or paths of their files"
    )
    restart: RestartKeys = Field(
        {}, validate_default=True, description="What differs in the debug life"
    )
    exercise: list[RequestKeys] = Field([], description="Requests to send once it is ready")
    until: UntilKeys | None = Field(None, description="When enough was seen")
    lease: Lease = Field(
        "2m",
        validate_default=True,
        description="Hosts revert by themselves so long after the controller was last heard",
    )
    after: Literal["restore", "stopped"] = Field(
        "restore", description="Whether the server as it was is started again at the end"
    )


def read_session(path: str | Path) -> Session:
    """The session in this file; raises `FileErrors` with everything that is wrong in it."""
    document = read_document(path)
    problems: list[FileError] = []
    keys = validate(SessionKeys, document, problems, _may_be_empty)
    problems += _check_exercise(document)
    problems += _check_restart(document)
    problems += _check_patches(document)
    raise_problems(problems)
    assert keys is not None
    return Session(
        name=keys.session,
        question=keys.question,
        server=keys.server,
        patches=tuple(keys.patches),
        restart=Restart(
            tuple(keys.restart.add_args), tuple(keys.restart.remove_args), keys.restart.env
        ),
        exercise=tuple(_request(r, n, document) for n, r in enumerate(keys.exercise)),
        until=_until(keys.until, document),
        lease_s=keys.lease,
        after=keys.after,
        path=str(path),
        span=document.key_span(("session",)),
        spans=document.dotted(),
    )


def _until(keys: UntilKeys | None, document: Document) -> Until | None:
    if keys is None:
        return None
    span = document.key_span(("until",))
    return Until(keys.records, keys.from_workers, keys.count, keys.timeout, span)


def _may_be_empty(place: Place) -> bool:
    return place[:2] == ("restart", "env") or _is_body(place)


def _is_body(place: Place) -> bool:
    return place[:1] == ("exercise",) and place[2:3] == ("json",)


def _request(keys: RequestKeys, number: int, document: Document) -> Request:
    method, path = ("POST", keys.post) if keys.post is not None else ("GET", keys.get or "")
    return Request(
        method=method,
        path=path,
        json=as_plain(keys.body),
        times=keys.times,
        timeout_s=keys.timeout,
        span=document.value_span(("exercise", number)),
    )


def _check_exercise(document: Document) -> Iterator[FileError]:
    top = document.value if isinstance(document.value, dict) else {}
    items = top.get("exercise")
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict):
            continue
        place: Place = ("exercise", number)
        if "post" in item and "get" in item:
            span = document.key_span((*place, "get"))
            yield FileError("a request is a `post` or a `get`, not both", span=span)
        elif not any(key in ("post", "get") or find_near(key, ("post", "get")) for key in item):
            span = document.value_span(place)
            yield FileError("a request needs `post` or `get`, with a path", span=span)
        elif "get" in item and "json" in item:
            span = document.key_span((*place, "json"))
            yield FileError("a `get` request has no body", span=span)
    for where, scalar in document.scalars.items():
        meant = _LOOKS_TYPED.get(scalar.value)
        if meant and not scalar.style and _is_body(where):
            message = f"`{scalar.value}` is text in these files"
            hint = f'write `{meant}`, or `"{scalar.value}"` if text is meant'
            yield FileError(message, span=scalar.span, hints=[hint])


def _check_restart(document: Document) -> Iterator[FileError]:
    top = document.value if isinstance(document.value, dict) else {}
    yield from find_misplaced_in_restart(document, top.get("restart"))


def _check_patches(document: Document) -> Iterator[FileError]:
    top = document.value if isinstance(document.value, dict) else {}
    items = top.get("patches")
    seen: set[str] = set()
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, str) and item in seen:
            span = document.value_span(("patches", number))
            yield FileError(f"patch `{item}` stands twice", span=span)
        seen.add(str(item))
