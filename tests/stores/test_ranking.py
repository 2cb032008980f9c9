"""The top k of a search equals scoring every visible record, however the records are spread."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from mnemotrace.stores import ranking as search
from mnemotrace.stores.attributes import MICROSECONDS, Attributes
from mnemotrace.stores.backend import (
    WEIGHT_STEP,
    NewVersion,
    Ranking,
    SparseVector,
    Vector,
    WriteBatch,
)
from mnemotrace.stores.engine import EVERYTHING, Collection, Where
from mnemotrace.stores.filters import visible
from mnemotrace.stores.points import point_id
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.ranking import Outcome, Search
from mnemotrace.stores.rarity import FEW
from mnemotrace.stores.selection import Selection
from mnemotrace.stores.space import Generation

from .building import DEFAULT, DIMENSION, MANIFEST, NOW, ago, found, save, terms, vector, version
from .conftest import MakeStore

Rng = np.random.Generator


@dataclass(frozen=True)
class Spread:
    """How the records of a test are spread."""

    vectors: Callable[[Rng], Any] = lambda rng: rng.normal(size=DIMENSION)
    days: Callable[[Rng], float] = lambda rng: float(rng.random() * 365)
    importance: Callable[[Rng], float] = lambda rng: float(rng.random())
    vocabulary: int = 200


SPREADS = {
    "wide": Spread(),
    "flat": Spread(days=lambda rng: float(rng.random() / 1000), importance=lambda rng: 0.5),
    "rated": Spread(importance=lambda rng: float(rng.integers(0, 5)) / 4),
    "imported at once": Spread(days=lambda rng: 3.0),
    "from the future": Spread(days=lambda rng: float(rng.normal() * 30)),
    "over centuries": Spread(days=lambda rng: float(rng.random() * 365 * 900)),
    "twins": Spread(
        vectors=lambda rng: np.eye(DIMENSION)[rng.integers(DIMENSION)],
        days=lambda rng: float(rng.integers(3)),
        importance=lambda rng: 0.5,
        vocabulary=2,
    ),
    "all alike": Spread(
        vectors=lambda rng: np.ones(DIMENSION), days=lambda rng: 1.0, importance=lambda rng: 0.5
    ),
    "close together": Spread(vectors=lambda rng: np.ones(DIMENSION) + 0.01 * rng.normal(size=4)),
    "no terms": Spread(vocabulary=0),
}

RANKINGS = {
    "default": DEFAULT,
    "relevance": Ranking(1.0, 0.0, 0.0, 30.0, 0.35, NOW),
    "recency": Ranking(0.0, 1.0, 0.0, 30.0, 0.35, NOW),
    "importance": Ranking(0.0, 0.0, 1.0, 30.0, 0.35, NOW),
    "nothing": Ranking(0.0, 0.0, 0.0, 30.0, 0.35, NOW),
    "dense only": Ranking(0.6, 0.2, 0.2, 7.0, 0.0, NOW),
    "terms only": Ranking(0.8, 0.1, 0.1, 365.0, 1.0, NOW),
    "short memory": Ranking(0.1, 0.8, 0.1, 0.01, 0.35, NOW),
    "long memory": Ranking(0.3, 0.6, 0.1, 1e7, 0.35, NOW),
    "long ago": Ranking(0.3, 0.6, 0.1, 400.0, 0.35, datetime(2, 1, 1, tzinfo=UTC)),
    "rare in the store": replace(DEFAULT, scoped_idf=False),
    "back then": Ranking(0.4, 0.4, 0.2, 30.0, 0.35, ago(days=100)),
}


def fill(store: QdrantStore, spread: Spread, size: int, rng: Rng) -> None:
    """Write records spread like this; every seventh is bob's own, every fifth is retired."""
    versions = []
    for n in range(size):
        size_of_text = 6 if spread.vocabulary else 0
        words = np.unique(rng.integers(spread.vocabulary or 1, size=size_of_text))
        weights = np.rint((rng.random(len(words)) + 0.5) / WEIGHT_STEP) * WEIGHT_STEP
        new = version(
            f"r{n:05}",
            spread.vectors(rng),
            SparseVector(tuple(int(w) for w in words), tuple(weights)),
            created_at=NOW - timedelta(days=spread.days(rng)),
            importance=spread.importance(rng),
            scope=f"/team/{n % 10}",
            source="bob" if n % 7 == 0 else None,
            private=n % 7 == 0,
        )
        if n % 5 == 0:
            new = replace(new, record=new.record.model_copy(update={"retired": "superseded"}))
        versions.append(new)
    save(store, *versions)


def opened(store: QdrantStore) -> Generation:
    """Return the generation behind a store."""
    generation = store._generation()
    assert generation is not None
    return generation


