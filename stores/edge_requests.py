"""Translation of `qdrant_client.models` requests into those of qdrant-edge."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from threading import Lock
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

from .engine import LEXICAL, Where, native

_CACHED_FILTERS = 1024


class FilterCache:
    """Translated filters, by the identity of the filter they were made from."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[int, tuple[models.Filter, edge.Filter, Parts]] = OrderedDict()

    def translate(self, where: Where) -> edge.Filter | None:
        """Return the engine's filter; None when everything may be seen."""
        base = where.filter
        if base is None and not where.must and not where.must_not:
            return None
        whole: edge.Filter | None = None
        parts: Parts = ([], [], [])
        if base is not None:
            whole, parts = self._base(base)
        if whole is not None and not where.must and not where.must_not:
            return whole
        must, must_not, should = parts
        return edge.Filter(
            must=[*must, *map(condition, where.must)],
            must_not=[*must_not, *map(condition, where.must_not)],
            should=should or None,
        )

    def _base(self, base: models.Filter) -> tuple[edge.Filter, Parts]:
        key = id(base)
        known = self._known.get(key)
        if known is not None and known[0] is base:
            return known[1], known[2]
        parts = _parts(base)
        whole = _filter(parts, base)
        with self._lock:
            # The filter is kept too, so that its id cannot come to mean another one.
            self._known[key] = (base, whole, parts)
            if len(self._known) > _CACHED_FILTERS:
                self._known.popitem(last=False)
        return whole, parts


Parts = tuple[list[Any], list[Any], list[Any]]


def _conditions(found: Any) -> list[Any]:
    if found is None:
        return []
    return [condition(item) for item in (found if isinstance(found, (list, tuple)) else [found])]


def _parts(source: models.Filter) -> Parts:
    return _conditions(source.must), _conditions(source.must_not), _conditions(source.should)


def _filter(parts: Parts, source: models.Filter) -> edge.Filter:
    if source.min_should is not None:
        raise NotImplementedError("min_should is not used by mnemotrace")
    must, must_not, should = parts
    return edge.Filter(must=must or None, must_not=must_not or None, should=should or None)


def condition(source: Any) -> Any:
    """Return the engine's form of one condition."""
    if isinstance(source, models.FieldCondition):
        if source.match is not None:
            return edge.FieldCondition(source.key, match=_match(source.match))
        if source.range is not None:
            return edge.FieldCondition(source.key, range=_range(source.range))
    elif isinstance(source, models.HasIdCondition):
        return edge.HasIdCondition({native(key) for key in source.has_id})
    elif isinstance(source, models.IsEmptyCondition):
        return edge.IsEmptyCondition(source.is_empty.key)
    elif isinstance(source, models.IsNullCondition):
        return edge.IsNullCondition(source.is_null.key)
    elif isinstance(source, models.Filter):
        return _filter(_parts(source), source)
    raise NotImplementedError(f"the embedded engine has no translation for {source!r}")


def _match(source: Any) -> Any:
    if isinstance(source, models.MatchValue):
        return edge.MatchValue(source.value)
    if isinstance(source, models.MatchAny):
        return edge.MatchAny(source.any)
    if isinstance(source, models.MatchExcept):
        return edge.MatchExcept(source.except_)
    raise NotImplementedError(f"the embedded engine has no translation for {source!r}")


def _range(source: Any) -> Any:
    if isinstance(source, models.DatetimeRange):
        return edge.RangeDateTime(
            gte=_time(source.gte), gt=_time(source.gt), lte=_time(source.lte), lt=_time(source.lt)
        )
    return edge.RangeFloat(gte=source.gte, gt=source.gt, lte=source.lte, lt=source.lt)


def _time(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value


def point(source: models.PointStruct) -> edge.Point:
    """Return the engine's form of a point with named vectors."""
    vectors: Any = dict(source.vector)  # type: ignore[arg-type]
    lexical = vectors.get(LEXICAL)
    if lexical is not None:
        vectors[LEXICAL] = edge.SparseVector(lexical.indices, lexical.values)
    return edge.Point(native(source.id), vectors, source.payload)
