"""The embedded engine: qdrant-edge in a folder, owned by one process.

qdrant-edge is beta; everything that knows it is in this module and in `edge_requests`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import qdrant_edge as edge
from qdrant_client import models

from mnemotrace.errors import StoreCorruptError, StoreError

from . import folder as disk
from .backend import Capabilities, SparseVector
from .edge_requests import FilterCache, point
from .engine import (
    DATETIME_INDEXES,
    DENSE,
    EVERYTHING,
    FLOAT_INDEXES,
    KEYWORD_INDEXES,
    LEXICAL,
    Fields,
    Hit,
    PointId,
    Row,
    Where,
    as_int,
    native,
)
from .held import Held, Vectors, from_scores

RESERVED_BYTES = 64 * 2**20
"""Room that must be left on the disk for a write. The engine writes into memory maps of sparse
files; on a full disk that kills the process (SIGBUS), so it must never come to it."""
NEW_ON_RAM_DISK = 300 * 2**20
"""Likewise for a new shard where also reading its files takes room; they are 285 MB long, most of
it holes."""

_EXACT = edge.SearchParams(exact=True)
# One segment is searched by one thread; a pool of one runs small requests 2-3 times faster (0.04
# instead of 0.1 ms) and at half the processor time, because nobody spins waiting for work.
_SEARCH_THREADS = max(1, (os.cpu_count() or 1) // 4)
_MANY_VALUES = 1_000_000
_NO_PAYLOAD: dict[str, Any] = {}
_INNER_ERRORS = ("Service runtime error", "Inconsistent storage")
"""How the engine's messages begin when it cannot read what it has written."""


class _Hits(Sequence[Hit]):
    """The engine's hits without payload, each turned into a Hit when it is asked for.

    That takes longer than the engine needs to find it, and a search looks at the first of many.
    """

    __slots__ = ("_found",)

    def __init__(self, found: Any) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> _Hits: ...
    def __getitem__(self, index: int | slice) -> Hit | _Hits:
        found = self._found[index]
        if isinstance(index, slice):
            return _Hits(found)
        return Hit(_number(found.id), found.score, _NO_PAYLOAD)

    def __iter__(self) -> Iterator[Hit]:
        for key, score in zip(*self.columns(), strict=True):
            yield Hit(key, score, _NO_PAYLOAD)

    def columns(self) -> tuple[list[PointId], list[float]]:
        """See `engine.columns`."""
        found = self._found
        # `_number`, written out: calling it would take as long as all the rest.
        keys = [key if type(key := hit.id) is int else key.int for hit in found]
        return keys, [hit.score for hit in found]


