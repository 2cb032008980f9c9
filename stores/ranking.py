"""Exact composite ranking over an engine's sorted lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mnemotrace import scoring

from .backend import Ranking, SparseVector
from .engine import Collection, Where


@dataclass(slots=True)
class Ranked:
    """One ranked point with its signals."""

    payload: dict[str, Any]
    cosine: float
    lexical: float
    semantic: float
    recency: float
    score: float


@dataclass(slots=True)
class Outcome:
    """The exact top-k and what it took."""

    best: list[Ranked] = field(default_factory=list)
    best_cosine: float | None = None
    best_lexical: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


def rank(
    collection: Collection,
    where: Where,
    dense: Sequence[float],
    lexical: SparseVector,
    ranking: Ranking,
    limit: int,
) -> Outcome:
    """Return the exact top `limit` of what `where` shows."""
    total = collection.count(where)
    if not total:
        return Outcome(facts={"plan": "selective", "rounds": 0, "candidates": 0})
    hits = collection.query(dense, total, where)
    found = collection.query(lexical, total, where, fields=False) if lexical else []
    terms = {hit.id: hit.score for hit in found}
    best_lexical = max(terms.values(), default=0.0)
    weight = ranking.lexical_weight if best_lexical > 0 else 0.0
    ranked = []
    for hit in hits:
        cosine = min(1.0, max(-1.0, hit.score))
        raw = terms.get(hit.id, 0.0)
        relative = raw / best_lexical if best_lexical > 0 else 0.0
        semantic = float(scoring.fuse(scoring.similarity(cosine), relative, weight))
        created = datetime.fromisoformat(hit.payload["created_at"])
        recency = float(
            scoring.recency(created.timestamp(), ranking.now, ranking.half_life_days)
        )
        score = (
            ranking.semantic_weight * semantic
            + ranking.recency_weight * recency
            + ranking.importance_weight * hit.payload["importance"]
        )
        key = (-score, -created.timestamp(), hit.payload["record_id"])
        ranked.append((key, Ranked(hit.payload, cosine, relative, semantic, recency, score)))
    ranked.sort(key=lambda item: item[0])
    return Outcome(
        best=[item for _, item in ranked[:limit]],
        best_cosine=max(hit.score for hit in hits),
        best_lexical=best_lexical,
        facts={"plan": "selective", "rounds": 1, "candidates": len(hits)},
    )
