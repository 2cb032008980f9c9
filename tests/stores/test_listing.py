"""The order of a listing among records of one time: as they were saved, on every engine."""

from __future__ import annotations

from pathlib import Path

from mnemotrace import Memory
from mnemotrace.stores.backend import Order
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.selection import Selection
from mnemotrace.testing import FakeEmbedder

from .building import save, version

DAY = "2025-03-01"
BATCHES = [
    [f"Fact {number} of the kiln." for number in range(7)],
    [f"Fact {number} of the ferry." for number in range(7)],
]
SINGLE = [f"Note {number}." for number in range(5)]


def fill(memory: Memory) -> list[str]:
    """Save two batches and some single texts, all of one day; returns them, newest first."""
    for texts in BATCHES:
        memory.remember_many(texts, scope="/f", created_at=DAY)
    memory.drain_writes()
    for text in SINGLE:
        memory.remember(text, scope="/f", created_at=DAY)
    return [*BATCHES[0], *BATCHES[1], *SINGLE][::-1]


def listed(memory: Memory) -> list[str]:
    return [record.content for record in memory.list_records("/f")]


def test_texts_of_one_time_are_listed_as_they_were_saved(new_store: QdrantStore) -> None:
    with Memory(llm=None, storage=new_store, embedder=FakeEmbedder()) as memory:
        saved = fill(memory)
        assert listed(memory) == saved
        pages = [memory.list_records("/f", limit=4, offset=start) for start in range(0, 20, 4)]
        assert [record.content for page in pages for record in page] == saved
        moved = memory.list_records("/f")[-1]
        memory.update(moved.id, content="Fact 0 of the kiln, told again.")
        assert listed(memory) == [*saved[:-1], "Fact 0 of the kiln, told again."]


def test_the_order_outlives_closing_and_moving(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    with Memory(llm=None, storage=tmp_path / "here", embedder=FakeEmbedder()) as memory:
        saved = fill(memory)
    with Memory(llm=None, storage=tmp_path / "here", embedder=FakeEmbedder()) as memory:
        assert listed(memory) == saved
        memory.export_records(file)
    with Memory(llm=None, storage=tmp_path / "there", embedder=FakeEmbedder()) as memory:
        memory.import_records(file)
        assert listed(memory) == saved


def test_records_that_do_not_tell_when_they_were_saved_are_the_oldest_of_their_time(
    store: QdrantStore,
) -> None:
    """As single texts of earlier releases; by session and id, whichever way."""
    save(store, version("b"), version("z", session="s", position=1), version("a"))
    save(store, version("c", position=2), version("y", session="r", position=1))
    newest = [record.id for record in store.list_records(Selection(), 9)]
    assert newest == ["c", "y", "z", "a", "b"]
    oldest = store.list_records(Selection(), 9, 0, Order.OLDEST)
    assert [record.id for record in oldest] == ["a", "b", "y", "z", "c"]
