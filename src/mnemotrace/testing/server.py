"""A server on this machine that speaks OpenAI's protocol: chat completions and embeddings.

What a model behind `litellm`, OpenAI's own client or another library gets over HTTP, without a
model, a key or a network. `ScriptedLLM` and `FakeEmbedder` are quicker where HTTP does not matter.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel

from .embedder import FakeEmbedder
from .schema import example

if TYPE_CHECKING:
    from mnemotrace.llm.litellm_adapter import LiteLLMModel

ServerAnswer = str | Mapping[str, Any] | BaseModel
"""A text as the model writes it, or what becomes JSON."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request as it arrived.

    Attributes:
        path: such as ``/v1/chat/completions``.
        body: the JSON of the request.
        headers: with names in small letters.
        at: when it arrived, seconds of `time.perf_counter`.
    """

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0

    @property
    def form(self) -> str | None:
        """The type of the response format asked for, such as ``json_schema``; None for text."""
        return (self.body.get("response_format") or {}).get("type")

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema the answer must fulfil, in OpenAI's or llama.cpp's place; else None."""
        asked = self.body.get("response_format") or {}
        found = (asked.get("json_schema") or {}).get("schema") or asked.get("schema")
        return found if isinstance(found, Mapping) else None

    @property
    def title(self) -> str:
        """The title of the schema, such as ``SaveAnalysis``; ``text`` without a schema."""
        if self.schema is None:
            return "text"
        named = (self.body["response_format"].get("json_schema") or {}).get("name")
        return str(self.schema.get("title") or named or "text")

    @property
    def prompt(self) -> str:
        """All messages, one after the other."""
        parts = (message.get("content") for message in self.body.get("messages") or ())
        return "\n\n".join(part for part in parts if isinstance(part, str))


