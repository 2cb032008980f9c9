"""Time and importance of points, looked up without reading their payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from qdrant_client import models

from .engine import EVERYTHING, Collection, PointId, Where, as_int

MICROSECONDS = 1e6
"""Times come from the engine's index in microseconds."""


class Attributes:
    """Time and importance of points, remembered: a stored version never changes them."""

    _MOST = 200_000
    """About 60 MB."""

    def __init__(self, collection: Collection, exclusive: bool = False) -> None:
        self._collection = collection
        self._exclusive = exclusive
        self._known: dict[PointId, tuple[float, float]] = {}
        self._count: int | None = None
        self._ends: dict[tuple[str, bool], float | None] = {}
        """Highest (True) and lowest values of fields."""

    def estimate(self, where: Where) -> int:
        """Return about how many points a filter shows.

        All points are counted once, until points are written or erased.
        """
        if where != EVERYTHING:
            return self._collection.count(where, exact=False)
        if self._count is None or not self._exclusive:
            self._count = self._collection.count(exact=False)
        return self._count

    def highest(self, key: str) -> float | None:
        """Return the highest value of a field over all points, in the engine's own unit.

        Remembered likewise; None when no point has one.
        """
        return self._end(key, highest=True)

    def all_have(self, key: str, least: float) -> bool:
        """Tell whether every point that has this field is known to have at least this much of it.

        Then a condition to that effect says nothing, and the engine need not check it.
        """
        if not self._exclusive:  # to ask each time costs more than the condition
            return False
        lowest = self._end(key, highest=False)
        return lowest is None or lowest >= least

    def _end(self, key: str, *, highest: bool) -> float | None:
        if (key, highest) not in self._ends or not self._exclusive:
            rows = self._collection.ordered(key, 1, descending=highest, fields=False)
            self._ends[key, highest] = rows[0].order if rows else None
        return self._ends[key, highest]

    def of(self, ids: Sequence[PointId]) -> list[tuple[float, float] | None]:
        """Return seconds since the epoch and importance of each; None for a point lacking one."""
        known = self._known
        found = [known.get(key) for key in ids]
        if None in found:
            new = self._look_up([key for key, value in zip(ids, found, strict=True) if not value])
            self._make_room(len(new))
            known.update(new)
            found = [value or new.get(key) for key, value in zip(ids, found, strict=True)]
        return found

    def _look_up(self, ids: Sequence[PointId]) -> dict[PointId, tuple[float, float]]:
        where = Where(must=(among(ids),))
        times = self._collection.ordered("created_at", len(ids), where, fields=False)
        weights = self._collection.ordered("importance", len(ids), where, fields=False)
        created = {row.id: row.order / MICROSECONDS for row in times}
        return {row.id: (created[row.id], row.order) for row in weights if row.id in created}

    def learn(self, points: Sequence[models.PointStruct]) -> None:
        """Remember what was just written, which is cheaper than looking it up in a search."""
        self._count = None
        self._make_room(len(points))
        for point in points:
            key, payload = as_int(point.id), point.payload or {}
            try:
                created = datetime.fromisoformat(payload["created_at"])
                importance = float(payload["importance"])
            except (KeyError, TypeError, ValueError):  # by another program; the index knows best
                self.forget([key])
                continue
            created = created if created.tzinfo else created.replace(tzinfo=UTC)
            self._known[key] = created.timestamp(), importance
            self._widen("created_at", created.timestamp() * MICROSECONDS)
            self._widen("importance", importance)

    def _widen(self, key: str, value: float) -> None:
        for highest, further in ((True, max), (False, min)):
            if (known := self._ends.get((key, highest))) is not None:
                self._ends[key, highest] = further(known, value)
            else:  # not asked for yet, or there was none
                self._ends.pop((key, highest), None)

    def _make_room(self, count: int) -> None:
        if len(self._known) + count > self._MOST:
            self._known.clear()

    def forget(self, ids: Iterable[PointId]) -> None:
        """Drop what is remembered of points that may be written or were erased."""
        for key in ids:
            self._known.pop(key, None)
        self._count = None
        self._ends.clear()


def among(ids: Iterable[PointId]) -> models.HasIdCondition:
    """Return the condition that a point is one of these."""
    # Validation would refuse what engines take: a UUID as an integer of 128 bits.
    return models.HasIdCondition.model_construct(has_id=list(ids))
