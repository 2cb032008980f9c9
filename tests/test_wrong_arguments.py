"""Whatever is passed to a public call, what is wrong with it is told by an error of ours."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mnemotrace
from mnemotrace import LLM, Memory, MemoryMixin, compare, event_bus, progress, record, replay
from mnemotrace.config import MemoryConfig
from mnemotrace.doctor import examine
from mnemotrace.errors import ConfigurationError, InvalidInputError, MnemotraceError
from mnemotrace.telemetry import instrument
from mnemotrace.testing import FakeEmbedder
from mnemotrace.views import MemoryView

NONSENSE: list[Any] = [None, 5, b"x", [None], {1: 2}, object(), math.nan, "\ud800", 10**400, True]
NEEDED: dict[str, dict[str, Any]] = {
    "explain": {"query": "text", "record_id": "a"},
    "export_records": {"target": "out.jsonl"},
    "extract_memories": {"content": "text"},
    "forget": {"record_ids": ["nobody"]},
    "get": {"record_id": "a"},
    "history": {"record_id": "a"},
    "import_records": {"file": "in.jsonl"},
    "recall": {"query": "text"},
    "recall_stream": {"query": "text"},
    "reindex": {"embedder": FakeEmbedder()},
    "remember": {"content": "text", "scope": "/a", "record_id": "a"},
    "remember_many": {"contents": ["text"], "scope": "/a"},
    "reset": {"scope": "/nowhere"},
    "retrieve_for": {"task": "text"},
    "scope": {"path": "/a"},
    "slice": {"scopes": ["/a"]},
    "update": {"record_id": "a"},
}
"""What a call takes at least."""
BLOCKING = sorted(
    name
    for name, method in inspect.getmembers(MemoryView, inspect.isfunction)
    if not name.startswith("_") and not hasattr(MemoryView, name[1:])
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as opened:
        opened.remember("text", scope="/a", record_id="a")
        yield opened


def only_ours(call: Callable[[], Any]) -> None:
    """Make a call that may work or not, but not in an error of Python's."""
    try:
        result = call()
        if inspect.isgenerator(result) or hasattr(result, "__next__"):
            list(result)
    except MnemotraceError as error:
        assert len(str(error)) > 10


@pytest.mark.parametrize("name", [*BLOCKING, "reindex"])
def test_no_method_of_a_memory_trips_over_an_argument(
    memory: Memory, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    method = getattr(memory, name)
    needed = NEEDED.get(name, {})
    for parameter in inspect.signature(method).parameters:
        for value in NONSENSE:
            if parameter in ("embedder",) or (name == "reset" and value is None):
                continue  # a whole memory is not to go
            only_ours(functools.partial(method, **{**needed, parameter: value}))


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
def test_no_function_trips_over_an_argument(memory: Memory, value: Any) -> None:
    found = memory.recall("text")
    receipt = memory.remember_many(["text"])
    mixed = MemoryMixin()
    trace: Any = found.trace
    for call in (
        lambda: record(value).__enter__(),
        lambda: replay(value, memory),
        lambda: replay("tape", value),
        lambda: asyncio.run(mnemotrace.areplay(value, memory)),
        lambda: compare(value, trace),
        lambda: compare(trace, value),
        lambda: progress(value).__enter__(),
        lambda: LLM(value),
        lambda: setattr(mixed, "memory", value),
        lambda: event_bus.on(value),
        lambda: event_bus.off(value),
        lambda: None if value is None else examine(value, network=False),
        lambda: instrument(tracer_provider=value).uninstrument(),
        lambda: instrument(meter_provider=value).uninstrument(),
        lambda: instrument(content=value).uninstrument(),
        lambda: mnemotrace.reindex("nowhere", value),
        lambda: trace.render(width=value),
        lambda: trace.draw(value),
        lambda: type(trace).from_json(value),
        lambda: found.format(value),
        lambda: receipt.wait(value),
        lambda: asyncio.run(receipt.await_done(value)),
        lambda: memory.drain_writes(value),
    ):
        only_ours(call)


@pytest.mark.parametrize(
    "value", [5, object(), b"key", [None], " "], ids=lambda value: type(value).__name__
)
def test_a_setting_of_another_kind_is_a_configuration_error(value: Any) -> None:
    settings = [*MemoryConfig.model_fields, "prefer_grpc", "api_key"]
    for name in settings:
        if value == 5 and name not in ("trace", "prefer_grpc", "api_key", "conversation_context"):
            continue  # a number is what most of them take
        with pytest.raises(ConfigurationError):
            Memory(llm=None, storage=":memory:", embedder=FakeEmbedder(), **{name: value})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda memory: replay(None, memory), "The tape must be named by a path"),  # type: ignore[arg-type]
        (lambda memory: memory.slice(None), "slice\\(\\) takes a list of scope paths"),
        (lambda memory: memory.drain_writes("x"), "timeout must be a number of seconds"),
        (lambda memory: memory.export_records("a\0b"), "'a\\\\x00b', which is not a path"),
        (lambda memory: memory.recall("text").trace.render(width="x"), "whole number of columns"),
        (lambda memory: memory.recall("text").format("x"), "whole number of tokens"),
        (lambda memory: memory.export_records("out", progress=3), "progress must be a function"),
    ],
)
def test_the_message_says_what_to_pass(
    memory: Memory, call: Callable[[Any], Any], hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=hint):
        call(memory)


