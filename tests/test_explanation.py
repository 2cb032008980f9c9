"""An explanation holds every number of a score, and each follows from the others."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from mnemotrace import Memory
from mnemotrace.records import MemoryMatch, MemoryRecord, ScoreComponents
from mnemotrace.testing import FakeEmbedder

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
WORDS = ("tea", "kettle", "red", "cup", "water", "milk", "spoon", "steam")
Depth = Literal["deep", "shallow"]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    dice = random.Random(7)
    unsure = {"confidence_threshold_low": 1.0, "confidence_threshold_high": 1.0}
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder(), **unsure) as memory:  # type: ignore[arg-type]
        for number in range(60):
            memory.remember(
                " ".join(dice.choices(WORDS, k=dice.randint(2, 7))) + f" {number}",
                scope="/notes",
                importance=dice.random(),
                created_at=NOW - timedelta(days=dice.random() * 200),
            )
        turns = ["Ana: Where is the spoon?", "Ben: In the drawer.", "Ana: Thanks, I see it."]
        memory.remember_many(turns, session="monday", scope="/talk").wait()
        yield memory


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_every_number_follows_from_the_others(memory: Memory, depth: Depth) -> None:
    explored = 0
    for query in ("red tea", "kettle", "milk and water in a cup", "nothing known", "spoon 7"):
        found = memory.recall(query, depth=depth, now=NOW, limit=20)
        assert found
        for match in found:
            e = match.explain()
            c, w, p, b = e["components"], e["weights"], e["products"], e["basis"]
            assert e.total == e["score"] == e.score == match.score
            assert p["semantic"] + p["recency"] + p["importance"] + p["rounding"] == match.score
            assert abs(p["rounding"]) < 1e-12
            for name in ("semantic", "recency", "importance"):
                assert p[name] == w[name] * c[name]
            assert c["similarity"] == 1 / (2 - c["cosine"])
            fused = (1 - w["lexical"]) * c["similarity"] + w["lexical"] * c["lexical"]
            assert c["semantic"] == pytest.approx(w["phrase"] * fused, abs=1e-15)
            assert w["lexical"] == b["lexical_setting"] * b["coverage"] ** 2
            if b["best_lexical"]:
                assert b["lexical_score"] / b["best_lexical"] == pytest.approx(c["lexical"])
            assert c["recency"] == pytest.approx(0.5 ** (b["age_days"] / b["half_life_days"]))
            age = NOW - match.record.created_at
            assert b["age_days"] == max(age.total_seconds(), 0.0) / 86_400
            assert e["scored_by"] in e["found_by"]
            explored += w["phrase"] != 1.0
    assert bool(explored) is (depth == "deep")


def test_it_is_the_dict_that_it_was(memory: Memory) -> None:
    match = memory.recall("red tea")[0]
    explanation = match.explain()
    assert isinstance(explanation, dict)
    assert explanation["score"] == match.score and explanation["reasons"] == match.match_reasons
    assert {**explanation}["id"] == match.record.id
    assert json.loads(json.dumps(explanation)) == explanation == explanation.to_json()
    assert repr(explanation).startswith("{'id': ")


def test_the_words_that_matched_are_named_heaviest_first(memory: Memory) -> None:
    match = memory.recall("which red kettle is it", scope="/notes")[0]
    terms = match.explain()["terms"]
    assert {term["term"] for term in terms} == {"red", "kettl"}
    assert [term["weight"] for term in terms] == sorted((t["weight"] for t in terms), reverse=True)
    assert all(term["in_text"] == (term["term"][:3] in match.record.content) for term in terms)


def test_words_lent_by_neighbours_are_told_apart(memory: Memory) -> None:
    asked: dict[str, Any] = {"scope": "/talk", "depth": "shallow", "now": NOW}
    found = {m.record.content: m for m in memory.recall("spoon drawer", **asked)}
    answer = found["Ben: In the drawer."]
    assert [t["term"] for t in answer.explain()["terms"] if t["in_text"]] == ["drawer"]
    why = memory.explain("spoon drawer", answer.record.id, **asked)
    assert why.score is not None
    terms = {term["term"]: term for term in why.score["terms"]}
    assert terms["spoon"]["from_neighbours"] == terms["spoon"]["score"] > 0
    assert terms["drawer"]["from_neighbours"] == 0.0 < terms["drawer"]["score"]
    total = sum(term["score"] for term in terms.values())
    assert total == pytest.approx(why.score["basis"]["lexical_score"], rel=1e-5)
    assert "from its neighbours" in str(why.score)


def test_a_label_counts_twice_and_adds_up(memory: Memory) -> None:
    asked: dict[str, Any] = {"scope": "/talk", "depth": "shallow", "now": NOW}
    match = memory.recall("Ana spoon", **asked)[0]
    why = memory.explain("Ana spoon", match.record.id, **asked)
    assert why.score is not None
    total = sum(term["score"] for term in why.score["terms"])
    assert total == pytest.approx(why.score["basis"]["lexical_score"], rel=1e-5)


def test_it_prints_as_a_derivation(memory: Memory) -> None:
    match = memory.recall("red tea", now=NOW)[0]
    text = str(match.explain())
    for part in ("semantic", "fusion", "similarity", "half-life 30 days", "words", "found by"):
        assert part in text
    assert f"[{match.score:.4f}]" in text
    assert "half-life 30 days" in match.explain()._repr_html_()


def test_a_match_made_by_hand_explains_what_it_knows() -> None:
    components = ScoreComponents(0.2, 1 / 1.8, 0.5, 0.5, 0.25, 0.9, 0.5, 0.3, 0.2, 0.35)
    match = MemoryMatch(
        MemoryRecord(content="<b>\x1b[1m\u202etext"), 0.505, ["semantic"], components
    )
    explanation = match.explain()
    assert explanation["basis"] is None and explanation["terms"] == []
    assert explanation.total == 0.505
    for shown in (str(explanation), explanation._repr_html_()):
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "<b>\\x1b" not in explanation._repr_html_()
