"""The composite score: the numbers of the formula, and that its parts stay within their ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mnemotrace import scoring
from mnemotrace.records import MemoryMatch, MemoryRecord, ScoreComponents

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cosine", "similarity"),
    [(1.0, 1.0), (0.0, 0.5), (-1.0, 1 / 3), (0.5, 2 / 3), (1.0000001, 1.0), (-1.5, 1 / 3)],
)
def test_similarity_is_one_over_one_plus_the_distance(cosine: float, similarity: float) -> None:
    assert float(scoring.similarity(cosine)) == pytest.approx(similarity)


@pytest.mark.parametrize(
    ("age_days", "half_life", "recency"),
    [(0, 30, 1.0), (30, 30, 0.5), (60, 30, 0.25), (7, 7, 0.5), (-5, 30, 1.0), (3650, 1, 0.0)],
)
def test_recency_halves_with_every_half_life(
    age_days: float, half_life: float, recency: float
) -> None:
    created = (NOW - timedelta(days=age_days)).timestamp()
    assert float(scoring.recency(created, NOW.timestamp(), half_life)) == pytest.approx(recency)


@pytest.mark.parametrize(
    ("similarity", "lexical", "weight", "semantic"),
    [
        (0.8, 0.2, 0.0, 0.8),
        (0.8, 0.2, 1.0, 0.2),
        (0.8, 0.0, 0.35, 0.52),
        (1.0, 1.0, 0.35, 1.0),
        (0.5, 1.0, 0.35, 0.675),
    ],
)
def test_fusion_is_a_weighted_sum(
    similarity: float, lexical: float, weight: float, semantic: float
) -> None:
    assert float(scoring.fuse(similarity, lexical, weight)) == pytest.approx(semantic)


@pytest.mark.parametrize(
    ("cosine", "ordinary", "coverage", "lexical", "least", "most"),
    [
        (None, None, 1.0, None, 0.0, 0.0),  # nothing found
        (1.0, None, 0.0, None, 1.0, 1.0),  # the very vector
        (0.25, None, 0.0, None, 0.0, 0.2),  # an unrelated record
        (-1.0, -1.0, 0.0, 0.0, 0.0, 0.0),
        (0.9, 0.3, 0.0, 0.0, 0.9, 1.0),  # it says the same in other words
        (0.4, 0.38, 1.0, 0.2, 0.99, 1.0),  # every word, and no other record has them
        (0.4, 0.38, 1.0, 0.95, 0.1, 0.4),  # every word, and so have twenty others
        (0.4, 0.38, 0.2, 0.3, 0.1, 0.3),  # a word of five
        (0.3, None, 1.0, None, 0.9, 1.0),  # every word, among few records
        (0.3, None, 0.4, None, 0.1, 0.4),
    ],
)
def test_confidence_tells_how_far_the_best_stands_out(
    cosine: float | None,
    ordinary: float | None,
    coverage: float,
    lexical: float | None,
    least: float,
    most: float,
) -> None:
    assert least <= scoring.confidence(cosine, ordinary, coverage, lexical, 0.2, 0.9) <= most


def test_confidence_never_falls_with_better_evidence() -> None:
    grid = [n / 10 for n in range(-10, 11)]
    for coverage in (0.0, 0.4, 1.0):
        for lexical in (None, 0.0, 0.5, 1.0):
            values = [scoring.confidence(c, 0.0, coverage, lexical, 0.1, 0.7) for c in grid]
            assert values == sorted(values)
            assert all(0.0 <= value <= 1.0 for value in values)
    assert 0.0 <= scoring.confidence(0.5, 0.5, 0.5, 0.5, 0.5, 0.5) <= 1.0


def test_the_lexical_signal_counts_as_far_as_the_query_is_covered() -> None:
    assert scoring.lexical_share(0.4, 1.0) == 0.4
    assert scoring.lexical_share(0.4, 0.5) == pytest.approx(0.1)
    assert scoring.lexical_share(0.4, 0.0) == 0.0


def match(**numbers: float) -> MemoryMatch:
    defaults = {
        "cosine": 0.5, "similarity": 2 / 3, "lexical": 0.0, "semantic": 0.6, "recency": 0.25,
        "importance": 0.9, "semantic_weight": 0.5, "recency_weight": 0.3,
        "importance_weight": 0.2, "lexical_weight": 0.35,
    }  # fmt: skip
    components = ScoreComponents(**{**defaults, **numbers})
    record = MemoryRecord(content="text", scope="/a")
    return MemoryMatch(record, components.score, ["semantic"], components, found_by=["q"])


def test_the_score_is_the_sum_of_its_weighted_parts() -> None:
    assert match().score == pytest.approx(0.5 * 0.6 + 0.3 * 0.25 + 0.2 * 0.9)
    assert match(semantic_weight=0.0, importance_weight=0.0).score == pytest.approx(0.3 * 0.25)


def test_an_explanation_holds_every_number_of_the_score() -> None:
    explained = match().explain()
    numbers, weights = explained["components"], explained["weights"]
    assert explained["score"] == pytest.approx(
        sum(weights[name] * numbers[name] for name in ("semantic", "recency", "importance"))
    )
    assert explained["found_by"] == ["q"]
    assert match().format().startswith("[0.5")