class FakeServer:
    """An OpenAI-compatible server on a free loopback port, for tests.

    >>> answers = {"SaveAnalysis": {"scope": "/shop", "categories": ["db"], "importance": 0.9}}
    >>> with FakeServer(answers) as server:                              # doctest: +SKIP
    ...     memory = Memory(llm=server.llm(), storage=":memory:")
    ...     memory.remember("We chose PostgreSQL.").scope
    '/shop'

    A request for JSON without an answer in `answers` gets the smallest value that fulfils the
    schema it brings, a request for text gets `text`. Embeddings come from a `FakeEmbedder`: texts
    that share words are near each other.

    Its faults are switched on and off at any time by setting an attribute:

    Attributes:
        answers: for each schema title (``SaveAnalysis``, ... or ``text`` where there is no
            schema) a text to send as it is, what becomes JSON, or a function of the
            `ServerRequest` that returns one.
        text: the answer to requests without a schema that `answers` does not cover.
        requests: every `ServerRequest` so far, in order, also those refused.
        delay: seconds each request takes.
        status: an HTTP status to refuse requests with; 200 for none.
        fail_times: how many more requests get `status`; None for all of them.
        refused: response formats answered with 400, such as ``json_schema``.
        running: requests being answered now.
        most_running: the most there were at the same time.
        written: the text of every answer to a chat request so far, in order.
        embedder: makes the embeddings.

    Args:
        answers: see above; likewise `delay` and `embedder`.
        count_tokens: how the usage is counted; words by default.
    """

    model = "fake-model"

    def __init__(
        self,
        answers: Mapping[str, ServerAnswer | Callable[[ServerRequest], ServerAnswer]] | None = None,
        *,
        delay: float = 0.0,
        embedder: FakeEmbedder | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.answers = dict(answers or {})
        self.text = "I do not know."
        self.requests: list[ServerRequest] = []
        self.delay = delay
        self.status = 200
        self.fail_times: int | None = None
        self.refused: set[str] = set()
        self.running = 0
        self.most_running = 0
        self.written: list[str] = []
        self.embedder = embedder or FakeEmbedder()
        self._count = count_tokens or (lambda text: len(text.split()))
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http: _Server | None = None
        self._thread: threading.Thread | None = None

    # -- life cycle ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen; returns the server itself. A server can be started once."""
        if self._http is not None or self._closing.is_set():
            raise RuntimeError("this FakeServer was started before: make another one")
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            args=(0.05,),
            name="mnemotrace-fake-server",
            daemon=True,
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and cut every connection, also those that wait for an answer."""
        self._closing.set()
        if self._http is None or self._thread is None:
            return
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self._http.cut()
        self._http = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- what it is used with -----------------------------------------------------------------

    @property
    def root(self) -> str:
        """Its address without a path.

        Raises:
            RuntimeError: it was not started, or is closed.
        """
        if self._http is None:
            raise RuntimeError("this FakeServer is not running: use `with FakeServer() as server:`")
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def closing(self) -> bool:
        """Whether it was told to stop; nothing is answered any more."""
        return self._closing.is_set()

    @property
    def url(self) -> str:
        """Its address as OpenAI clients take it: ``base_url`` or ``api_base``."""
        return f"{self.root}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that send OpenAI clients and litellm's OpenAI models here."""
        return {
            "OPENAI_API_KEY": "not-needed",
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_BASE": self.url,
        }

    def llm(self, **settings: Any) -> LiteLLMModel:
        """Return what to pass as `Memory(llm=...)`; `settings` go to litellm."""
        from mnemotrace.llm.litellm_adapter import LiteLLMModel

        return LiteLLMModel(f"openai/{self.model}", api_base=self.url, **settings)

    @property
    def chats(self) -> list[ServerRequest]:
        """The chat requests so far, in order: what a model was asked, without embeddings."""
        return [request for request in self.requests if "messages" in request.body]

    def asked(self, title: str) -> list[ServerRequest]:
        """Return the chat requests for one schema title so far, in order; [] if none."""
        return [request for request in self.chats if request.title == title]

    # -- answering ----------------------------------------------------------------------------

    def respond(self, request: ServerRequest) -> tuple[int, Mapping[str, Any]]:
        """Return the HTTP status and the JSON for one request; override it for other paths."""
        if request.path.endswith("/chat/completions"):
            if request.form in self.refused:
                return _error(400, f"response format {request.form} is not supported")
            return 200, self._chat(request)
        if request.path.endswith("/embeddings"):
            return 200, self._embeddings(request)
        if request.path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": self.model, "object": "model"}]}
        return _error(404, f"there is nothing at {request.path}")

    def write(self, request: ServerRequest) -> str:
        """Return the text a model would write in answer to a request."""
        answer: Any = self.answers.get(request.title)
        if answer is None:
            answer = self.text if request.schema is None else example(request.schema)
        elif callable(answer):
            answer = answer(request)
        if isinstance(answer, BaseModel):
            return answer.model_dump_json()
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def handle(self, request: ServerRequest) -> tuple[int, Mapping[str, Any]]:
        """Record a request and answer it as told, faults included."""
        with self._lock:
            self.requests.append(request)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            failing = self.status != 200 and self.fail_times != 0
            if failing and self.fail_times is not None:
                self.fail_times -= 1
        try:
            if self.delay:
                self._closing.wait(self.delay)
            if failing:
                return _error(self.status, f"status {self.status} as told")
            return self.respond(request)
        except Exception as error:  # noqa: BLE001 - it goes to whoever asked, as a server's would
            return _error(500, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self.running -= 1

    def _chat(self, request: ServerRequest) -> dict[str, Any]:
        text = self.write(request)
        asked, written = self._count(request.prompt), self._count(text)
        with self._lock:
            self.written.append(text)
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.body.get("model") or self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": written,
                "total_tokens": asked + written,
            },
        }

    def _embeddings(self, request: ServerRequest) -> dict[str, Any]:
        given = request.body.get("input")
        texts = [given] if isinstance(given, str) else [str(text) for text in given or ()]
        rows: list[Any] = self.embedder.embed(texts)
        if request.body.get("encoding_format") == "base64":  # OpenAI's own client asks for it
            rows = [base64.b64encode(np.asarray(r, dtype="<f4").tobytes()).decode() for r in rows]
        tokens = sum(self._count(text) for text in texts)
        return {
            "object": "list",
            "model": request.body.get("model") or self.model,
            "data": [
                {"object": "embedding", "index": number, "embedding": row}
                for number, row in enumerate(rows)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


def _error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"message": message, "type": "fake_server", "code": status}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # clients keep idle connections open; closing must not wait for them
    request_queue_size = 128
    owner: FakeServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[Any] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """End every open connection, so that no thread waits for a next request."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # the other side was first
                    continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet: else each request waits 40 ms for an ACK
    disable_nagle_algorithm: ClassVar[bool] = True
    server: _Server

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if isinstance(body, dict):
            self._answer(body)
        else:
            self._send(*_error(400, "the body is not a JSON object"))

    def _answer(self, body: Mapping[str, Any]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ServerRequest(self.path.partition("?")[0], body, headers, time.perf_counter())
        owner = self.server.owner
        answer = owner.handle(request)
        if owner.closing:
            self.close_connection = True
        else:
            self._send(*answer)

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        raw = json.dumps(answer, ensure_ascii=False).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
            self.wfile.flush()
        except ConnectionError:  # who asked did not wait for the answer
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass
