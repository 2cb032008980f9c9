"""Flow and MemoryMixin: memory inside a user's own classes, drained and closed when it is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from workflows import step
from workflows.errors import WorkflowCancelledByUser
from workflows.events import Event, StartEvent, StopEvent

from mnemotrace import Flow, Memory, MemoryMixin, MemoryRecord, SaveReceipt
from mnemotrace.errors import MemoryClosedError, RuntimeMisuseError, ScopePermissionError
from mnemotrace.testing import FakeEmbedder, ScriptedLLM


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One store for the whole module: making one takes half a second."""
    path = tmp_path_factory.mktemp("flow")
    with Memory(llm=None, storage=path, embedder=FakeEmbedder()) as holder:
        holder.remember("the first text makes the store")
        yield path


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def memory(folder: Path, embedder: FakeEmbedder) -> Iterator[Memory]:
    llm = ScriptedLLM({"extraction": {"memories": ["one fact", "one fact", "another fact"]}})
    with Memory(llm=llm, storage=folder, embedder=embedder, consolidation_threshold=1.0) as opened:
        opened.forget(scope="/", include_private=True)
        yield opened


class Asked(Event):
    text: str


class Researcher(Flow):
    """Remembers in one step and recalls in the next."""

    broken = False

    @step
    async def gather(self, ev: StartEvent) -> Asked:
        await self.aremember(["tea is green", "ink is black"], scope="/facts")
        await self.aremember("rain is wet", scope="/facts", importance=0.9)
        return Asked(text=ev.question)

    @step
    async def answer(self, ev: Asked) -> StopEvent:
        found = await self.arecall(ev.text, limit=1)
        await self.aremember_in_background()
        if self.broken:
            raise LookupError("the archive is closed")
        return StopEvent(result=found[0].record.content)

    async def aremember_in_background(self) -> SaveReceipt:
        receipt = await self.aremember([f"note {i}" for i in range(5)])
        assert isinstance(receipt, SaveReceipt)
        return receipt


def stored(memory: Memory) -> set[str]:
    return {record.content for record in memory.list_records()}


WRITTEN = {"tea is green", "ink is black", "rain is wet", *(f"note {i}" for i in range(5))}


async def test_a_flow_remembers_and_recalls(memory: Memory, embedder: FakeEmbedder) -> None:
    flow = Researcher(memory=memory, timeout=20)
    assert await flow.run(question="what is green tea") == "tea is green"
    embedder.fail = True  # nothing is left to be embedded
    assert await memory.adrain_writes(timeout=0.01) == 0
    assert {r.content for r in await memory.alist_records()} == WRITTEN


@pytest.mark.parametrize("how", ["awaited", "not awaited"])
async def test_saves_are_drained_when_a_step_raises(
    memory: Memory, embedder: FakeEmbedder, how: str
) -> None:
    embedder.delay = 0.05  # so that saves are still pending when the run ends
    flow = Researcher(memory=memory, timeout=20)
    flow.broken = True
    handler = flow.run(question="tea")
    if how == "awaited":
        with pytest.raises(LookupError, match="archive"):
            await handler
    else:
        await asyncio.wait([handler._finished])
    embedder.fail = True
    assert await memory.adrain_writes(timeout=0.01) == 0
    assert {r.content for r in await memory.alist_records()} == WRITTEN


class Waiting(Flow):
    """Saves in the background, then waits for ever."""

    started: asyncio.Event

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        await self.aremember(["said before waiting"])
        self.started.set()
        await asyncio.sleep(60)
        return StopEvent()


@pytest.mark.parametrize("how", ["cancel_run", "task"])
async def test_saves_are_drained_when_a_run_is_cancelled(
    memory: Memory, embedder: FakeEmbedder, how: str
) -> None:
    embedder.delay = 0.05
    flow = Waiting(memory=memory, timeout=60)
    flow.started = asyncio.Event()
    handler = flow.run()
    if how == "cancel_run":
        await flow.started.wait()
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler
    else:

        async def result() -> Any:
            return await handler

        task = asyncio.create_task(result())
        await flow.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    embedder.fail = True
    assert await memory.adrain_writes(timeout=0.01) == 0
    assert {r.content for r in await memory.alist_records()} == {"said before waiting"}


class Streaming(Flow):
    """Tells what it does."""

    @step
    async def work(self, ev: StartEvent) -> Asked:
        return Asked(text="half-way")

    @step
    async def end(self, ev: Asked) -> StopEvent:
        return StopEvent(result=len(await self.arecall("anything")))