class EdgeCollection:
    """One shard of the embedded engine."""

    def __init__(self, path: Path, dimension: int, shard: edge.EdgeShard) -> None:
        self._path = path
        self._dimension = dimension
        self._shard = shard
        self._filters = FilterCache()
        self._errors = _EngineErrors(path)

    @classmethod
    def create(cls, path: Path, dimension: int) -> EdgeCollection:
        """Make a new shard; the folder must not exist."""
        disk.make_folder(path)
        disk.check_room(path, NEW_ON_RAM_DISK if disk.on_ram_disk(path) else RESERVED_BYTES)
        with _EngineErrors(path):
            shard = edge.EdgeShard.create(str(path), _config(dimension))
            for name, kind in _indexes():
                shard.update(edge.UpdateOperation.create_field_index(name, kind))
            shard.flush()
        return cls(path, dimension, shard)

    @classmethod
    def load(cls, path: Path, dimension: int) -> EdgeCollection:
        """Open an existing shard.

        Raises:
            StoreCorruptError: when its files are missing or damaged.
            StoreNotWritableError: on a RAM disk without room for what opening takes.
        """
        if not disk.is_folder(path):
            raise StoreCorruptError(
                f"The store's folder {path} is missing. Nothing was changed. Restore it from a "
                "backup, or move the store away to start anew."
            )
        if disk.on_ram_disk(path):
            disk.check_room(path, disk.holes(path))
        return cls(path, dimension, _load(path, dimension))

    def upsert(self, points: Sequence[models.PointStruct]) -> None:
        """See `Collection.upsert`; one entry of the write-ahead log."""
        self._update(edge.UpdateOperation.upsert_points([point(item) for item in points]))

    def delete(self, ids: Sequence[PointId]) -> None:
        """See `Collection.delete`."""
        self._update(edge.UpdateOperation.delete_points([native(key) for key in ids]))

    def set_payload(self, ids: Sequence[PointId], payload: Mapping[str, Any]) -> None:
        """See `Collection.set_payload`."""
        self._update(edge.UpdateOperation.set_payload([native(key) for key in ids], dict(payload)))

    def _update(self, operation: edge.UpdateOperation) -> None:
        disk.check_room(self._path, RESERVED_BYTES)
        with self._errors:
            self._shard.update(operation)

    def query(
        self,
        vector: Sequence[float] | SparseVector,
        limit: int,
        where: Where = EVERYTHING,
        *,
        threshold: float | None = None,
        fields: Fields = True,
    ) -> Sequence[Hit]:
        """See `Collection.query`."""
        nearest: Any
        if isinstance(vector, SparseVector):
            sparse = edge.SparseVector(vector.indices, vector.values)  # type: ignore[arg-type]
            nearest, params = edge.Query.Nearest(sparse, using=LEXICAL), None
        else:
            nearest, params = edge.Query.Nearest(vector, using=DENSE), _EXACT  # type: ignore[arg-type]
        request = edge.QueryRequest(
            limit=limit,
            query=nearest,
            params=params,
            filter=self._filters.translate(where),
            score_threshold=threshold,
            with_payload=_fields(fields),
        )
        with self._errors:
            found: Any = self._shard.query(request)
        if fields is False:
            return _Hits(found)
        return [Hit(_number(hit.id), hit.score, hit.payload or {}) for hit in found]

    def held(self, terms: SparseVector, limit: int, where: Where = EVERYTHING) -> Held:
        """See `Collection.held`; the engine is asked for each term alone, all at once."""
        allowed = self._filters.translate(where)
        requests = [
            edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(edge.SparseVector([index], [1.0]), using=LEXICAL),
                filter=allowed,
            )
            for index in terms.indices
        ]
        with self._errors:
            answers: Any = self._shard.query_batch(edge.QueryBatchRequest(requests))
        lists = [[(_number(hit.id), hit.score) for hit in found] for found in answers]
        return from_scores(terms, lists, self._lexical_vectors)

    def _lexical_vectors(self, ids: Sequence[PointId]) -> Vectors:
        with self._errors:
            rows: Any = self._shard.retrieve([native(key) for key in ids], False, [LEXICAL])
        return [(_number(row.id), row.vector.get(LEXICAL)) for row in rows]

    def ordered(
        self,
        key: str,
        limit: int,
        where: Where = EVERYTHING,
        *,
        descending: bool = True,
        fields: Fields = True,
    ) -> list[Row]:
        """See `Collection.ordered`."""
        direction = edge.Direction.Desc if descending else edge.Direction.Asc
        request = edge.ScrollRequest(
            limit=limit,
            filter=self._filters.translate(where),
            with_payload=_fields(fields),
            order_by=edge.OrderBy(key, direction=direction),
        )
        with self._errors:
            rows: Any = self._shard.scroll(request)[0]
        if fields is False:
            return [Row(_number(row.id), {}, None, None, row.order_value or 0.0) for row in rows]
        return [
            Row(_number(row.id), row.payload or {}, None, None, row.order_value or 0.0)
            for row in rows
        ]

    def scroll(
        self,
        limit: int,
        where: Where = EVERYTHING,
        *,
        offset: PointId | None = None,
        fields: Fields = True,
        vectors: bool = False,
    ) -> tuple[list[Row], PointId | None]:
        """See `Collection.scroll`."""
        request = edge.ScrollRequest(
            offset=None if offset is None else native(offset),
            limit=limit,
            filter=self._filters.translate(where),
            with_payload=_fields(fields),
            with_vector=vectors,
        )
        with self._errors:
            rows, following = self._shard.scroll(request)
        return [_row(row, vectors) for row in rows], None if following is None else as_int(
            following
        )

    def retrieve(
        self, ids: Sequence[PointId], *, fields: Fields = True, vectors: bool = False
    ) -> list[Row]:
        """See `Collection.retrieve`."""
        with self._errors:
            rows = self._shard.retrieve([native(key) for key in ids], _fields(fields), vectors)
        return [_row(row, vectors) for row in rows]

    def count(self, where: Where = EVERYTHING, *, exact: bool = True) -> int:
        """See `Collection.count`."""
        request = edge.CountRequest(exact=exact, filter=self._filters.translate(where))
        with self._errors:
            return self._shard.count(request)

    def facet(self, key: str, where: Where = EVERYTHING) -> dict[str, int]:
        """See `Collection.facet`."""
        request = edge.FacetRequest(
            key, limit=_MANY_VALUES, exact=True, filter=self._filters.translate(where)
        )
        with self._errors:
            hits = self._shard.facet(request).hits
        # Without a filter the engine also gives values that no point has any more.
        return {str(hit.value): hit.count for hit in hits if hit.count}

    def sync(self) -> None:
        """See `Collection.sync`: only the write-ahead log, and Python runs on meanwhile."""
        try:
            for path in (self._path / "wal").glob("*"):
                with contextlib.suppress(FileNotFoundError):  # flushed, or dropped, meanwhile
                    disk.sync_file(path)
        except OSError as error:
            raise disk.not_writable(self._path, error) from error

    def flush(self) -> None:
        """See `Collection.flush`."""
        disk.check_room(self._path, 0)
        with self._errors:
            self._shard.flush()

    def recover(self) -> None:
        """See `Collection.recover`: the engine replays its log."""
        with contextlib.suppress(Exception):  # a shard that cannot flush may not close either
            self._shard.close()
        if not self._path.is_dir():
            raise disk.removed(self._path)
        self._shard = _load(self._path, self._dimension)
        self.flush()

    def close(self) -> None:
        """Release the shard; what was not flushed is in its log."""
        with self._errors:
            self._shard.close()


