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


def fuse(similarity: float, lexical: float, lexical_weight: float) -> float:
    """Return the semantic term: ``(1-w)*similarity + w*lexical``.

    Args:
        similarity: 1/3..1.
        lexical: lexical score over the best lexical score of the search, 0..1.
        lexical_weight: w, 0..1. Callers pass 0 when no visible record shares a term with the
            query, so that an exact dense match keeps its full score. The default of 0.35 is the
            weight measured best on LoCoMo turns (weighted sum beats reciprocal rank fusion).
    """
    return (1.0 - lexical_weight) * similarity + lexical_weight * lexical


def confidence(cosine: float | None, coverage: float, low: float, high: float) -> float:
    """Return how likely the evidence answers the query, from relevance alone.

    Two signals, either of which can carry it (noisy or): where the best cosine lies between the
    embedder's own levels for unrelated and for related texts, and which part of the query's
    words the best match holds. Age and importance play no part.

    Args:
        cosine: the best cosine found, -1..1; None when nothing was found.
        coverage: the share of the query's terms in the best lexical match, 0..1.
        low: the embedder's cosine for unrelated texts.
        high: the embedder's cosine for texts that say the same.

    Returns:
        0..1; 0.0 when nothing was found, 1.0 for an exact match.
    """
    if cosine is None:
        return 0.0
    if cosine >= 1.0 - 1e-6:
        return 1.0
    dense = min(max((cosine - low) / max(high - low, 1e-6), 0.0), 1.0)
    lexical = 0.6 * min(max(coverage, 0.0), 1.0) ** 2
    return 1.0 - (1.0 - dense) * (1.0 - lexical)
