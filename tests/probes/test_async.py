"""Probes 43-46: nothing blocks the event loop, waits for nothing, and grows with time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import psutil  # type: ignore[import-untyped]
import pytest

from mnemotrace import Memory, accesses
from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.errors import MemoryClosedError, StoreError
from mnemotrace.flows.runtime import get_runtime
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

OpenMemory = Callable[..., Memory]
DEPTHS: tuple[Literal["shallow", "deep"], ...] = ("shallow", "deep")


async def longest_pause(work: Any) -> float:
    """Run work; return the longest time that a 5 ms ticker was held up, as a share of all of it.

    Work that blocks the loop gives 1; a busy machine, whose pauses are short, stays far below.
    """
    pauses = [0.0]
    done = asyncio.Event()
    begun = time.perf_counter()

    async def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            pauses.append(now - last - 0.005)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work
    finally:
        done.set()
        await ticker
    assert len(pauses) > 10, "the loop hardly ticked"
    return max(pauses) / (time.perf_counter() - begun)


async def test_the_event_loop_keeps_ticking(open_memory: OpenMemory) -> None:
    """Probe 43: aremember, arecall and their kin do not hold up the caller's loop."""
    embedder = FakeEmbedder()
    memory = await asyncio.to_thread(open_memory, embedder=embedder)
    record = await memory.aremember("a note", "/home")
    embedder.delay = 0.4
    works: dict[str, Callable[[], Any]] = {
        "aremember": lambda: memory.aremember("another note"),
        "arecall": lambda: memory.arecall("note"),
        "arecall shallow": lambda: memory.arecall("note", depth="shallow"),
        "aupdate": lambda: memory.aupdate(record.id, "a changed note"),
        "adrain_writes": memory.adrain_writes,
    }
    await memory.aremember_many(["in the background"])
    for name, work in reversed(works.items()):
        assert await longest_pause(work()) < 0.5, name


async def test_many_runs_at_once_do_not_hold_up_the_loop(open_memory: OpenMemory) -> None:
    """Probe 43: fifty recalls and saves at the same time, while the loop ticks on."""
    memory = await asyncio.to_thread(open_memory)
    await memory.aremember_many([f"note {i}" for i in range(50)])

    async def work() -> None:
        recalls = [memory.arecall(f"note {i}") for i in range(50)]
        saves = [memory.aremember(f"new note {i}") for i in range(10)]
        await asyncio.gather(*recalls, *saves)

    assert await longest_pause(work()) < 0.5


def test_recall_does_not_wait_for_a_thinking_model_when_told_not_to(
    open_memory: OpenMemory,
) -> None:
    """Probe 44: wait_for_writes=False answers while a pending save waits for its model."""
    release, thinking = threading.Event(), threading.Event()

    async def think(request: LLMRequest) -> dict[str, Any]:
        thinking.set()
        while not release.is_set():
            await asyncio.sleep(0.005)
        return {"scope": "/late", "importance": 0.5}

    memory = open_memory(llm=ScriptedLLM({"save_analysis": think}))
    memory.remember("an early note", "/early", ["c"], importance=0.5)
    receipt = memory.remember_many(["a late note"])
    try:
        assert thinking.wait(10)
        for depth in DEPTHS:
            found = memory.recall("note", wait_for_writes=False, depth=depth)
            assert [match.record.content for match in found] == ["an early note"]
            assert found.trace is not None
            assert found.trace.find("read_barrier") == []
            assert found.trace.attrs["pending_batches"] == 1
        assert not receipt.done
        with pytest.raises(TimeoutError):
            memory.drain_writes(timeout=0.05)
    finally:
        release.set()
    found = memory.recall("note")
    assert {match.record.content for match in found} == {"an early note", "a late note"}
    assert receipt.done


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_the_barrier_waits_and_says_so(open_memory: OpenMemory, depth: Any) -> None:
    """Probe 44: with the barrier on, a recall sees what was accepted before it, as traced."""
    memory = open_memory(
        llm=ScriptedLLM({"save_analysis": {"scope": "/late", "importance": 0.5}}, delay=0.2)
    )
    memory.remember_many(["a late note"])
    found = memory.recall("note", depth=depth)
    assert [match.record.content for match in found] == ["a late note"]
    assert found.trace is not None
    (barrier,) = found.trace.find("read_barrier")
    assert barrier.duration_ms > 50
    assert barrier.attrs["pending_batches"] == 1
    assert "read_barrier" in found.trace.render()
    again = memory.recall("note", depth=depth)
    assert again.trace is not None
    assert again.trace.find("read_barrier") == []


