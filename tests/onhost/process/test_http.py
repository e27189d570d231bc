"""Requests from the host itself: every end of them has a name, and none lasts too long."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.onhost.agent.look import http
from orchestrator.onhost.agent.refusal import Refusal


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            try:
                for _ in range(200):
                    self.wfile.write(b"x")
                    time.sleep(0.05)
            except OSError:
                return
        elif self.path == "/drop":
            return
        elif self.path == "/short":
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        elif self.path == "/noise":
            self.wfile.write(b"no http at all\r\n\r\n")
        elif self.path == "/big":
            self._answer(200, b"x" * (http.BODY_LIMIT + 5))
        elif self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://192.0.2.1/")
            self.end_headers()
        else:
            self._answer(503 if self.path == "/health" else 200, self.path.encode())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, self.headers["Content-Type"].encode() + b" " + data)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_every_status_is_an_answer(url, monkeypatch):
    """503 comes back as 503 with its body, whatever proxies the environment names."""
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    value, body = http.request("GET", url + "/health?x=1", None, 10)
    assert (value["status"], body) == (200, b"/health?x=1")
    value, body = http.request("GET", url + "/health", None, 10)
    assert (value["status"], body) == (503, b"/health")
    assert 0 < value["seconds"] < 10


def test_json_goes_out(url):
    """A body is sent as JSON, an empty object too."""
    value, body = http.request("POST", url + "/generate", {"text": "ü"}, 10)
    kind, _, data = body.partition(b" ")
    assert (value["status"], kind, json.loads(data)) == (200, b"application/json", {"text": "ü"})
    assert http.request("POST", url, {}, 10)[1] == b"application/json {}"


def test_redirects_are_not_followed(url):
    """A redirect is an answer: nothing is asked anywhere else."""
    assert http.request("GET", url + "/away", None, 10)[0]["status"] == 302


def test_the_body_is_cut(url):
    """At most 1 MiB of an answer is kept."""
    assert http.request("GET", url + "/big", None, 10)[1] == b"x" * http.BODY_LIMIT


def refusal(*args) -> tuple[str, str]:
    with pytest.raises(Refusal) as refused:
        http.request(*args)
    return refused.value.code, refused.value.message


def test_a_server_that_trickles(url):
    """The time bounds the whole answer, not each of its bytes."""
    began = time.monotonic()
    expected = ("http-timeout", f"GET {url}/slow: no answer within 0.3 s")
    assert refusal("GET", url + "/slow", None, 0.3) == expected
    assert time.monotonic() - began < 3


def test_a_server_that_does_not_answer():
    """A socket that is accepted by nobody runs into the time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        expected = ("http-timeout", f"GET {url}: no answer within 0.2 s")
        assert refusal("GET", url, None, 0.2) == expected


def test_nobody_listens():
    """A port that was just given back refuses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    assert refusal("GET", url, None, 5) == ("http-refused", f"GET {url}: Connection refused")


def test_broken_answers(url):
    """A dropped connection, a short body and something that is no HTTP are told apart."""
    assert refusal("GET", url + "/drop", None, 5) == (
        "http-broken",
        f"GET {url}/drop: Remote end closed connection without response",
    )
    assert refusal("GET", url + "/short", None, 5) == (
        "http-broken",
        f"GET {url}/short: the body ended after 3 bytes, 7 more were announced",
    )
    assert refusal("GET", url + "/noise", None, 5)[0] == "http-broken"
    assert refusal("GET", "ftp://x/", None, 5) == ("http-broken", "`ftp://x/` is no http address")
    assert refusal("GET", "http://x:99999/", None, 5) == (
        "http-broken",
        "`http://x:99999/`: Port out of range 0-65535",
    )
    assert refusal("GET", url + "/ü", None, 5)[0] == "http-broken"