def lexical_scores(
    collection: Collection, where: Where, lexical: SparseVector, total: int, scoped_idf: bool
) -> dict[int, float]:
    """Return the engine's scores, or for few records those by how rare a term is among them."""
    if not lexical:
        return {}
    if total > FEW or not scoped_idf:
        return {hit.id: hit.score for hit in collection.query(lexical, total, where)}
    rows, _ = collection.scroll(total, where, fields=False, vectors=True)
    held = {
        row.id: dict(zip(row.lexical.indices, row.lexical.values, strict=True))
        for row in rows
        if row.lexical
    }
    found: dict[int, float] = {}
    for index in lexical.indices:
        holders = [key for key, weights in held.items() if index in weights]
        idf = math.log((total - len(holders) + 0.5) / (len(holders) + 0.5) + 1)
        for key in holders:
            found[key] = found.get(key, 0.0) + idf * held[key][index]
    return {key: float(np.float32(score)) for key, score in found.items()}


def brute_force(
    collection: Collection, where: Where, dense: Vector, lexical: SparseVector, r: Ranking
) -> list[tuple[float, float, str]]:
    """Score every visible record: score, seconds since the epoch, id; best first."""
    total = collection.count(where)
    if not total:
        return []
    hits = collection.query(dense.tolist(), total, where)
    scores = lexical_scores(collection, where, lexical, total, r.scoped_idf)
    best = max(scores.values(), default=0.0)
    leaders = [key for key, score in scores.items() if score == best]
    held = [row.lexical for row in collection.retrieve(leaders, vectors=True)]
    covered = max(
        (
            sum(term in vector.indices for term in lexical.indices) / len(lexical.indices)
            for vector in held
            if vector is not None
        ),
        default=0.0,
    )
    similarity = 1 / (2 - np.clip([hit.score for hit in hits], -1, 1))
    relative = np.array([scores.get(hit.id, 0.0) / best if best else 0.0 for hit in hits])
    created = np.array([_seconds(hit.payload["created_at"]) for hit in hits])
    importance = np.array([hit.payload["importance"] for hit in hits])
    weight = r.lexical_weight * covered**2 if best else 0.0
    semantic = (1 - weight) * similarity + weight * relative
    days = np.maximum(r.now.timestamp() - created, 0) / 86_400
    score = (
        r.semantic_weight * semantic
        + r.recency_weight * 0.5 ** (days / r.half_life_days)
        + r.importance_weight * importance
    )
    ranked = zip(score, created, (hit.payload["record_id"] for hit in hits), strict=True)
    return sorted(
        ((float(s), float(c), name) for s, c, name in ranked), key=lambda x: (-x[0], -x[1], x[2])
    )


def searched(
    generation: Generation,
    where: Where,
    dense: Vector,
    lexical: SparseVector,
    ranking: Ranking,
    limit: int,
    *,
    broad: bool = False,
) -> Outcome:
    """Run one search in a generation."""
    known = generation.collection, generation.attributes
    return Search(*known, where, dense.tolist(), lexical, ranking, limit, broad=broad).run()


def direction(rng: Rng) -> Vector:
    """Return a random dense vector at length 1."""
    dense = vector(*rng.normal(size=DIMENSION))
    return dense / np.linalg.norm(dense)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def assert_equal(
    outcome: Outcome, expected: list[tuple[float, float, str]], limit: int, near: float = 1e-9
) -> None:
    """Compare ids in order; only records whose scores differ by rounding may change places."""
    got = [(item.score, item.payload["record_id"]) for item in outcome.best]
    assert len(got) == min(limit, len(expected))
    assert [s for s, _ in got] == pytest.approx([s for s, _, _ in expected[:limit]], abs=near)
    exact = {name: s for s, _, name in expected}
    for (_, name), (s, _, wanted) in zip(got, expected, strict=False):
        if name != wanted:
            assert exact[name] != s and exact[name] == pytest.approx(s, abs=near)


@pytest.mark.parametrize("size", [3, 90, 1500])
@pytest.mark.parametrize("spread", SPREADS)
def test_the_top_k_equals_brute_force(make_embedded: MakeStore, spread: str, size: int) -> None:
    store = make_embedded()
    store.initialise(MANIFEST)
    rng = np.random.default_rng(size)
    fill(store, SPREADS[spread], size, rng)
    generation = opened(store)
    for number, ranking in enumerate(RANKINGS.values()):
        selection = [Selection(), Selection(viewer="bob"), Selection(roots=("/team/3",))][
            number % 3
        ]
        where = visible(selection, now=NOW)
        assert where is not None
        dense = direction(rng)
        lexical = [terms(*rng.choice(150, 4, replace=False)), terms(999), SparseVector()][
            int(rng.integers(3))
        ]
        expected = brute_force(generation.collection, where, dense, lexical, ranking)
        for limit in (1, 10, 100):
            for broad in (False, True):
                outcome = searched(generation, where, dense, lexical, ranking, limit, broad=broad)
                assert_equal(outcome, expected, limit)
                cosines = generation.collection.query(dense.tolist(), 1, where)
                assert outcome.best_cosine == (cosines[0].score if cosines else None)


