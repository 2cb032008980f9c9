"""Memory events and their bus: the seeds' names, and handlers that cannot do harm."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory, MemoryMixin
from mnemotrace.errors import EmbedderError, InvalidInputError
from mnemotrace.events import (
    BaseEventListener,
    MemoryAnalysisFailedEvent,
    MemoryEvent,
    MemoryEventBus,
    MemoryQueryCompletedEvent,
    MemoryQueryFailedEvent,
    MemoryQueryStartedEvent,
    MemoryRetrievalCompletedEvent,
    MemoryRetrievalStartedEvent,
    MemorySaveCompletedEvent,
    MemorySaveFailedEvent,
    MemorySaveStartedEvent,
    event_bus,
)
from mnemotrace.records import utc_now
from mnemotrace.testing import FakeEmbedder, RecordingListener

STARTED = MemoryQueryStartedEvent(query="q", limit=3)


@pytest.mark.parametrize(
    ("event_class", "attributes"),
    [
        (MemoryQueryStartedEvent, {"query": "q", "limit": 5}),
        (MemoryQueryCompletedEvent, {"query": "q", "results": [], "query_time_ms": 1.5}),
        (MemoryQueryFailedEvent, {"query": "q", "error": "down"}),
        (MemorySaveStartedEvent, {"value": "v", "metadata": {"a": 1}}),
        (MemorySaveCompletedEvent, {"value": "v", "save_time_ms": 2.0}),
        (MemorySaveFailedEvent, {"value": "v", "error": "down"}),
        (MemoryRetrievalStartedEvent, {"task_id": "t"}),
        (
            MemoryRetrievalCompletedEvent,
            {"task_id": "t", "memory_content": "m", "retrieval_time_ms": 3.0},
        ),
        (MemoryAnalysisFailedEvent, {"operation": "save", "error": "no key"}),
    ],
)
def test_each_event_has_the_seeds_name_and_attributes(
    event_class: type[MemoryEvent], attributes: dict[str, Any]
) -> None:
    event = event_class(**attributes)
    assert {name: getattr(event, name) for name in attributes} == attributes
    assert event.source_type == "unified_memory"
    assert event.timestamp.tzinfo is UTC
    assert abs(utc_now() - event.timestamp) < timedelta(minutes=1)
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in event_class.__name__)
    assert event.type == snake.strip("_").removesuffix("_event")


def test_a_handler_gets_source_and_event_of_its_class_only() -> None:
    bus = MemoryEventBus()
    seen: list[tuple[Any, MemoryEvent]] = []

    @bus.on(MemoryQueryStartedEvent)
    def handler(source: Any, event: MemoryQueryStartedEvent) -> None:
        seen.append((source, event))

    bus.emit("memory", STARTED)
    bus.emit("memory", MemoryQueryFailedEvent(query="q", error="e"))
    assert seen == [("memory", STARTED)]


def test_a_handler_of_the_base_class_sees_every_event() -> None:
    bus = MemoryEventBus()
    seen: list[str] = []

    @bus.on(MemoryEvent)
    def handler(source: Any, event: MemoryEvent) -> None:
        seen.append(event.type)

    bus.emit(None, STARTED)
    bus.emit(None, MemorySaveCompletedEvent(value="v", save_time_ms=1))
    assert seen == ["memory_query_started", "memory_save_completed"]


def test_handlers_run_in_order_and_once_for_an_event() -> None:
    bus = MemoryEventBus()
    seen: list[str] = []
    both: Callable[[Any, Any], None] = lambda source, event: seen.append("both")
    bus.on(MemoryEvent, MemoryQueryStartedEvent)(both)
    bus.on(MemoryQueryStartedEvent)(lambda source, event: seen.append("second"))
    bus.emit(None, STARTED)
    assert seen == ["both", "second"]


def test_a_handler_that_raises_is_logged_and_the_others_still_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryEventBus()
    seen: list[MemoryEvent] = []

    @bus.on(MemoryQueryStartedEvent)
    def broken(source: Any, event: MemoryEvent) -> None:
        raise RuntimeError("listener bug")

    bus.on(MemoryQueryStartedEvent)(lambda source, event: seen.append(event))
    with caplog.at_level(logging.ERROR):
        bus.emit(None, STARTED)
    assert seen == [STARTED]
    assert "broken" in caplog.text
    assert "listener bug" in caplog.text


def test_ctrl_c_inside_a_handler_is_not_swallowed() -> None:
    bus = MemoryEventBus()

    @bus.on(MemoryEvent)
    def interrupted(source: Any, event: MemoryEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bus.emit(None, STARTED)


def test_coroutine_functions_are_refused_at_registration() -> None:
    bus = MemoryEventBus()

    async def handler(source: Any, event: MemoryEvent) -> None: ...

    class Callback:
        async def __call__(self, source: Any, event: MemoryEvent) -> None: ...

    for candidate in (handler, functools.partial(handler), Callback()):
        with pytest.raises(TypeError, match="coroutine function"):
            bus.on(MemoryEvent)(candidate)
    assert not bus.has_handlers(MemoryEvent)


def test_a_coroutine_returned_by_a_handler_is_reported_not_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryEventBus()

    async def work() -> None: ...

    bus.on(MemoryEvent)(lambda source, event: work())
    with caplog.at_level(logging.ERROR):
        bus.emit(None, STARTED)
    assert "returned a coroutine" in caplog.text


def test_a_bound_method_can_be_unregistered() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.seen: list[MemoryEvent] = []

        def record(self, source: Any, event: MemoryEvent) -> None:
            self.seen.append(event)

    bus = MemoryEventBus()
    recorder = Recorder()
    bus.on(MemoryEvent)(recorder.record)
    bus.emit(None, STARTED)
    assert bus.off(recorder.record)  # another object than the one registered, but equal
    bus.emit(None, STARTED)
    assert recorder.seen == [STARTED]
    assert not bus.off(recorder.record)


def test_has_handlers_tells_per_class() -> None:
    bus = MemoryEventBus()
    assert not bus.has_handlers(MemoryQueryStartedEvent)

    @bus.on(MemorySaveStartedEvent)
    def handler(source: Any, event: MemoryEvent) -> None: ...

    assert bus.has_handlers(MemorySaveStartedEvent)
    assert not bus.has_handlers(MemoryQueryStartedEvent)
    bus.on(MemoryEvent)(handler)
    assert bus.has_handlers(MemoryQueryStartedEvent)
    bus.off(handler)
    assert not bus.has_handlers(MemorySaveStartedEvent)


@pytest.mark.parametrize("wrong", [str, "MemoryQueryStartedEvent", STARTED])
def test_only_classes_of_memory_events_can_be_listened_to(wrong: Any) -> None:
    with pytest.raises(InvalidInputError):
        MemoryEventBus().on(wrong)


def test_on_without_a_class_or_with_something_not_callable_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        MemoryEventBus().on()
    with pytest.raises(TypeError):
        MemoryEventBus().on(MemoryEvent)("not callable")  # type: ignore[type-var]


def test_a_listener_written_as_in_the_seeds_hears_the_process_bus() -> None:
    heard: list[str] = []

    class MemoryMonitor(BaseEventListener):
        def setup_listeners(self, event_bus: MemoryEventBus) -> None:
            @event_bus.on(MemoryQueryCompletedEvent)
            def on_done(source: Any, event: MemoryQueryCompletedEvent) -> None:
                if getattr(event, "source_type", None) == "unified_memory":
                    heard.append(f"{event.query} in {event.query_time_ms:.0f}ms")

            self.handler = on_done

    monitor = MemoryMonitor()
    try:
        event_bus.emit(None, MemoryQueryCompletedEvent(query="tea", results=[], query_time_ms=12.3))
    finally:
        event_bus.off(monitor.handler)
    assert heard == ["tea in 12ms"]


def test_registering_while_other_threads_emit_loses_nothing() -> None:
    bus = MemoryEventBus()
    counts = [0] * 50
    stop = threading.Event()

    def emitter() -> None:
        while not stop.is_set():
            bus.emit(None, STARTED)

    threads = [threading.Thread(target=emitter) for _ in range(4)]
    for thread in threads:
        thread.start()

    def make(number: int) -> Callable[[Any, Any], None]:
        def handler(source: Any, event: Any) -> None:
            counts[number] += 1

        return handler

    for number in range(50):
        bus.on(MemoryQueryStartedEvent)(make(number))
    before = list(counts)
    bus.emit(None, STARTED)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(after > earlier for after, earlier in zip(counts, before, strict=True))


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder(dimension=16)) as memory:
        memory.remember("The harbour closes at nine.", scope="/port", source="ada")
        memory.remember("Bob <looks> for a job.", scope="/port", source="bob", private=True)
        yield memory


def test_what_a_task_needs_is_gathered_between_two_events(memory: Memory) -> None:
    with RecordingListener() as heard:
        text = memory.scope("/port").retrieve_for("When does the harbour close?", task_id="t-1")
    assert text == "- The harbour closes at nine. (ada, /port)"
    assert [event.type for event in heard.events] == [
        "memory_retrieval_started",
        "memory_query_started",
        "memory_query_completed",
        "memory_retrieval_completed",
    ]
    started, *_, completed = heard.events
    assert isinstance(started, MemoryRetrievalStartedEvent)
    assert isinstance(completed, MemoryRetrievalCompletedEvent)
    assert started.task_id == completed.task_id == "t-1"
    assert completed.memory_content == text
    assert completed.retrieval_time_ms > 0


async def test_the_twin_takes_a_budget_and_whose_memory_it_is(memory: Memory) -> None:
    assert await memory.aretrieve_for("harbour", budget_tokens=2) == ""
    text = await memory.aretrieve_for("job", source="bob", limit=1)
    assert text == "- Bob &lt;looks&gt; for a job. (bob, /port)"


def test_a_mixin_gathers_for_a_task_too(memory: Memory) -> None:
    class Agent(MemoryMixin):
        pass

    agent = Agent()
    agent.memory = memory.scope("/port")
    assert "harbour" in agent.retrieve_for("harbour", task_id="t")
    assert "harbour" in asyncio.run(agent.aretrieve_for("harbour"))


def test_a_task_that_cannot_be_served_ends_with_the_failure_of_its_recall(memory: Memory) -> None:
    fake = memory._core.services.embedder.embedder
    fake.fail = True
    try:
        with RecordingListener() as heard, pytest.raises(EmbedderError):
            memory.retrieve_for("harbour", task_id="t-1")
    finally:
        fake.fail = False
    assert [event.type for event in heard.events] == [
        "memory_retrieval_started",
        "memory_query_started",
        "memory_query_failed",
    ]
    failed = heard.events[-1]
    assert isinstance(failed, MemoryQueryFailedEvent)
    assert failed.trace is not None and failed.trace.status == "error"
    with pytest.raises(InvalidInputError, match="task_id"):
        memory.retrieve_for("harbour", task_id=" ")


def test_a_handler_that_calls_the_memory_back_is_told_what_to_do(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    def calls_back(source: Memory, event: MemoryEvent) -> None:
        source.list_records()

    event_bus.on(MemoryQueryCompletedEvent)(calls_back)
    try:
        with caplog.at_level(logging.ERROR):
            assert memory.recall("harbour")
    finally:
        event_bus.off(calls_back)
    assert "RuntimeMisuseError" in caplog.text
    assert "by an event handler" in caplog.text
    assert "hands the call to a thread" in caplog.text


EVENTS_PAGE = Path(__file__).resolve().parents[1] / "docs" / "events.md"


def test_the_page_tells_of_every_event_and_attribute() -> None:
    text = EVENTS_PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))
    events = {kind.__name__: kind for kind in MemoryEvent.__subclasses__()}
    assert rows.keys() == events.keys()
    shared = {field.name for field in dataclasses.fields(MemoryEvent)}
    for name, kind in events.items():
        own = {field.name for field in dataclasses.fields(kind)} - shared
        assert set(re.findall(r"`(\w+)`", rows[name])) - {"Recall"} == own, name


def test_the_listener_on_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = EVENTS_PAGE.read_text(encoding="utf-8")
    [(code, output)] = re.findall(
        r"^```python runnable\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL | re.MULTILINE
    )
    before = event_bus._registered
    try:
        exec(compile(code, str(EVENTS_PAGE), "exec"), {})  # noqa: S102  what the page shows
    finally:
        for _, handler in event_bus._registered:
            if handler not in [known for _, known in before]:
                event_bus.off(handler)
    assert capsys.readouterr().out == output
