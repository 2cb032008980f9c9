"""Lists of points that take more than one request to the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from .attributes import Attributes, among
from .engine import EVERYTHING, Collection, Fields, PointId, Row, Where
from .filters import time_range
from .points import tie_break

BROAD_FROM = 20_000
"""From this many points on, a selection that shows half of them or more is searched by the broad
plan: at 100,000 an unfiltered exact search costs 6.5 ms, a filtered one 10. Below, no plan wins."""

PAGE = 1_000
"""Points or ids asked for in one request."""
ROUNDING = 1e-6
"""Engines compute cosines in 32 bits: an identical vector may come out at 0.9999999."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_broad(attributes: Attributes, where: Where) -> bool:
    """Tell whether to search everything and check the hits, rather than search what is visible."""
    total = attributes.estimate(EVERYTHING)
    return total >= BROAD_FROM and attributes.estimate(where) * 2 >= total


def nearest_broad(
    collection: Collection,
    where: Where,
    query: Sequence[float],
    limit: int,
    threshold: float | None,
) -> dict[PointId, float]:
    """Return the nearest visible points: unfiltered lists, checked by the engine, widened."""
    size = 2 * limit
    while True:
        hits = collection.query(query, size, threshold=threshold, fields=False)
        if not hits:
            return {}
        rows, _ = collection.scroll(
            len(hits), where.also(must=[among(hit.id for hit in hits)]), fields=False
        )
        shown = {row.id for row in rows}
        found = [hit for hit in hits if hit.id in shown][:limit]
        if len(found) == limit or len(hits) < size:
            return {hit.id: hit.score for hit in found}
        size *= 4


def all_rows(
    collection: Collection, where: Where, fields: Fields = True, *, vectors: bool = False
) -> Iterator[Row]:
    """Yield every point that `where` shows, by point id."""
    offset: PointId | None = None
    while True:
        page, offset = collection.scroll(PAGE, where, offset=offset, fields=fields, vectors=vectors)
        yield from page
        if offset is None:
            return


def _place(payload: Mapping[str, Any], sign: int) -> tuple[Any, ...]:
    """Return what orders rows of one time: the place they were saved at, the lowest where untold.

    Args:
        payload: of the row.
        sign: -1 for the last place first.
    """
    position, session = payload.get("position"), payload.get("session")
    if not isinstance(position, (int, float)) or isinstance(position, bool):
        position = -1
    return (
        sign * position,
        session if isinstance(session, str) else "",
        tie_break(payload, sign),
    )


def page_of(
    collection: Collection, where: Where, limit: int, offset: int, newest: bool
) -> list[Row]:
    """Return one page by ``created_at``, whatever the engine does with ties.

    Records of one time are in the order in which they were saved, or its reverse where the newest
    come first; those of which it is not known by record id.
    """
    wanted = offset + limit
    rows = collection.ordered("created_at", wanted + 1, where, descending=newest, fields=False)
    if len(rows) <= offset:
        return []
    # Times equal to that of the page's first or last row may reach beyond the page.
    start = next(n for n, row in enumerate(rows) if row.order == rows[offset].order)
    times = {row.id: row.order for row in rows[start:wanted]}
    if len(rows) > wanted and rows[wanted].order == rows[wanted - 1].order:
        last = rows[wanted].order
        moment = _EPOCH + timedelta(microseconds=int(last))
        same = where.also(must=[time_range("created_at", gte=moment, lte=moment)])
        times.update((row.id, last) for row in all_rows(collection, same, False))
    # Many may share a time; only what orders them is read of all.
    keys = collection.retrieve(list(times), fields=("record_id", "version", "session", "position"))
    sign = -1 if newest else 1
    keys.sort(key=lambda row: (sign * times[row.id], *_place(row.payload, sign)))
    page = [row.id for row in keys[offset - start : wanted - start]]
    found = {row.id: row for row in collection.retrieve(page)}
    return [found[key] for key in page if key in found]
