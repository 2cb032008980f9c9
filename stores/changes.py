"""What a change of the store reads and writes: checks, points, and what goes with a record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from qdrant_client import models

from mnemotrace.errors import InvalidInputError, StoreError

from .backend import Access, NewVersion, Vector, WriteBatch
from .engine import Collection, PointId, Row, Where, as_int
from .filters import any_of, present, privacy
from .lists import PAGE, all_rows
from .points import point_id, to_payload, to_point, whole_id
from .selection import Selection
from .space import Generation

Version = tuple[str, int]
"""A record's id and a version of it."""


def unit(vector: Vector | Sequence[float], dimension: int) -> Vector:
    """Return the vector at length 1, float32.

    Raises:
        InvalidInputError: when it is all zeros, not finite, or not of this dimension.
    """
    values = np.asarray(vector, dtype=np.float64)
    if values.shape != (dimension,):
        raise InvalidInputError(
            f"A vector of shape {values.shape} does not fit this store of dimension {dimension}; "
            "nothing was changed."
        )
    length = math.sqrt(float(values @ values))
    if not math.isfinite(length) or length == 0.0:
        raise InvalidInputError("A vector must be finite and not all zeros; nothing was changed.")
    return (values / length).astype(np.float32)


def holds(collection: Collection, expect: Mapping[str, int]) -> bool:
    """Tell whether each record's living version is the one expected; 0 stands for no record."""
    current: dict[str, int] = {}
    names = list(expect)
    for start in range(0, len(names), PAGE):
        where = Where(must=(any_of("record_id", names[start : start + PAGE]),))
        for row in all_rows(collection, where, ("record_id", "version", "retired")):
            name = row.payload["record_id"]
            version = -1 if "retired" in row.payload else int(row.payload["version"])
            current[name] = max(current.get(name, -1), version)
    return all(current.get(name, 0) == version for name, version in expect.items())


def point_ids(generation: Generation, versions: Iterable[Version]) -> dict[Version, PointId]:
    """Return the id of each version's point, stored or not.

    Short ids are quicker (see `points.point_id`); a version whose short one belongs to another,
    and every version in a store of schema 1, has the whole one.
    """
    whole = {version: whole_id(*version) for version in versions}
    if generation.schema == 1 or not whole:
        return whole
    short = {version: point_id(*version) for version in whole}
    rows = generation.collection.retrieve(
        [*{*whole.values(), *short.values()}], fields=("record_id", "version")
    )
    stored = {row.id for row in rows}
    owners = {row.id: _version_of(row.payload) for row in rows}
    found: dict[Version, PointId] = {}
    for version, key in short.items():
        owner = owners.setdefault(key, version) or version
        found[version] = whole[version] if whole[version] in stored or owner != version else key
    return found


def _version_of(payload: Mapping[str, Any]) -> Version | None:
    """Return whose row this is; None when the row is damaged."""
    name, version = payload.get("record_id"), payload.get("version")
    return (name, version) if isinstance(name, str) and isinstance(version, int) else None


def written_points(generation: Generation, batch: WriteBatch) -> list[models.PointStruct]:
    """Return every point that a batch writes: new versions, retired ones, reindexed ones.

    Raises:
        As `_new_points`.
    """
    named = [(new.record.id, new.record.version) for new in batch.versions]
    named += [(n.record.id, n.record.version - 1) for n in batch.versions if n.dense is None]
    named += [(item.record_id, item.version) for item in batch.retire]
    ids = point_ids(generation, [*named, *batch.lexical])
    points = _new_points(generation, batch.versions, ids)
    points += _retired_points(generation.collection, batch, ids)
    return points + _reindexed_points(generation.collection, batch, ids, points)


