"""litellm against a server on this machine that speaks the chat completions protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from mnemotrace.errors import LLMError, LLMUnavailableError
from mnemotrace.litellm_loop import CALLBACKS
from mnemotrace.llm import litellm_adapter
from mnemotrace.llm import service as service_module
from mnemotrace.llm.litellm_adapter import LiteLLMModel
from mnemotrace.llm.protocol import LLMReply, LLMRequest, LLMTimeoutError, TransientLLMError
from mnemotrace.llm.service import LLMService
from mnemotrace.trace import start_trace

pytestmark = [
    pytest.mark.slow,
    # litellm keeps connections and a logging task that outlive a test's loop.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Items? .* (is|are) using the .ReadOnly. qualifier:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def own_price_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test that imports litellm itself, and first, not look for the list on the network."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


class Answer(BaseModel):
    port: int


class Handler(BaseHTTPRequestHandler):
    """Answers with `status`, but 400 to the response formats and settings in `refused`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet: else each request waits 40 ms for an ACK

    status: ClassVar[int] = 200
    refused: ClassVar[set[str]] = set()
    bodies: ClassVar[list[dict[str, Any]]] = []
    content: ClassVar[str | None] = '{"port": 8080}'
    pause: ClassVar[threading.Event] = threading.Event()
    pause.set()

    def do_POST(self) -> None:
        self.pause.wait(20)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        form = (body.get("response_format") or {}).get("type")
        status = 400 if {form, *body} & self.refused else self.status
        answer: dict[str, Any] = {"error": {"message": f"status {status}", "code": status}}
        if status == 200:
            message = {"role": "assistant", "content": self.content}
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
            }
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "status", 200)
    monkeypatch.setattr(Handler, "refused", set())
    monkeypatch.setattr(Handler, "bodies", [])
    monkeypatch.setattr(Handler, "content", '{"port": 8080}')
    monkeypatch.setattr(service_module, "BACKOFF", 0.001)


def forms() -> list[str | None]:
    return [(body.get("response_format") or {}).get("type") for body in Handler.bodies]


async def ask(model: LiteLLMModel) -> Answer:
    return await LLMService(model, timeout=30.0).ask("find_port", "Be terse.", "Which?", Answer)


async def test_a_request_carries_the_schema_and_the_reply_what_it_took(address: str) -> None:
    model = LiteLLMModel("openai/gpt-4o-mini", api_base=address, max_tokens=50)
    request = LLMRequest("p", "Be terse.", "Which?", Answer.model_json_schema())

    reply = await model.complete(request)

    assert isinstance(reply, LLMReply)
    assert reply.text == '{"port": 8080}'
    assert (reply.model, reply.tokens_in, reply.tokens_out) == ("gpt-4o-mini", 11, 5)
    assert reply.cost is not None
    assert 0.0 < reply.cost < 0.001
    assert reply.latency_ms is not None
    assert reply.latency_ms > 0.0
    (body,) = Handler.bodies
    assert body["messages"] == [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Which?"},
    ]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 50)
    assert body["response_format"]["json_schema"]["schema"] == Answer.model_json_schema()


def test_litellm_is_told_to_use_the_price_list_it_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    litellm_adapter._load()
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "False")
    litellm_adapter._load()
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "False"


async def test_a_model_without_a_listed_price_has_no_cost(address: str) -> None:
    model = LiteLLMModel("openai/our-own", api_base=address)

    assert (await model.complete(LLMRequest("p", "", "?"))).cost is None


async def test_the_schema_is_told_in_words_unless_the_model_is_known_to_keep_to_it(
    address: str,
) -> None:
    request = LLMRequest("p", "Be terse.", "Which?", Answer.model_json_schema())
    for name, told in (("openai/gpt-4o-mini", False), ("openai/our-own", True)):
        await LiteLLMModel(name, api_base=address).complete(request)
        system = Handler.bodies[-1]["messages"][0]["content"]
        assert ('"properties":{"port":{"type":"integer"}}' in system) == told
    Handler.refused.add("json_schema")
    await LiteLLMModel("openai/gpt-4o-mini", api_base=address).complete(request)
    assert '"port"' in Handler.bodies[-1]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("refused", "first", "later"),
    [
        ({"json_schema"}, ["json_schema", "json_object"], ["json_object"]),
        (
            {"json_schema", "json_object"},
            ["json_schema", "json_object", None],
            [None],
        ),
        ({"temperature"}, ["json_schema", "json_object", None], [None]),
    ],
)
async def test_a_form_the_server_refuses_is_left_out_and_not_tried_again(
    address: str, refused: set[str], first: list[str | None], later: list[str | None]
) -> None:
    Handler.refused |= refused
    model = LiteLLMModel("openai/local", api_base=address)

    assert await ask(model) == Answer(port=8080)
    assert forms() == first
    assert await ask(model) == Answer(port=8080)
    assert forms() == first + later


