"""Stores of schema 1, whose points have UUIDs, work on as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.flows import services
from mnemotrace.stores.backend import StorageBackend
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.testing import FakeEmbedder


def opened(folder: Path) -> Memory:
    return Memory(storage=folder, embedder=FakeEmbedder(), llm=None)


def point_ids(store: StorageBackend) -> list[int]:
    assert isinstance(store, QdrantStore)
    generation = store._generation()
    assert generation is not None
    rows, _ = generation.collection.scroll(100, fields=False)
    return [row.id for row in rows]


def test_a_store_of_schema_1_is_read_changed_and_reindexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(services, "SCHEMA_VERSION", 1)
        with opened(tmp_path) as memory:
            first = memory.remember("The kiln fires at 1200 degrees.")
            other = memory.remember("The glaze is blue.")
            gone = memory.remember("The wheel squeaks.")
    with opened(tmp_path) as memory:
        manifest = memory.store.manifest()
        assert manifest is not None
        assert manifest.schema_version == 1
        memory.update(first.id, content="The kiln fires at 1250 degrees.")
        memory.update(other.id, importance=0.9)
        assert memory.forget(record_ids=[gone.id]) == 1
        ids = point_ids(memory.store)
        assert len(ids) == len(set(ids))
        assert all(key >= 1 << 64 for key in ids)
        assert [record.content for record in memory.history(first.id)] == [
            "The kiln fires at 1200 degrees.",
            "The kiln fires at 1250 degrees.",
        ]
        memory.reindex(FakeEmbedder())
        assert sorted(point_ids(memory.store)) == sorted(ids)
        memory.update(other.id, content="The glaze is green.")
        assert all(key >= 1 << 64 for key in point_ids(memory.store))
    with opened(tmp_path) as memory:
        found = {match.record.content for match in memory.recall("kiln glaze", depth="shallow")}
        assert found == {"The kiln fires at 1250 degrees.", "The glaze is green."}


def test_a_new_store_has_ids_that_fit_into_63_bits(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.remember("The kiln fires at 1200 degrees.")
        assert all(key < 1 << 63 for key in point_ids(memory.store))
