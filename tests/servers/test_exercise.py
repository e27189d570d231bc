"""A session's requests: every answer is kept, every failure says what became of the server."""

from __future__ import annotations

import json

from orchestrator.model.session import Request
from orchestrator.servers.exercise import exercise

from .conftest import Bench


def ask(text: str, times: int = 1, timeout_s: float = 10) -> Request:
    return Request("post", "/generate", {"text": text}, times, timeout_s)


def test_all_requests_in_order(agent, bench: Bench, port):
    """One after another, each as often as asked, with status, time and the head of the body."""
    child = bench.run("--port", str(port))
    server = bench.server(port)
    told = []
    requests = [ask("one", 2), Request("get", "/health")]
    responses = exercise(agent, server, requests, bench.life(child), told.append)
    assert [(r.request, r.turn, r.status, r.ok) for r in responses] == [
        (0, 1, 200, True),
        (0, 2, 200, True),
        (1, 1, 200, True),
    ]
    assert json.loads(responses[0].head) == {"text": "one"}
    assert responses[0].seconds is not None
    assert tuple(told) == responses
    life = bench.life(child)
    assert exercise(agent, server, requests, life, cancelled=lambda: True) == ()


def test_a_fault_of_the_server(agent, bench: Bench, port):
    """A 5xx is an error of that request; the others are sent all the same."""
    child = bench.run("--port", str(port))
    requests = [ask("fault"), ask("fine")]
    fault, fine = exercise(agent, bench.server(port), requests, bench.life(child))
    url = f"http://127.0.0.1:{port}/generate"
    assert (fault.status, fault.error, fault.tail) == (500, f"POST {url} answered 500", ())
    assert (fine.status, fine.error) == (200, "")


def test_a_connection_that_breaks(agent, bench: Bench, port):
    """A dropped request of a server that lives on is only that."""
    child = bench.run("--port", str(port))
    (dropped,) = exercise(agent, bench.server(port), [ask("drop")], bench.life(child))
    url = f"http://127.0.0.1:{port}/generate"
    expected = f"POST {url}: Remote end closed connection without response"
    assert (dropped.status, dropped.error) == (None, expected)


def test_a_server_that_dies_of_a_request(agent, bench: Bench, port):
    """Its death is the reason, with its last lines, and nothing more is sent."""
    child = bench.run("--port", str(port))
    responses = exercise(agent, bench.server(port), [ask("die", 3), ask("x")], bench.life(child))
    (response,) = responses
    url = f"http://127.0.0.1:{port}/generate"
    expected = f"POST {url}: Remote end closed connection without response: "
    assert response.error == expected + "server `kimi` ended with exit status 3"
    assert response.tail[-1] == "Scheduler hit an exception"
