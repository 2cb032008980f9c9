"""The composite score: pure functions over plain numbers, shared by every engine.

``score = semantic_weight*semantic + recency_weight*recency + importance_weight*importance``
"""

from __future__ import annotations

import math

SECONDS_PER_DAY = 86_400.0


def similarity(cosine: float) -> float:
    """Return ``1 / (1 + distance)`` with cosine distance ``1 - cosine``.

    Args:
        cosine: -1..1; what rounding put beyond is taken as the limit.

    Returns:
        1/3..1; 1 for identical directions. Source: the composite score of CrewAI's unified
        memory, with cosine distance on every engine.
    """
    return 1.0 / (2.0 - min(max(cosine, -1.0), 1.0))


def recency(created_at: float, now: float, half_life_days: float) -> float:
    """Return ``0.5 ** (age_days / half_life_days)``: 1 for now, 0.5 after one half-life.

    Args:
        created_at: seconds since the epoch; a time after `now` counts as now.
        now: the time to judge from, in seconds since the epoch.
        half_life_days: days until the value halves, above 0.
    """
    return math.exp2(min(created_at - now, 0.0) / SECONDS_PER_DAY / half_life_days)


def lexical_share(lexical_weight: float, coverage: float) -> float:
    """Return the weight of the lexical signal in one search: ``lexical_weight * coverage**2``.

    Lexical scores have no scale of their own, so they are taken relative to the best of the
    search. Where that best record holds one word of ten, the words say little, and the vector
    should decide; where it holds them all, they say as much as they can. Squared, because even a
    small weight of theirs outweighs the small differences between cosines (docs/quality.md).

    Args:
        lexical_weight: 0..1, the setting.
        coverage: the share, 0..1, of the query's terms in the record with the best lexical score.
    """
    return lexical_weight * min(max(coverage, 0.0), 1.0) ** 2


def fuse(similarity: float, lexical: float, lexical_weight: float) -> float:
    """Return the semantic term: ``(1-w)*similarity + w*lexical``.

    A weighted sum, because on LoCoMo turns it beats reciprocal rank fusion (docs/quality.md).

    Args:
        similarity: 1/3..1.
        lexical: lexical score over the best lexical score of the search, 0..1.
        lexical_weight: w, 0..1, see `lexical_share`; 0 when no visible record shares a term with
            the query, so that an exact dense match keeps its full score.
    """
    return (1.0 - lexical_weight) * similarity + lexical_weight * lexical


ORDINARY = 20
"""The rank from which a record is taken as an ordinary one, that is not what was asked for."""
STEEPNESS, OFFSET = 9.7, -2.45
"""Of the logistic function that turns evidence into confidence; see `confidence`."""
_DENSE_PART = 0.62
_CHANCE = 0.15
"""How far above unrelated texts the best of a few records may be by chance; from 0 to 1 that says
the same."""
_AMONG_FEW = 0.45
"""What an ordinary record is taken to have where there are too few to tell."""


def confidence(
    cosine: float | None,
    ordinary_cosine: float | None,
    coverage: float,
    ordinary_lexical: float | None,
    low: float,
    high: float,
) -> float:
    """Return how likely the evidence answers the query, from relevance alone.

    That is ``1 / (1 + exp(2.45 - 9.7 * x))`` of `standing_out`: a logistic regression on the
    development half of LoCoMo and on benchmarks/data/multilingual, with equal weight. It tells
    what was found from what was not, questions without an answer included, with an AUROC of 0.82
    and 0.92 (docs/quality.md, docs/multilingual.md). Age and importance play no part.

    Args:
        cosine: the best cosine found, -1..1; None when nothing was found.
        ordinary_cosine, coverage, ordinary_lexical, low, high: as for `standing_out`.

    Returns:
        0..1; 0.0 when nothing speaks for what was found, 1.0 for an exact match.
    """
    if cosine is None:
        return 0.0
    if cosine >= 1.0 - 1e-6:
        return 1.0
    evidence = standing_out(cosine, ordinary_cosine, coverage, ordinary_lexical, low, high)
    if evidence <= 0.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-(STEEPNESS * evidence + OFFSET)))


def standing_out(
    cosine: float,
    ordinary_cosine: float | None,
    coverage: float,
    ordinary_lexical: float | None,
    low: float,
    high: float,
) -> float:
    """Return how far the best record stands out from ordinary ones, the 20th best.

    ``(1 - ordinary_lexical) * coverage**2 + 0.62 * (cosine - ordinary_cosine) / (high - low)``

    Args:
        cosine: the best cosine found, -1..1.
        ordinary_cosine: the 20th best; None when there are fewer records, where a value somewhat
            above `low` is assumed.
        coverage: the share of the query's terms in the best lexical match, 0..1.
        ordinary_lexical: the 20th best lexical score over the best, 0..1; None when there are
            fewer records, where 0.45 is assumed.
        low: the embedder's cosine for unrelated texts.
        high: the embedder's cosine for texts that say the same.

    Returns:
        0 or more.
    """
    # Among few records the best may be near by chance, with nothing to show it.
    by_chance = low + _CHANCE * (high - low)
    background = by_chance if ordinary_cosine is None else max(ordinary_cosine, low)
    nearer = max(cosine - background, 0.0) / max(high - low, 1e-6)
    matched = _AMONG_FEW if ordinary_lexical is None else ordinary_lexical
    return (1.0 - matched) * coverage**2 + _DENSE_PART * min(nearer, 2.0)
