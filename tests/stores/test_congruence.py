"""The embedded engine answers as qdrant-client's in-memory reference does: ids and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from mnemotrace.stores.backend import (
    Facet,
    NewVersion,
    Order,
    Ranking,
    Retirement,
    SparseVector,
    WriteBatch,
)
from mnemotrace.stores.engine import Collection, Where
from mnemotrace.stores.filters import visible
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.selection import Selection

from .building import DIMENSION, MANIFEST, NOW, ago, ids, terms, vector, version
from .conftest import MakeStore

SIZE = 250
SCOPES = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/d/e", "/다/라"]
SOURCES = [None, "alice", "bob", "anonymous"]
CATEGORIES = ["x", "y", "z"]
METADATA: list[dict[str, Any]] = [
    {},
    {"n": 1},
    {"n": 2.5, "tag": ["p", "q"]},
    {"n": True, "tag": "p"},
    {"when": datetime(2026, 5, 1, 8)},
    {"n": None, "a.b": "x"},
]
CONDITIONS: list[dict[str, Any]] = [
    {"n": 1},
    {"n": [1, 2.5]},
    {"n": {"gte": 1, "lt": 2.5}},
    {"n": True},
    {"tag": "p"},
    {"tag": {"all": ["p", "q"]}},
    {"when": {"lt": datetime(2026, 5, 2)}},
    {"a.b": "x"},
    {"n": None},
    {"tag": []},
]


@dataclass
class Pair:
    """Two stores with the same records."""

    embedded: QdrantStore
    reference: QdrantStore

    def collections(self) -> tuple[Collection, Collection]:
        """Return the collections behind them."""
        first, second = self.embedded._open(), self.reference._open()
        assert first is not None and second is not None
        return first[0], second[0]


def write(stores: Sequence[QdrantStore], rng: np.random.Generator) -> None:
    """Write random records, then retire and supersede some of them."""
    versions = []
    for n in range(SIZE):
        source = SOURCES[rng.integers(len(SOURCES))]
        versions.append(
            version(
                f"r{n}",
                rng.normal(size=DIMENSION),
                terms(*np.unique(rng.integers(60, size=rng.integers(0, 8)))),
                scope=SCOPES[rng.integers(len(SCOPES))],
                source=source,
                private=bool(rng.random() < 0.3),
                categories=[c for c in CATEGORIES if rng.random() < 0.3],
                metadata=METADATA[rng.integers(len(METADATA))],
                importance=round(float(rng.random()), 2),
                created_at=ago(days=float(rng.integers(0, 60))),
                expires_at=ago(days=float(rng.normal() * 30)) if rng.random() < 0.2 else None,
                analysis="pending" if rng.random() < 0.1 else None,
            )
        )
    changes: list[NewVersion] = []
    retired = []
    for n in rng.choice(SIZE, SIZE // 4, replace=False):
        old = versions[n].record
        at = old.created_at + timedelta(days=float(rng.random() * 20))
        heir = f"r{rng.integers(SIZE)}" if rng.random() < 0.3 else old.id
        retired.append(Retirement(old.id, 1, at, superseded_by=heir))
        if heir == old.id:
            news = old.model_copy(update={"version": 2, "valid_from": at, "importance": 0.9})
            changes.append(NewVersion(news, f"hash 2 of {n}"))
    for store in stores:
        store.initialise(MANIFEST)
        store.commit(WriteBatch(versions))
        store.commit(WriteBatch(changes, retired))


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(20261130)


@pytest.fixture
def pair(make_embedded: MakeStore, make_server: MakeStore, rng: np.random.Generator) -> Pair:
    stores = Pair(make_embedded(), make_server())
    write([stores.embedded, stores.reference], rng)
    return stores


def random_selection(rng: np.random.Generator) -> Selection:
    """Return a selection with a few conditions of any kind."""

    def sometimes(value: Any, otherwise: Any = None, share: float = 0.25) -> Any:
        return value if rng.random() < share else otherwise

    def some(values: Sequence[Any], most: int) -> tuple[Any, ...]:
        return tuple(rng.choice(values, rng.integers(0, most + 1), replace=False).tolist())

    days = sorted(float(day) for day in rng.integers(0, 60, size=2))
    return Selection(
        roots=sometimes(some(SCOPES, 3), ("/",), 0.5),
        at_scope=sometimes(SCOPES[rng.integers(len(SCOPES))], share=0.1),
        viewer=SOURCES[rng.integers(len(SOURCES))],
        include_private=bool(rng.random() < 0.2),
        private_only=bool(rng.random() < 0.1),
        public_only=bool(rng.random() < 0.1),
        sources=sometimes(some(["alice", "bob", "anonymous"], 2)),
        categories=sometimes(some(CATEGORIES, 2)),
        record_ids=sometimes(some([f"r{n}" for n in range(SIZE)], 40), share=0.1),
        metadata=sometimes(CONDITIONS[rng.integers(len(CONDITIONS))], {}),
        since=sometimes(ago(days=days[1])),
        until=sometimes(ago(days=days[0])),
        as_of=sometimes(ago(days=float(rng.integers(0, 60))), share=0.2),
        history=bool(rng.random() < 0.2),
        now=NOW,
        analysis=sometimes("pending", share=0.05),
    )


def scored(collection: Collection, query: Any, limit: int, where: Where) -> dict[str, float]:
    return {str(hit.id): hit.score for hit in collection.query(query, limit, where)}


def test_random_selections_show_the_same(pair: Pair, rng: np.random.Generator) -> None:
    """What is visible, counted, faceted, listed and fetched: exactly the same rows."""
    shown = 0
    for _ in range(150):
        selection = random_selection(rng)
        a, b = pair.embedded, pair.reference
        count = a.count(selection)
        shown += count
        assert count == b.count(selection), selection
        first = int(rng.integers(0, 20))
        order = Order.NEWEST if rng.random() < 0.5 else Order.OLDEST
        assert a.list_records(selection, 15, first, order) == b.list_records(
            selection, 15, first, order
        ), selection
        names = [f"r{n}" for n in rng.integers(SIZE, size=5)]
        assert sorted(ids(a.get(selection, names))) == sorted(ids(b.get(selection, names)))
        for facet in (Facet.SCOPES, Facet.CATEGORIES):
            assert a.facet(selection, facet) == b.facet(selection, facet), selection
    assert shown > 1_000  # the selections are not all empty


def test_random_queries_score_the_same(pair: Pair, rng: np.random.Generator) -> None:
    """Both engines' raw lists, dense and lexical with its inverse document frequencies."""
    compared = 0
    for _ in range(150):
        where = visible(random_selection(rng), now=NOW)
        if where is None:
            continue
        dense = vector(*rng.normal(size=DIMENSION))
        dense /= np.linalg.norm(dense)
        words = terms(*np.unique(rng.integers(70, size=5)))
        for query in (dense.tolist(), words):
            a, b = (scored(c, query, SIZE * 2, where) for c in pair.collections())
            assert a.keys() == b.keys()
            assert a == pytest.approx(b, abs=2e-5)
            compared += len(a)
            few_a, few_b = (sorted(scored(c, query, 7, where).values()) for c in pair.collections())
            assert few_a == pytest.approx(few_b, abs=2e-5)
    assert compared > 2_000


