"""A shallow recall that need not wait runs without the loop, and gives what it gives on the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory, Recall
from mnemotrace.errors import EmbedderError, MemoryClosedError, RuntimeMisuseError
from mnemotrace.events import MemoryQueryFailedEvent, MemoryQueryStartedEvent, event_bus
from mnemotrace.flows.runtime import Runtime
from mnemotrace.straight import straight
from mnemotrace.testing import FakeEmbedder

TEXTS = [f"the {what} is kept in cupboard {n}" for n, what in enumerate(("tea", "rice", "salt"))]
Vectors = Any


class Watched:
    """A plain function that embeds, and says in which threads it ran."""

    def __init__(self) -> None:
        self._inner = FakeEmbedder(dimension=32)
        self.threads: list[str] = []
        self.before: Callable[[], Any] = lambda: None

    def __call__(self, texts: list[str]) -> Vectors:
        self.threads.append(threading.current_thread().name)
        self.before()
        return self._inner.embed(texts)


@pytest.fixture
def embedder() -> Watched:
    return Watched()


@pytest.fixture
def memory(tmp_path: Path, embedder: Watched) -> Iterator[Memory]:
    with Memory(llm=None, storage=tmp_path, embedder=embedder, recall_timeout=0.5) as opened:
        for text in TEXTS:
            opened.remember(text, scope="/kitchen", categories=["place"], importance=0.5)
        opened.recall("warm up", depth="shallow")  # the first one learns what the embedder is
        yield opened


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each recall ran on the loop."""
    from mnemotrace.core import MemoryCore

    seen: list[bool] = []
    inner = MemoryCore._search_once

    async def search_once(self: MemoryCore, run: Any) -> None:
        seen.append(self.runtime.on_loop)
        await inner(self, run)

    monkeypatch.setattr(MemoryCore, "_search_once", search_once)
    return seen


def shape(found: Recall) -> list[Any]:
    assert found.trace is not None
    spans = [(item.name, item.kind, item.parent, item.attrs) for item in found.trace.spans]
    return [[(match.record.id, match.score) for match in found], found.confidence, spans]


def test_both_ways_give_the_same_matches_and_the_same_trace(
    memory: Memory, on_loop: list[bool]
) -> None:
    now = memory.list_records(limit=1)[0].created_at
    direct = memory.recall("where is the rice", depth="shallow", now=now)
    by_loop = asyncio.run(memory.arecall("where is the rice", depth="shallow", now=now))
    assert on_loop == [False, True]
    assert len(direct) == 3
    assert shape(direct) == shape(by_loop)


@pytest.mark.parametrize("arguments", [("tea", None, None, 2, "shallow"), ("tea",)])
def test_it_is_chosen_by_position_and_by_name(
    memory: Memory, on_loop: list[bool], arguments: tuple[Any, ...]
) -> None:
    named: Any = {} if len(arguments) > 1 else {"depth": "shallow", "limit": 2}
    assert len(memory.recall(*arguments, **named)) == 2
    assert len(memory.scope("/kitchen").recall(*arguments, **named)) == 2
    assert on_loop == [False, False]


def test_it_sees_what_was_accepted_before(memory: Memory, on_loop: list[bool]) -> None:
    memory.remember_many(["the honey is kept in the cellar"], scope="/kitchen")
    found = memory.recall("where is the honey", depth="shallow")
    assert found[0].record.content == "the honey is kept in the cellar"


def test_an_async_embedder_is_awaited_on_the_loop(tmp_path: Path, on_loop: list[bool]) -> None:
    inner = FakeEmbedder(dimension=32)

    async def embed(texts: list[str]) -> Vectors:
        await asyncio.sleep(0)
        return inner.embed(texts)

    for number, embedder in enumerate((embed, lambda texts: embed(texts))):
        with Memory(llm=None, storage=tmp_path / str(number), embedder=embedder) as memory:
            memory.remember(TEXTS[0], scope="/", categories=["c"], importance=0.5)
            for _ in range(3):
                assert memory.recall("tea", depth="shallow")[0].record.content == TEXTS[0]
    assert on_loop == [True] * 6


