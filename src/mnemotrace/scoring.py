"""The composite score: pure functions over plain numbers, shared by every engine.

``score = semantic_weight*semantic + recency_weight*recency + importance_weight*importance``
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SECONDS_PER_DAY = 86_400.0


def similarity(cosine: Floats | float) -> Floats:
    """Return ``1 / (1 + distance)`` with cosine distance ``1 - cosine``.

    Args:
        cosine: -1..1, any shape.

    Returns:
        1/3..1, the same shape; 1 for identical directions. Source: the composite score of
        CrewAI's unified memory, with cosine distance on every engine.
    """
    return 1.0 / (2.0 - np.clip(np.asarray(cosine, dtype=np.float64), -1.0, 1.0))


def recency(created_at: Floats | float, now: datetime, half_life_days: float) -> Floats:
    """Return ``0.5 ** (age_days / half_life_days)``: 1 for now, 0.5 after one half-life.

    Args:
        created_at: seconds since the epoch, any shape; a time after `now` counts as now.
        now: the time to judge from.
        half_life_days: days until the value halves, above 0.
    """
    age = np.maximum(now.timestamp() - np.asarray(created_at, dtype=np.float64), 0.0)
    return np.exp2(-age / SECONDS_PER_DAY / half_life_days)


def fuse(similarity: Floats | float, lexical: Floats | float, lexical_weight: float) -> Floats:
    """Return the semantic term: ``(1-w)*similarity + w*lexical``.

    Args:
        similarity: 1/3..1.
        lexical: lexical score over the best lexical score of the search, 0..1.
        lexical_weight: w, 0..1. Callers pass 0 when no visible record shares a term with the
            query, so that an exact dense match keeps its full score. The default of 0.35 is the
            weight measured best on LoCoMo turns (weighted sum beats reciprocal rank fusion).
    """
    w = lexical_weight
    return (1.0 - w) * np.asarray(similarity, dtype=np.float64) + w * np.asarray(
        lexical, dtype=np.float64
    )


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
