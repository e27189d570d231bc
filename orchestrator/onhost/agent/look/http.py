"""One HTTP request from the host itself, past every proxy and with every time bounded."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ..refusal import Refusal

if TYPE_CHECKING:
    import http.client

BODY_LIMIT = 1 << 20
_CHUNK = 1 << 16


def request(method: str, url: str, body: Any, timeout_s: float) -> Tuple[Dict[str, Any], bytes]:
    """Send one request and read its answer, of whatever status; redirects are not followed.

    `body` goes out as JSON unless it is `None`. The answer is cut at 1 MiB. `timeout_s` bounds
    the whole of it, a server that trickles included. Codes `http-refused` (nobody listens),
    `http-timeout`, `http-broken` (the connection ended early or spoke no HTTP).
    """
    # With what it needs (email, ssl) it would be half of the agent's start.
    import http.client

    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refusal("http-broken", "`%s` is no http address" % url)
    try:
        connection = _connect(parts, timeout_s)
    except ValueError as error:
        raise Refusal("http-broken", "`%s`: %s" % (url, error)) from None
    began = time.monotonic()
    deadline = began + timeout_s
    try:
        connection.connect()
        status, data = _exchange(connection, method, parts, body, deadline)
    except (TimeoutError, socket.timeout):
        raise Refusal(
            "http-timeout", "%s %s: no answer within %g s" % (method, url, timeout_s)
        ) from None
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise Refusal("http-refused", "%s %s: %s" % (method, url, error.strerror)) from None
    except http.client.IncompleteRead as error:
        size, missing = len(error.partial), error.expected
        reason = "the body ended after %d bytes, %s more were announced" % (size, missing)
        raise Refusal("http-broken", "%s %s: %s" % (method, url, reason)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise Refusal("http-broken", "%s %s: %s" % (method, url, reason)) from None
    finally:
        connection.close()
    return {"status": status, "seconds": round(time.monotonic() - began, 6)}, data


def _connect(parts: urllib.parse.SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    import http.client

    # http.client knows no proxies, so that the variables that name some cannot divert us.
    host = parts.hostname or ""
    if parts.scheme == "https":
        # A server's own certificate seldom names 127.0.0.1; what goes out is the session's own
        # test traffic, to an address on the host.
        import ssl

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(
            host, parts.port or 443, timeout=timeout_s, context=context
        )
    return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout_s)


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    parts: urllib.parse.SplitResult,
    body: Any,
    deadline: float,
) -> Tuple[int, bytes]:
    target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    headers = {"Connection": "close"}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    sock: socket.socket = connection.sock
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    connection.request(method, target, data, headers)
    with contextlib.closing(connection.getresponse()) as answer:
        return answer.status, _read_body(answer, sock, deadline)


def _read_body(answer: http.client.HTTPResponse, sock: socket.socket, deadline: float) -> bytes:
    import http.client

    pieces: List[bytes] = []
    size = 0
    while size < BODY_LIMIT:
        # The time-out of a socket is one of each read; read1() makes at most one.
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise socket.timeout()
        if sock.fileno() >= 0:
            sock.settimeout(remaining)
        piece = answer.read1(min(_CHUNK, BODY_LIMIT - size))
        if not piece:
            if answer.length:  # read1() takes an early end for the end
                raise http.client.IncompleteRead(b"".join(pieces), answer.length)
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