class EdgeEngine:
    """A folder of shards with one manifest file.

    Nothing is written before `claim`: opening an empty or missing folder leaves it as it is. An
    existing store is claimed when its manifest is first read.
    """

    exclusive = True

    def __init__(self, folder: Path, *, persistent: bool = True) -> None:
        disk.check_layout(folder)
        self.capabilities = Capabilities("embedded", embedded=True, persistent=persistent)
        self._folder = folder
        self._lock = disk.FolderLock(folder)
        self._collections: dict[int, EdgeCollection] = {}

    @property
    def sidecar(self) -> Path:
        """The folder for accepted saves that are not yet encoded; not made here."""
        return self._folder / disk.OUTBOX

    @property
    def owned(self) -> bool:
        """See `Engine.owned`."""
        return self._lock.held

    def claim(self) -> None:
        """See `Engine.claim`."""
        if self._lock.held:
            if not self._lock.in_place:
                raise disk.removed(self._folder)
            return
        disk.make_folder(self._folder)
        self._lock.acquire()
        try:
            disk.check_layout(self._folder)
        except StoreError:
            self._lock.release()
            raise

    def read_manifest(self) -> dict[str, Any] | None:
        """See `Engine.read_manifest`."""
        manifest = disk.read_manifest(self._folder)
        if not self._lock.held and (manifest is not None or self._lock.exists):
            self.claim()
            manifest = disk.read_manifest(self._folder)  # its owner may just have replaced it
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any] | None) -> None:
        """See `Engine.write_manifest`."""
        self.claim()
        disk.write_manifest(self._folder, manifest)

    def create(self, generation: int, dimension: int) -> EdgeCollection:
        """See `Engine.create`."""
        self.claim()
        self.discard(generation)
        path = disk.generation_folder(self._folder, generation)
        self._collections[generation] = EdgeCollection.create(path, dimension)
        return self._collections[generation]

    def open(self, generation: int, dimension: int) -> EdgeCollection:
        """See `Engine.open`."""
        self.claim()
        if generation not in self._collections:
            path = disk.generation_folder(self._folder, generation)
            self._collections[generation] = EdgeCollection.load(path, dimension)
        return self._collections[generation]

    def discard(self, generation: int) -> None:
        """See `Engine.discard`."""
        collection = self._collections.pop(generation, None)
        if collection is not None:
            collection.close()
        disk.remove_tree(disk.generation_folder(self._folder, generation))

    def generations(self) -> list[int]:
        """See `Engine.generations`."""
        return disk.list_generations(self._folder)

    def close(self) -> None:
        """See `Engine.close`."""
        try:
            while self._collections:
                _, collection = self._collections.popitem()
                try:
                    collection.flush()
                except StoreError:
                    collection.recover()
                finally:
                    collection.close()
        finally:
            self._lock.release()