def test_random_searches_rank_the_same(pair: Pair, rng: np.random.Generator) -> None:
    """The whole ranking, with random weights, ages and limits."""
    compared = 0
    for _ in range(120):
        weights = rng.dirichlet([1, 1, 1])
        ranking = Ranking(
            semantic_weight=float(weights[0]),
            recency_weight=float(weights[1]),
            importance_weight=float(weights[2]),
            half_life_days=float(rng.choice([0.5, 7, 30, 365])),
            lexical_weight=float(rng.choice([0, 0.35, 1])),
            now=ago(days=float(rng.integers(0, 30))),
        )
        selection = random_selection(rng)
        dense = vector(*rng.normal(size=DIMENSION))
        words = [SparseVector(), terms(*np.unique(rng.integers(70, size=5)))][rng.integers(2)]
        limit = int(rng.integers(1, 30))
        a, b = (
            store.search(selection, dense, words, ranking, limit)
            for store in (pair.embedded, pair.reference)
        )
        assert [c.score for c in a.candidates] == pytest.approx(
            [c.score for c in b.candidates], abs=1e-5
        )
        scores = {c.record.id + str(c.record.version): c.score for c in b.candidates}
        for candidate in a.candidates:
            key = candidate.record.id + str(candidate.record.version)
            last = b.candidates[-1].score
            assert scores.get(key, last) == pytest.approx(candidate.score, abs=1e-5)
        assert (a.best_cosine is None) == (b.best_cosine is None)
        if a.best_cosine is not None:
            assert a.best_cosine == pytest.approx(b.best_cosine, abs=1e-5)
        assert a.best_lexical == pytest.approx(b.best_lexical, abs=1e-4)
        near_a, near_b = (
            {r.id: c for r, c in store.nearest(selection, dense, limit, 0.2)}
            for store in (pair.embedded, pair.reference)
        )
        assert sorted(near_a.values()) == pytest.approx(sorted(near_b.values()), abs=1e-5)
        compared += len(a.candidates)
    assert compared > 500


def test_random_erasures_leave_the_same(pair: Pair, rng: np.random.Generator) -> None:
    everything = Selection(include_private=True, history=True)
    for _ in range(12):
        selection = random_selection(rng)
        assert pair.embedded.erase(selection) == pair.reference.erase(selection), selection
        left = [
            sorted((r.id, r.version) for r in store.list_records(everything, 1_000))
            for store in (pair.embedded, pair.reference)
        ]
        assert left[0] == left[1]
