"""How rare a word is among the records in sight, counted there and nowhere else.

The engine's inverse document frequency counts every point of the store. Then a word that is rare
in one tenant's scope and common in the others' counts for little, and the score of a record in
sight betrays, by a digit, that a word occurs out of sight. So where a search sees few records, it
asks the engine only which of them hold the query's terms, and how much each weighs there, and
counts by itself.
"""

from __future__ import annotations

import numpy as np

from .backend import SparseVector
from .engine import Collection, Hit, PointId, Where
from .held import Held

FEW = 1_000
"""The most records in sight for which this is done: their terms take 0.6 ms to look through, those of
a hundred records 0.2. Among ten times as many it would take longer than the whole search does."""
_UNSURE = 2
"""A quick estimate up to this many times `FEW` is checked by counting."""


class Scoped:
    """The lexical scores of every record in sight that holds a term of the query.

    Attributes:
        scores: by point; one that is not here scores 0.
        coverage: the largest share, 0..1, of the query's terms in one of the best.
        idf: of each term of the query: ``ln((n - h + 0.5) / (h + 0.5) + 1)`` with n records in
            sight, h of which hold it; the formula of the engine.
    """

    def __init__(self, terms: SparseVector, held: Held, total: int) -> None:
        holders = np.bincount(held.term, minlength=len(terms.indices))
        idf = np.log((total - holders + 0.5) / (holders + 0.5) + 1.0)
        asked = np.asarray(terms.values, dtype=np.float64) * idf
        # A record's terms come in one order, so that the sums are the same every time.
        self._sums = np.bincount(
            held.row, weights=asked[held.term] * held.weight, minlength=len(held.ids)
        ).astype(np.float32)
        self._ids = held.ids
        self.idf: dict[int, float] = dict(zip(terms.indices, idf.tolist(), strict=True))
        self.scores: dict[PointId, float] = dict(zip(held.ids, self._sums.tolist(), strict=True))
        self.coverage = self._coverage(terms, held)

    def best(self, count: int | None = None) -> list[Hit]:
        """Return the best hits, best first; all of them when no number is given."""
        order = np.argsort(-self._sums, kind="stable")[:count]
        found = self._sums[order].tolist()
        return [Hit(self._ids[row], score, {}) for row, score in zip(order, found, strict=True)]

    def _coverage(self, terms: SparseVector, held: Held) -> float:
        counted = terms.asked
        if not len(self._sums) or not counted:
            return 0.0
        counts = np.array([index in counted for index in terms.indices])
        own = np.bincount(held.row[counts[held.term]], minlength=len(self._sums))
        return float(own[self._sums == self._sums.max()].max()) / len(counted)


def scoped(
    collection: Collection, where: Where, terms: SparseVector, estimate: int
) -> Scoped | None:
    """Return the lexical scores that follow from what is in sight; None where that is too much.

    Args:
        collection: where to look.
        where: what may be seen.
        terms: what the query asks for; empty gives None.
        estimate: about how many points may be seen.
    """
    if not terms or estimate > _UNSURE * FEW:
        return None
    total = collection.count(where)
    if total > FEW:
        return None
    return Scoped(terms, collection.held(terms, total, where) if total else Held(), total)
