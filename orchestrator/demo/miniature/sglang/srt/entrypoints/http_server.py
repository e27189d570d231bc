"""The HTTP side of the main process: `/generate`, `/health`, `/v1/models`, `/model_info`."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from ..models.llama import VOCAB_SIZE, decode, encode
from ..server_args import ServerArgs

if TYPE_CHECKING:
    from .engine import Engine


class BadRequestError(Exception):
    """The client asked for something that this server does not do."""


class Service:
    """What the paths mean; `status` is `starting`, `ready` or `stopping`."""

    def __init__(self, engine: Engine, args: ServerArgs) -> None:
        self.engine = engine
        self.args = args
        self.status = "starting"
        wanted = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true")
        self.health_generates = wanted.lower() not in ("0", "false", "no")

    def get(self, path: str) -> tuple[int, Any]:
        """The answer to GET."""
        if path in ("/health", "/health_generate"):
            return self._health()
        if path == "/v1/models":
            model = {"id": self.args.model_path, "object": "model", "owned_by": "sglang"}
            return 200, {"object": "list", "data": [model]}
        if path == "/model_info":
            return 200, {"model_path": self.args.model_path, "is_generation": True}
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """The answer to POST."""
        if path != "/generate":
            return 404, {"detail": "Not Found"}
        try:
            rid, input_ids, wanted = _parse_generate(body)
        except BadRequestError as error:
            return 400, {"error": {"message": str(error)}}
        return 200, self._generate(rid, input_ids, wanted)

    def _health(self) -> tuple[int, Any]:
        if self.status != "ready":
            return 503, None
        if self.health_generates:
            self.engine.generate(f"HEALTH_CHECK_{time.time()}", [0], 1)
        return 200, None

    def _generate(self, rid: str, input_ids: list[int], wanted: int) -> dict[str, Any]:
        started = time.monotonic()
        found = self.engine.generate(rid, input_ids, wanted)
        meta = {
            "id": rid,
            "finish_reason": {"type": "length", "length": wanted},
            "prompt_tokens": len(input_ids),
            "completion_tokens": len(found["output_ids"]),
            "e2e_latency": time.monotonic() - started,
        }
        if self.args.speculative_algorithm:
            meta["spec_verify_ct"] = found["verify_ct"]
        output_ids = found["output_ids"]
        return {"text": decode(output_ids), "output_ids": output_ids, "meta_info": meta}


def _parse_generate(body: bytes) -> tuple[str, list[int], int]:
    """Request id, prompt and number of tokens; `BadRequestError` says what is wrong."""
    try:
        asked = json.loads(body)
        text, ids = asked.get("text"), asked.get("input_ids")
        input_ids = encode(text) if ids is None else [int(i) for i in ids]
        wanted = int(asked.get("sampling_params", {}).get("max_new_tokens", 128))
        rid = str(asked.get("rid") or uuid.uuid4().hex)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRequestError(f"Not a request for text: {error}") from error
    if not input_ids or not 1 <= wanted <= 1024:
        raise BadRequestError("A prompt and 1 to 1024 new tokens are needed.")
    if not all(0 <= i < VOCAB_SIZE for i in input_ids):
        raise BadRequestError(f"Token ids are 0 to {VOCAB_SIZE - 1}.")
    return rid, input_ids, wanted


class Handler(BaseHTTPRequestHandler):
    """One connection; access lines go to stdout in the form of uvicorn's."""

    protocol_version = "HTTP/1.1"
    server: HttpServer

    def do_GET(self) -> None:
        service = self.server.service
        if service is None:
            known = self.path in ("/health", "/health_generate", "/ping")
            self._answer(200 if known else 404, None)
        else:
            self._answer(*service.get(self.path.split("?")[0]))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service = self.server.service
        self._answer(*((404, None) if service is None else service.post(self.path, body)))

    def _answer(self, status: int, value: Any) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        now, (host, port) = time.strftime("%Y-%m-%d %H:%M:%S"), self.client_address[:2]
        phrase = HTTPStatus(code).phrase
        line = f'[{now}] INFO:     {host}:{port} - "{self.requestline}" {int(code)} {phrase}\n'
        sys.stdout.write(line)
        sys.stdout.flush()


class HttpServer(ThreadingHTTPServer):
    """Listens; `service` is `None` on nodes that only have a health check."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], service: Service | None) -> None:
        self.service = service
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without the name look-up of `HTTPServer`, which may ask a slow resolver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
