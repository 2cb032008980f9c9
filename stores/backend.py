"""StorageBackend: the narrow contract every store fulfils, and the values it passes.

All methods are synchronous and safe to call from several threads at once; the flows call them in
worker threads. A backend never sees a language model, an embedder or a workflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mnemotrace.records import MemoryRecord

from .selection import Selection

Vector = NDArray[np.float32]

WEIGHT_STEP = 2.0**-14
"""What the lexical weights of stored texts are multiples of, so that they can be told from scores."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """A lexical vector.

    Attributes:
        indices: token ids, ascending and unique.
        values: their weights, as many.
        counted: of a query: the token ids that tell how much of it a record holds; all when None.
    """

    indices: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    counted: frozenset[int] | None = field(default=None, compare=False)

    @property
    def asked(self) -> frozenset[int]:
        """The token ids that tell how much of a query a record holds."""
        return frozenset(self.indices) if self.counted is None else self.counted

    def __bool__(self) -> bool:
        return bool(self.indices)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a store says of itself, so that it is never read with the wrong embedder.

    Attributes:
        schema_version: of the point schema.
        embedder: the embedder's fingerprint: ``provider``, ``model``, ``dimension`` and a
            ``canary`` (the vector of a fixed text) plus ``calibration``; plain JSON.
        lexical: name and version of the lexical tokenizer.
        generation: number of the collection in use; a reindex makes the next one.
        reindex: an unfinished reindex (``{"generation": n, "embedder": {...}}``), else None.
    """

    schema_version: int
    embedder: Mapping[str, Any]
    lexical: str
    generation: int = 1
    reindex: Mapping[str, Any] | None = None

    @property
    def dimension(self) -> int:
        """Length of every dense vector in the store."""
        return int(self.embedder["dimension"])


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A record version to be written, with its vectors.

    `dense` may be of any length but zero; the store normalises it. It is None only for a change
    that keeps the text: the store then takes what is None of both vectors from that version as it
    is stored, or else from the version before it.
    """

    record: MemoryRecord
    text_hash: str
    dense: Vector | None = None
    lexical: SparseVector | None = None


@dataclass(frozen=True, slots=True)
class Retirement:
    """A living version that stops being current."""

    record_id: str
    version: int
    valid_to: datetime
    reason: str = "superseded"
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Changes that become visible together, or not at all.

    Attributes:
        versions: new versions; writing the same (id, version) again changes nothing else.
        retire: versions that stop being current.
        expect: for each record id, the version that must still be current (0: no such record
            may exist). When one does not hold, nothing is written and `commit` returns False.
        lexical: new lexical vectors of stored versions, by (id, version); those not found, and
            those that are retired in this batch, are left out.
    """

    versions: Sequence[NewVersion] = ()
    retire: Sequence[Retirement] = ()
    expect: Mapping[str, int] = field(default_factory=dict)
    lexical: Mapping[tuple[str, int], SparseVector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranking:
    """How candidates are scored; see `mnemotrace.scoring`.

    `scoped_idf`: where few records are in sight, a word is as rare as it is among them; else, and
    for large selections, as it is in the whole store.
    """

    semantic_weight: float
    recency_weight: float
    importance_weight: float
    half_life_days: float
    lexical_weight: float
    now: datetime
    scoped_idf: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """One record found by a search, with its raw signals."""

    record: MemoryRecord
    cosine: float
    lexical: float
    """Raw lexical score over the best visible one, 0..1."""
    semantic: float
    recency: float
    score: float


@dataclass(slots=True)
class SearchResult:
    """The exact top-k of one search: equal to scoring every visible record.

    Attributes:
        candidates: best first; ties by newest, then by id.
        best_cosine: the highest cosine over all visible records; None when there are none.
        ordinary_cosine: the 20th highest cosine over all visible records; None when there are fewer.
        ordinary_lexical: the 20th highest lexical score over the highest, 0..1; None when there
            are fewer records than that.
        best_lexical: the highest raw lexical score over all visible records, 0.0 when none.
        coverage: the share, 0..1, of the query's terms in the record that has it.
        lexical_weight: the weight the lexical signal had, see `mnemotrace.scoring.lexical_share`.
        idf: the inverse document frequency of each term of the query among the visible records;
            None where it was that of the whole store, as the engine keeps it.
        facts: what ran, for the trace: plan (``selective`` or ``broad``), rounds, candidates seen.
        unreadable: ids of stored rows that could not be read; reported, never raised.
    """

    candidates: list[Candidate] = field(default_factory=list)
    best_cosine: float | None = None
    ordinary_cosine: float | None = None
    ordinary_lexical: float | None = None
    best_lexical: float = 0.0
    coverage: float = 0.0
    lexical_weight: float = 0.0
    idf: Mapping[int, float] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


class Order(StrEnum):
    """Orders a listing can have."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LAST = "last"
    """By position, the highest first; records without one are left out."""
    FIRST = "first"
    """By position, the lowest first; records without one are left out."""


class Facet(StrEnum):
    """Fields whose values a store can count."""

    SCOPES = "scopes"
    """Subtree counts: a record at /a/b counts once for /a and once for /a/b."""
    CATEGORIES = "categories"
    SOURCES = "sources"
    RECORD_IDS = "record_id"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the contract."""

    name: str
    embedded: bool
    persistent: bool


@dataclass(frozen=True, slots=True)
class Access:
    """Batched access statistics of one record."""

    record_id: str
    count: int
    last_accessed: datetime


@runtime_checkable
class StorageBackend(Protocol):
    """Where records live. Implement this to bring your own store.

    Before `initialise` has been called the store is empty: reads find nothing. Every method raises
    `mnemotrace.errors.StoreError` (or a subclass) when the engine fails.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    @property
    def sidecar(self) -> Path | None:
        """A folder beside the data for the outbox; None when the store has no place on disk."""
        ...

    @property
    def place(self) -> object:
        """What stores over the same data have in common; writers of one place take turns."""
        ...

    @property
    def owned(self) -> bool:
        """Whether nobody can take this place from under this process.

        False only for a place that one process at a time may use, while this one has not yet
        taken it: a new one, until something is written or somebody else's is found there.
        """
        return True

    def claim(self) -> None:
        """Take the place where only one process may use it, before anything is accepted for it.

        Raises:
            StoreLockedError: another process has it.
        """

    def manifest(self) -> Manifest | None:
        """Return the manifest, None for a store not yet written."""
        ...

    def initialise(self, manifest: Manifest) -> Manifest:
        """Create the store for this embedder, unless it exists; return the manifest in force."""
        ...

    def commit(self, batch: WriteBatch) -> bool:
        """Write a batch, atomically for readers and across a crash.

        Returns:
            False when `batch.expect` did not hold; then nothing was written.
        """
        ...

    def sequence(self) -> int:
        """Return a number that grows with every change through this process."""
        ...

    def search(
        self,
        selection: Selection,
        dense: Vector,
        lexical: SparseVector,
        ranking: Ranking,
        limit: int,
    ) -> SearchResult:
        """Return the exact top `limit` visible records under `ranking`."""
        ...

    def nearest(
        self, selection: Selection, dense: Vector, limit: int, min_cosine: float
    ) -> list[tuple[MemoryRecord, float]]:
        """Return visible records by cosine alone, highest first, none below `min_cosine`."""
        ...

    def get(self, selection: Selection, record_ids: Sequence[str]) -> list[MemoryRecord]:
        """Return the visible versions of these records (one each unless `history`), any order."""
        ...

    def vectors(self, selection: Selection, record_ids: Sequence[str]) -> dict[str, Vector]:
        """Return the dense vector of each visible record; missing ids are left out."""
        ...

    def list_records(
        self, selection: Selection, limit: int, offset: int = 0, order: Order = Order.NEWEST
    ) -> list[MemoryRecord]:
        """Return visible records in an order; unreadable rows are left out.

        Ties in ``created_at`` are broken by position, then by session and id; records without a
        position are the oldest of one time. Positions are unique within one session only.
        """
        ...

    def count(self, selection: Selection) -> int:
        """Return the exact number of visible versions."""
        ...

    def facet(self, selection: Selection, facet: Facet) -> dict[str, int]:
        """Return the exact count of each value over the visible records."""
        ...

    def erase(self, selection: Selection) -> tuple[list[str], int]:
        """Erase the selected records with all their versions.

        Returns:
            The ids of the records erased and the number of stored versions that went.
        """
        ...

    def drop(self) -> None:
        """Erase everything, manifest included; the store is as new."""
        ...

    def record_access(self, accesses: Sequence[Access]) -> None:
        """Add batched access statistics to current versions; ids not found are ignored."""
        ...

    def begin_reindex(self, embedder: Mapping[str, Any]) -> StorageBackend:
        """Return the next generation of this store, to be filled for another embedder.

        A generation begun earlier for the same embedder is returned as it was left; one begun
        for a different embedder is discarded.
        """
        ...

    def finish_reindex(self) -> None:
        """Put the next generation in force, at once, and erase the old one."""
        ...

    def dump(self, limit: int, cursor: str | None = None) -> tuple[list[MemoryRecord], str | None]:
        """Return every stored version, page by page; the cursor is None after the last page."""
        ...

    def flush(self) -> None:
        """Make everything committed safe against power loss."""
        ...

    def compact(self) -> None:
        """Reclaim the space of what was erased, so that none of it is left in the store's files.

        It takes as long as writing everything anew; readers go on meanwhile, writers may wait. A
        server does this by itself.
        """
        ...

    def close(self) -> None:
        """Release the store; safe to call twice."""
        ...
