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
