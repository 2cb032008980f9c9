"""A word is as rare as it is among the few records in sight."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mnemotrace.stores.backend import SearchResult, SparseVector, WriteBatch
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.rarity import FEW
from mnemotrace.stores.selection import Selection

from .building import DEFAULT, DIMENSION, NOW, RELEVANCE, ago, save, terms, vector, version

RARE, COMMON, OTHER = 1, 2, 3
WORDS = replace(RELEVANCE, lexical_weight=1.0)
TENANT = Selection(roots=("/tenant",))


def tenant(rng: np.random.Generator, size: int = 40) -> list[Any]:
    """Return a tenant's records: one holds `RARE`, all the others `COMMON`."""
    return [
        version(
            f"t{n:03}",
            rng.normal(size=DIMENSION),
            terms(RARE) if n == 0 else terms(COMMON),
            scope="/tenant",
            created_at=ago(days=n),
        )
        for n in range(size)
    ]


def told(result: SearchResult) -> list[Any]:
    """Return everything that a search tells about what is in sight."""
    return [
        [(c.record.id, c.cosine, c.lexical, c.semantic, c.score) for c in result.candidates],
        (result.best_lexical, result.coverage, result.lexical_weight, result.idf),
        (result.best_cosine, result.ordinary_cosine, result.ordinary_lexical),
    ]


def test_a_tenant_s_rare_word_stays_rare(store: QdrantStore) -> None:
    rng = np.random.default_rng(1)
    save(store, *tenant(rng))
    # Elsewhere it is the other way round.
    save(store, *(version(f"o{n:03}", (1,), terms(RARE), scope="/other") for n in range(400)))
    asked = terms(RARE, COMMON)

    def first(scoped_idf: bool) -> tuple[set[str], SearchResult]:
        ranking = replace(WORDS, scoped_idf=scoped_idf)
        result = store.search(TENANT, vector(1), asked, ranking, 40)
        return {c.record.id for c in result.candidates if c.lexical == 1.0}, result

    best, result = first(True)
    assert best == {"t000"}
    assert result.idf is not None and result.idf[RARE] > result.idf[COMMON]
    best, result = first(False)
    assert "t000" not in best and len(best) == 39
    assert result.idf is None


def test_the_scores_are_those_of_the_formula(store: QdrantStore) -> None:
    save(
        store,
        version("a", (1,), SparseVector((RARE, COMMON), (1.5, 0.25))),
        version("b", (1,), SparseVector((COMMON,), (2.0,))),
        version("c", (1,), SparseVector((OTHER,), (1.0,))),
        version("gone", (1,), SparseVector((RARE,), (1.0,)), retired="superseded"),
    )
    idf = {RARE: math.log((3 - 1 + 0.5) / 1.5 + 1), COMMON: math.log((3 - 2 + 0.5) / 2.5 + 1)}
    result = store.search(Selection(), vector(1), terms(RARE, COMMON, 9), WORDS, 5)
    assert result.best_lexical == pytest.approx(1.5 * idf[RARE] + 0.25 * idf[COMMON])
    assert result.coverage == pytest.approx(2 / 3)
    assert result.idf == pytest.approx({**idf, 9: math.log(3.5 / 0.5 + 1)})
    lexical = {c.record.id: c.lexical for c in result.candidates}
    assert lexical == pytest.approx(
        {"a": 1.0, "b": 2.0 * idf[COMMON] / result.best_lexical, "c": 0.0}
    )


def test_scores_betray_nothing_of_what_is_out_of_sight(store: QdrantStore) -> None:
    """Not by the last digit, whatever is written, retired or erased elsewhere."""
    rng = np.random.default_rng(2)
    save(store, *tenant(rng))
    dense, asked = vector(*rng.normal(size=DIMENSION)), terms(RARE, COMMON, OTHER)

    def look() -> list[Any]:
        return told(store.search(TENANT, dense, asked, DEFAULT, 10))

    before = look()
    save(store, *(version(f"o{n:03}", (1,), terms(RARE, OTHER), scope="/o") for n in range(60)))
    assert look() == before
    save(store, version("hers", dense, asked, scope="/tenant", source="eve", private=True))
    assert look() == before
    save(store, version("old", dense, asked, scope="/tenant", retired="superseded"))
    assert look() == before
    store.erase(Selection(roots=("/o",)))
    assert look() == before
    save(store, version("news", dense, terms(OTHER), scope="/tenant"))
    assert look() != before


def test_what_is_remembered_of_terms_is_dropped_when_they_change(store: QdrantStore) -> None:
    save(store, version("a", (1,), terms(RARE)), version("b", (1,), terms(COMMON)))

    def holders() -> set[str]:
        found = store.search(Selection(), vector(1), terms(RARE), WORDS, 5).candidates
        return {c.record.id for c in found if c.lexical > 0}

    assert holders() == {"a"}
    store.commit(WriteBatch(lexical={("a", 1): terms(OTHER), ("b", 1): terms(RARE, COMMON)}))
    assert holders() == {"b"}
    store.erase(Selection(record_ids=("b",)))
    assert holders() == set()
    save(store, version("b", (1,), terms(RARE), created_at=NOW))
    assert holders() == {"b"}


def test_a_large_selection_has_the_store_s_own_counts(embedded: QdrantStore) -> None:
    save(
        embedded,
        *(version(f"r{n:05}", (1,), terms(n % 7), scope=f"/s/{n % 2}") for n in range(2 * FEW + 2)),
    )
    asked = terms(1, 2)
    assert embedded.search(Selection(roots=("/s/0",)), vector(1), asked, DEFAULT, 3).idf is None
    embedded.erase(Selection(roots=("/s/0",), record_ids=("r00000",)))
    half = embedded.search(Selection(roots=("/s/0",)), vector(1), asked, DEFAULT, 3)
    assert half.idf is not None
