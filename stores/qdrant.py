"""QdrantStore: the store, written once over any engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mnemotrace.errors import MemoryClosedError, StoreError
from mnemotrace.records import MemoryRecord, utc_now

from .attributes import among
from .backend import (
    Access,
    Candidate,
    Capabilities,
    Facet,
    Manifest,
    Order,
    Ranking,
    SearchResult,
    SparseVector,
    StorageBackend,
    Vector,
    WriteBatch,
)
from .changes import (
    accessed,
    alive,
    holds,
    lineage,
    unit,
    written_points,
)
from .engine import Collection, Fields, PointId, Row, Where, as_int, native
from .filters import visible
from .lists import ROUNDING, all_rows, is_broad, nearest_broad, page_of
from .points import from_payload
from .ranking import Search
from .selection import Selection
from .space import Generation, Space, next_manifest

_ACCESSES_AT_ONCE = 50
"""Access statistics written under one hold of the lock: up to 5 ms (measured)."""


class QdrantStore(StorageBackend):
    """Records in Qdrant. Several objects may share one place; each is closed on its own.

    Get one from `mnemotrace.stores.open.open_store`.
    """

    def __init__(
        self,
        space: Space,
        *,
        on_close: Callable[[], None] | None = None,
        next_generation: bool = False,
    ) -> None:
        self._space = space
        self._on_close = on_close
        self._next = next_generation
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

    @property
    def owned(self) -> bool:
        """See `StorageBackend.owned`."""
        return self._space.engine.owned

    def claim(self) -> None:
        """See `StorageBackend.claim`."""
        self._check()
        self._space.claim()

    def _check(self) -> None:
        """Refuse use after close, and in a forked child."""
        if self._closed:
            raise MemoryClosedError()
        self._space.check()

    def manifest(self) -> Manifest | None:
        """See `StorageBackend.manifest`."""
        self._check()
        current = self._space.manifest()
        if current is None or not self._next:
            return current
        begun = next_manifest(current)
        if begun is None:
            raise StoreError("This reindex was finished or given up; begin it again.")
        return begun

    def initialise(self, manifest: Manifest) -> Manifest:
        """See `StorageBackend.initialise`."""
        current = self.manifest()
        if current is not None:
            return current
        with self._space.lock.write():
            return self._space.initialise(manifest)

    def _generation(self) -> Generation | None:
        manifest = self.manifest()
        return None if manifest is None else self._space.generation(manifest)

    def _open(self) -> tuple[Collection, Manifest] | None:
        """Return the collection in force and its manifest; None while nothing was written."""
        manifest = self.manifest()
        if manifest is None:
            return None
        return self._space.generation(manifest).collection, manifest

    def _look(self, selection: Selection) -> tuple[Generation, Where] | None:
        """Return where to look and what may be seen; None when there is nothing to see."""
        generation = self._generation()
        if generation is None:
            return None
        where = visible(selection, now=utc_now(), held=generation.held)
        return None if where is None else (generation, where)

    def sequence(self) -> int:
        """See `StorageBackend.sequence`."""
        return self._space.sequence

    # Writing.

    def commit(self, batch: WriteBatch) -> bool:
        """See `StorageBackend.commit`.

        Raises:
            StoreError: when the store was not initialised, or a version has no vectors and
                replaces none; nothing was written.
            RecordError: when a record cannot be stored; nothing was written.
        """
        with self._space.lock.write():
            generation = self._generation()
            if generation is None:
                raise StoreError("The store was not initialised; nothing was written.")
            if batch.expect and not holds(generation.collection, batch.expect):
                return False
            points = written_points(generation, batch)
            if points:
                try:
                    generation.collection.upsert(points)
                except BaseException:  # a part of them may be written
                    generation.attributes.forget(as_int(point.id) for point in points)
                    raise
                generation.attributes.learn(points)
                for point in points:
                    generation.note(point.payload or {})
                self._space.changed(len(points))
            return True

    def erase(self, selection: Selection) -> tuple[list[str], int]:
        """See `StorageBackend.erase`.

        Erased are: every visible version of the records whose living version is selected; every
        retired version that is itself selected; and what the erased records took over from. The
        ids are those of living records, and of retired ones when the selection names ids.
        """
        with self._space.lock.write():
            looked = self._look(replace(selection, history=True, as_of=None))
            if looked is None:
                return [], 0
            generation, where = looked
            points: set[PointId] = set()
            living: set[str] = set()
            retired: set[str] = set()
            for row in all_rows(generation.collection, where, ("record_id", "retired")):
                points.add(row.id)
                record_id = row.payload.get("record_id")
                if record_id is not None:
                    (retired if "retired" in row.payload else living).add(record_id)
            # A record that is retired altogether has its lineage too; one that lives elsewhere
            # loses only the versions that were selected.
            gone = retired - living
            gone -= alive(generation.collection, gone)
            points |= lineage(generation.collection, selection, living | gone)
            if points:
                try:
                    generation.collection.delete(list(points))
                finally:
                    generation.attributes.forget(points)
                self._space.changed(len(points))
            erased = living if selection.record_ids is None else living | retired
            return sorted(erased), len(points)

    def record_access(self, accesses: Sequence[Access]) -> None:
        """See `StorageBackend.record_access`."""
        wanted: dict[str, Access] = {}
        for access in accesses:
            before = wanted.get(access.record_id)
            if before is not None:
                access = Access(
                    access.record_id,
                    before.count + access.count,
                    max(before.last_accessed, access.last_accessed),
                )
            wanted[access.record_id] = access
        names = list(wanted)
        for start in range(0, len(names), _ACCESSES_AT_ONCE):
            part = names[start : start + _ACCESSES_AT_ONCE]
            with self._space.lock.write():  # a part at a time: readers wait meanwhile
                self._write_accesses({name: wanted[name] for name in part})

    def _write_accesses(self, wanted: Mapping[str, Access]) -> None:
        looked = self._look(Selection(record_ids=tuple(wanted), include_private=True))
        if looked is None:
            return
        collection, where = looked[0].collection, looked[1]
        fields = ("record_id", "access_count", "last_accessed", "created_at")
        alike: dict[tuple[Any, ...], list[PointId]] = {}
        for row in all_rows(collection, where, fields):
            try:
                news = accessed(row.payload, wanted[row.payload["record_id"]])
            except (KeyError, TypeError, ValueError):
                continue  # an unreadable row, which searches report
            alike.setdefault(tuple(news.items()), []).append(row.id)
        for news_items, rows in alike.items():  # what one recall returned is often alike
            collection.set_payload(rows, dict(news_items))
        if alike:
            self._space.changed(sum(map(len, alike.values())))

    def drop(self) -> None:
        """See `StorageBackend.drop`."""
        self.manifest()
        with self._space.lock.write():
            self._space.drop()

    # Reading.

    def search(
        self,
        selection: Selection,
        dense: Vector,
        lexical: SparseVector,
        ranking: Ranking,
        limit: int,
    ) -> SearchResult:
        """See `StorageBackend.search`."""
        result = SearchResult()
        if limit <= 0:
            self.manifest()
            return result
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None:
                return result
            generation, where = looked
            query = unit(dense, generation.dimension).tolist()
            broad = is_broad(generation.attributes, where)
            bad: dict[PointId, str] = {}
            while True:
                seen = where.also(must_not=[among(bad)]) if bad else where
                outcome = Search(
                    generation.collection,
                    generation.attributes,
                    seen,
                    query,
                    lexical,
                    ranking,
                    limit,
                    broad=broad,
                ).run()
                result.candidates = []
                found_bad = False
                for found in outcome.best:
                    record = _read(found.payload)
                    if record is None:
                        bad[found.id] = _name(found.id, found.payload)
                        found_bad = True
                        continue
                    result.candidates.append(
                        Candidate(
                            record,
                            cosine=found.cosine,
                            lexical=found.lexical,
                            semantic=found.semantic,
                            recency=found.recency,
                            score=found.score,
                        )
                    )
                if not found_bad:
                    break
            if outcome.odd:
                rows = generation.collection.retrieve(outcome.odd, fields=("record_id",))
                bad.update((row.id, _name(row.id, row.payload)) for row in rows)
        result.best_cosine = outcome.best_cosine
        result.ordinary_cosine = outcome.ordinary_cosine
        result.ordinary_lexical = outcome.ordinary_lexical
        result.best_lexical = outcome.best_lexical
        result.coverage = outcome.coverage
        result.lexical_weight = outcome.lexical_weight
        result.idf = outcome.idf
        result.unreadable = sorted(bad.values())
        result.facts = {
            "plan": "broad" if broad else "selective",
            "rounds": outcome.rounds,
            "candidates": outcome.seen,
        }
        return result

    def nearest(
        self, selection: Selection, dense: Vector, limit: int, min_cosine: float
    ) -> list[tuple[MemoryRecord, float]]:
        """See `StorageBackend.nearest`."""
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None or limit <= 0:
                return []
            generation, where = looked
            collection = generation.collection
            query = unit(dense, generation.dimension).tolist()
            least = min_cosine - ROUNDING if min_cosine > -1.0 else None
            if is_broad(generation.attributes, where):
                cosines = nearest_broad(collection, where, query, limit, least)
            else:
                hits = collection.query(query, limit, where, threshold=least, fields=False)
                cosines = {hit.id: hit.score for hit in hits}
            payloads = {row.id: row.payload for row in collection.retrieve(list(cosines))}
        found = []
        for key, cosine in cosines.items():
            record = _read(payloads.get(key, {}))
            if record is not None:
                found.append((record, min(1.0, max(-1.0, cosine))))
        return found

    def get(self, selection: Selection, record_ids: Sequence[str]) -> list[MemoryRecord]:
        """See `StorageBackend.get`."""
        return _readable(self._of(selection, record_ids))

    def vectors(self, selection: Selection, record_ids: Sequence[str]) -> dict[str, Vector]:
        """See `StorageBackend.vectors`."""
        return {
            row.payload["record_id"]: np.asarray(row.dense, dtype=np.float32)
            for row in self._of(selection, record_ids, ("record_id",), vectors=True)
            if row.dense is not None
        }

    def _of(
        self,
        selection: Selection,
        record_ids: Sequence[str],
        fields: Fields = True,
        vectors: bool = False,
    ) -> list[Row]:
        with self._space.lock.read():
            looked = self._look(selection.narrow(record_ids=tuple(record_ids)))
            if looked is None:
                return []
            return list(all_rows(looked[0].collection, looked[1], fields, vectors=vectors))

    def list_records(
        self, selection: Selection, limit: int, offset: int = 0, order: Order = Order.NEWEST
    ) -> list[MemoryRecord]:
        """See `StorageBackend.list_records`."""
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None or limit <= 0:
                return []
            collection, where = looked[0].collection, looked[1]
            if order in (Order.LAST, Order.FIRST):
                wanted = limit + max(offset, 0)
                last = order is Order.LAST
                rows = collection.ordered("position", wanted, where, descending=last)
                rows = rows[max(offset, 0) :]
            else:
                rows = page_of(collection, where, limit, max(offset, 0), order is Order.NEWEST)
        return _readable(rows)

    def count(self, selection: Selection) -> int:
        """See `StorageBackend.count`."""
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None:
                return 0
            collection, where = looked[0].collection, looked[1]
            hidden = self._few_hidden(collection, where)
            if hidden is None:
                return collection.count(where)
            return collection.count() - collection.count(hidden)

    def facet(self, selection: Selection, facet: Facet) -> dict[str, int]:
        """See `StorageBackend.facet`."""
        with self._space.lock.read():
            looked = self._look(selection)
            if looked is None:
                return {}
            collection, where = looked[0].collection, looked[1]
            hidden = self._few_hidden(collection, where)
            if hidden is None:
                return collection.facet(facet.value, where)
            counts = Counter(collection.facet(facet.value))
            counts.subtract(collection.facet(facet.value, hidden))
            return {value: count for value, count in counts.items() if count}

    def _few_hidden(self, collection: Collection, where: Where) -> Where | None:
        """Return what `where` hides when it is little.

        Counting everything and that, and subtracting, then takes half the time of counting what
        may be seen: 52 instead of 125 ms for all scopes of 100,000 records.
        """
        if not self._space.engine.exclusive:  # others may write between the two counts
            return None
        hidden = where.hidden()
        if hidden is None:
            return None
        few = collection.count(hidden, exact=False) * 4 <= collection.count(exact=False)
        return hidden if few else None

    def dump(self, limit: int, cursor: str | None = None) -> tuple[list[MemoryRecord], str | None]:
        """See `StorageBackend.dump`."""
        with self._space.lock.read():
            opened = self._open()
            if opened is None:
                return [], None
            rows, following = opened[0].scroll(
                max(limit, 1), offset=int(cursor) if cursor else None
            )
        return _readable(rows), None if following is None else str(following)

    # The store as a whole.

    def begin_reindex(self, embedder: Mapping[str, Any]) -> StorageBackend:
        """See `StorageBackend.begin_reindex`."""
        self.manifest()
        with self._space.lock.write():
            self._space.begin_reindex(embedder)
        return QdrantStore(self._space, next_generation=True)

    def finish_reindex(self) -> None:
        """See `StorageBackend.finish_reindex`."""
        self.manifest()
        with self._space.lock.write():
            self._space.finish_reindex()

    def flush(self) -> None:
        """See `StorageBackend.flush`."""
        self._check()  # not the manifest: where nothing was opened, another process may write
        self._space.flush()

    def compact(self) -> None:
        """See `StorageBackend.compact`."""
        self.manifest()
        self._space.compact()

    def close(self) -> None:
        """See `StorageBackend.close`."""
        if not self._closed:
            self._closed = True
            if self._on_close is not None:
                self._on_close()


def _name(key: PointId, payload: Mapping[str, Any]) -> str:
    return str(payload.get("record_id", native(key)))


def _read(payload: Mapping[str, Any]) -> MemoryRecord | None:
    try:
        return from_payload(payload)
    except (KeyError, TypeError, ValueError):
        return None


def _readable(rows: Sequence[Row]) -> list[MemoryRecord]:
    return [record for row in rows if (record := _read(row.payload)) is not None]
