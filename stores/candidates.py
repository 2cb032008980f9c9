"""What a search knows of the points it has seen, one row each."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Container, Sequence
from typing import Any

from mnemotrace import scoring

from .attributes import Attributes
from .backend import Ranking
from .engine import Hit, PointId, columns

OPEN, SETTLED, HIDDEN = range(3)
"""States of a row: something is not known yet; every signal is known; it may not be seen."""


class Candidates:
    """The points seen, in lists with one entry a row.

    Plain lists, because a search mostly sees one or two hundred points: below about a thousand
    they are quicker than arrays.

    Attributes:
        ids: the points.
        index: the row of each point.
        cosine: None where it was not looked up.
        lexical: score of the lexical query; None where it was not looked up.
        most_lexical: the most it can be where it was not looked up.
        created: seconds since the epoch.
        importance: 0..1.
        score: the composite score; the most it can be while the row is open.
        state: `OPEN`, `SETTLED` or `HIDDEN`.
        sure: scores of the settled rows, rising.
        odd: points without a usable time or importance; they are hidden.
        farthest: what an unknown cosine can be at most.
        best_lexical: the lexical score that counts as 1; 0 when no term matches.
        lexical_weight: the share of the lexical signal in the semantic term.
    """

    def __init__(self, attributes: Attributes, ranking: Ranking) -> None:
        self._attributes = attributes
        self._ranking = ranking
        self._now = ranking.now.timestamp()
        self.ids: list[PointId] = []
        self.index: dict[PointId, int] = {}
        self.cosine: list[float | None] = []
        self.lexical: list[float | None] = []
        self.most_lexical: list[float] = []
        self.created: list[float] = []
        self.importance: list[float] = []
        self.score: list[float] = []
        self.state: list[int] = []
        self.sure: list[float] = []
        self.odd: list[PointId] = []
        self.farthest = 1.0
        self.best_lexical = 0.0
        self.lexical_weight = 0.0

    def add(
        self, near: Sequence[Hit], terms: Sequence[Hit], most_lexical: float
    ) -> tuple[list[int], list[int]]:
        """Take in hits.

        Args:
            near: of a dense list.
            terms: of a lexical list.
            most_lexical: the most the lexical score of a point outside `terms` can be.

        Returns:
            The new rows that may be seen: those with both signals, and the others.
        """
        start = len(self.ids)
        keys, scores = columns(near)
        if self.index:
            keys, scores = _new(keys, scores, self.index)
        self._append(keys, within(scores), [None] * len(keys))
        keys, scores = columns(terms)
        matched = list(map(self.index.get, keys))
        known = [row for row in matched if row is not None]
        if known:
            for row, score in zip(matched, scores, strict=True):
                if row is not None:
                    self.lexical[row] = score
            keys, scores = _new(keys, scores, self.index)
            known = [row for row in known if row >= start]
        self._append(keys, [None] * len(keys), scores)
        new = range(start, len(self.ids))
        self.most_lexical += [most_lexical] * len(new)
        self._describe(new)
        self.score += self._scores(new)
        both, state = set(known), self.state
        return (
            [row for row in known if state[row] == OPEN],
            [row for row in new if row not in both and state[row] == OPEN],
        )

    def _append(
        self,
        keys: list[PointId],
        cosine: Sequence[float | None],
        lexical: Sequence[float | None],
    ) -> None:
        first = len(self.ids)
        self.index.update(zip(keys, range(first, first + len(keys)), strict=True))
        self.ids += keys
        self.cosine += cosine
        self.lexical += lexical

    def _describe(self, rows: range) -> None:
        """Look up times and importances of new rows; those that lack one are hidden."""
        self.state += [OPEN] * len(rows)
        attributes = self._attributes.of(self.ids[rows.start : rows.stop])
        if None in attributes:
            for row, found in zip(rows, attributes, strict=True):
                if found is None:
                    self.hide(row)
                    self.odd.append(self.ids[row])
        pairs = [found or (0.0, 0.0) for found in attributes]
        self.created += [created for created, _ in pairs]
        self.importance += [importance for _, importance in pairs]

    def hide(self, row: int) -> None:
        """Note that a point may not be seen."""
        self.state[row] = HIDDEN

    def settle(self, rows: Sequence[int]) -> None:
        """Note that all there is to know of these rows is known."""
        for row, score in zip(rows, self._scores(rows), strict=True):
            self.state[row] = SETTLED
            self.score[row] = score
            insort(self.sure, score)

    def kth(self, k: int) -> float:
        """Return the k-th best settled score; minus infinity when there are fewer."""
        return self.sure[-k] if len(self.sure) >= k else float("-inf")

    def relative(self, lexical: float) -> float:
        """Return a lexical score as 0..1."""
        return min(max(lexical / self.best_lexical, 0.0), 1.0) if self.best_lexical > 0 else 0.0

    def semantic(self, row: int) -> float:
        """Return the semantic term of a row; the most it can be while the row is open."""
        cosine, lexical = self.cosine[row], self.lexical[row]
        return scoring.fuse(
            scoring.similarity(self.farthest if cosine is None else cosine),
            self.relative(self.most_lexical[row] if lexical is None else lexical),
            self.lexical_weight,
        )

    def recency(self, row: int) -> float:
        """Return the recency of a row."""
        return scoring.recency(self.created[row], self._now, self._ranking.half_life_days)

    def _scores(self, rows: Sequence[int]) -> list[float]:
        """Return the composite scores, each the most it can be while something is not known.

        The formulas of `mnemotrace.scoring`, written out: three calls for each of some hundred
        rows would take longer than the engine takes to find them.
        """
        r, now, exp2 = self._ranking, self._now, math.exp2
        weight = self.lexical_weight
        dense_share = r.semantic_weight * (1.0 - weight)
        lexical_share = r.semantic_weight * weight
        best = self.best_lexical or 1.0
        rate = 1.0 / scoring.SECONDS_PER_DAY / r.half_life_days
        recency_weight, importance_weight = r.recency_weight, r.importance_weight
        farthest = self.farthest
        signals = self.cosine, self.lexical, self.most_lexical, self.created, self.importance
        part: list[Sequence[Any]]
        if isinstance(rows, range):
            part = [signal[rows.start : rows.stop] for signal in signals]
        else:
            part = [[signal[row] for row in rows] for signal in signals]
        return [
            dense_share / (2.0 - (farthest if near is None else near))
            + lexical_share
            * (
                share
                if 0.0 <= (share := (most if term is None else term) / best) <= 1.0
                else share > 0
            )
            + recency_weight * (exp2(-age * rate) if (age := now - made) > 0.0 else 1.0)
            + importance_weight * importance
            for near, term, most, made, importance in zip(*part, strict=True)
        ]


def _new(
    keys: list[PointId], scores: list[float], known: Container[PointId]
) -> tuple[list[PointId], list[float]]:
    """Return those of the points, with their scores, that are not known."""
    pairs = [pair for pair in zip(keys, scores, strict=True) if pair[0] not in known]
    return [key for key, _ in pairs], [score for _, score in pairs]


def within(cosines: list[float]) -> list[float]:
    """Return cosines, best first, from -1 to 1: engines compute them in 32 bits."""
    if cosines and not -1.0 <= cosines[-1] <= cosines[0] <= 1.0:
        return [min(1.0, max(-1.0, cosine)) for cosine in cosines]
    return cosines
