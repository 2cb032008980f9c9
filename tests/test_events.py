"""Memory events and their bus: the seeds' names, and handlers that cannot do harm."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import pytest

from mnemotrace.errors import InvalidInputError
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