@pytest.mark.parametrize("drawn", [1, 16, 64])
def test_lexical_hits_drawn_ahead_change_nothing(
    make_embedded: MakeStore, monkeypatch: pytest.MonkeyPatch, drawn: int
) -> None:
    monkeypatch.setattr(search, "FIRST_LEXICAL", 4)
    monkeypatch.setattr(search, "FIRST_DENSE", 8)
    monkeypatch.setattr(search, "FEW_POINTS", 0)
    monkeypatch.setattr(search, "DRAWN_LEXICAL", drawn)
    taken = []
    take = Search._take_drawn

    def noted(self: Search, *args: Any) -> bool:
        taken.append(take(self, *args))
        return taken[-1]

    monkeypatch.setattr(Search, "_take_drawn", noted)
    store = make_embedded()
    store.initialise(MANIFEST)
    rng = np.random.default_rng(drawn)
    fill(store, SPREADS["wide"], 600, rng)
    generation = opened(store)
    where = visible(Selection(viewer="bob"), now=NOW)
    assert where is not None
    for kind in RANKINGS.values():
        for number in range(6):
            ranking = replace(kind, scoped_idf=number == 5)  # which draws all there are
            dense = direction(rng)
            lexical = terms(*rng.choice(150, 6, replace=False))
            expected = brute_force(generation.collection, where, dense, lexical, ranking)
            outcome = searched(generation, where, dense, lexical, ranking, 3)
            assert_equal(outcome, expected, 3)
    assert bool(taken) is (drawn > 4)
    assert drawn < 64 or set(taken) == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_the_top_k_equals_brute_force_on_the_reference(make_server: MakeStore, seed: int) -> None:
    """The same algorithm over another engine's lists."""
    store = make_server()
    store.initialise(MANIFEST)
    rng = np.random.default_rng(seed)
    fill(store, list(SPREADS.values())[seed], 300, rng)
    generation = opened(store)
    where = visible(Selection(), now=NOW)
    assert where is not None
    dense = direction(rng)
    for ranking in RANKINGS.values():
        expected = brute_force(generation.collection, where, dense, terms(1, 2, 3), ranking)
        outcome = searched(generation, where, dense, terms(1, 2, 3), ranking, 10)
        # It computes cosines with numpy, whose last bits depend on how many are asked for.
        assert_equal(outcome, expected, 10, near=1e-6)


def test_ties_go_to_the_newest_then_to_the_smaller_id(embedded: QdrantStore) -> None:
    same = {"importance": 0.5, "created_at": ago(days=1)}
    save(
        embedded,
        *(version(f"r{n:03}", (1,), terms(1), **same) for n in range(200)),
        version("newer", (1,), terms(1), importance=0.5, created_at=ago(hours=1)),
    )
    relevance = Ranking(1.0, 0.0, 0.0, 30.0, 0.35, NOW)
    assert found(embedded, limit=4, ranking=relevance, lexical=terms(1)) == [
        "newer",
        "r000",
        "r001",
        "r002",
    ]


def test_the_lexical_score_is_relative_to_the_best_visible_one(embedded: QdrantStore) -> None:
    """An invisible record that matches better does not press the visible ones down."""
    strong = SparseVector((1, 2), (9.0, 9.0))
    save(
        embedded,
        version("hidden", (1,), strong, source="bob", private=True),
        version("visible", (1,), terms(1)),
        version("other", (1,), terms(7)),
    )
    result = embedded.search(Selection(), vector(1), terms(1, 2), DEFAULT, 5)
    assert {c.record.id: c.lexical for c in result.candidates} == {"visible": 1.0, "other": 0.0}
    assert result.best_lexical > 0
    bob = embedded.search(Selection(viewer="bob"), vector(1), terms(1, 2), DEFAULT, 5)
    assert {c.record.id: c.lexical for c in bob.candidates}["hidden"] == 1.0
    assert bob.best_lexical > result.best_lexical


def test_without_a_shared_term_a_perfect_match_keeps_its_full_score(embedded: QdrantStore) -> None:
    save(embedded, version("a", (1,), terms(1), importance=1.0))
    candidate = embedded.search(Selection(), vector(1), terms(2), DEFAULT, 1).candidates[0]
    assert candidate.semantic == pytest.approx(1.0, abs=1e-6)
    assert candidate.score == pytest.approx(1.0, abs=1e-6)