def test_every_read_waits_for_accepted_saves(open_memory: OpenMemory) -> None:
    """Probe 44, next of kin: all reads see what was accepted before them."""
    reads: dict[str, Callable[[Memory], object]] = {
        "list_records": lambda m: len(m.list_records()) == 3,
        "info": lambda m: m.info().record_count == 3,
        "tree": lambda m: m.tree().startswith("/ (3 records)"),
        "list_scopes": lambda m: m.list_scopes() == ["/a"],
        "list_categories": lambda m: m.list_categories() == {"c": 3},
        "get": lambda m: m.get("id-0") is not None,
        "history": lambda m: len(m.history("id-1")) == 1,
        "update": lambda m: m.update("id-2", importance=1.0).version == 2,
        "forget": lambda m: m.forget(scope="/a") == 3,
    }
    memory = open_memory(embedder=FakeEmbedder(delay=0.05))
    for name, read in reads.items():
        memory.forget(scope="/")
        memory.remember_many(
            [
                {"content": f"note {i}", "record_id": f"id-{i}", "scope": "/a", "categories": ["c"]}
                for i in range(3)
            ]
        )
        assert read(memory), name


def test_a_closed_memory_says_so_in_every_method(open_memory: OpenMemory) -> None:
    """After close, every method of the memory and of its views raises; closing again is fine."""
    memory = open_memory()
    record = memory.remember("text", "/a")
    views = [memory, memory.scope("/a"), memory.slice(["/a"], read_only=False)]
    memory.close()
    memory.close()
    asyncio.run(memory.aclose())
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("remember", ("t", "/a")),
        ("remember_many", (["t"], "/a")),
        ("extract_memories", ("t",)),
        ("recall", ("t",)),
        ("get", (record.id,)),
        ("history", (record.id,)),
        ("update", (record.id, "u")),
        ("forget", ("/a",)),
        ("reset", ("/a",)),
        ("tree", ()),
        ("info", ()),
        ("list_scopes", ()),
        ("list_categories", ()),
        ("list_records", ()),
        ("dead_letters", ()),
        ("retry_dead_letters", ()),
    ]
    for view in views:
        for name, args in calls:
            with pytest.raises(MemoryClosedError):
                getattr(view, name)(*args)
            with pytest.raises(MemoryClosedError):
                asyncio.run(getattr(view, f"a{name}")(*args))
        assert view.drain_writes() == 0
    for name, args in (("compact", ()), ("reindex", (FakeEmbedder(),))):
        with pytest.raises(MemoryClosedError):
            getattr(memory, name)(*args)

    async def enter() -> None:
        async with memory:
            pass

    told: set[str] = set()
    for use in (memory.__enter__, lambda: asyncio.run(enter()), memory.store.manifest, memory.tree):
        with pytest.raises(MemoryClosedError) as caught:
            use()
        told.add(str(caught.value))
    assert len(told) == 1


def _size(folder: Path) -> tuple[int, int, int]:
    """Return files, their bytes and the blocks they really take, below a folder."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return len(stats), sum(s.st_size for s in stats), sum(s.st_blocks for s in stats)


@pytest.mark.slow
def test_ten_thousand_recalls_leave_disk_and_memory_flat(
    open_memory: OpenMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probe 45: recall is a read: no file grows, no memory is kept."""
    # However slow the machine: what was recalled is written down every five minutes, in place.
    monkeypatch.setattr(accesses, "WRITE_SECONDS", 3600.0)
    memory = open_memory("new")
    memory.remember_many([f"note {i} about {i % 7}" for i in range(200)]).wait()
    queries = [f"note {i}" for i in range(50)]
    process = psutil.Process()

    def recall_all(count: int) -> None:
        for i in range(count):
            assert memory.recall(queries[i % 50], limit=5, depth="shallow")
        gc.collect()

    recall_all(1000)
    memory.store.flush()  # what was saved, which else is flushed at some later moment
    before, resident = _size(tmp_path), process.memory_info().rss
    threads, tasks = threading.active_count(), len(asyncio.all_tasks(get_runtime().loop))
    recall_all(9000)
    files, size, blocks = _size(tmp_path)
    assert (files, size) == before[:2]
    assert blocks <= before[2]  # fewer where the system takes back empty pages of a disk in memory
    assert process.memory_info().rss - resident < 24 * 2**20
    assert threading.active_count() <= threads + 1
    assert len(asyncio.all_tasks(get_runtime().loop)) <= tasks + 1


