"""Exact composite ranking: the top k, equal to scoring every visible record, from a few lists.

The score is ``ws*semantic + wr*recency + wi*importance``. No engine sorts by it, but each part
has a list: nearest vectors, best lexical matches, newest, most important. This is a threshold
algorithm (Fagin, Lotem and Naor, 2001): whatever was not seen is at most as near, as well
matched, as new and as important as the lists allow, and once the k-th best score seen is above
the score that bound allows, nothing unseen can be among the best k.

Two things keep it short. A signal that is dear to look up is looked up only for candidates that
could be among the best k if it were as high as the lists allow. And while the bound is not
reached, the k-th best score tells how new, how important and how near an unseen record must at
least be: these conditions, a box, go to the engine, and the next list is drawn inside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from mnemotrace import scoring

from .attributes import MICROSECONDS, Attributes, among
from .backend import Ranking, SparseVector
from .candidates import (
    COSINE,
    CREATED,
    HIDDEN,
    IMPORTANCE,
    LEXICAL,
    MOST_LEXICAL,
    SETTLED,
    STATIC,
    Candidates,
    Floats,
)
from .engine import Collection, Condition, Hit, PointId, Where
from .filters import time_range
from .points import tie_break

FIRST_DENSE = 64
FIRST_LEXICAL = 64
"""Lengths of the first lists: enough to settle a search over records of like age and importance;
an entry costs about a microsecond on the embedded engine."""
WIDENING = 4
SETTLED_AT_ONCE = 32
"""Candidates looked up together; a look-up costs about as much as ten candidates in it."""
SMALL_BOX = 1_000
"""A box with fewer points than this is worth drawing whole."""
TINY_BOX = 300
"""Drawing so few points costs less than a lexical list, whose cost grows with the whole store."""
LEXICAL_SHARE = 0.3
"""From this part of what may be lacking on, knowing lexical scores better makes the box smaller."""
LONGEST_LEXICAL = 1_000
_NARROWEST = 1 / 64
"""The smallest part of a box that is looked into for good candidates."""
_WIDE_BOX = 8
"""A box with more than this part (1/8) of all points is not worth filtering by."""
_MARGIN = 1e-9
"""Scores nearer than this are not told apart by a bound: the search goes on and sees both."""
_COSINE_MARGIN = 1e-5
"""Engines compute cosines in 32 bits; a threshold is set this much lower."""
_YEAR_ONE = datetime(1, 1, 2, tzinfo=UTC).timestamp()


@dataclass(slots=True)
class Ranked:
    """One ranked point with its signals."""

    id: PointId
    cosine: float
    lexical: float
    semantic: float
    recency: float
    importance: float
    score: float
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """The exact top-k and what it took.

    Attributes:
        best: best first; ties by newest, then by record id.
        best_cosine: the highest cosine of any visible record; None when there are none.
        best_lexical: the highest lexical score of any visible record; 0.0 when none.
        rounds: how many times lists were drawn.
        seen: how many points were looked at.
        odd: ids of visible rows without a usable time or importance.
    """

    best: list[Ranked] = field(default_factory=list)
    best_cosine: float | None = None
    best_lexical: float = 0.0
    rounds: int = 0
    seen: int = 0
    odd: list[PointId] = field(default_factory=list)


@dataclass(slots=True)
class _Bound:
    """The most an unseen record can have of each signal."""

    cosine: float = 1.0
    lexical: float = 0.0
    created: float = math.inf
    importance: float = 1.0


class Search:
    """One exact search; see `run`.

    Args:
        collection: where to look.
        attributes: what is remembered of its points.
        where: what may be seen.
        dense: the query at length 1.
        lexical: the query's terms; empty for none.
        ranking: weights, half-life and time.
        limit: k, above 0.
        broad: nearly everything may be seen, so draw the dense lists from all points and let the
            engine check the entries that matter.
    """

    def __init__(
        self,
        collection: Collection,
        attributes: Attributes,
        where: Where,
        dense: Sequence[float],
        lexical: SparseVector,
        ranking: Ranking,
        limit: int,
        *,
        broad: bool = False,
    ) -> None:
        self._collection = collection
        self._attributes = attributes
        self._where = where
        self._everything = Where() if broad else where
        self._broad = broad
        self._dense = dense
        self._terms = lexical
        self._ranking = ranking
        self._limit = limit
        self._out = Outcome()
        self._seen = Candidates()
        self._odd: list[PointId] = []
        self._best_lexical = 0.0
        self._lexical_weight = 0.0
        self._size = max(FIRST_DENSE, 2 * limit)
        self._lexical_size = max(FIRST_LEXICAL, limit)
        self._guessed_from = -math.inf
        self._listed = _Bound()
        self._near: list[Hit] = []

    def run(self) -> Outcome:
        """Draw lists until nothing unseen can be among the best, and return the best."""
        complete, bound = self._first()
        while True:
            kth = self._settle()
            if complete:
                break
            if kth == -math.inf:
                complete = self._lengthen(bound)
            elif self._most(bound) < kth - _MARGIN:
                break
            else:
                complete = self._narrow(kth - _MARGIN, bound)
        return self._finish()

    # Drawing lists. A list is complete when every record that could still matter was seen.

    def _first(self) -> tuple[bool, _Bound]:
        self._out.rounds = 1
        terms = self._lexical_list()
        if terms and terms[0].score > 0:
            self._best_lexical = self._out.best_lexical = terms[0].score
            self._lexical_weight = self._ranking.lexical_weight
        near = self._dense_list(self._size, self._everything)
        bound = _Bound(
            cosine=near[-1].score if near else -1.0,
            lexical=self._lexical_bound(terms),
        )
        self._listed = replace(bound)
        self._add(near, terms)
        self._near = near
        if len(near) < self._size:
            return True, bound
        if self._ranking.recency_weight > 0:
            newest = self._collection.ordered("created_at", 1, self._where, fields=False)
            bound.created = newest[0].order / MICROSECONDS if newest else -math.inf
        if self._ranking.importance_weight > 0:
            top = self._collection.ordered("importance", 1, self._where, fields=False)
            bound.importance = top[0].order if top else 0.0
        return False, bound

    def _lengthen(self, bound: _Bound) -> bool:
        """Draw a longer list of everything: fewer than k visible records were seen."""
        self._out.rounds += 1
        self._size *= WIDENING
        near = self._dense_list(self._size, self._everything)
        self._add(near, [])
        bound.cosine = near[-1].score if near else -1.0
        return len(near) < self._size

    def _narrow(self, need: float, bound: _Bound) -> bool:
        """Draw a list of the records that are new, important and near enough to matter."""
        self._out.rounds += 1
        slack = self._most(bound) - need  # what may be lacking in all signals together
        part = self._lexical_part(bound)
        if part > 0 and part >= slack:
            # Knowing the lexical scores better could be enough, and that list is the cheapest.
            self._lengthen_lexical(slack, bound)
            return False
        if need > self._guessed_from + slack / 4:
            # With a k-th best score this low the box is large. Look for better ones first, in
            # the part of it where they are likely. This proves nothing, so it is not done again
            # unless it helped a lot.
            self._guessed_from = need
            guess = self._promising(slack, bound)
            if guess is not None:
                self._add(self._dense_list(2 * FIRST_DENSE + self._limit, guess), [])
                return False
        box = self._everything.also(must=self._box(slack, bound))
        points, total = self._points(box), self._points(Where())
        if (
            part > slack * LEXICAL_SHARE
            and self._lexical_size < LONGEST_LEXICAL
            and points > max(TINY_BOX, total // 100)
        ):
            self._lengthen_lexical(slack, bound)
            return False
        self._size *= WIDENING
        if points <= SMALL_BOX:
            self._size = max(self._size, 2 * SMALL_BOX)
        elif points * _WIDE_BOX > total:
            box = self._everything
        near = self._dense_list(self._size, box, self._least_cosine(slack, bound))
        # All of them that could matter are in the box that the lexical list was drawn from.
        self._add(near, [], bound.lexical)
        if len(near) < self._size:
            return True
        bound.cosine = min(bound.cosine, near[-1].score)
        return False

    def _promising(self, slack: float, bound: _Bound) -> Where | None:
        """Return a box of the newest and most important records; None when none stand out."""
        conditions = self._box(slack * _NARROWEST, bound)
        if not conditions or self._points(self._everything.also(must=conditions)) > SMALL_BOX:
            return None
        if self._points(self._everything.also(must=self._box(slack, bound))) <= SMALL_BOX:
            return None
        part = 0.7
        while part >= _NARROWEST:
            box = self._everything.also(must=self._box(slack * part, bound))
            found = self._points(box)
            if found <= SMALL_BOX:
                return box if found >= self._limit else None
            part *= 0.7
        return None

    def _points(self, where: Where) -> int:
        return self._collection.count(where, exact=False)

    def _dense_list(self, size: int, where: Where, threshold: float | None = None) -> list[Hit]:
        return self._collection.query(self._dense, size, where, threshold=threshold, fields=False)

    def _lexical_list(self) -> list[Hit]:
        if not self._terms:
            return []
        return self._collection.query(self._terms, self._lexical_size, self._where, fields=False)

    def _lexical_bound(self, terms: list[Hit]) -> float:
        """Return the most a record can score that is not in this list."""
        return max(terms[-1].score, 0.0) if len(terms) == self._lexical_size else 0.0

    def _lengthen_lexical(self, slack: float, bound: _Bound) -> None:
        """Draw a longer lexical list of the records new and important enough to matter."""
        self._lexical_size *= WIDENING
        box = self._where.also(must=self._box(slack, bound))
        terms = self._collection.query(self._terms, self._lexical_size, box, fields=False)
        self._add([], terms)
        # Only for records in the box: what is seen already may lie outside.
        bound.lexical = self._lexical_bound(terms)

    def _lexical_part(self, bound: _Bound) -> float:
        """Return how much of the bound on a score is due to the bound on the lexical score."""
        if self._best_lexical <= 0:
            return 0.0
        relative = min(bound.lexical / self._best_lexical, 1.0)
        return self._ranking.semantic_weight * self._lexical_weight * relative

    # Candidates.

    def _add(self, near: list[Hit], terms: list[Hit], most: float | None = None) -> None:
        """Take in hits.

        Args:
            near: of a dense list.
            terms: of a lexical list.
            most: the most their lexical score can be where it is not known; None for that of
                everything outside the first lexical list.
        """
        seen, r = self._seen, self._ranking
        start = len(seen.ids)
        cosines = [hit.score for hit in near if self._is_new(hit)]
        lexical = [math.nan] * len(cosines)
        for hit in terms:
            place = seen.index.get(hit.id, -1)
            if place < 0:
                seen.place(hit.id)
                cosines.append(math.nan)
                lexical.append(hit.score)
            elif place >= start:
                lexical[place - start] = hit.score
            else:
                seen.table[place, LEXICAL] = hit.score
        new = seen.ids[start:]
        if not new:
            return
        rows = np.zeros((len(new), 6))
        state = np.zeros(len(new), dtype=np.int8)
        attributes = self._attributes.of(new)
        for place, found in enumerate(attributes):
            if found is None:
                attributes[place] = (0.0, 0.0)
                state[place] = HIDDEN
                self._odd.append(new[place])
        rows[:, COSINE] = cosines
        rows[:, LEXICAL] = lexical
        rows[:, CREATED : IMPORTANCE + 1] = attributes
        recency = scoring.recency(rows[:, CREATED], r.now, r.half_life_days)
        rows[:, STATIC] = r.recency_weight * recency + r.importance_weight * rows[:, IMPORTANCE]
        rows[:, MOST_LEXICAL] = self._listed.lexical if most is None else most
        seen.extend(rows, state)

    def _is_new(self, hit: Hit) -> bool:
        """Give a point its row; tell whether it had none."""
        if hit.id in self._seen.index:
            return False
        self._seen.place(hit.id)
        return True

    def _settle(self) -> float:
        """Look up what decides the best k of the candidates; return the k-th best score.

        Returns:
            Minus infinity when fewer than k of them may be seen.
        """
        while True:
            score, state = self._scores(), self._seen.state
            sure = score[state == SETTLED]
            kth = -math.inf
            if len(sure) >= self._limit:
                kth = float(np.partition(sure, len(sure) - self._limit)[-self._limit])
            doubtful = np.flatnonzero((state == 0) & (score >= kth - _MARGIN))
            if not len(doubtful):
                return kth
            chunk = max(SETTLED_AT_ONCE, 2 * self._limit)
            if len(doubtful) > chunk:
                doubtful = doubtful[np.argpartition(-score[doubtful], chunk)[:chunk]]
            self._look_up(doubtful)

    def _look_up(self, places: NDArray[np.intp]) -> None:
        """Settle these candidates."""
        seen = self._seen
        seen.state[places] = SETTLED
        if self._broad:
            shown = self._visible([seen.ids[n] for n in places])
            hidden = np.array([seen.ids[n] not in shown for n in places], dtype=bool)
            seen.state[places[hidden]] = HIDDEN
            places = places[~hidden]
        for column, vector in ((COSINE, self._dense), (LEXICAL, self._terms)):
            missing = places[np.isnan(seen.table[places, column])]
            if not len(missing):
                continue
            seen.table[missing, column] = 0.0
            if vector and (column == COSINE or self._listed.lexical > 0):
                ids = [seen.ids[n] for n in missing]
                where = Where(must=(among(ids),))
                for hit in self._collection.query(vector, len(ids), where, fields=False):
                    seen.table[seen.index[hit.id], column] = hit.score

    def _visible(self, ids: Sequence[PointId]) -> set[PointId]:
        where = self._where.also(must=[among(ids)])
        rows, _ = self._collection.scroll(len(ids), where, fields=False)
        return {row.id for row in rows}

    def _best_cosine(self) -> float | None:
        """Return the best cosine of what may be seen; the first list is in that order."""
        for hit in self._near:
            if not self._broad:
                return hit.score
            place = self._seen.index.get(hit.id)
            state = 0 if place is None else self._seen.state[place]
            if state == SETTLED or (state == 0 and self._visible([hit.id])):
                return hit.score
        hits = self._collection.query(self._dense, 1, self._where, fields=False)
        return hits[0].score if hits else None

    # Scores and bounds.

    def _signals(self) -> tuple[Floats, Floats, Floats]:
        """Return cosine, lexical and semantic of all candidates."""
        table = self._seen.table
        cosine, lexical = table[:, COSINE], table[:, LEXICAL]
        # What was not looked up stands for the most it can be: it was not in the first lists.
        cosine = np.where(np.isnan(cosine), self._listed.cosine, cosine)
        if self._best_lexical > 0:
            lexical = np.where(np.isnan(lexical), table[:, MOST_LEXICAL], lexical)
            lexical = np.minimum(np.maximum(lexical / self._best_lexical, 0.0), 1.0)
        else:
            lexical = np.zeros_like(cosine)
        semantic = scoring.fuse(scoring.similarity(cosine), lexical, self._lexical_weight)
        return cosine, lexical, np.asarray(semantic)

    def _scores(self) -> Floats:
        semantic = self._signals()[2]
        return self._ranking.semantic_weight * semantic + self._seen.table[:, STATIC]

    def _recency_bound(self, bound: _Bound) -> float:
        if bound.created == -math.inf:
            return 0.0
        return float(
            scoring.recency(bound.created, self._ranking.now, self._ranking.half_life_days)
        )

    def _most(self, bound: _Bound) -> float:
        """Return the highest score an unseen record can have."""
        r = self._ranking
        semantic = scoring.fuse(scoring.similarity(bound.cosine), 0.0, self._lexical_weight)
        return (
            r.semantic_weight * float(semantic)
            + self._lexical_part(bound)
            + r.recency_weight * self._recency_bound(bound)
            + r.importance_weight * bound.importance
        )

    def _box(self, slack: float, bound: _Bound) -> list[Condition]:
        """Return the conditions on time and importance that allow at most `slack` to lack."""
        r = self._ranking
        conditions: list[Condition] = []
        if r.recency_weight > 0:
            recency = self._recency_bound(bound) - slack / r.recency_weight
            if recency > 0:
                days = -math.log2(min(recency, 1.0)) * r.half_life_days
                seconds = r.now.timestamp() - days * scoring.SECONDS_PER_DAY - 1e-3
                if seconds > _YEAR_ONE:
                    moment = datetime.fromtimestamp(seconds, UTC)
                    conditions.append(time_range("created_at", gte=moment))
        if r.importance_weight > 0:
            importance = bound.importance - slack / r.importance_weight - _MARGIN
            if importance > 0:
                conditions.append(
                    models.FieldCondition(key="importance", range=models.Range(gte=importance))
                )
        return conditions

    def _least_cosine(self, slack: float, bound: _Bound) -> float | None:
        """Return the cosine at which `slack` would be lacking; None when any will do."""
        weight = self._ranking.semantic_weight * (1.0 - self._lexical_weight)
        if weight <= 0:
            return None
        least = float(scoring.similarity(bound.cosine)) - slack / weight
        return 2.0 - 1.0 / least - _COSINE_MARGIN if least > 1 / 3 else None

    def _finish(self) -> Outcome:
        out, seen, r = self._out, self._seen, self._ranking
        out.seen = len(seen.ids)
        if self._odd:
            out.odd = list(self._visible(self._odd))
        out.best_cosine = self._best_cosine()
        shown = np.flatnonzero(seen.state == SETTLED)
        if not len(shown):
            return out
        score = self._scores()
        order = shown[np.argsort(-score[shown], kind="stable")]
        if len(order) > self._limit:
            # Everything that ties with the last one takes part in the tie-break.
            order = order[score[order] >= score[order[self._limit - 1]]]
        rows = self._collection.retrieve([seen.ids[n] for n in order])
        payloads = {row.id: row.payload for row in rows}
        ties = {n: tie_break(payloads.get(seen.ids[n], {})) for n in order}
        ranked = sorted(order, key=lambda n: (-score[n], -seen.table[n, CREATED], ties[n]))
        cosine, lexical, semantic = self._signals()
        recency = scoring.recency(seen.table[:, CREATED], r.now, r.half_life_days)
        out.best = [
            Ranked(
                id=seen.ids[n],
                cosine=min(1.0, max(-1.0, float(cosine[n]))),
                lexical=float(lexical[n]),
                semantic=float(semantic[n]),
                recency=float(np.asarray(recency)[n]),
                importance=float(seen.table[n, IMPORTANCE]),
                score=float(score[n]),
                payload=payloads.get(seen.ids[n], {}),
            )
            for n in ranked[: self._limit]
        ]
        return out
