"""Short ways to say what a store test needs: records with vectors, and a fixed clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import (
    Manifest,
    NewVersion,
    Ranking,
    Retirement,
    SparseVector,
    StorageBackend,
    Vector,
    WriteBatch,
)
from mnemotrace.stores.points import SCHEMA_VERSION
from mnemotrace.stores.selection import Selection

Numbers = Sequence[float] | NDArray[Any]

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DIMENSION = 4
EMBEDDER = {"provider": "test", "model": "toy", "dimension": DIMENSION, "canary": [1.0, 0, 0, 0]}
MANIFEST = Manifest(schema_version=SCHEMA_VERSION, embedder=EMBEDDER, lexical="toy-1")
EVERYTHING = Selection(include_private=True, history=True)

RELEVANCE = Ranking(1.0, 0.0, 0.0, 30.0, 0.0, NOW)
"""Semantic similarity alone."""
DEFAULT = Ranking(0.5, 0.3, 0.2, 30.0, 0.35, NOW)
"""The default weights."""


def vector(*values: float) -> Vector:
    """Return a dense vector, filled up with zeros."""
    return np.array([*values, *[0.0] * (DIMENSION - len(values))], dtype=np.float32)


def terms(*indices: int) -> SparseVector:
    """Return a lexical vector that holds each of these terms once."""
    return SparseVector(tuple(sorted(indices)), (1.0,) * len(indices))


def version(
    record_id: str,
    dense: Numbers | None = (1.0,),
    lexical: SparseVector | None = None,
    **fields: Any,
) -> NewVersion:
    """Return a version of a record, made at `NOW` unless said otherwise."""
    defaults: dict[str, Any] = {"content": f"text of {record_id}"}
    defaults |= {"created_at": NOW, "last_accessed": NOW}
    record = MemoryRecord(id=record_id, **(defaults | fields))
    return NewVersion(
        record=record,
        text_hash=f"hash of {record.content}",
        dense=None if dense is None else vector(*dense),
        lexical=lexical,
    )


def save(store: StorageBackend, *versions: NewVersion) -> None:
    """Write versions without conditions."""
    assert store.commit(WriteBatch(versions))


def supersede(
    store: StorageBackend, record_id: str, old: int, new: NewVersion, at: datetime = NOW
) -> bool:
    """Write a version that takes over from another one."""
    retirement = Retirement(record_id, old, at, superseded_by=new.record.id)
    return store.commit(WriteBatch([new], [retirement], {record_id: old}))


def ids(records: Iterable[MemoryRecord]) -> list[str]:
    """Return the ids in order."""
    return [record.id for record in records]


def listed(
    store: StorageBackend, selection: Selection | None = None, limit: int = 1000
) -> set[str]:
    """Return the ids of what a selection shows."""
    return set(ids(store.list_records(selection or Selection(), limit)))


def found(
    store: StorageBackend,
    selection: Selection | None = None,
    query: Numbers = (1.0,),
    limit: int = 10,
    ranking: Ranking = RELEVANCE,
    lexical: SparseVector | None = None,
) -> list[str]:
    """Return the ids of the best hits, best first."""
    result = store.search(
        selection or Selection(), vector(*query), lexical or SparseVector(), ranking, limit
    )
    return [candidate.record.id for candidate in result.candidates]


def ago(**parts: float) -> datetime:
    """Return a time before `NOW`."""
    return NOW - timedelta(**parts)