@pytest.mark.parametrize(
    ("status", "kind", "calls"),
    [
        (400, LLMError, 3),
        (401, LLMUnavailableError, 1),
        (403, LLMUnavailableError, 1),
        (404, LLMUnavailableError, 1),
        (429, TransientLLMError, 3),
        (500, TransientLLMError, 3),
        (503, TransientLLMError, 3),
    ],
)
async def test_each_http_status_has_its_error_and_its_number_of_calls(
    address: str, status: int, kind: type[Exception], calls: int
) -> None:
    Handler.status = status

    with pytest.raises(kind, match="openai/gpt-4o-mini") as raised:
        await ask(LiteLLMModel("openai/gpt-4o-mini", api_base=address))

    assert type(raised.value) is kind
    assert len(Handler.bodies) == calls


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "ollama/llama3.2"])
async def test_a_refused_connection_is_unavailable_at_once(model: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(LLMUnavailableError, match="cannot be reached"):
        await ask(LiteLLMModel(model, api_base=f"http://127.0.0.1:{port}"))


async def test_a_name_litellm_does_not_know_says_how_to_write_it() -> None:
    with pytest.raises(LLMUnavailableError, match="write it as provider/model"):
        await ask(LiteLLMModel("no-such-model"))


async def test_an_empty_message_is_an_unusable_answer(address: str) -> None:
    Handler.content = None

    with pytest.raises(LLMError, match="is empty"):
        await ask(LiteLLMModel("openai/gpt-4o-mini", api_base=address))


async def test_a_server_that_hangs_is_given_up_in_time(address: str) -> None:
    Handler.pause.clear()
    service = LLMService(LiteLLMModel("openai/gpt-4o-mini", api_base=address), timeout=0.5)
    try:
        with start_trace("recall") as trace, pytest.raises(LLMTimeoutError, match="find_port"):
            await service.ask("find_port", "", "?", Answer)
    finally:
        Handler.pause.set()

    assert trace is not None
    assert [call.status for call in trace.find("llm.find_port")] == ["cancelled"]


async def test_parallel_requests_are_all_answered(address: str) -> None:
    service = LLMService(LiteLLMModel("openai/gpt-4o-mini", api_base=address), concurrency=4)

    answers = await asyncio.gather(
        *(service.ask("find_port", "", str(n), Answer) for n in range(12))
    )

    assert answers == [Answer(port=8080)] * 12


async def test_nothing_is_printed_for_a_failed_request(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Handler.status = 401

    with pytest.raises(LLMUnavailableError):
        await ask(LiteLLMModel("openai/gpt-4o-mini", api_base=address))

    assert capsys.readouterr() == ("", "")


class Ollama(BaseHTTPRequestHandler):
    """An Ollama server that takes its time to tell about a model."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.paths.append(self.path)
        if self.path == "/api/show":
            time.sleep(SLOW)
        answer = {"model": "m", "response": '{"port": 8080}', "done": True,
                  "message": {"role": "assistant", "content": '{"port": 8080}'}}  # fmt: skip
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass


SLOW = 0.3


async def test_what_litellm_asks_an_ollama_server_about_a_model_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does so with a blocking request, on the loop that it is called on."""
    longest, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    await ask_once(LiteLLMModel("openai/gpt-4o-mini", api_base="http://127.0.0.1:9"))  # imports
    with ThreadingHTTPServer(("127.0.0.1", 0), Ollama) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("OLLAMA_API_BASE", url)
        last = time.perf_counter()
        ticking = asyncio.create_task(tick())
        assert await LiteLLMModel("ollama/some-model").complete(LLMRequest("p", "", "?"))
        await asyncio.sleep(0.02)
        ticking.cancel()
        server.shutdown()
    assert "/api/show" in Ollama.paths
    assert longest < 0.9 * SLOW


async def ask_once(model: LiteLLMModel) -> None:
    with pytest.raises(LLMUnavailableError):
        await model.complete(LLMRequest("p", "", "?"))


async def direct(address: str) -> None:
    """Ask through litellm without mnemotrace, on this loop, as a user may; let it finish."""
    import litellm
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    message = {"role": "user", "content": "?"}
    await litellm.acompletion(
        model="openai/gpt-4o-mini", api_base=address, api_key="x", messages=[message]
    )
    await asyncio.sleep(0)
    await GLOBAL_LOGGING_WORKER.flush()


def test_no_logging_task_of_litellm_dies_with_a_loop(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps one for all loops, and lets go of an unfinished one when another loop comes."""
    model = LiteLLMModel("openai/gpt-4o-mini", api_base=address)
    with asyncio.Runner() as theirs:
        for _ in range(2):
            theirs.run(direct(address))
            asyncio.run(ask_of(model))
            gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


async def ask_of(model: LiteLLMModel) -> None:
    assert await ask(model) == Answer(port=8080)


async def test_the_callbacks_of_a_user_are_still_told_and_litellm_is_left_as_it_is(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import litellm

    told = threading.Event()
    seen: list[Any] = []

    class Listener(litellm.integrations.custom_logger.CustomLogger):
        async def async_log_success_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
            seen.append((kwargs["model"], kwargs["response_cost"]))
            told.set()

    model = LiteLLMModel("openai/gpt-4o-mini", api_base=address)
    before = {name: getattr(litellm, name) for name in (*CALLBACKS, "max_budget", "drop_params")}
    assert await ask(model) == Answer(port=8080)
    assert {name: getattr(litellm, name) for name in before} == before
    for name in CALLBACKS:  # litellm adds to them what it finds in the first
        monkeypatch.setattr(litellm, name, list(getattr(litellm, name)))
    monkeypatch.setattr(litellm, "callbacks", [Listener()])
    assert await ask(model) == Answer(port=8080)
    assert await asyncio.to_thread(told.wait, 10)
    ((name, cost),) = seen
    assert name == "gpt-4o-mini"
    assert cost > 0.0


async def test_without_callbacks_litellm_keeps_no_record(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litellm.litellm_core_utils import litellm_logging

    recorded: list[Any] = []
    monkeypatch.setattr(
        litellm_logging, "get_standard_logging_object_payload", lambda **call: recorded.append(call)
    )
    model = LiteLLMModel("openai/unrecorded", api_base=address)
    assert await ask(model) == Answer(port=8080)
    await asyncio.sleep(0.05)
    # What an earlier test asked may still be recorded: litellm does that in its own time.
    assert [call for call in recorded if "unrecorded" in str(call)] == []