class Odd:
    """Fits nothing, and its repr is longer than a message should be."""

    def __repr__(self) -> str:
        return "<ODD " + "x" * 5000 + ">"


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("storage", lambda odd, _: Memory(llm=None, storage=odd)),
        ("embedder", lambda odd, _: Memory(llm=None, storage=":memory:", embedder=odd)),
        ("llm", lambda odd, _: Memory(llm=odd, storage=":memory:")),
        ("prefer_grpc", lambda odd, _: Memory(llm=None, storage=":memory:", prefer_grpc=odd)),
        *(
            (name, lambda odd, _, name=name: Memory(llm=None, storage=":memory:", **{name: odd}))
            for name in MemoryConfig.model_fields
        ),
        ("model", lambda odd, _: LLM(odd)),
        ("content", lambda odd, _: instrument(content=odd)),
        ("tracer_provider", lambda odd, _: instrument(tracer_provider=odd)),
        ("memory", lambda odd, _: setattr(MemoryMixin(), "memory", odd)),
        ("storage", lambda odd, _: examine(odd, network=False)),
        ("network", lambda odd, _: examine("nowhere", network=odd)),
        ("tape", lambda odd, _: record(odd).__enter__()),
        ("tape", replay),
        ("Memory", lambda odd, _: replay("tape", odd)),
        ("trace", lambda odd, _: compare(odd, odd)),
        ("file", lambda odd, _: progress(odd).__enter__()),
        ("event", lambda odd, _: event_bus.on(odd)),
        ("width", lambda odd, memory: memory.recall("text").trace.render(width=odd)),
        ("'svg' or 'mermaid'", lambda odd, memory: memory.recall("text").trace.draw(odd)),
        ("timeout", lambda odd, memory: memory.remember_many(["text"]).wait(odd)),
        ("embedder", lambda odd, _: mnemotrace.reindex("nowhere", odd)),
    ],
)
def test_a_function_told_a_wrong_kind_names_it_too(
    memory: Memory, argument: str, call: Callable[[Any, Any], Any]
) -> None:
    with pytest.raises(MnemotraceError) as told:
        call(Odd(), memory)
    message = str(told.value)
    assert argument in message
    assert "<ODD" in message or "an Odd" in message
    assert len(message) < 400


TIMES = {"since", "until", "as_of", "now", "created_at", "valid_from", "expires_at", "older_than"}
"""tests/probes/test_validity.py has what is said of them."""


@pytest.mark.parametrize("name", [*BLOCKING, "reindex"])
def test_a_wrong_kind_is_told_with_argument_value_and_what_is_accepted(
    memory: Memory, name: str
) -> None:
    method = getattr(memory, name)
    for parameter in inspect.signature(method).parameters.keys() - TIMES:
        wrong = {**NEEDED.get(name, {}), parameter: Odd()}
        with pytest.raises(MnemotraceError) as told:
            method(**wrong) if name != "recall_stream" else list(method(**wrong))
        message = str(told.value)
        assert re.search(rf"\b{parameter}\b", message), (parameter, message)
        assert "<ODD" in message or "an Odd" in message, (parameter, message)
        assert len(message) < 400, (parameter, message)