def _new_points(
    generation: Generation, versions: Sequence[NewVersion], ids: Mapping[Version, PointId]
) -> list[models.PointStruct]:
    """Return the points of new versions; without vectors, with those of what they replace.

    Raises:
        StoreError: when a version has no vectors and nothing stored to take them from.
        RecordError: when a record cannot be stored.
    """
    kept = [new.record for new in versions if new.dense is None]
    before: dict[PointId, Row] = {}
    if kept:
        wanted = [ids[r.id, version] for r in kept for version in (r.version, r.version - 1)]
        rows = generation.collection.retrieve(wanted, fields=False, vectors=True)
        before = {row.id: row for row in rows}
    points = []
    for new in versions:
        payload = to_payload(new.record, new.text_hash)
        key = ids[new.record.id, new.record.version]
        if new.dense is not None:
            dense = unit(new.dense, generation.dimension)
            points.append(to_point(key, payload, dense, new.lexical))
            continue
        row = before.get(key) or before.get(ids[new.record.id, new.record.version - 1])
        if row is None or row.dense is None:
            raise StoreError(
                f"Version {new.record.version} of record {new.record.id!r} has no vectors, and the "
                "version it replaces is not stored; nothing was written."
            )
        points.append(to_point(key, payload, row.dense, new.lexical or row.lexical))
    return points


def _retired_points(
    collection: Collection, batch: WriteBatch, ids: Mapping[Version, PointId]
) -> list[models.PointStruct]:
    """Return the retired versions, written again whole so that one operation changes all."""
    if not batch.retire:
        return []
    wanted = {ids[item.record_id, item.version]: item for item in batch.retire}
    points = []
    for row in collection.retrieve(list(wanted), vectors=True):
        item, payload = wanted[row.id], dict(row.payload)
        if "retired" in payload or row.dense is None:
            continue
        payload["retired"] = item.reason
        payload["valid_to"] = item.valid_to.isoformat()
        if item.superseded_by is not None:
            payload["superseded_by"] = item.superseded_by
        points.append(to_point(row.id, payload, row.dense, row.lexical))
    return points


def _reindexed_points(
    collection: Collection,
    batch: WriteBatch,
    ids: Mapping[Version, PointId],
    written: Sequence[models.PointStruct],
) -> list[models.PointStruct]:
    """Return the stored versions that get another lexical vector, written again whole."""
    if not batch.lexical:
        return []
    done = {as_int(item.id) for item in written}
    wanted = {ids[version]: vector for version, vector in batch.lexical.items()}
    rows = collection.retrieve(sorted(wanted.keys() - done), vectors=True)
    return [
        to_point(row.id, row.payload, row.dense, wanted[row.id])
        for row in rows
        if row.dense is not None
    ]


def alive(collection: Collection, names: set[str]) -> set[str]:
    """Return which of these records have a living version, visible or not."""
    found: set[str] = set()
    ordered = sorted(names)
    for start in range(0, len(ordered), PAGE):
        part = any_of("record_id", ordered[start : start + PAGE])
        living = Where(must=(part,), must_not=(present("retired"),))
        for row in all_rows(collection, living, ("record_id",)):
            found.add(row.payload["record_id"])
    return found


def lineage(collection: Collection, selection: Selection, names: set[str]) -> set[PointId]:
    """Return every visible version of these records and of those they took over from."""
    must, must_not = privacy(selection)
    points: set[PointId] = set()
    done: set[str] = set()
    todo = names
    while todo:
        ordered, todo = sorted(todo), set()
        done.update(ordered)
        for start in range(0, len(ordered), PAGE):
            part = ordered[start : start + PAGE]
            own = Where(must=(*must, any_of("record_id", part)), must_not=tuple(must_not))
            points.update(row.id for row in all_rows(collection, own, False))
            heirs = (*must, any_of("superseded_by", part), present("retired"))
            for row in all_rows(collection, Where(None, heirs, tuple(must_not)), ("record_id",)):
                points.add(row.id)
                todo.add(str(row.payload.get("record_id", "")))
        todo -= done
        todo -= alive(collection, todo)
    return points


def accessed(payload: Mapping[str, Any], access: Access) -> dict[str, Any]:
    """Return the payload fields that change when a row was accessed."""
    last = datetime.fromisoformat(payload.get("last_accessed", payload["created_at"]))
    return {
        "access_count": int(payload.get("access_count", 0)) + access.count,
        "last_accessed": max(last, access.last_accessed).isoformat(),
    }
