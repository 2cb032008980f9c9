"""Records to points and back: the payload of design section 4, and its exact inverse.

A field that is None or empty is left out of the payload; privacy and retirement are keyword
fields that exist only on the rows concerned (``hidden_by``, ``retired``).
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from qdrant_client import models

from mnemotrace import scopes
from mnemotrace.checks import kind_of, shortened
from mnemotrace.errors import RecordError
from mnemotrace.records import MemoryRecord, as_utc

from .backend import SparseVector, Vector
from .engine import DENSE, LEXICAL, PointId, Row

_NAMESPACE = uuid.UUID("5d1f3c52-0f0b-4c8e-9d0a-6d7a7f2b8a41")
_ANONYMOUS = "anonymous"
_LARGEST_INT = 2**63 - 1
_LONGEST_TERM = 96
_MAX_METADATA_DEPTH = 32

SCHEMA_VERSION = 2
"""Of points and their payloads. In stores of version 1 every id is a whole UUID."""
_OPTIONAL = ("retired", "superseded_by", "analysis", "session", "position")
_OPTIONAL_TIMES = ("updated_at", "valid_to", "expires_at")


def whole_id(record_id: str, version: int) -> PointId:
    """Return the integer of a UUID that is always the same for a version, and of no other."""
    return uuid.uuid5(_NAMESPACE, f"{version}\x1f{record_id}").int


def point_id(record_id: str, version: int) -> PointId:
    """Return 63 bits of `whole_id`; `changes.point_ids` tells which of the two a version has.

    Python reads an integer from the embedded engine in a tenth of the time of a UUID.
    """
    return whole_id(record_id, version) & (1 << 63) - 1


def hidden_by(source: str | None) -> str:
    """Return the mark of a private row of this source; no source can equal the reserved one."""
    return _ANONYMOUS if source is None else f"source:{source}"


def to_payload(record: MemoryRecord, text_hash: str) -> dict[str, Any]:
    """Return the payload of one version.

    Raises:
        RecordError: for metadata or text that cannot be stored exactly.
    """
    _check_text(record.content, "The content")
    _check_text(record.id, "The id")
    created = record.created_at.isoformat()
    payload: dict[str, Any] = {
        "record_id": record.id,
        "version": record.version,
        "content": record.content,
        "text_hash": text_hash,
        "scope": record.scope,
        "importance": _exact(record.importance),
        "created_at": created,
        "valid_from": (record.valid_from or record.updated_at or record.created_at).isoformat(),
    }
    for name in _OPTIONAL:
        value = getattr(record, name)
        if value is not None:
            payload[name] = value
    for name in _OPTIONAL_TIMES:
        moment = getattr(record, name)
        if moment is not None:
            payload[name] = moment.isoformat()
    for name in ("categories", "supersedes"):
        values = getattr(record, name)
        if values:
            payload[name] = list(values)
    if record.last_accessed != record.created_at:
        payload["last_accessed"] = record.last_accessed.isoformat()
    if record.access_count:
        payload["access_count"] = record.access_count
    if record.usefulness:
        payload["usefulness"] = _exact(record.usefulness)
    sources = list(dict.fromkeys([*_some(record.source), *record.sources]))
    if sources:
        payload["sources"] = sources
        if record.source != sources[0]:
            payload["source_unknown"] = "unknown"
    if record.private:
        payload["hidden_by"] = hidden_by(record.source)
    if record.pinned:
        payload["pinned"] = "pinned"
    path = scopes.ancestors(record.scope)
    if path:
        payload["scopes"] = list(path)
        payload["tenant"] = path[min(1, len(path) - 1)]
    if record.metadata:
        validate_metadata(record.metadata)
        types: dict[str, Any] = {}
        payload["metadata"] = _to_json(record.metadata, "", types)
        if types:
            payload["metadata_types"] = types
        terms = list(dict.fromkeys(_terms(record.metadata)))
        if terms:
            payload["metadata_terms"] = terms
    return payload


def from_payload(payload: Mapping[str, Any]) -> MemoryRecord:
    """Return the record a payload holds.

    Raises:
        ValueError, KeyError, TypeError: when the row is not one this module wrote.
    """
    created = datetime.fromisoformat(payload["created_at"])
    sources = payload.get("sources", [])
    fields: dict[str, Any] = {
        "id": payload["record_id"],
        "version": payload["version"],
        "content": payload["content"],
        "scope": payload["scope"],
        "importance": payload["importance"],
        "created_at": created,
        "last_accessed": created,
        "valid_from": datetime.fromisoformat(payload["valid_from"]),
        "categories": payload.get("categories", []),
        "supersedes": payload.get("supersedes", []),
        "sources": sources,
        "source": sources[0] if sources and "source_unknown" not in payload else None,
        "private": "hidden_by" in payload,
        "pinned": "pinned" in payload,
    }
    for name in (*_OPTIONAL, "access_count", "usefulness"):
        if name in payload:
            fields[name] = payload[name]
    for name in (*_OPTIONAL_TIMES, "last_accessed"):
        if name in payload:
            fields[name] = datetime.fromisoformat(payload[name])
    if "metadata" in payload:
        types = payload.get("metadata_types")
        metadata = payload["metadata"]
        fields["metadata"] = _from_json(metadata, "", types) if types else metadata
    return MemoryRecord(**fields)


def tie_break(payload: Mapping[str, Any], sign: int = -1) -> tuple[str, int]:
    """Return the order of rows of equal time or score: by id, then newest version first.

    Args:
        payload: of the row.
        sign: 1 for the oldest version first.
    """
    version = payload.get("version", 0)
    return str(payload.get("record_id", "")), sign * (version if isinstance(version, int) else 0)


def to_point(
    key: PointId,
    payload: dict[str, Any],
    dense: Vector | Sequence[float],
    lexical: SparseVector | None,
) -> models.PointStruct:
    """Return the point of one version, from its id, its payload and its vectors."""
    vectors: dict[str, Any] = {
        DENSE: dense.tolist() if isinstance(dense, np.ndarray) else list(dense)
    }
    if lexical:
        vectors[LEXICAL] = models.SparseVector(
            indices=list(lexical.indices), values=list(lexical.values)
        )
    return models.PointStruct.model_construct(id=key, vector=vectors, payload=payload)


def copy_of(row: Row) -> models.PointStruct:
    """Return the point of a stored row, readable or not, under the id it has."""
    vectors: dict[str, Any] = {DENSE: list(row.dense or ())}
    if row.lexical:
        vectors[LEXICAL] = models.SparseVector(
            indices=list(row.lexical.indices), values=list(row.lexical.values)
        )
    return models.PointStruct.model_construct(id=row.id, vector=vectors, payload=row.payload)


def validate_metadata(metadata: Mapping[str, Any]) -> None:
    """Refuse metadata that would not come back as it went in.

    Allowed are strings, integers of 64 bits, finite floats, booleans, None, datetimes, dates, and
    lists and string-keyed mappings of these. Tuples are accepted and come back as lists.

    Raises:
        RecordError: naming the key and the value.
    """
    if not isinstance(metadata, Mapping):
        raise RecordError(f"Metadata must be a mapping, not {kind_of(metadata)}.")
    _check_value(metadata, "metadata")


def metadata_to_json(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return metadata as plain JSON, and by JSON pointer what its texts of times stand for.

    `metadata_from_json` turns both back into equal values.
    """
    types: dict[str, Any] = {}
    return _to_json(metadata, "", types), types


