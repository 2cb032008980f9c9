"""A stand-in for every hosted provider: answers embedding requests in each one's own format.

It proves that what is sent has the provider's form and that answers of that form are read. It was
written from the providers' documentation; no real one was asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Fault = int | tuple[int, str] | str | bytes
"""A status to answer with, also with a message; raw bytes; or a word that `Api` knows."""


_OTHER = ("/iam", "/token", "/api/show")
"""Calls for something else than vectors."""


HANG_UP = b"hang up"


def vector(text: str) -> list[float]:
    """The one vector of a text: four numbers that float32 holds exactly."""
    return [(byte + 1) / 256 for byte in hashlib.sha256(text.encode()).digest()[:4]]


@dataclass
class Request:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any

    @property
    def texts(self) -> list[str]:
        """The texts in it, whatever the provider calls them."""
        return _texts(self.path, self.body)


@dataclass
class Api:
    """What the server has seen, and what it shall do wrong with the next requests."""

    address: str = ""
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every fault."""
    delay: float = 0.0
    show_delay: float = 0.0
    """Seconds that Ollama takes to describe a model."""
    together: int = 0
    """Most embedding requests that were under way at the same time."""
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def embeddings(self) -> list[Request]:
        """The requests that asked for vectors, not for tokens."""
        return [request for request in self.requests if request.path not in _OTHER]

    def answer(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        with self._lock:
            self.requests.append(request)
            self._open += 1
            self.together = max(self.together, self._open)
            fault = self.faults.pop(0) if self.faults else None
        try:
            time.sleep(self.delay)
            return self._respond(request, fault)
        finally:
            with self._lock:
                self._open -= 1

    def _respond(self, request: Request, fault: Fault | None) -> tuple[int, bytes, dict[str, str]]:
        if isinstance(fault, bytes):
            return 200, fault, {}
        if isinstance(fault, int):
            fault = fault, f"status {fault}"
        if isinstance(fault, tuple):
            status, text = fault
            error = {"error": {"message": text, "code": str(status)}, "message": text}
            return status, json.dumps(error).encode(), self.headers
        if fault == "hang up":
            return 200, HANG_UP, {}
        if fault == "slow":
            time.sleep(1.5)
        if request.path == "/api/show":
            time.sleep(self.show_delay)
        rows = [vector(text) for text in request.texts]
        numbers = list(range(len(rows)))
        match fault:
            case "one short":
                rows, numbers = rows[:-1], numbers[:-1]
            case "none":
                rows, numbers = [], []
            case "another length":
                rows[-1] = rows[-1][:-1]
            case "out of order":
                rows.reverse()
                numbers.reverse()
            case "same number twice":
                numbers[-1] = numbers[0]
            case None | "slow":
                pass
            case _:
                raise AssertionError(f"no such fault: {fault}")
        return 200, json.dumps(_body(request, rows, numbers)).encode(), {}


def _texts(path: str, body: Any) -> list[str]:
    if path.endswith(":batchEmbedContents"):
        return [item["content"]["parts"][0]["text"] for item in body["requests"]]
    if path.endswith(":embedContent"):
        return [part["text"] for part in body["content"]["parts"]]
    if path.endswith(":predict"):
        return [item["content"] for item in body["instances"]]
    for name in ("input", "texts", "inputs"):
        if name in body:
            return list(body[name])
    return [body["inputText"]] if "inputText" in body else []


def _body(request: Request, rows: list[list[float]], numbers: list[int]) -> dict[str, Any]:
    for pattern, form in _FORMS:
        if re.search(pattern, request.path):
            return form(request, rows, numbers)
    raise AssertionError(f"no provider has a call at {request.path}")


def _openai(request: Request, rows: list[list[float]], numbers: list[int]) -> dict[str, Any]:
    def encoded(row: list[float]) -> Any:
        if request.body.get("encoding_format") == "base64":
            return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
        return row

    return {
        "object": "list",
        "model": request.body.get("model"),
        "data": [
            {"object": "embedding", "index": number, "embedding": encoded(row)}
            for number, row in zip(numbers, rows, strict=True)
        ],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


def _titan_or_cohere(
    request: Request, rows: list[list[float]], numbers: list[int]
) -> dict[str, Any]:
    if "texts" in request.body:
        return {"id": "1", "embeddings": rows, "response_type": "embeddings_floats"}
    return {"embedding": rows[0] if rows else [], "inputTextTokenCount": 7}


Form = Callable[[Request, list[list[float]], list[int]], dict[str, Any]]

_FORMS: tuple[tuple[str, Form], ...] = (
    (r"^/openai/deployments/[^/]+/embeddings$", _openai),
    (r"^/v1/embeddings$", _openai),
    (r"^/api/embed$", lambda _, rows, __: {"embeddings": rows, "prompt_eval_count": 7}),
    (r":batchEmbedContents$", lambda _, rows, __: {"embeddings": [{"values": r} for r in rows]}),
    (r":embedContent$", lambda _, rows, __: {"embedding": {"values": rows[0]}}),
    (
        r":predict$",
        lambda _, rows, __: {
            "predictions": [
                {"embeddings": {"values": r, "statistics": {"token_count": 7, "truncated": False}}}
                for r in rows
            ]
        },
    ),
    (
        r"^/v2/embed$",
        lambda _, rows, __: {
            "id": "1",
            "embeddings": {"float": rows},
            "meta": {"billed_units": {"input_tokens": 7}},
        },
    ),
    (r"^/model/[^/]+/invoke$", _titan_or_cohere),
    (
        r"^/ml/v1/text/embeddings$",
        lambda _, rows, __: {
            "model_id": "m",
            "results": [{"embedding": r} for r in rows],
            "input_token_count": 7,
        },
    ),
    (r"^/api/show$", lambda *_: {"template": "", "model_info": {}}),
    (r"^/iam$", lambda *_: {"access_token": "from-iam", "expires_in": 3600}),
    (
        r"^/token$",
        lambda *_: {"access_token": "from-google", "expires_in": 3600, "token_type": "Bearer"},
    ),
)


@contextmanager
def provider_server() -> Iterator[Api]:
    """Serve on this machine; the Api says what was asked."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # header and body in one packet: else each request waits 40 ms for an ACK

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            address = urlsplit(self.path)
            form = "json" in (self.headers.get("Content-Type") or "")
            body = json.loads(raw) if form else parse_qs(raw.decode())
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(address.path, parse_qs(address.query), headers, body)
            status, answer, extra = api.answer(request)
            if answer == HANG_UP:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            for name, value in extra.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(answer)
                self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):  # the client gave up
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield api
        server.shutdown()
        thread.join()