def test_a_search_for_nothing_is_empty(embedded: QdrantStore) -> None:
    """Probe 37, at the store."""
    save(embedded, version("a"))
    assert found(embedded, limit=0) == []
    assert found(embedded, limit=-1) == []


@pytest.mark.slow
@pytest.mark.parametrize("spread", ["wide", "flat", "close together"])
def test_a_search_looks_at_a_small_part_of_a_large_store(
    make_embedded: MakeStore, spread: str
) -> None:
    """The point of the algorithm; brute force would look at 20,000 records."""
    store = make_embedded()
    store.initialise(MANIFEST)
    rng = np.random.default_rng(1)
    shape = SPREADS[spread]
    for start in range(0, 20_000, 2_000):
        store.commit(
            WriteBatch(
                [
                    NewVersion(
                        version(
                            f"r{start + n}",
                            created_at=NOW - timedelta(days=shape.days(rng)),
                            importance=shape.importance(rng),
                        ).record,
                        "hash",
                        vector(*shape.vectors(rng)),
                        terms(*np.unique(rng.zipf(1.3, 8) % 5_000)),
                    )
                    for n in range(2_000)
                ]
            )
        )
    where = visible(Selection(), now=NOW)
    assert where is not None
    looked_at = []
    for _ in range(7):
        dense = direction(rng)
        lexical = terms(*np.unique(rng.zipf(1.3, 6) % 5_000))
        result = store.search(Selection(), dense, lexical, DEFAULT, 10)
        looked_at.append(result.facts["candidates"])
        assert result.facts["rounds"] <= 12
        expected = brute_force(opened(store).collection, where, dense, lexical, DEFAULT)
        assert [c.score for c in result.candidates] == pytest.approx(
            [score for score, _, _ in expected[:10]], abs=1e-6
        )
    assert np.median(looked_at) < 3_000


def test_what_is_remembered_of_all_points_is_dropped_with_each_change(store: QdrantStore) -> None:
    """The newest and the most important bound what was not seen; a stale bound would end too soon."""
    everything = Selection(include_private=True)
    rng = np.random.default_rng(3)
    save(
        store,
        *(
            version(
                f"r{n:03}", rng.normal(size=DIMENSION), importance=0.2, created_at=ago(days=400 + n)
            )
            for n in range(300)
        ),
    )
    ranking = Ranking(0.05, 0.5, 0.45, 30.0, 0.0, NOW)
    far = vector(*-np.ones(DIMENSION))
    assert store.search(everything, far, SparseVector((), ()), ranking, 1).candidates
    for number, (days, importance) in enumerate([(300, 0.4), (100, 0.6), (1, 1.0)]):
        name = f"better {number}"
        save(store, version(name, -far, importance=importance, created_at=ago(days=days)))
        best = store.search(everything, far, SparseVector((), ()), ranking, 1).candidates[0]
        assert best.record.id == name
    store.erase(Selection(record_ids=("better 2",), include_private=True))
    best = store.search(everything, far, SparseVector((), ()), ranking, 1).candidates[0]
    assert best.record.id == "better 1"


def test_what_is_learnt_while_writing_is_what_the_index_says(make_embedded: MakeStore) -> None:
    store = make_embedded()
    store.initialise(MANIFEST)
    generation = opened(store)
    learnt = generation.attributes
    times = [NOW - timedelta(days=400, microseconds=n * 7) for n in range(20)]
    for n, time in enumerate(times):
        save(store, version(f"r{n}", (1,), created_at=time, importance=n / 32))
        assert learnt.highest("importance") == n / 32
    keys = [point_id(f"r{n}", 1) for n in range(20)]
    known = [learnt._known[key] for key in keys]
    asked = Attributes(generation.collection, exclusive=True)
    assert known == asked.of(keys)
    for key in ("created_at", "importance"):
        assert learnt.highest(key) == asked.highest(key)
    assert learnt.estimate(EVERYTHING) == asked.estimate(EVERYTHING) == 20
    oldest = times[19].timestamp() * MICROSECONDS
    for each in (learnt, asked):
        assert each.all_have("created_at", oldest - 1)
        assert not each.all_have("created_at", oldest + 1)
        assert each.all_have("importance", 0.0)
        assert not each.all_have("importance", 1 / 64)
    store.erase(Selection(record_ids=("r19",)))
    assert learnt.all_have("created_at", oldest + 1)
    assert learnt.highest("importance") == 18 / 32
    assert learnt.estimate(EVERYTHING) == 19