def metadata_from_json(metadata: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that `metadata_to_json` was given.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: this is not what it returned.
    """
    restored: dict[str, Any] = _from_json(dict(metadata), "", types)
    return restored


def metadata_term(key: str, value: Any) -> str:
    """Return the keyword under which ``key == value`` is indexed.

    Numbers are equal as numbers (1 and 1.0), times as instants, and True is not 1.
    """
    if value is None:
        text = "-"
    elif isinstance(value, bool):
        text = "b:1" if value else "b:0"
    elif isinstance(value, int):
        text = f"n:{value}"
    elif isinstance(value, float):
        text = f"n:{int(value)}" if value.is_integer() else f"n:{value!r}"
    elif isinstance(value, (datetime, date)):
        text = f"t:{_instant(value).isoformat()}"
    else:
        text = f"s:{value}"
    term = f"{key}\x1f{text}"
    if len(term) > _LONGEST_TERM:
        return "h:" + hashlib.sha256(term.encode()).hexdigest()
    return term


def _terms(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in metadata.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        for item in items:
            if not isinstance(item, (list, tuple, Mapping)):
                yield metadata_term(key, item)


def _check_value(value: Any, where: str, around: tuple[Any, ...] = ()) -> None:
    """Refuse what cannot be stored.

    Args:
        value: what is looked at.
        where: how a message names it.
        around: the containers that it is in, the outermost first.
    """
    if value is None or isinstance(value, (bool, datetime, date)):
        return
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, int):
        if not -_LARGEST_INT - 1 <= value <= _LARGEST_INT:
            raise RecordError(
                f"{where} is a whole number of more than 64 bits. Store it as a string."
            )
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise RecordError(f"{where} is {value}. Use a finite number or None.")
    elif isinstance(value, (Mapping, list, tuple)):
        _check_depth(value, where, around)
        within = (*around, value)
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise RecordError(
                        f"{where} has the key {shortened(key)}. Keys must be strings."
                    )
                _check_text(key, f"A key of {where}")
                _check_value(item, f"{where}[{shortened(key)}]", within)
        else:
            for index, item in enumerate(value):
                _check_value(item, f"{where}[{index}]", within)
    else:
        raise RecordError(
            f"{where} is {kind_of(value)}, which cannot be stored. Use text, numbers, "
            "booleans, None, dates, times, lists or mappings of these."
        )


def _check_depth(value: Any, where: str, around: tuple[Any, ...]) -> None:
    """Refuse a container that is nested too deeply, or in itself, without naming every level."""
    if any(value is outer for outer in around):
        raise RecordError(
            f"{where} is one of the values that it is itself a part of, so it has no end. Store a "
            "copy without that reference."
        )
    if len(around) >= _MAX_METADATA_DEPTH:
        raise RecordError(
            f"{where.partition(']')[0]}] is nested more than {_MAX_METADATA_DEPTH} levels deep. "
            "Store it flatter, or as text, such as JSON."
        )


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"{where} is not valid Unicode text: {error}.") from error


def _to_json(value: Any, path: str, types: dict[str, Any]) -> Any:
    """Return plain JSON; `types` learns, by JSON pointer, what the text of a time stands for."""
    if isinstance(value, datetime):
        zone = getattr(value.tzinfo, "key", None)
        types[path] = ["datetime", zone] if zone else ["datetime"]
        return value.isoformat()
    if isinstance(value, date):
        types[path] = ["date"]
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _to_json(item, f"{path}/{_escape(key)}", types) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item, f"{path}/{index}", types) for index, item in enumerate(value)]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and _exact(value) != value:
        types[path] = ["float", repr(value)]
    return value


def _from_json(value: Any, path: str, types: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {
            key: _from_json(item, f"{path}/{_escape(key)}", types) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_from_json(item, f"{path}/{index}", types) for index, item in enumerate(value)]
    kind = types.get(path)
    if kind is None:
        return value
    if kind[0] == "float":
        return float(kind[1])
    if kind[0] == "date":
        return date.fromisoformat(value)
    moment = datetime.fromisoformat(value)
    return moment.astimezone(ZoneInfo(kind[1])) if len(kind) > 1 else moment


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _exact(value: float) -> float:
    """Return the nearest number that every engine gives back bit for bit.

    The embedded engine reads numbers of more than 15 digits back wrong in their last bit.
    """
    return float(f"{value:.15g}")


def _some(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def _instant(value: date) -> datetime:
    if isinstance(value, datetime):
        return as_utc(value)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)
