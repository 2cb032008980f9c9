"""Recall streams: what happens comes as it happens, the result last; leaving early stops it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from mnemotrace import Memory, MemoryScope, MemorySlice
from mnemotrace.errors import EmbedderError, InvalidInputError, RuntimeMisuseError
from mnemotrace.live import AsyncRecallStream, RecallStream, RecallUpdate
from mnemotrace.testing import FakeEmbedder, ScriptedLLM
from mnemotrace.trace import Trace

LONG = "Please tell me everything that we know about the kiln, the glaze and the studio. " * 4
UNSURE: dict[str, Any] = {"confidence_threshold_low": 1.0, "confidence_threshold_high": 1.0}


class Gate(ScriptedLLM):
    """A model that answers only once it is let."""

    def __init__(self) -> None:
        super().__init__({"query_analysis": self.wait})
        self.asked_for = threading.Event()
        self.open = threading.Event()
        self.cancelled = threading.Event()

    async def wait(self, request: object) -> dict[str, Any]:
        self.asked_for.set()
        try:
            while not self.open.is_set():
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"sub_queries": ["the kiln"]}


@pytest.fixture(scope="module")
def plain() -> Iterator[Memory]:
    with Memory(storage=":memory:", llm=None, embedder=FakeEmbedder(), **UNSURE) as memory:
        memory.remember("The kiln fires at 1200 degrees.", scope="/studio")
        memory.remember("The glaze is blue.", scope="/other")
        yield memory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("live")
    with Memory(storage=path, llm=None, embedder=FakeEmbedder()) as memory:
        memory.remember("The kiln fires at 1200 degrees.")
        yield path


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def gated(folder: Any, gate: Gate) -> Iterator[Memory]:
    with Memory(storage=folder, llm=gate, embedder=FakeEmbedder()) as memory:
        yield memory
        gate.open.set()


def collected(memory: Any, twin: str, *args: Any, **options: Any) -> list[RecallUpdate]:
    if twin == "sync":
        return list(memory.recall_stream(*args, **options))

    async def collect() -> list[RecallUpdate]:
        return [update async for update in memory.arecall_stream(*args, **options)]

    return asyncio.run(collect())


TWINS = pytest.mark.parametrize("twin", ["sync", "async"])


@TWINS
def test_every_span_starts_and_ends_and_the_result_comes_last(plain: Memory, twin: str) -> None:
    updates = collected(plain, twin, "the kiln", limit=1)
    *middle, last = updates
    assert last.type == "done"
    assert last.recall is not None
    assert [match.record.content for match in last.recall] == ["The kiln fires at 1200 degrees."]
    trace = last.recall.trace
    assert trace is not None
    assert len(middle) == 2 * (len(trace.spans) + 1)
    assert (middle[0].type, middle[0].name, middle[0].depth) == ("started", "recall", 0)
    assert (middle[-1].type, middle[-1].name, middle[-1].duration_ms) == (
        "ended", "recall", trace.duration_ms,
    )  # fmt: skip
    steps = [u.name for u in middle if u.type == "started" and u.kind == "step" and u.depth == 1]
    assert tuple(steps) == trace.path
    assert "explore" in steps
    times = [update.at_ms for update in updates]
    assert times == sorted(times)
    ended = {update.span_id: update for update in middle if update.type == "ended"}
    for item in trace.spans:
        assert ended[item.id].facts == item.attrs
        assert ended[item.id].duration_ms == item.duration_ms
    assert {u.depth for u in middle if u.name == "search.query"} == {2}
    assert all(update.recall is None for update in middle)


@TWINS
def test_updates_come_while_the_recall_runs(gated: Memory, gate: Gate, twin: str) -> None:
    async def run() -> list[str]:
        seen = []
        stream, astream = gated.recall_stream(LONG), gated.arecall_stream(LONG)

        async def step() -> RecallUpdate:
            return await (asyncio.to_thread(next, stream) if twin == "sync" else anext(astream))

        while (update := await step()).name != "llm.query_analysis":
            seen.append(update.name)
            assert not gate.open.is_set()
        gate.open.set()
        while update.type != "done":
            update = await step()
        return seen

    assert asyncio.run(run()) == ["recall", "analyze_query"]


@TWINS
def test_all_arguments_of_recall_are_taken(plain: Memory, twin: str) -> None:
    [*_, last] = collected(
        plain, twin, "the kiln", "/studio", None, 5, depth="shallow", trace="full",
        since="2000-01-01T00:00:00+00:00", wait_for_writes=False,
    )  # fmt: skip
    assert last.recall is not None
    assert [match.record.scope for match in last.recall] == ["/studio"]
    assert last.recall.trace is not None
    assert last.recall.trace.level == "full"
    assert last.recall.trace.path == ("search",)


@TWINS
def test_with_tracing_off_there_is_only_the_result(plain: Memory, twin: str) -> None:
    [only] = collected(plain, twin, "the kiln", trace="off")
    assert only.recall is not None
    assert len(only.recall) == 2


@TWINS
def test_views_stream_what_they_may_see(plain: Memory, twin: str) -> None:
    for view in (plain.scope("/studio"), plain.slice(["/studio"])):
        [*_, last] = collected(view, twin, "the glaze")
        assert last.recall is not None
        assert {match.record.scope for match in last.recall} == {"/studio"}


@TWINS
def test_errors_come_out_of_the_iteration_after_what_happened(folder: Any, twin: str) -> None:
    with pytest.raises(TypeError, match="Did you mean 'limit'"):
        Memory.recall_stream(None, "x", limt=1)  # type: ignore[arg-type,call-arg]
    with pytest.raises(TypeError, match="arecall_stream"):
        Memory.arecall_stream(None, "x", zzz=1)  # type: ignore[arg-type,call-arg]
    embedder = FakeEmbedder()
    with Memory(storage=folder, llm=None, embedder=embedder) as memory:
        with pytest.raises(InvalidInputError, match="empty"):
            collected(memory, twin, "")
        embedder.fail = True
        seen: list[RecallUpdate] = []

        def consume() -> None:
            seen.extend(memory.recall_stream("the kiln"))

        async def aconsume() -> None:
            async for update in memory.arecall_stream("the kiln"):
                seen.append(update)

        with pytest.raises(EmbedderError):
            consume() if twin == "sync" else asyncio.run(aconsume())
    assert [(u.type, u.name, u.status) for u in seen[-2:]] == [
        ("ended", "analyze_query", "error"),
        ("ended", "recall", "error"),
    ]
    assert seen[-1].error is not None


def until(condition: Any, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return bool(condition())


def test_leaving_the_loop_early_cancels_the_run(gated: Memory, gate: Gate) -> None:
    for update in gated.recall_stream(LONG):
        if update.name == "llm.query_analysis":
            break
    assert gate.cancelled.wait(5)


async def test_leaving_the_async_loop_early_cancels_the_run(gated: Memory, gate: Gate) -> None:
    async for update in gated.arecall_stream(LONG):
        if update.name == "llm.query_analysis":
            break
    assert await asyncio.to_thread(gate.cancelled.wait, 5)


@pytest.mark.parametrize("how", ["close", "with"])
def test_closing_cancels_the_run_and_ends_the_stream(gated: Memory, gate: Gate, how: str) -> None:
    with gated.recall_stream(LONG) as stream:
        while next(stream).name != "llm.query_analysis":
            pass
        if how == "close":
            stream.close()
            assert gate.cancelled.is_set()
    assert gate.cancelled.is_set()
    assert list(stream) == []
    assert stream.recall is None
    stream.close()


async def test_closing_the_async_stream_waits_until_the_run_has_stopped(
    gated: Memory, gate: Gate
) -> None:
    async with gated.arecall_stream(LONG) as stream:
        async for update in stream:
            if update.name == "llm.query_analysis":
                break
    assert gate.cancelled.is_set()
    assert [update async for update in stream] == []


async def test_cancelling_the_task_cancels_the_run(gated: Memory, gate: Gate) -> None:
    async def consume() -> None:
        async for _ in gated.arecall_stream(LONG):
            pass

    task = asyncio.create_task(consume())
    assert await asyncio.to_thread(gate.asked_for.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gate.cancelled.wait, 5)


async def test_a_cancel_that_comes_after_news_was_taken_cancels_the_run_too(
    gated: Memory, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = gated.arecall_stream(LONG)
    runtime = stream._feed.runtime
    arun = runtime.arun

    async def taken_then_cancelled(coro: Any) -> Any:
        await arun(coro)
        assert await asyncio.to_thread(gate.asked_for.wait, 5)
        raise asyncio.CancelledError

    monkeypatch.setattr(runtime, "arun", taken_then_cancelled)
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    assert await asyncio.to_thread(gate.cancelled.wait, 5)


def test_a_stream_nobody_reads_runs_nothing(gated: Memory, gate: Gate) -> None:
    stream = gated.recall_stream(LONG)
    time.sleep(0.01)
    assert not gate.asked_for.is_set()
    stream.close()
    assert list(stream) == []
    assert not gate.asked_for.is_set()


async def test_the_loop_goes_on_while_a_recall_is_read(gated: Memory, gate: Gate) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticker = asyncio.create_task(tick())
    asyncio.get_running_loop().call_later(0.05, gate.open.set)
    async for _ in gated.arecall_stream(LONG):
        pass
    ticker.cancel()
    assert ticks >= 5


def test_a_recall_inside_the_recall_is_not_told(folder: Any) -> None:
    with Memory(storage=folder, llm=None, embedder=FakeEmbedder()) as inner:

        def model(prompt: str) -> str:
            inner.recall("the kiln")
            return '{"sub_queries": ["the kiln"]}'

        with Memory(storage=folder, llm=model, embedder=FakeEmbedder()) as memory:
            updates = list(memory.recall_stream(LONG))
    assert [update.name for update in updates].count("recall") == 3  # start, end, result


def test_a_blocking_stream_on_our_own_loop_is_refused(folder: Any) -> None:
    class Careless(ScriptedLLM):
        async def complete(self, request: Any) -> Any:
            with pytest.raises(RuntimeMisuseError):
                next(memory.recall_stream("the kiln"))
            return await super().complete(request)

    llm = Careless({"query_analysis": {"sub_queries": ["the kiln"]}})
    with Memory(storage=folder, llm=llm, embedder=FakeEmbedder()) as memory:
        memory.recall(LONG)
    assert llm.requests


def test_streams_and_traces_let_each_other_go(plain: Memory) -> None:
    gc.collect()
    gc.disable()
    try:
        stream = plain.recall_stream("the kiln")
        [*_, last] = stream
        assert last.recall is not None
        assert stream.recall is last.recall
        feed = weakref.ref(stream._feed)
        trace: Trace | None = last.recall.trace
        assert trace is not None
        del stream, last
        assert until(lambda: feed() is None, 1.0)
        assert trace._watchers == ()
    finally:
        gc.enable()


def test_an_update_reads_well_and_obeys_nothing() -> None:
    update = RecallUpdate(
        "ended", "search\x1b[31m", "step", 1, 3.25, 1.5, facts={"hits": 3, "x": None}
    )
    assert str(update) == r"   3.2 ms   - search\x1b[31m 1.5 ms hits=3"
    failed = RecallUpdate("ended", "search", "step", 1, 3.0, 1.5, "error", "StoreError: a\nb")
    assert str(failed).endswith(r"failed: StoreError: a\nb")


@pytest.mark.parametrize("kind", [Memory, MemoryScope, MemorySlice])
def test_streams_share_the_signature_of_recall(kind: Any) -> None:
    expected = inspect.signature(Memory.recall)
    for name, returned in (("recall_stream", RecallStream), ("arecall_stream", AsyncRecallStream)):
        method = getattr(kind, name)
        signature = inspect.signature(method)
        assert list(signature.parameters.values()) == list(expected.parameters.values())
        assert signature.return_annotation == returned.__name__
        assert method.__name__ == name
        assert "RecallUpdate" in method.__doc__