def _config(dimension: int) -> edge.EdgeConfig:
    return edge.EdgeConfig(
        vectors={DENSE: edge.EdgeVectorParams(dimension, edge.Distance.Cosine)},
        sparse_vectors={LEXICAL: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        max_search_threads=_SEARCH_THREADS,
    )


def _load(path: Path, dimension: int) -> edge.EdgeShard:
    with _EngineErrors(path, opening=True):
        shard = edge.EdgeShard.load(str(path), _config(dimension))
    known = shard.info().payload_schema
    missing = [(name, kind) for name, kind in _indexes() if name not in known]
    if missing:
        if not shard.count(edge.CountRequest(exact=True)):
            # A new store has its indexes: this one has lost a segment, which the engine then
            # takes for one that was never finished.
            shard.close()
            raise damaged(path, "a segment is missing")
        with _EngineErrors(path):
            for name, kind in missing:
                shard.update(edge.UpdateOperation.create_field_index(name, kind))
    return shard


def _indexes() -> list[tuple[str, edge.PayloadSchemaType]]:
    kinds = edge.PayloadSchemaType
    return [
        *((name, kinds.Keyword) for name in KEYWORD_INDEXES),
        *((name, kinds.Datetime) for name in DATETIME_INDEXES),
        *((name, kinds.Float) for name in FLOAT_INDEXES),
    ]


class _EngineErrors:
    """Turns whatever the engine raises, which is plain Exception or a panic, into our errors."""

    def __init__(self, path: Path, *, opening: bool = False) -> None:
        self._path = path
        self._opening = opening

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, StoreError):
            return
        panic = type(error).__name__ == "PanicException"  # its module cannot be imported
        if not isinstance(error, Exception) and not panic:
            return
        message = str(error)
        if refused := disk.not_writable_message(self._path, message):
            raise refused from error
        if panic or _tells_of_damage(message, opening=self._opening):
            raise damaged(self._path, message) from error
        raise StoreError(
            f"The embedded engine in {self._path} failed: {message}. What is stored is as it was; "
            "try again, and if that does not help, ask `mnemotrace doctor`."
        ) from error


def damaged(path: Path, what: str) -> StoreCorruptError:
    """Return the error for engine files that cannot be read.

    Args:
        path: the folder of the shard.
        what: what is wrong with them.
    """
    return StoreCorruptError(
        f"The store's files in {path} are damaged ({what}). Close the memory and ask `mnemotrace "
        "doctor`, which changes nothing. Then restore the folder from a backup, or move it away to "
        "start anew and import the last export."
    )


def _tells_of_damage(message: str, *, opening: bool) -> bool:
    """Tell whether an error of the engine is due to its files, and not to the moment.

    What is asked of an open shard is checked before, so that its inner errors come from what it
    reads; while it opens, every error does.
    """
    if disk.is_shortage(message):
        return False
    return opening or message.startswith(_INNER_ERRORS)


def _number(key: Any) -> PointId:
    return key if type(key) is int else key.int


def _fields(fields: Fields) -> bool | list[str]:
    return fields if isinstance(fields, bool) else list(fields)


def _row(row: Any, vectors: bool) -> Row:
    if not vectors:
        return Row(_number(row.id), row.payload or {})
    found = row.vector or {}
    lexical = found.get(LEXICAL)
    sparse = None
    if lexical is not None:
        sparse = SparseVector(tuple(lexical.indices), tuple(lexical.values))
    return Row(_number(row.id), row.payload or {}, found.get(DENSE), sparse)
