"""QdrantStore: the store, written once over any engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mnemotrace.errors import InvalidInputError, StoreError
from mnemotrace.records import MemoryRecord, utc_now

from .backend import (
    Access,
    Candidate,
    Capabilities,
    Facet,
    Manifest,
    NewVersion,
    Order,
    Ranking,
    SearchResult,
    SparseVector,
    StorageBackend,
    Vector,
    WriteBatch,
)
from .engine import Collection, Condition, PointId, Row, Where
from .filters import any_of, present, privacy, time_range, visible
from .points import from_payload, point_id, to_payload, to_point
from .ranking import rank
from .selection import Selection
from .space import Space

_PAGE = 1_000
_IDS_AT_ONCE = 1_000


class QdrantStore(StorageBackend):
    """Records in Qdrant. Several objects may share one place; each is closed on its own."""

    def __init__(self, space: Space, *, next_generation: bool = False, on_close: Any = None) -> None:
        self._space = space
        self._next = next_generation
        self._on_close = on_close
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """See `StorageBackend.capabilities`."""
        return self._space.engine.capabilities

    @property
    def sidecar(self) -> Path | None:
        """See `StorageBackend.sidecar`."""
        return self._space.engine.sidecar

    @property
    def place(self) -> object:
        """See `StorageBackend.place`."""
        return self._space

    def _check(self) -> None:
        if self._closed:
            from mnemotrace.errors import MemoryClosedError

            raise MemoryClosedError("This store was closed. Open it again with open_store().")
        self._space.check()

    def manifest(self) -> Manifest | None:
        """See `StorageBackend.manifest`."""
        self._check()
        current = self._space.manifest()
        if current is None or not self._next:
            return current
        if current.reindex is None:
            raise StoreError("This reindex was finished or given up; begin it again.")
        return replace(
            current,
            generation=int(current.reindex["generation"]),
            embedder=dict(current.reindex["embedder"]),
            reindex=None,
        )

    def initialise(self, manifest: Manifest) -> Manifest:
        """See `StorageBackend.initialise`."""
        self._check()
        with self._space.lock.write():
            current = self.manifest()
            if current is not None:
                return current
            self._space.engine.claim()
            current = self.manifest()
            if current is not None:
                return current
            self._space.engine.create(manifest.generation, manifest.dimension)
            self._space.put_manifest(manifest)
            return manifest

    def _open(self) -> tuple[Collection, Manifest] | None:
        manifest = self.manifest()
        if manifest is None:
            return None
        return self._space.collection(manifest.generation), manifest

    def _where(self, selection: Selection, generation: int) -> Where | None:
        return visible(selection, now=utc_now(), expiring=self._space.expiring(generation))

    def _look(self, selection: Selection) -> tuple[Collection, Where] | None:
        """Return where to look and what may be seen; None when there is nothing to see."""
        opened = self._open()
        if opened is None:
            return None
        collection, manifest = opened
        where = self._where(selection, manifest.generation)
        return None if where is None else (collection, where)

    def sequence(self) -> int:
        """See `StorageBackend.sequence`."""
        return self._space.sequence

    def commit(self, batch: WriteBatch) -> bool:
        """See `StorageBackend.commit`.

        Raises:
            StoreError: when the store was not initialised, or a version has no vectors and
                replaces none.
            RecordError: when a record cannot be stored; nothing was written.
        """
        self._check()
        with self._space.lock.write():
            opened = self._open()
            if opened is None:
                raise StoreError("The store was not initialised; nothing was written.")
            collection, manifest = opened
            if not self._holds(collection, batch.expect):
                return False
            points = self._new_points(collection, manifest, batch.versions)
            points += self._retired_points(collection, batch)
            if points:
                collection.upsert(points)
                self._space.sequence += 1
                if any(new.record.expires_at is not None for new in batch.versions):
                    self._space.note_expiring(manifest.generation)
            return True

    def _holds(self, collection: Collection, expect: Mapping[str, int]) -> bool:
        if not expect:
            return True
        current: dict[str, int] = {}
        for row in self._all_rows(
            collection,
            Where(must=(any_of("record_id", list(expect)),)),
            fields=("record_id", "version", "retired"),
        ):
            payload = row.payload
            version = 0 if "retired" in payload else int(payload["version"])
            known = current.get(payload["record_id"], -1)
            current[payload["record_id"]] = max(known, version)
        for record_id, version in expect.items():
            if version == 0:
                if record_id in current:
                    return False
            elif current.get(record_id) != version:
                return False
        return True

    def _new_points(
        self, collection: Collection, manifest: Manifest, versions: Sequence[NewVersion]
    ) -> list[Any]:
        kept = [new for new in versions if new.dense is None]
        before: dict[PointId, Row] = {}
        if kept:
            ids = [point_id(new.record.id, new.record.version - 1) for new in kept]
            rows = collection.retrieve(ids, fields=False, vectors=True)
            before = {str(row.id): row for row in rows}
        points = []
        for new in versions:
            payload = to_payload(new.record, new.text_hash)
            if new.dense is not None:
                dense: Any = unit(new.dense, manifest.dimension)
                points.append(to_point(payload, dense, new.lexical))
                continue
            row = before.get(point_id(new.record.id, new.record.version - 1))
            if row is None or row.dense is None:
                raise StoreError(
                    f"Version {new.record.version} of record {new.record.id!r} has no vectors, and "
                    "the version it replaces is not stored; nothing was written."
                )
            points.append(to_point(payload, row.dense, row.lexical))
        return points

    def _retired_points(self, collection: Collection, batch: WriteBatch) -> list[Any]:
        if not batch.retire:
            return []
        wanted = {point_id(item.record_id, item.version): item for item in batch.retire}
        points = []
        for row in collection.retrieve(list(wanted), vectors=True):
            item = wanted[str(row.id)]
            payload = row.payload
            if "retired" in payload or row.dense is None:
                continue
            payload["retired"] = item.reason
            payload["valid_to"] = item.valid_to.isoformat()
            if item.superseded_by is not None:
                payload["superseded_by"] = item.superseded_by
            points.append(to_point(payload, row.dense, row.lexical))
        return points

    def search(
        self,
        selection: Selection,
        dense: Vector,
        lexical: SparseVector,
        ranking: Ranking,
        limit: int,
    ) -> SearchResult:
        """See `StorageBackend.search`."""
        self._check()
        result = SearchResult()
        if limit <= 0:
            return result
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None:
                return result
            collection, where = looked
            outcome = rank(collection, where, unit(dense).tolist(), lexical, ranking, limit)
        result.best_cosine = outcome.best_cosine
        result.best_lexical = outcome.best_lexical
        result.facts = outcome.facts
        for found in outcome.best:
            record = _read(found.payload, result.unreadable)
            if record is not None:
                result.candidates.append(
                    Candidate(
                        record=record,
                        cosine=found.cosine,
                        lexical=found.lexical,
                        semantic=found.semantic,
                        recency=found.recency,
                        score=found.score,
                    )
                )
        return result

    def nearest(
        self, selection: Selection, dense: Vector, limit: int, min_cosine: float
    ) -> list[tuple[MemoryRecord, float]]:
        """See `StorageBackend.nearest`."""
        self._check()
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None or limit <= 0:
                return []
            collection, where = looked
            hits = collection.query(unit(dense).tolist(), limit, where, threshold=min_cosine)
        found = []
        for hit in hits:
            record = _read(hit.payload)
            if record is not None:
                found.append((record, min(1.0, max(-1.0, hit.score))))
        return found

    def get(self, selection: Selection, record_ids: Sequence[str]) -> list[MemoryRecord]:
        """See `StorageBackend.get`."""
        self._check()
        with self._space.lock.read():
            looked = self._look(selection.narrow(record_ids=tuple(record_ids)))
            if looked is None:
                return []
            rows = self._all_rows(*looked)
        return [record for row in rows if (record := _read(row.payload)) is not None]

    def vectors(self, selection: Selection, record_ids: Sequence[str]) -> dict[str, Vector]:
        """See `StorageBackend.vectors`."""
        self._check()
        with self._space.lock.read():
            looked = self._look(selection.narrow(record_ids=tuple(record_ids)))
            if looked is None:
                return {}
            rows = self._all_rows(*looked, fields=("record_id",), vectors=True)
        return {
            row.payload["record_id"]: np.asarray(row.dense, dtype=np.float32)
            for row in rows
            if row.dense is not None
        }

    def list_records(
        self, selection: Selection, limit: int, offset: int = 0, order: Order = Order.NEWEST
    ) -> list[MemoryRecord]:
        """See `StorageBackend.list_records`."""
        self._check()
        if limit <= 0:
            return []
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None:
                return []
            payloads = self._page(*looked, limit, max(offset, 0), order)
        return [record for payload in payloads if (record := _read(payload)) is not None]

    def _page(
        self, collection: Collection, where: Where, limit: int, offset: int, order: Order
    ) -> list[dict[str, Any]]:
        """Return one page by ``created_at``, ties by id, whatever order the engine gives ties."""
        newest = order is Order.NEWEST
        rows = collection.ordered("created_at", offset + limit, where, descending=newest)
        payloads = [row.payload for row in rows]
        if len(rows) == offset + limit:
            # The engine cuts a group of equal times anywhere: take the last group whole.
            last = datetime.fromisoformat(payloads[-1]["created_at"])
            same = where.also(must=[time_range("created_at", gte=last, lte=last)])
            payloads = [
                payload
                for payload in payloads
                if datetime.fromisoformat(payload["created_at"]) != last
            ] + [row.payload for row in self._all_rows(collection, same)]
        sign = -1.0 if newest else 1.0
        payloads.sort(
            key=lambda p: (
                sign * datetime.fromisoformat(p["created_at"]).timestamp(),
                p.get("record_id", ""),
            )
        )
        return payloads[offset : offset + limit]

    def count(self, selection: Selection) -> int:
        """See `StorageBackend.count`."""
        self._check()
        with self._space.lock.read():
            looked = self._look(selection)
            return 0 if looked is None else looked[0].count(looked[1])

    def facet(self, selection: Selection, facet: Facet) -> dict[str, int]:
        """See `StorageBackend.facet`."""
        self._check()
        with self._space.lock.read():
            looked = self._look(selection)
            return {} if looked is None else looked[0].facet(facet.value, looked[1])

    def erase(self, selection: Selection) -> tuple[list[str], int]:
        """See `StorageBackend.erase`."""
        self._check()
        with self._space.lock.write():
            everything = replace(selection, history=True, as_of=None)
            looked = self._look(everything)
            if looked is None:
                return [], 0
            collection, where = looked
            points, living, retired = set[PointId](), set[str](), set[str]()
            for row in self._all_rows(collection, where, fields=("record_id", "retired")):
                points.add(row.id)
                record_id = row.payload.get("record_id")
                if record_id is not None:
                    (retired if "retired" in row.payload else living).add(record_id)
            points |= self._descendants(collection, selection, living)
            if points:
                collection.delete(list(points))
                self._space.sequence += 1
            erased = living if selection.record_ids is None else living | retired
            return sorted(erased), len(points)

    def _descendants(
        self, collection: Collection, selection: Selection, living: set[str]
    ) -> set[PointId]:
        """Return every visible version of these records and of those they took over from."""
        must, must_not = privacy(selection)
        points: set[PointId] = set()
        done: set[str] = set()
        todo = set(living)
        while todo:
            names = sorted(todo)
            done |= todo
            todo = set()
            for start in range(0, len(names), _IDS_AT_ONCE):
                part = names[start : start + _IDS_AT_ONCE]
                own = Where(must=(*must, any_of("record_id", part)), must_not=tuple(must_not))
                points |= {row.id for row in self._all_rows(collection, own, fields=False)}
                retired: list[Condition] = [any_of("superseded_by", part), present("retired")]
                taken = Where(must=(*must, *retired), must_not=tuple(must_not))
                for row in self._all_rows(collection, taken, fields=("record_id",)):
                    points.add(row.id)
                    if row.payload["record_id"] not in done:
                        todo.add(row.payload["record_id"])
        return points

    def drop(self) -> None:
        """See `StorageBackend.drop`."""
        self._check()
        with self._space.lock.write():
            self._space.drop()

    def record_access(self, accesses: Sequence[Access]) -> None:
        """See `StorageBackend.record_access`."""
        self._check()
        wanted = {access.record_id: access for access in accesses}
        if not wanted:
            return
        with self._space.lock.write():
            looked = self._look(
                Selection(record_ids=tuple(wanted), include_private=True)
            )
            if looked is None:
                return
            collection, where = looked
            fields = ("record_id", "access_count", "last_accessed")
            for row in self._all_rows(collection, where, fields=fields):
                access = wanted[row.payload["record_id"]]
                count = int(row.payload.get("access_count", 0)) + access.count
                last = max(
                    datetime.fromisoformat(row.payload["last_accessed"]), access.last_accessed
                )
                collection.set_payload(
                    [row.id], {"access_count": count, "last_accessed": last.isoformat()}
                )

    def begin_reindex(self, embedder: Mapping[str, Any]) -> StorageBackend:
        """See `StorageBackend.begin_reindex`."""
        self._check()
        with self._space.lock.write():
            self._space.begin_reindex(embedder)
        return QdrantStore(self._space, next_generation=True)

    def finish_reindex(self) -> None:
        """See `StorageBackend.finish_reindex`."""
        self._check()
        with self._space.lock.write():
            self._space.finish_reindex()

    def dump(self, limit: int, cursor: str | None = None) -> tuple[list[MemoryRecord], str | None]:
        """See `StorageBackend.dump`."""
        self._check()
        with self._space.lock.read():
            opened = self._open()
            if opened is None:
                return [], None
            rows, following = opened[0].scroll(max(limit, 1), offset=cursor)
        records = [record for row in rows if (record := _read(row.payload)) is not None]
        return records, None if following is None else str(following)

    def flush(self) -> None:
        """See `StorageBackend.flush`."""
        self._check()
        with self._space.lock.read():
            opened = self._open()
            if opened is not None:
                opened[0].flush()

    def compact(self) -> None:
        """See `StorageBackend.compact`."""
        self._check()
        with self._space.lock.write():
            opened = self._open()
            if opened is not None:
                opened[0].compact()

    def close(self) -> None:
        """See `StorageBackend.close`."""
        if not self._closed:
            self._closed = True
            if self._on_close is not None:
                self._on_close()

    def _all_rows(
        self,
        collection: Collection,
        where: Where,
        *,
        fields: bool | Sequence[str] = True,
        vectors: bool = False,
    ) -> list[Row]:
        rows: list[Row] = []
        offset: PointId | None = None
        while True:
            page, offset = collection.scroll(
                _PAGE, where, offset=offset, fields=fields, vectors=vectors
            )
            rows.extend(page)
            if offset is None:
                return rows


def unit(vector: Vector | Sequence[float], dimension: int | None = None) -> Vector:
    """Return the vector at length 1, float32.

    Raises:
        InvalidInputError: when it has no direction, is not finite, or has the wrong dimension.
    """
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or (dimension is not None and values.shape != (dimension,)):
        raise InvalidInputError(
            f"A vector of shape {values.shape} does not fit a store of dimension {dimension}."
        )
    length = math.sqrt(float(values @ values))
    if not math.isfinite(length) or length == 0.0:
        raise InvalidInputError("A vector must be finite and not all zeros.")
    return (values / length).astype(np.float32)


def _read(payload: Mapping[str, Any], unreadable: list[str] | None = None) -> MemoryRecord | None:
    try:
        return from_payload(payload)
    except (KeyError, TypeError, ValueError):
        if unreadable is not None:
            unreadable.append(str(payload.get("record_id", "?")))
        return None
