"""Engine: the few requests QdrantStore makes, spoken in `qdrant_client.models`.

An engine is a place that holds collections, one per embedder generation, and one manifest. There
are two: `edge` (embedded) and `server`. Everything above this line is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from uuid import UUID

from qdrant_client import models

from .backend import Capabilities, SparseVector
from .held import Held

DENSE = "dense"
LEXICAL = "lexical"

PointId = int
"""A point's id as an integer; a UUID's is its 128 bits. Engines hand over and take this form: a
search keeps some hundred ids in dictionaries, and a UUID object is hashed and compared in Python."""
Condition = models.Condition
Fields = bool | Sequence[str]


def native(key: models.ExtendedPointId) -> int | UUID:
    """Return a point id as Qdrant takes it: up to 64 bits as an integer, above as a UUID."""
    number = as_int(key)
    return number if number < 1 << 64 else UUID(int=number)


def as_int(key: models.ExtendedPointId) -> PointId:
    """Return a point id, however it is written, as the integer."""
    return key if isinstance(key, int) else UUID(str(key)).int


KEYWORD_INDEXES = (
    "scopes",
    "scope",
    "categories",
    "sources",
    "record_id",
    "text_hash",
    "analysis",
    "hidden_by",
    "retired",
    "superseded_by",
    "session",
    "metadata_terms",
)
DATETIME_INDEXES = ("created_at", "valid_from", "valid_to", "expires_at")
FLOAT_INDEXES = ("importance", "position")
TENANT_INDEX = "tenant"


class Where(NamedTuple):
    """What a request may see: a filter that engines may cache, and conditions of this one request.

    All of it must hold: the filter, every condition of `must`, and none of `must_not`.
    """

    filter: models.Filter | None = None
    must: tuple[Condition, ...] = ()
    must_not: tuple[Condition, ...] = ()

    def also(self, must: Sequence[Condition] = (), must_not: Sequence[Condition] = ()) -> Where:
        """Return this narrowed by further conditions."""
        return Where(self.filter, (*self.must, *must), (*self.must_not, *must_not))

    def hidden(self) -> Where | None:
        """Return what this hides of all there is; None when that is no simple condition."""
        base = self.filter
        if self.must or (base is not None and (base.must or base.should or base.min_should)):
            return None
        hiding = [*_as_list(base.must_not if base else None), *self.must_not]
        return Where(models.Filter(should=hiding)) if hiding else None

    def merged(self) -> models.Filter | None:
        """Return one plain filter; None when everything may be seen."""
        if not self.must and not self.must_not:
            return self.filter
        base = self.filter
        if base is None:
            return models.Filter(must=list(self.must), must_not=list(self.must_not))
        return models.Filter(
            must=[*_as_list(base.must), *self.must],
            must_not=[*_as_list(base.must_not), *self.must_not],
            should=base.should,
        )


EVERYTHING = Where()


class Hit(NamedTuple):
    """One scored point."""

    id: PointId
    score: float
    payload: dict[str, Any]


def columns(hits: Sequence[Hit]) -> tuple[list[PointId], list[float]]:
    """Return the ids and the scores of hits, without making each a Hit where it is not one yet."""
    made = getattr(hits, "columns", None)
    if made is not None:
        return cast("tuple[list[PointId], list[float]]", made())
    return [hit.id for hit in hits], [hit.score for hit in hits]


class Row(NamedTuple):
    """One stored point; vectors only when asked for, `order` only from `ordered`."""

    id: PointId
    payload: dict[str, Any]
    dense: Sequence[float] | None = None
    lexical: SparseVector | None = None
    order: float = 0.0


class Collection(Protocol):
    """One generation of points. Safe to call from several threads."""

    def upsert(self, points: Sequence[models.PointStruct]) -> None:
        """Write points in one operation: all of them become visible, or none."""
        ...

    def delete(self, ids: Sequence[PointId]) -> None:
        """Delete points in one operation; ids not found are ignored."""
        ...

    def set_payload(self, ids: Sequence[PointId], payload: Mapping[str, Any]) -> None:
        """Set these payload fields on these points; other fields stay."""
        ...

    def query(
        self,
        vector: Sequence[float] | SparseVector,
        limit: int,
        where: Where = EVERYTHING,
        *,
        threshold: float | None = None,
        fields: Fields = True,
    ) -> Sequence[Hit]:
        """Return the exact nearest points, best first.

        Args:
            vector: a list for the dense vector (cosine), a SparseVector for the lexical one.
            limit: the most points to return.
            where: what may be seen.
            threshold: leave out points that score below it.
            fields: payload fields to return; True for all, False for none.
        """
        ...

    def held(self, terms: SparseVector, limit: int, where: Where = EVERYTHING) -> Held:
        """Return which points hold which of a query's terms, with the weights as they are stored.

        Args:
            terms: the query, its indices in ascending order; its weights do not matter.
            limit: the most points, not less than `where` shows.
            where: what may be seen.
        """
        ...

    def ordered(
        self,
        key: str,
        limit: int,
        where: Where = EVERYTHING,
        *,
        descending: bool = True,
        fields: Fields = True,
    ) -> list[Row]:
        """Return points in the order of an indexed field; points without it are left out.

        Each row's `order` is the field's value; a time's is in microseconds since the epoch.
        """
        ...

    def scroll(
        self,
        limit: int,
        where: Where = EVERYTHING,
        *,
        offset: PointId | None = None,
        fields: Fields = True,
        vectors: bool = False,
    ) -> tuple[list[Row], PointId | None]:
        """Return one page of points by point id, and where the next page starts."""
        ...

    def retrieve(
        self, ids: Sequence[PointId], *, fields: Fields = True, vectors: bool = False
    ) -> list[Row]:
        """Return these points, any order; ids not found are left out."""
        ...

    def count(self, where: Where = EVERYTHING, *, exact: bool = True) -> int:
        """Return how many points match; a quick estimate when not `exact`."""
        ...

    def facet(self, key: str, where: Where = EVERYTHING) -> dict[str, int]:
        """Return the exact count of each value of a keyword field."""
        ...

    def sync(self) -> None:
        """Make everything written safe against power loss, without holding up other threads."""
        ...

    def flush(self) -> None:
        """Make everything written safe and shorten the log that a reopened store replays."""
        ...

    def recover(self) -> None:
        """Open anew after a failed flush; nothing written is lost. Nobody else may use it now."""
        ...


class Engine(Protocol):
    """A place that holds one manifest and the collections it names."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether no other process can write here, so that facts about the data may be cached."""
        ...

    @property
    def sidecar(self) -> Path | None:
        """A folder beside the data; None when there is none."""
        ...

    @property
    def owned(self) -> bool:
        """Whether it was claimed; always, where several processes may write."""
        ...

    def claim(self) -> None:
        """Take ownership for writing, making the place when it does not exist."""
        ...

    def read_manifest(self) -> dict[str, Any] | None:
        """Return the manifest, None when nothing was written yet.

        A place that was ever claimed is claimed first: it may belong to another process now.
        """
        ...

    def write_manifest(self, manifest: Mapping[str, Any] | None) -> None:
        """Replace the manifest at once and safely; None removes it."""
        ...

    def create(self, generation: int, dimension: int) -> Collection:
        """Make the collection of a generation, discarding a leftover of the same number."""
        ...

    def open(self, generation: int, dimension: int) -> Collection:
        """Return the collection of a generation, opening it when needed."""
        ...

    def discard(self, generation: int) -> None:
        """Erase the collection of a generation; nothing happens when there is none."""
        ...

    def generations(self) -> list[int]:
        """Return the generations that exist here."""
        ...

    def close(self) -> None:
        """Release everything; safe to call twice."""
        ...


def _as_list(conditions: Any) -> list[Any]:
    if conditions is None:
        return []
    return list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