async def test_a_run_can_be_streamed_and_repeated(memory: Memory) -> None:
    flow = Streaming(memory=memory, timeout=20)
    handler = flow.run()
    seen = [type(event).__name__ async for event in handler.stream_events()]
    assert "StopEvent" in seen
    assert await handler == await handler == 0
    results = await asyncio.gather(*(flow.run() for _ in range(5)))
    assert results == [0] * 5


def test_a_flow_needs_an_event_loop_and_says_so(memory: Memory) -> None:
    with pytest.raises(RuntimeMisuseError, match=r"asyncio\.run"):
        Streaming(memory=memory).run()


async def test_a_flow_stays_within_the_view_it_was_given(memory: Memory) -> None:
    await memory.aremember("tea is a secret", "/elsewhere")
    flow = Researcher(memory=memory.scope("/agent/b"), timeout=20)
    await flow.run(question="tea")
    records = await memory.alist_records("/agent/b")
    assert {record.content for record in records} == WRITTEN
    assert {record.scope for record in records} == {"/agent/b", "/agent/b/facts"}
    read_only = Researcher(memory=memory.slice(["/agent/b"]), timeout=20)
    with pytest.raises(ScopePermissionError):
        await read_only.run(question="tea")


class Notebook(MemoryMixin):
    """Any class."""


def test_the_mixin_gives_any_class_a_memory(memory: Memory) -> None:
    notebook = Notebook()
    notebook.memory = memory.scope("/book")
    record = notebook.remember("tea is green", importance=0.5)
    assert isinstance(record, MemoryRecord)
    assert record.scope == "/book"
    texts: list[str | dict[str, str]] = ["ink is black", {"content": "rain", "scope": "wet"}]
    receipt = notebook.remember(iter(texts))
    assert isinstance(receipt, SaveReceipt)
    receipt.wait(10)
    assert {m.record.content for m in notebook.recall("tea")} == {
        "tea is green",
        "ink is black",
        "rain",
    }
    assert notebook.extract_memories("a long text") == ["one fact", "another fact"]
    assert stored(memory) == {"tea is green", "ink is black", "rain"}


async def test_the_mixin_has_async_twins(memory: Memory) -> None:
    notebook = Notebook()
    notebook.memory = memory
    record = await notebook.aremember("tea is green", scope="/a")
    assert isinstance(record, MemoryRecord)
    receipt = await notebook.aremember(["ink is black"])
    assert isinstance(receipt, SaveReceipt)
    assert len(await notebook.arecall("tea", depth="shallow")) == 2
    assert await notebook.aextract_memories("text") == ["one fact", "another fact"]
    with pytest.raises(TypeError, match="Did you mean 'limit'"):
        await notebook.arecall("tea", limits=1)


def test_a_memory_that_was_handed_in_stays_open(memory: Memory) -> None:
    notebook = Notebook()
    notebook.memory = memory
    notebook.close_memory()
    assert memory.list_records() == []
    view = memory.scope("/a")
    notebook.memory = view
    notebook.memory = None
    assert view.list_records() == []


def test_objects_do_not_share_what_one_was_given(memory: Memory) -> None:
    first, second = Notebook(), Notebook()
    first.memory, second.memory = memory.scope("/a"), memory.scope("/b")
    first.remember("mine")
    assert second.recall("mine") == []


def test_a_default_memory_is_opened_on_first_use_and_closed_again(tmp_path: Path) -> None:
    """Opened once, however many threads ask first; in the working folder, with no key needed."""
    notebook = Notebook()
    notebook.close_memory()
    assert list(tmp_path.iterdir()) == []
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: notebook.memory, range(8)))
    memory = opened[0]
    assert isinstance(memory, Memory)
    assert all(other is memory for other in opened)
    notebook.remember("tea is green")
    assert (tmp_path / ".mnemotrace" / "memory").is_dir()
    notebook.close_memory()
    with pytest.raises(MemoryClosedError):
        memory.list_records()
    assert [match.record.content for match in notebook.recall("tea")] == ["tea is green"]
    assert notebook.memory is not memory
    replaced = notebook.memory
    notebook.memory = None
    with pytest.raises(MemoryClosedError):
        replaced.list_records()


async def test_a_flow_without_a_memory_never_opens_one(tmp_path: Path) -> None:
    class Plain(Flow):
        @step
        async def work(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=1)

    assert await Plain(timeout=5).run() == 1
    assert list(tmp_path.iterdir()) == []