def test_an_embedder_that_turns_async_is_refused_once_then_awaited(
    memory: Memory, embedder: Watched, tmp_path: Path
) -> None:
    inner = FakeEmbedder(dimension=32)
    turned = False

    async def later(texts: list[str]) -> Vectors:
        return inner.embed(texts)

    def embed(texts: list[str]) -> Any:
        return later(texts) if turned else inner.embed(texts)

    with Memory(llm=None, storage=tmp_path / "other", embedder=embed) as other:
        other.remember(TEXTS[0], scope="/", categories=["c"], importance=0.5)
        other.recall("tea", depth="shallow")
        turned = True
        with pytest.raises(EmbedderError, match="to be awaited"):
            other.recall("tea", depth="shallow")
        assert len(other.recall("tea", depth="shallow")) == 1


def test_a_slow_embedder_is_given_up_in_time_and_the_next_recall_works(
    memory: Memory, embedder: Watched
) -> None:
    release = threading.Event()
    embedder.before = lambda: release.wait(5)
    failed: list[str] = []
    told = threading.Event()

    @event_bus.on(MemoryQueryFailedEvent)
    def note(source: Any, event: MemoryQueryFailedEvent) -> None:
        failed.append(event.error)
        told.set()

    try:
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"recall_timeout=0\.5 s and was given up"):
            memory.recall("tea", depth="shallow")
        assert time.monotonic() - begun < 3
        release.set()
        assert told.wait(5)
    finally:
        release.set()
        event_bus.off(note)
    assert len(failed) == 1
    assert "recall_timeout" in failed[0]
    embedder.before = lambda: None
    assert len(memory.recall("tea", depth="shallow")) == 3


def test_an_error_of_the_embedder_is_the_same_as_on_the_loop(
    memory: Memory, embedder: Watched
) -> None:
    def fail() -> None:
        raise TimeoutError("the model is away")

    embedder.before = fail
    with pytest.raises(EmbedderError, match="the model is away") as direct:
        memory.recall("tea", depth="shallow")
    with pytest.raises(EmbedderError) as by_loop:
        asyncio.run(memory.arecall("tea", depth="shallow"))
    assert str(direct.value) == str(by_loop.value)


def test_it_runs_in_the_embedders_threads_never_in_the_callers(
    memory: Memory, embedder: Watched
) -> None:
    embedder.threads.clear()
    memory.recall("tea", depth="shallow")
    assert [name.startswith("mnemotrace-embed") for name in embedder.threads] == [True]


def test_many_threads_at_once_lose_no_count(memory: Memory) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: memory.recall("tea", depth="shallow", limit=3), range(64)))
    memory._runtime.run(memory._core._accesses.write())
    counts = [record.access_count for record in memory.list_records()]
    assert [count - counts[0] for count in counts] == [0, 0, 0]
    assert counts[0] == 65  # one is the warm-up


def test_a_listener_may_call_the_memory_from_within(memory: Memory) -> None:
    seen: list[int] = []

    @event_bus.on(MemoryQueryStartedEvent)
    def look(source: Any, event: MemoryQueryStartedEvent) -> None:
        seen.append(memory.info("/").record_count)

    try:
        memory.recall("tea", depth="shallow")
    finally:
        event_bus.off(look)
    assert seen == [3]


def test_after_close_it_is_refused(memory: Memory) -> None:
    memory.close()
    with pytest.raises(MemoryClosedError):
        memory.recall("tea", depth="shallow")


def test_a_coroutine_that_waits_is_refused_and_closed() -> None:
    closed: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeMisuseError, match="had to wait"):
        straight(waits())
    assert closed == [True]


def test_what_no_thread_began_is_closed_at_the_timeout() -> None:
    runtime, release = Runtime(), threading.Event()

    async def never() -> None:
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)
        coro = never()
        try:
            with pytest.raises(TimeoutError, match="too late"):
                runtime.run_straight(coro, pool, 0.02, "too late")
        finally:
            release.set()
    assert (
        inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED
    )  # closed: nothing complains that it was never awaited
    runtime.close()
