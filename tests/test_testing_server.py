"""The OpenAI-compatible server of the testing kit, over plain HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import pytest
from pydantic import BaseModel, Field

from mnemotrace.flows import answers
from mnemotrace.testing import FakeEmbedder, FakeServer, ServerRequest
from mnemotrace.testing.schema import example


class Person(BaseModel):
    name: str
    age: int = Field(ge=18)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def send(
    server: FakeServer, body: Any, path: str = "/v1/chat/completions", method: str = "POST"
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(server.root).netloc, timeout=10)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, raw, {"Authorization": "Bearer me"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def chat(schema: Mapping[str, Any] | None = None, *, bare: bool = False) -> dict[str, Any]:
    """A chat request, with a schema as OpenAI takes it or, `bare`, as llama.cpp does."""
    messages = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Who?"}]
    body: dict[str, Any] = {"model": "m", "messages": messages}
    if schema is not None:
        named = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}
        body["response_format"] = {"type": "json_object", "schema": schema} if bare else named
    return body


def content(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("bare", [False, True])
def test_a_schema_without_an_answer_gets_a_value_that_fulfils_it(
    server: FakeServer, bare: bool
) -> None:
    status, answer = send(server, chat(Person.model_json_schema(), bare=bare))

    assert status == 200
    assert Person.model_validate_json(content(answer)) == Person(name="text", age=18)
    assert server.asked("Person")[0].prompt == "Be terse.\n\nWho?"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"name": "미나", "age": 30}, '{"name": "미나", "age": 30}'),
        (Person(name="Ann", age=20), '{"name":"Ann","age":20}'),
        ("not json at all", "not json at all"),
        ("", ""),
        (lambda request: request.title.upper(), "PERSON"),
    ],
)
def test_an_answer_is_sent_as_told(server: FakeServer, answer: Any, text: str) -> None:
    server.answers["Person"] = answer

    assert content(send(server, chat(Person.model_json_schema()))[1]) == text


def test_a_request_for_text_gets_the_text(server: FakeServer) -> None:
    assert content(send(server, chat())[1]) == "I do not know."
    server.answers["text"] = "Mina."
    assert content(send(server, chat())[1]) == "Mina."
    assert [request.title for request in server.requests] == ["text", "text"]
    assert server.requests[0].headers["authorization"] == "Bearer me"


def test_usage_counts_what_was_asked_and_written(server: FakeServer) -> None:
    server.answers["text"] = "It was Mina."

    usage = send(server, chat())[1]["usage"]

    assert usage == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert server.written == ["It was Mina."]
    with FakeServer(count_tokens=len) as letters:
        assert send(letters, chat())[1]["usage"]["prompt_tokens"] == len("Be terse.\n\nWho?")


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_are_those_of_the_embedder_in_both_forms(server: FakeServer, form: str) -> None:
    texts = ["tea for Ann", "Ann drinks tea"]
    body = {"model": "e", "input": texts, "encoding_format": form}

    status, answer = send(server, body, "/v1/embeddings")

    rows = [row["embedding"] for row in answer["data"]]
    if form == "base64":
        rows = [np.frombuffer(base64.b64decode(row), "<f4").tolist() for row in rows]
    assert status == 200
    np.testing.assert_allclose(rows, FakeEmbedder().embed(texts), rtol=1e-6)
    assert server.chats == []
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert send(server, {"input": "one"}, "/v1/embeddings")[1]["usage"]["total_tokens"] == 1


def test_faults_are_switched_on_and_off(server: FakeServer) -> None:
    server.status, server.fail_times = 429, 2

    assert [send(server, chat())[0] for _ in range(3)] == [429, 429, 200]
    server.refused.add("json_schema")
    schema = Person.model_json_schema()
    assert send(server, chat(schema))[0] == 400
    assert send(server, chat(schema, bare=True))[0] == 200
    assert len(server.requests) == 5


def test_an_answer_that_raises_is_an_error_of_the_server(server: FakeServer) -> None:
    def broken(request: ServerRequest) -> str:
        raise KeyError("oops")

    server.answers["text"] = broken

    status, answer = send(server, chat())

    assert status == 500
    assert "KeyError" in answer["error"]["message"]


def test_what_it_does_not_know_is_refused_and_recorded(server: FakeServer) -> None:
    assert send(server, {}, "/v1/audio")[0] == 404
    assert send(server, b"[1]")[0] == 400
    assert send(server, b"{")[0] == 400
    status, answer = send(server, b"", "/v1/models", "GET")
    assert (status, answer["data"][0]["id"]) == (200, "fake-model")
    assert [request.path for request in server.requests] == ["/v1/audio", "/v1/models"]


def test_requests_run_side_by_side_and_a_delay_is_taken(server: FakeServer) -> None:
    server.delay = 0.2
    threads = [threading.Thread(target=send, args=(server, chat())) for _ in range(5)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 0.2 <= time.perf_counter() - start < 0.9
    assert server.most_running == 5
    assert server.running == 0


def test_closing_cuts_what_waits_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with FakeServer() as server:
        netloc = urlsplit(server.root).netloc
        idle = http.client.HTTPConnection(netloc, timeout=10)
        idle.request("GET", "/v1/models")
        idle.getresponse().read()  # the connection stays open
        server.delay = 60.0
        hung = http.client.HTTPConnection(netloc, timeout=10)
        hung.request("POST", "/v1/chat/completions", json.dumps(chat()))
        while not server.running:
            time.sleep(0.01)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        hung.getresponse()
    for connection in (idle, hung):
        connection.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
    assert set(threading.enumerate()) - before == set()


def test_a_server_has_an_address_only_while_it_runs() -> None:
    server = FakeServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    with server:
        assert server.environment["OPENAI_BASE_URL"] == server.url == f"{server.root}/v1"
        with pytest.raises(RuntimeError, match="started before"):
            server.start()
    server.close()
    with pytest.raises(RuntimeError, match="started before"):
        server.start()


class Everything(BaseModel):
    kind: Literal["b", "a"]
    when: datetime
    maybe: int | None
    nested: list[Person] = Field(min_length=1)
    share: float = Field(gt=0.6, lt=0.7)
    few: int = Field(le=0)
    either: Person | str
    flag: bool
    word: str = Field(min_length=6)
    left_out: str = "x"


ANSWERS = [
    value
    for value in vars(answers).values()
    if isinstance(value, type)
    and issubclass(value, BaseModel)
    and value.__module__ == answers.__name__
]


@pytest.mark.parametrize("model", [Everything, *ANSWERS], ids=lambda model: model.__name__)
def test_an_example_fulfils_its_schema(model: type[BaseModel]) -> None:
    assert model.model_validate(example(model.model_json_schema()))


class Node(BaseModel):
    child: Node


def test_a_schema_that_cannot_be_fulfilled_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        example(Node.model_json_schema())
    with pytest.raises(ValueError, match="does not hold"):
        example({"$ref": "#/$defs/Missing"})