def test_access_statistics_are_batched(open_memory: OpenMemory) -> None:
    """Probe 45: recalls count accesses, but write none of them before the memory closes."""
    memory = open_memory("new")
    record = memory.remember("a note")
    changes = memory.store.sequence()
    for _ in range(20):
        memory.recall("note")
    assert memory.store.sequence() == changes
    seen = memory.get(record.id)
    assert seen is not None
    assert seen.access_count == 0
    memory.close()
    seen = open_memory("new").get(record.id)
    assert seen is not None
    assert seen.access_count == 20
    assert seen.last_accessed > record.last_accessed
    assert seen.version == 1


def test_closing_waits_for_access_statistics_that_are_being_written(
    open_memory: OpenMemory, delegating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probe 45, next of kin: a writing that has begun ends before the store is given back."""
    monkeypatch.setattr(accesses, "MOST_RECORDS", 1)

    class Slow(delegating):  # type: ignore[misc]
        begun = threading.Event()
        go_on = threading.Event()

        def record_access(self, accesses: Any) -> None:
            self.begun.set()
            assert self.go_on.wait(10)
            self.inner.record_access(accesses)

    memory = open_memory("new", wrap=Slow)
    record = memory.remember("a note")
    memory.recall("note")
    assert Slow.begun.wait(10)
    closing = threading.Thread(target=memory.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    Slow.go_on.set()
    closing.join(10)
    seen = open_memory("new").get(record.id)
    assert seen is not None
    assert seen.access_count == 1


def test_access_statistics_that_could_not_be_written_are_counted_again(
    open_memory: OpenMemory, delegating: Any
) -> None:
    class Full(delegating):  # type: ignore[misc]
        full = True

        def record_access(self, accesses: Any) -> None:
            if self.full:
                raise StoreError("the disk is full")
            self.inner.record_access(accesses)

    memory = open_memory("new", wrap=Full)
    record = memory.remember("a note")
    log = memory._core._accesses
    memory.recall("note")
    with pytest.raises(StoreError):
        get_runtime().run(log.write())
    memory.recall("note")
    assert {name: count for name, (count, _) in log.pending.items()} == {record.id: 2}
    store: Any = memory.store
    store.full = False
    memory.close()
    seen = open_memory("new").get(record.id)
    assert seen is not None
    assert seen.access_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of many kinds", "of one template", "of one template, by name"])
def test_saving_many_is_not_quadratic(open_memory: OpenMemory, kind: str) -> None:
    """Probe 46: four times the texts take about four times as long, not sixteen.

    Texts that are all near each other are the worst case: each may be the twin of each.
    """
    embedder = FakeEmbedder(dimension=16)
    if kind != "of many kinds":
        vector = embedder.embed(["the template"])[0]
        embedder.embed = lambda texts: (  # type: ignore[method-assign]
            FakeEmbedder(dimension=16).embed(texts)
            if tuple(texts) == FIXED_TEXTS
            else [vector] * len(texts)
        )
    memory = open_memory(embedder=embedder)

    def cost(count: int) -> float:
        texts = [f"note {i} of {count}: the quick brown fox" for i in range(count)]
        if kind == "of one template, by name":
            names = [f"{chr(65 + i % 26)}{chr(97 + i // 26)}o" for i in range(count)]
            texts = [f"the quick brown fox knows {name}" for name in names]
        begun = time.process_time()
        records = memory.remember_many(texts, "/many", ["c"]).wait(120)
        spent = time.process_time() - begun
        assert len({record.id for record in records}) == count
        memory.forget(scope="/many")
        return spent

    cost(50)
    small = min(cost(250), cost(250))
    assert cost(1000) < 9 * small
