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
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any

from qdrant_client import models

from mnemotrace import scoring

from .attributes import MICROSECONDS, Attributes, among
from .backend import Ranking, SparseVector
from .candidates import OPEN, SETTLED, Candidates, within
from .engine import EVERYTHING, Collection, Condition, Hit, PointId, Where, columns
from .filters import time_range
from .points import tie_break
from .rarity import Scoped, scoped

FIRST_DENSE = 64
FIRST_LEXICAL = 64
"""Lengths of the first lists: enough to settle a search over records of like age and importance;
looking at an entry costs one or two microseconds."""
DRAWN_LEXICAL = 512
"""Lexical hits drawn at once in a scope; those after the first are looked at when they turn out to
matter. There the engine checks the scope of everything that holds a word of the query, so a second
list costs more than a longer first one; without a scope it costs less."""
FEW_POINTS = 200
"""So few points are drawn whole at once: the newest and the most important of a small scope cost
0.4 ms each to find, a hundred hits 0.1."""
WIDENING = 4
SETTLED_AT_ONCE = 16
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
_LEXICAL_MARGIN = 1e-6
"""Likewise, relative to the score."""
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
        ordinary_cosine: the 20th highest; None when there are fewer visible records.
        ordinary_lexical: the 20th highest lexical score over the highest; None likewise.
        best_lexical: the highest lexical score of any visible record; 0.0 when none.
        coverage: the share of the query's terms in that record.
        lexical_weight: the share of the lexical signal in the semantic term.
        idf: the inverse document frequency of each term among what may be seen; None where the
            engine's own was used, which counts the whole store (`rarity`).
        rounds: how many times lists were drawn.
        seen: how many points were looked at.
        odd: ids of visible rows without a usable time or importance.
    """

    best: list[Ranked] = field(default_factory=list)
    best_cosine: float | None = None
    ordinary_cosine: float | None = None
    ordinary_lexical: float | None = None
    best_lexical: float = 0.0
    coverage: float = 0.0
    lexical_weight: float = 0.0
    idf: dict[int, float] | None = None
    rounds: int = 0
    seen: int = 0
    odd: list[PointId] = field(default_factory=list)


def coverage(query: SparseVector, held: SparseVector | None) -> float:
    """Return the share, 0..1, of a query's terms that a record holds."""
    asked = query.asked
    return len(asked.intersection(held.indices)) / len(asked) if held and asked else 0.0


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
        self._where = where
        self._everything = Where() if broad else where
        self._broad = broad
        self._dense = dense
        self._terms = lexical
        self._ranking = ranking
        self._limit = limit
        self._out = Outcome()
        self._attributes = attributes
        self._seen = Candidates(attributes, ranking)
        self._open: list[int] = []
        self._listed_lexical = 0.0
        self._loose: list[str] = []
        self._scoped: Scoped | None = None
        self._size = max(FIRST_DENSE, 2 * limit)
        self._lexical_size = max(FIRST_LEXICAL, limit)
        self._guessed_from = -math.inf
        self._near: Sequence[Hit] = ()
        self._matched: Sequence[Hit] = ()
        self._drawn: Sequence[Hit] = ()

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
            elif not self._tighten(kth, bound):
                complete = self._narrow(kth - _MARGIN, bound)
        return self._finish()

    # Drawing lists. A list is complete when every record that could still matter was seen.

    def _first(self) -> tuple[bool, _Bound]:
        self._out.rounds = 1
        seen = self._seen
        points = self._points(self._where)
        if self._ranking.scoped_idf:
            self._scoped = scoped(self._collection, self._where, self._terms, points)
            self._out.idf = self._scoped.idf if self._scoped else None
        self._drawn = self._lexical_list()
        terms = self._matched = self._drawn[: self._lexical_size]
        if terms and terms[0].score > 0:
            seen.best_lexical = self._out.best_lexical = terms[0].score
            keys, scores = columns(terms)
            top = [key for key, score in zip(keys, scores, strict=True) if score == scores[0]]
            self._out.coverage = self._coverage(top)
            seen.lexical_weight = self._out.lexical_weight = scoring.lexical_share(
                self._ranking.lexical_weight, self._out.coverage
            )
        self._listed_lexical = self._lexical_bound(terms, self._lexical_size)
        if not self._broad and points <= FEW_POINTS:
            self._size = max(self._size, points + 1)
        near = self._near = self._dense_list(self._size, self._everything)
        seen.farthest = near[-1].score if near else -1.0
        bound = _Bound(cosine=seen.farthest, lexical=self._listed_lexical)
        self._add(near, terms)
        if len(near) < self._size:
            return True, bound
        if self._ranking.recency_weight > 0:
            newest = self._attributes.highest("created_at")
            bound.created = -math.inf if newest is None else newest / MICROSECONDS
        if self._ranking.importance_weight > 0:
            bound.importance = self._attributes.highest("importance") or 0.0
        if self._where != EVERYTHING:  # of all points; what may be seen can only have less
            self._loose = ["created_at"] * (self._ranking.recency_weight > 0)
            self._loose += ["importance"] * (self._ranking.importance_weight > 0)
        return False, bound

    def _coverage(self, keys: Sequence[PointId]) -> float:
        """Return how much of the query the best of these holds, 0..1; see `coverage`."""
        if self._scoped:
            return self._scoped.coverage
        rows = self._collection.retrieve(keys, fields=False, vectors=True)
        return max((coverage(self._terms, row.lexical) for row in rows), default=0.0)

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
            return self._lengthen_lexical(slack, bound)
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
            return self._lengthen_lexical(slack, bound)
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

    def _tighten(self, kth: float, bound: _Bound) -> bool:
        """Bound one more signal by what may be seen, instead of by all points; tell if one was.

        Not before it is needed: in a scope of 1 % the engine walks through up to all other points
        to find the newest (2 to 3 ms at 100,000), more than one more list costs. And not where it
        could not end the search, as when all points are about as new.
        """
        if not self._loose or (self._loose[-1] == "created_at" and self._out.rounds < 2):
            return False
        if self._most(bound) - self._gain(self._loose[-1], bound) >= kth - _MARGIN:
            return False
        key = self._loose.pop()
        rows = self._collection.ordered(key, 1, self._where, fields=False)
        if key == "importance":
            bound.importance = rows[0].order if rows else 0.0
        else:
            bound.created = rows[0].order / MICROSECONDS if rows else -math.inf
        return True

    def _gain(self, key: str, bound: _Bound) -> float:
        """Return how much lower `_most` can be at best with this signal's true bound.

        That is no lower than what the best of the candidates has.
        """
        r, seen = self._ranking, self._seen
        shown = [row for row, state in enumerate(seen.state) if state == SETTLED]
        if key == "importance":
            best = max((seen.importance[row] for row in shown), default=0.0)
            return r.importance_weight * (bound.importance - best)
        newest = _Bound(created=max((seen.created[row] for row in shown), default=-math.inf))
        return r.recency_weight * (self._recency_bound(bound) - self._recency_bound(newest))

    def _points(self, where: Where) -> int:
        return self._attributes.estimate(where)

    def _dense_list(self, size: int, where: Where, threshold: float | None = None) -> Sequence[Hit]:
        return self._collection.query(self._dense, size, where, threshold=threshold, fields=False)

    def _lexical_list(self) -> Sequence[Hit]:
        if not self._terms:
            return ()
        size = self._lexical_size
        if self._scoped:
            return self._scoped.best(size)
        if not self._broad and self._where != EVERYTHING:
            size = max(DRAWN_LEXICAL, size)
        return self._collection.query(self._terms, size, self._where, fields=False)

    def _lexical_bound(self, terms: Sequence[Hit], size: int) -> float:
        """Return the most a record can score that is not in this list."""
        return max(terms[-1].score, 0.0) if len(terms) == size else 0.0

    def _lengthen_lexical(self, slack: float, bound: _Bound) -> bool:
        """Draw the records new, important and well matched enough to matter; tell if all came."""
        if self._scoped:
            self._add([], self._scoped.best())
            bound.lexical = 0.0
            return False
        least = self._least_lexical(slack, bound)
        if len(self._drawn) > self._lexical_size:
            return self._take_drawn(least, slack, bound)
        self._lexical_size *= WIDENING
        box = self._where.also(must=self._box(slack, bound))
        terms = self._collection.query(
            self._terms, self._lexical_size, box, threshold=least, fields=False
        )
        self._add([], terms)
        if least is not None and len(terms) < self._lexical_size:
            return True
        # Only for records in the box: what is seen already may lie outside.
        bound.lexical = self._lexical_bound(terms, self._lexical_size)
        return False

    def _take_drawn(self, least: float | None, slack: float, bound: _Bound) -> bool:
        """Look at the rest of the first list, as far as it matters; tell if all came."""
        drawn, size = self._drawn, self._lexical_size
        self._lexical_size = max(DRAWN_LEXICAL, size)
        end = len(drawn)
        if least is not None:
            end = bisect_right(drawn, -least, size, key=lambda hit: -hit.score)
        self._add([], self._in_box(drawn[size:end], slack, bound))
        bound.lexical = self._lexical_bound(drawn, self._lexical_size)
        return end < len(drawn) or (least is not None and len(drawn) < self._lexical_size)

    def _lexical_part(self, bound: _Bound) -> float:
        """Return how much of the bound on a score is due to the bound on the lexical score."""
        seen = self._seen
        return self._ranking.semantic_weight * seen.lexical_weight * seen.relative(bound.lexical)

    # Candidates.

    def _add(
        self, near: Sequence[Hit], terms: Sequence[Hit], most_lexical: float | None = None
    ) -> None:
        """Take in hits; what is known of them already is settled.

        Args:
            near: of a dense list.
            terms: of a lexical list.
            most_lexical: the most their lexical score can be where it is not known; None for that
                of everything outside the first lexical list.
        """
        seen = self._seen
        most = self._listed_lexical if most_lexical is None else most_lexical
        known, others = seen.add(near, terms, most)
        if self._broad:
            self._open += known
        else:
            seen.settle(known)
        self._open += others

    def _settle(self) -> float:
        """Look up what decides the best k of the candidates; return the k-th best score.

        Returns:
            Minus infinity when fewer than k of them may be seen.
        """
        score = self._seen.score
        while True:
            kth = self._seen.kth(self._limit)
            # The k-th best only rises, so what falls below it is out for good.
            self._open = [row for row in self._open if score[row] >= kth - _MARGIN]
            if not self._open:
                return kth
            chunk = nlargest(
                max(SETTLED_AT_ONCE, 2 * self._limit), self._open, key=score.__getitem__
            )
            self._look_up(chunk)
            self._open = [row for row in self._open if self._seen.state[row] == OPEN]

    def _look_up(self, rows: list[int]) -> None:
        """Settle these candidates."""
        seen = self._seen
        if self._broad:
            shown = self._visible([seen.ids[row] for row in rows])
            for row in rows:
                if seen.ids[row] not in shown:
                    seen.hide(row)
            rows = [row for row in rows if seen.state[row] == OPEN]
        # A list that was not full holds all there are, so its scores need no look-up.
        self._fill(rows, seen.cosine, self._dense)
        self._fill(rows, seen.lexical, self._terms if self._listed_lexical > 0 else None)
        seen.settle(rows)

    def _fill(
        self,
        rows: list[int],
        column: list[float | None],
        query: Sequence[float] | SparseVector | None,
    ) -> None:
        """Look up a signal where it is missing; a point that has none of it gets 0."""
        seen = self._seen
        missing = [row for row in rows if column[row] is None]
        if not missing:
            return
        for row in missing:
            column[row] = 0.0
        if self._scoped and isinstance(query, SparseVector):
            for row in missing:
                column[row] = self._scoped.scores.get(seen.ids[row], 0.0)
        elif query:
            where = Where(must=(among(seen.ids[row] for row in missing),))
            hits = self._collection.query(query, len(missing), where, fields=False)
            keys, scores = columns(hits)
            if column is seen.cosine:
                scores = within(scores)
            for key, score in zip(keys, scores, strict=True):
                column[seen.index[key]] = score

    def _visible(self, ids: Sequence[PointId]) -> set[PointId]:
        where = self._where.also(must=[among(ids)])
        rows, _ = self._collection.scroll(len(ids), where, fields=False)
        return {row.id for row in rows}

    def _tell_ordinary(self) -> None:
        """Note the best cosine of what may be seen, and what an ordinary record has."""
        out, rank = self._out, scoring.ORDINARY
        near = self._near[: 2 * rank]
        if self._broad:
            shown = self._visible([hit.id for hit in near])
            near = [hit for hit in near if hit.id in shown]
            if len(near) < rank:
                near = self._dense_list(rank, self._where)
        if near:
            out.best_cosine = near[0].score
        if len(near) >= rank:
            out.ordinary_cosine = near[rank - 1].score
            matched = self._matched[rank - 1].score if len(self._matched) >= rank else 0.0
            out.ordinary_lexical = self._seen.relative(matched)

    # Bounds.

    def _recency_bound(self, bound: _Bound) -> float:
        r = self._ranking
        if bound.created == -math.inf:
            return 0.0
        return scoring.recency(bound.created, r.now.timestamp(), r.half_life_days)

    def _most(self, bound: _Bound) -> float:
        """Return the highest score an unseen record can have."""
        r = self._ranking
        semantic = scoring.fuse(scoring.similarity(bound.cosine), 0.0, self._seen.lexical_weight)
        return (
            r.semantic_weight * semantic
            + self._lexical_part(bound)
            + r.recency_weight * self._recency_bound(bound)
            + r.importance_weight * bound.importance
        )

    def _least(self, slack: float, bound: _Bound) -> tuple[float, float]:
        """Return the time and the importance at which `slack` would be lacking."""
        r = self._ranking
        seconds, importance = -math.inf, -math.inf
        if r.recency_weight > 0:
            recency = self._recency_bound(bound) - slack / r.recency_weight
            if recency > 0:
                days = -math.log2(min(recency, 1.0)) * r.half_life_days
                seconds = r.now.timestamp() - days * scoring.SECONDS_PER_DAY - 1e-3
        if r.importance_weight > 0:
            importance = bound.importance - slack / r.importance_weight - _MARGIN
        return seconds, importance

    def _box(self, slack: float, bound: _Bound) -> list[Condition]:
        """Return the conditions on time and importance that allow at most `slack` to lack."""
        conditions: list[Condition] = []
        seconds, importance = self._least(slack, bound)
        known = self._attributes
        if seconds > _YEAR_ONE and not known.all_have("created_at", seconds * MICROSECONDS):
            moment = datetime.fromtimestamp(seconds, UTC)
            conditions.append(time_range("created_at", gte=moment))
        if importance > 0 and not known.all_have("importance", importance):
            conditions.append(
                models.FieldCondition(key="importance", range=models.Range(gte=importance))
            )
        return conditions

    def _in_box(self, hits: Sequence[Hit], slack: float, bound: _Bound) -> list[Hit]:
        """Return those of the hits that `_box` allows, and those without a time or importance."""
        seconds, importance = self._least(slack, bound)
        attributes = self._attributes.of(columns(hits)[0])
        return [
            hit
            for hit, known in zip(hits, attributes, strict=True)
            if known is None or (known[0] >= seconds and known[1] >= importance)
        ]

    def _least_cosine(self, slack: float, bound: _Bound) -> float | None:
        """Return the cosine at which `slack` would be lacking; None when any will do."""
        weight = self._ranking.semantic_weight * (1.0 - self._seen.lexical_weight)
        if weight <= 0:
            return None
        least = scoring.similarity(bound.cosine) - slack / weight
        return 2.0 - 1.0 / least - _COSINE_MARGIN if least > 1 / 3 else None

    def _least_lexical(self, slack: float, bound: _Bound) -> float | None:
        """Return the lexical score at which `slack` would be lacking; None when any will do."""
        weight = self._ranking.semantic_weight * self._seen.lexical_weight
        if weight <= 0:
            return None
        least = self._seen.relative(bound.lexical) - slack / weight
        return least * self._seen.best_lexical * (1 - _LEXICAL_MARGIN) if least > 0 else None

    def _finish(self) -> Outcome:
        out, seen = self._out, self._seen
        out.seen = len(seen.ids)
        if seen.odd:
            out.odd = list(self._visible(seen.odd))
        self._tell_ordinary()
        # Everything that ties with the last one takes part in the tie-break.
        least = seen.kth(self._limit)
        shown = [
            row
            for row, score in enumerate(seen.score)
            if score >= least and seen.state[row] == SETTLED
        ]
        if not shown:
            return out
        found = self._collection.retrieve([seen.ids[row] for row in shown])
        payloads = {item.id: item.payload for item in found}
        ranked = sorted(
            shown,
            key=lambda row: (
                -seen.score[row],
                -seen.created[row],
                tie_break(payloads.get(seen.ids[row], {})),
            ),
        )
        out.best = [
            Ranked(
                id=seen.ids[row],
                cosine=seen.cosine[row] or 0.0,
                lexical=seen.relative(seen.lexical[row] or 0.0),
                semantic=seen.semantic(row),
                recency=seen.recency(row),
                importance=seen.importance[row],
                score=seen.score[row],
                payload=payloads.get(seen.ids[row], {}),
            )
            for row in ranked[: self._limit]
        ]
        return out
