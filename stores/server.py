"""The server engine: a Qdrant server or cluster, through qdrant-client.

It also takes a ready client. One in local mode (``QdrantClient(":memory:")``) is a test double:
slow, and not safe for threads, so that every call to it takes turns.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from qdrant_client import QdrantClient, models
from qdrant_client.local.qdrant_local import QdrantLocal

from mnemotrace.errors import (
    ConfigurationError,
    StoreCorruptError,
    StoreError,
    StoreUnavailableError,
)

from .backend import Capabilities, SparseVector
from .engine import (
    DATETIME_INDEXES,
    DENSE,
    EVERYTHING,
    FLOAT_INDEXES,
    KEYWORD_INDEXES,
    LEXICAL,
    TENANT_INDEX,
    Condition,
    Fields,
    Hit,
    PointId,
    Row,
    Where,
    as_int,
    native,
)
from .held import Held, Vectors, from_scores

TIMEOUT_SECONDS = 60
_KEYWORD = models.KeywordIndexType.KEYWORD
_EXACT = models.SearchParams(exact=True)
# Reading what was just written, before changing it: every replica takes part in one order.
_ORDERING = models.WriteOrdering.STRONG
_MANY_VALUES = 1_000_000
_MANIFEST_POINT = 1

T = TypeVar("T")


def connect(url: str, api_key: str | None, prefer_grpc: bool) -> QdrantClient:
    """Return a client of the server at `url`; nothing is asked of it yet.

    Raises:
        ConfigurationError: this cannot be the URL of a server.
    """
    try:
        if not urlsplit(url).hostname:
            raise ValueError("it names no host")
        return QdrantClient(
            url=url,
            api_key=api_key,
            prefer_grpc=prefer_grpc,
            timeout=TIMEOUT_SECONDS,
            check_compatibility=False,  # it would ask the server here, and only warn
        )
    except ValueError as error:  # urllib3's LocationParseError is one, too
        raise ConfigurationError(
            f"storage={url!r} is not a URL that can be used ({error}). A Qdrant server's looks like "
            "'http://localhost:6333'."
        ) from error


class _Connection:
    """A client whose errors are ours, and whose calls take turns when it needs that."""

    def __init__(self, client: QdrantClient) -> None:
        self.client = client
        self.local = isinstance(client._client, QdrantLocal)
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.RLock() if self.local else contextlib.nullcontext()
        )

    def ask(self, call: Callable[[QdrantClient], T]) -> T:
        """Make one call.

        Raises:
            StoreUnavailableError: when the server cannot be reached or refuses.
        """
        try:
            with self._turn:
                return call(self.client)
        except StoreError:
            raise
        except Exception as error:
            raise StoreUnavailableError(
                f"The Qdrant server refused or could not be reached: {error}. Check that it runs, "
                "its URL, and the api_key."
            ) from error


class ServerCollection:
    """One collection on the server."""

    def __init__(self, connection: _Connection, name: str) -> None:
        self._connection = connection
        self._ask = connection.ask
        self._name = name
        # Local mode is always exact, and warns about being told so.
        self._exact = None if connection.local else _EXACT

    def upsert(self, points: Sequence[models.PointStruct]) -> None:
        """See `Collection.upsert`."""
        named = [item.model_copy(update={"id": _native(item.id)}) for item in points]
        self._ask(lambda client: client.upsert(self._name, named, wait=True, ordering=_ORDERING))

    def delete(self, ids: Sequence[PointId]) -> None:
        """See `Collection.delete`."""
        selector = models.PointIdsList(points=_natives(ids))
        self._ask(lambda client: client.delete(self._name, selector, wait=True, ordering=_ORDERING))

    def set_payload(self, ids: Sequence[PointId], payload: Mapping[str, Any]) -> None:
        """See `Collection.set_payload`."""
        self._ask(
            lambda client: client.set_payload(
                self._name, dict(payload), points=_natives(ids), wait=True, ordering=_ORDERING
            )
        )

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
        query: Any = list(vector) if not isinstance(vector, SparseVector) else None
        if isinstance(vector, SparseVector):
            query = models.SparseVector(indices=list(vector.indices), values=list(vector.values))
        found = self._ask(
            lambda client: client.query_points(
                self._name,
                query=query,
                using=LEXICAL if isinstance(vector, SparseVector) else DENSE,
                query_filter=_filter(where),
                search_params=self._exact if not isinstance(vector, SparseVector) else None,
                limit=limit,
                score_threshold=threshold,
                with_payload=_fields(fields),
            )
        )
        return [Hit(as_int(hit.id), hit.score, hit.payload or {}) for hit in found.points]

    def held(self, terms: SparseVector, limit: int, where: Where = EVERYTHING) -> Held:
        """See `Collection.held`; one request for all terms."""
        requests = [
            models.QueryRequest(
                query=models.SparseVector(indices=[index], values=[1.0]),
                using=LEXICAL,
                filter=_filter(where),
                limit=limit,
                with_payload=False,
            )
            for index in terms.indices
        ]
        answers = self._ask(lambda client: client.query_batch_points(self._name, requests))
        lists = [[(as_int(hit.id), hit.score) for hit in answer.points] for answer in answers]
        return from_scores(terms, lists, self._lexical_vectors)

    def _lexical_vectors(self, ids: Sequence[PointId]) -> Vectors:
        if not ids:
            return []
        rows = self._ask(
            lambda client: client.retrieve(
                self._name, _natives(ids), with_payload=False, with_vectors=[LEXICAL]
            )
        )
        return [(row.id, row.lexical) for row in map(_row, rows)]

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
        direction = models.Direction.DESC if descending else models.Direction.ASC
        rows, _ = self._ask(
            lambda client: client.scroll(
                self._name,
                scroll_filter=_filter(where),
                limit=limit,
                order_by=models.OrderBy(key=key, direction=direction),
                with_payload=_fields(fields),
            )
        )
        return [Row(as_int(row.id), row.payload or {}, order=row.order_value or 0) for row in rows]

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
        rows, following = self._ask(
            lambda client: client.scroll(
                self._name,
                scroll_filter=_filter(where),
                limit=limit,
                offset=None if offset is None else _native(offset),
                with_payload=_fields(fields),
                with_vectors=vectors,
            )
        )
        return [_row(row) for row in rows], None if following is None else as_int(following)

    def retrieve(
        self, ids: Sequence[PointId], *, fields: Fields = True, vectors: bool = False
    ) -> list[Row]:
        """See `Collection.retrieve`."""
        if not ids:
            return []
        rows = self._ask(
            lambda client: client.retrieve(
                self._name, _natives(ids), with_payload=_fields(fields), with_vectors=vectors
            )
        )
        return [_row(row) for row in rows]

    def count(self, where: Where = EVERYTHING, *, exact: bool = True) -> int:
        """See `Collection.count`."""
        return self._ask(
            lambda client: client.count(self._name, count_filter=_filter(where), exact=exact)
        ).count

    def facet(self, key: str, where: Where = EVERYTHING) -> dict[str, int]:
        """See `Collection.facet`."""
        found = self._ask(
            lambda client: client.facet(
                self._name, key, facet_filter=_filter(where), limit=_MANY_VALUES, exact=True
            )
        )
        return {str(hit.value): hit.count for hit in found.hits}

    def sync(self) -> None:
        """Do nothing: the server keeps what it acknowledged."""

    def flush(self) -> None:
        """Do nothing: the server keeps what it acknowledged."""

    def recover(self) -> None:
        """Do nothing: the server looks after its files."""


class ServerEngine:
    """The collections of one name on a server: ``<name>_g<n>``, and ``<name>_meta``.

    Args:
        client: how to reach the server.
        name: begins the names of the collections.
        sidecar: a local folder for accepted saves that are not yet encoded; None for none.
        owned: close the client with the engine.

    Replication and sharding are the operator's: create the collections beforehand, or set the
    server's defaults.
    """

    exclusive = False

    def __init__(
        self,
        client: QdrantClient,
        name: str,
        *,
        sidecar: Path | None = None,
        owned: bool = False,
    ) -> None:
        self._connection = _Connection(client)
        self._ask = self._connection.ask
        self._name = name
        self._meta = f"{name}_meta"
        self.sidecar = sidecar
        self._owned = owned
        self.capabilities = Capabilities(
            "server", embedded=False, persistent=not self._connection.local
        )

    @property
    def owned(self) -> bool:
        """See `Engine.owned`."""
        return True

    def claim(self) -> None:
        """Do nothing: a server may be shared."""

    def read_manifest(self) -> dict[str, Any] | None:
        """See `Engine.read_manifest`."""
        if not self._ask(lambda client: client.collection_exists(self._meta)):
            return None
        rows = self._ask(lambda client: client.retrieve(self._meta, [_MANIFEST_POINT]))
        if not rows:
            return None
        try:
            data = json.loads((rows[0].payload or {})["manifest"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"The collection {self._meta!r} on the Qdrant server holds no manifest of "
                "mnemotrace. Nothing was changed. Pass another name= for the store."
            ) from error
        return dict(data)

    def write_manifest(self, manifest: Mapping[str, Any] | None) -> None:
        """See `Engine.write_manifest`."""
        if manifest is None:
            self._ask(lambda client: client.delete_collection(self._meta))
            return
        if not self._ask(lambda client: client.collection_exists(self._meta)):
            self._ask(lambda client: client.create_collection(self._meta, vectors_config={}))
        text = json.dumps(dict(manifest), ensure_ascii=False)
        point = models.PointStruct(id=_MANIFEST_POINT, vector={}, payload={"manifest": text})
        self._ask(lambda client: client.upsert(self._meta, [point], wait=True, ordering=_ORDERING))

    def create(self, generation: int, dimension: int) -> ServerCollection:
        """See `Engine.create`."""
        self.discard(generation)
        name = self._collection_name(generation)
        self._ask(
            lambda client: client.create_collection(
                name,
                vectors_config={
                    DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)
                },
                sparse_vectors_config={
                    LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)
                },
            )
        )
        if not self._connection.local:  # which has no indexes, and warns when asked for one
            kinds = models.PayloadSchemaType
            indexes: list[tuple[str, Any]] = [
                (TENANT_INDEX, models.KeywordIndexParams(type=_KEYWORD, is_tenant=True)),
                *((field, kinds.KEYWORD) for field in KEYWORD_INDEXES),
                *((field, kinds.DATETIME) for field in DATETIME_INDEXES),
                *((field, kinds.FLOAT) for field in FLOAT_INDEXES),
            ]
            for field, schema in indexes:
                self._index(name, field, schema)
        return ServerCollection(self._connection, name)

    def _index(self, name: str, field: str, schema: Any) -> None:
        self._ask(lambda client: client.create_payload_index(name, field, schema, wait=True))

    def open(self, generation: int, dimension: int) -> ServerCollection:
        """See `Engine.open`."""
        name = self._collection_name(generation)
        if not self._ask(lambda client: client.collection_exists(name)):
            raise StoreCorruptError(
                f"The collection {name!r} is missing on the Qdrant server, though the manifest "
                "names it. Nothing was changed. Restore it from a snapshot, or delete the "
                f"collection {self._meta!r} to start anew."
            )
        return ServerCollection(self._connection, name)

    def discard(self, generation: int) -> None:
        """See `Engine.discard`."""
        name = self._collection_name(generation)
        if self._ask(lambda client: client.collection_exists(name)):
            self._ask(lambda client: client.delete_collection(name))

    def generations(self) -> list[int]:
        """See `Engine.generations`."""
        begin = f"{self._name}_g"
        found = self._ask(lambda client: client.get_collections()).collections
        names = [item.name for item in found if item.name.startswith(begin)]
        return sorted(int(name[len(begin) :]) for name in names if name[len(begin) :].isdigit())

    def close(self) -> None:
        """See `Engine.close`."""
        if self._owned:
            self._ask(lambda client: client.close())

    def _collection_name(self, generation: int) -> str:
        return f"{self._name}_g{generation}"


def _fields(fields: Fields) -> bool | list[str]:
    return fields if isinstance(fields, bool) else list(fields)


def _native(key: models.ExtendedPointId) -> int | str:
    known = native(key)
    return known if isinstance(known, int) else str(known)


def _natives(ids: Iterable[models.ExtendedPointId]) -> list[models.ExtendedPointId]:
    return [_native(key) for key in ids]


def _filter(where: Where) -> models.Filter | None:
    """Return the filter with point ids as the server knows them."""
    return where._replace(
        must=tuple(map(_condition, where.must)), must_not=tuple(map(_condition, where.must_not))
    ).merged()


def _condition(source: Condition) -> Condition:
    if isinstance(source, models.HasIdCondition):
        return models.HasIdCondition(has_id=_natives(source.has_id))
    return source


def _row(row: models.Record) -> Row:
    vectors: Any = row.vector if isinstance(row.vector, dict) else {}
    lexical = vectors.get(LEXICAL)
    sparse = None
    if lexical is not None:
        sparse = SparseVector(tuple(lexical.indices), tuple(lexical.values))
    return Row(as_int(row.id), row.payload or {}, vectors.get(DENSE), sparse)
