"""RecallFlow: which steps a recall takes, when a model is asked, and when it stops looking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from mnemotrace import Memory, Recall
from mnemotrace.errors import LLMError
from mnemotrace.events import (
    MemoryAnalysisFailedEvent,
    MemoryQueryCompletedEvent,
    MemoryQueryFailedEvent,
    MemoryQueryStartedEvent,
)
from mnemotrace.flows.recall import MAX_GAPS, RecallFlow, ShallowRecall
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

OpenMemory = Callable[..., Memory]
DEPTHS: tuple[Literal["shallow", "deep"], ...] = ("shallow", "deep")
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
DEEP = ("analyze_query", "select_scopes", "search", "route", "synthesize")
EXPLORED = (*DEEP[:4], "explore", "search", "route", "synthesize")
LONG = "Please tell me everything that we know about the alpha project, " * 4
NOTHING: dict[str, Any] = {"gaps": [], "sub_queries": [], "scopes": []}
UNSURE: dict[str, Any] = {"confidence_threshold_low": 1.0, "confidence_threshold_high": 1.0}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Memory]]:
    """One store for the whole module: making one takes half a second."""
    folder = tmp_path_factory.mktemp("recall")
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder()) as holder:
        holder.remember("the first text makes the store")
        yield folder, holder


@pytest.fixture
def open_memory(shared: tuple[Path, Memory]) -> Iterator[OpenMemory]:
    folder, holder = shared
    holder.forget(scope="/", include_private=True)
    opened: list[Memory] = []

    def build(llm: Any = None, embedder: Any = None, **settings: Any) -> Memory:
        embedder = FakeEmbedder() if embedder is None else embedder
        opened.append(Memory(llm=llm, storage=folder, embedder=embedder, **settings))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()
    holder.forget(scope="/", include_private=True)


def fill(memory: Memory, *texts: str, scope: str = "/notes", **fields: Any) -> None:
    for text in texts:
        memory.remember(text, scope, ["c"], importance=0.5, **{"created_at": NOW, **fields})


def contents(found: Recall) -> list[str]:
    return [match.record.content for match in found]


def path(found: Recall) -> tuple[str, ...]:
    assert found.trace is not None
    return found.trace.path


# -- the way a recall takes ----------------------------------------------------------------------


def test_a_deep_recall_of_a_short_query_takes_five_steps_and_no_model(
    open_memory: OpenMemory,
) -> None:
    llm = ScriptedLLM()
    memory = open_memory(llm)
    fill(memory, "the alpha project ships in May")
    found = memory.recall("the alpha project ships in May")
    assert path(found) == DEEP
    assert llm.requests == []
    assert found.trace is not None
    assert found.trace.totals()["llm_calls"] == 0


@pytest.mark.parametrize("query", ["alpha", LONG])
def test_a_shallow_recall_takes_at_most_two_steps_and_never_a_model(
    open_memory: OpenMemory, query: str
) -> None:
    llm = ScriptedLLM()
    memory = open_memory(llm, query_analysis_threshold=0, **UNSURE)
    fill(memory, "the alpha project ships in May")
    found = memory.recall(query, depth="shallow")
    assert len(path(found)) <= 2
    assert llm.requests == []
    assert contents(found) == ["the alpha project ships in May"]
    assert 0.0 < found.confidence <= 1.0


def test_a_recall_of_nothing_ends_at_once(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM()
    memory = open_memory(llm, query_analysis_threshold=0)
    for depth in DEPTHS:
        found = memory.recall("alpha", categories=[], depth=depth)
        assert (found, found.confidence, found.status) == ([], 0.0, "ok")
        assert len(path(found)) <= 2
        assert memory.recall("alpha", since=NOW, until=NOW, depth=depth) == []
    assert llm.requests == []


def test_a_recall_from_a_new_store_finds_nothing(tmp_path: Path) -> None:
    with Memory(llm=None, storage=tmp_path / "new", embedder=FakeEmbedder()) as memory:
        for depth in DEPTHS:
            found = memory.recall("alpha", depth=depth)
            assert (found, found.confidence, found.status) == ([], 0.0, "ok")
            assert len(path(found)) <= 2
        assert memory.store.manifest() is None


@pytest.mark.parametrize("flow", [RecallFlow, ShallowRecall])
def test_every_step_leads_somewhere(flow: Any) -> None:
    assert flow.validate_step_returns()


def test_the_steps_of_the_deep_flow_are_those_of_the_design() -> None:
    assert set(RecallFlow.validate_step_returns()) == {*DEEP, "explore"}
    assert RecallFlow.validate_step_returns()["route"] == ("Confident", "Uncertain")


# -- query analysis ------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "asked"), [(1, 0), (199, 0), (200, 1), (5000, 1)])
def test_only_long_queries_are_analysed(open_memory: OpenMemory, length: int, asked: int) -> None:
    llm = ScriptedLLM({"query_analysis": {"sub_queries": [], "scopes": []}})
    memory = open_memory(llm, exploration_budget=0)
    fill(memory, "alpha")
    memory.recall("a" * length)
    assert len(llm.requests) == asked


def test_the_original_query_is_searched_beside_two_others_in_one_embedder_call(
    open_memory: OpenMemory,
) -> None:
    embedder = FakeEmbedder()
    llm = ScriptedLLM({"query_analysis": {"sub_queries": ["tea", "TEA ", "", "ink", "rain"]}})
    memory = open_memory(llm, embedder, query_analysis_threshold=0, exploration_budget=0)
    fill(memory, "alpha", "the tea is green", "the ink is black")
    found = memory.recall("alpha")
    assert embedder.calls[-1] == ["alpha", "tea", "ink"]
    found_by = {match.record.content: match.found_by for match in found}
    assert "tea" in found_by["the tea is green"]
    assert len(found) == 3, "a record found twice is one match"


@pytest.mark.parametrize(
    "failure", [LLMError("down"), RuntimeError("boom"), "", "no json", "[1, 2]"], ids=str
)
def test_a_failed_query_analysis_falls_back_to_the_plain_query(
    open_memory: OpenMemory, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain = open_memory(None, exploration_budget=0)
    fill(plain, "the alpha project ships in May", "tea", "ink")
    memory = open_memory(ScriptedLLM({"query_analysis": failure}), exploration_budget=0)
    with RecordingListener() as heard, caplog.at_level(logging.WARNING, "mnemotrace"):
        found = memory.recall(LONG, now=NOW)
    assert contents(found) == contents(plain.recall(LONG, now=NOW))
    assert found.status == "ok"
    (event,) = heard.of(MemoryAnalysisFailedEvent)
    assert event.operation == "query analysis"
    assert "query analysis" in caplog.text


def test_a_suggested_scope_is_searched_and_the_callers_own_scope_too(
    open_memory: OpenMemory,
) -> None:
    llm = ScriptedLLM({"query_analysis": {"scopes": ["/p/x"]}})
    memory = open_memory(llm, query_analysis_threshold=0, exploration_budget=0)
    for scope in ("/p", "/p/x", "/p/x/deep", "/p/y", "/q"):
        fill(memory, f"alpha of {scope}", scope=scope)
    found = memory.recall("alpha", scope="/p")
    assert {match.record.scope for match in found} == {"/p", "/p/x", "/p/x/deep"}


def window(since: str | None, until: str | None) -> ScriptedLLM:
    return ScriptedLLM({"query_analysis": {"since": since, "until": until}})


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        ("2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z", {7, 3}),
        ("2026-06-12T00:00:00Z", None, {3, 0}),
        (None, "2026-06-10T00:00:00Z", {7, 30}),
        ("2026-06-15T00:00:00Z", "2026-06-08T00:00:00Z", {0, 3, 7, 30}),
        ("2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z", {0, 3, 7, 30}),
        ("not a time", None, {0, 3, 7, 30}),
        ("2026-06-12T21:00:00+09:00", None, {3, 0}),
    ],
)
def test_a_time_in_the_query_becomes_a_window(
    open_memory: OpenMemory, since: str | None, until: str | None, days: set[int]
) -> None:
    """A window that ends before it begins is ignored; an empty one does not hide everything."""
    memory = open_memory(window(since, until), query_analysis_threshold=0, exploration_budget=0)
    for age in (0, 3, 7, 30):
        fill(memory, f"alpha of {age} days ago", created_at=NOW - timedelta(days=age))
    found = memory.recall("what about alpha", now=NOW)
    assert {(NOW - match.record.created_at).days for match in found} == days


def test_the_callers_own_window_wins(open_memory: OpenMemory) -> None:
    memory = open_memory(
        window("2026-06-01T00:00:00Z", None), query_analysis_threshold=0, exploration_budget=0
    )
    for age in (0, 30):
        fill(memory, f"alpha of {age} days ago", created_at=NOW - timedelta(days=age))
    found = memory.recall("alpha", until=NOW - timedelta(days=20), now=NOW)
    assert contents(found) == ["alpha of 30 days ago"]


# -- routing and exploration ---------------------------------------------------------------------


def levels(cosine: float) -> FakeEmbedder:
    """An embedder for which "?" has this cosine to the one record, "it"."""
    vectors = {"?": [1.0, 0.0], "it": [cosine, (1 - cosine**2) ** 0.5]}
    padded = {text: [*vector, *[0.0] * 62] for text, vector in vectors.items()}
    return FakeEmbedder(padded)


@pytest.mark.parametrize(
    ("cosine", "complexity", "explores"),
    [(1.0, "simple", False), (-1.0, "simple", True), (1.0, "complex", False), (0.0, "complex", True)],
)  # fmt: skip
def test_weak_evidence_is_explored_and_strong_is_not(
    open_memory: OpenMemory, cosine: float, complexity: str, explores: bool
) -> None:
    llm = ScriptedLLM({"query_analysis": {"complexity": complexity}, "exploration": NOTHING})
    memory = open_memory(llm, levels(cosine), query_analysis_threshold=0)
    fill(memory, "it")
    found = memory.recall("?", now=NOW)
    assert ("explore" in path(found)) == explores
    assert len(llm.asked("exploration")) == explores


def test_a_complex_query_is_explored_where_a_simple_one_is_not(open_memory: OpenMemory) -> None:
    def confidence(complexity: str, **settings: Any) -> tuple[float, bool]:
        llm = ScriptedLLM({"query_analysis": {"complexity": complexity}, "exploration": NOTHING})
        memory = open_memory(llm, levels(0.5), query_analysis_threshold=0, **settings)
        found = memory.recall("?", now=NOW)
        return found.confidence, "explore" in path(found)

    fill(open_memory(None, levels(0.5)), "it")
    level, _ = confidence("simple")
    assert 0.05 < level < 0.95
    below, above = (
        {"confidence_threshold_low": level - 0.04},
        {"complex_query_threshold": level + 0.04},
    )
    settings = {**below, **above, "confidence_threshold_high": level + 0.05}
    assert confidence("simple", **settings) == (level, False)
    assert confidence("complex", **settings) == (level, True)
    assert confidence("complex", **{**settings, "exploration_budget": 0}) == (level, False)


def test_exploration_searches_what_the_model_asks_for(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM(
        {"exploration": {"gaps": ["the owner"], "sub_queries": ["owner is Ines"], "scopes": []}}
    )
    memory = open_memory(llm, **UNSURE)
    fill(memory, *(f"alpha filler {i}" for i in range(30)), "owner is Ines")
    found = memory.recall("omega", limit=50)
    assert path(found) == EXPLORED
    assert "owner is Ines" in contents(found)
    assert found.evidence_gaps == ["the owner"]
    assert found[0].evidence_gaps == ["the owner"]
    (asked,) = llm.asked("exploration")
    assert '"omega"' in asked.prompt
    assert "alpha filler" in asked.prompt


@pytest.mark.parametrize(
    "answers",
    [
        {"sub_queries": ["alpha"]},
        {"sub_queries": [" ALPHA! ", "alpha"]},
        {"sub_queries": [], "scopes": []},
        {"sub_queries": [""], "scopes": ["/nowhere", "/notes/../x", "notes"]},
        {"sub_queries": ["alpha"], "scopes": ["/"]},
    ],
    ids=str,
)
def test_exploration_ends_when_it_would_repeat_itself(
    open_memory: OpenMemory, answers: dict[str, Any]
) -> None:
    llm = ScriptedLLM({"exploration": {"gaps": ["g"], **answers}})
    memory = open_memory(llm, exploration_budget=5, **UNSURE)
    fill(memory, "something else")
    found = memory.recall("alpha")
    assert len(llm.asked("exploration")) == 1
    assert found.trace is not None
    assert len(found.trace.find("search.query")) == 1
    assert path(found) == (*DEEP[:4], "explore", "synthesize")


def test_no_round_repeats_a_search_and_the_budget_is_kept(open_memory: OpenMemory) -> None:
    words = ("tea", "ink", "rain", "snow", "fog", "wind")
    searches = [f"{word} perhaps somewhere unsaid" for word in words]
    coming = iter(searches)

    def next_word(request: Any) -> dict[str, Any]:
        return {"gaps": [], "sub_queries": [next(coming), "alpha"], "scopes": []}

    llm = ScriptedLLM({"exploration": next_word})
    memory = open_memory(llm, exploration_budget=3, **UNSURE)
    for word in words:
        fill(memory, *(f"the {word} of day {i}" for i in range(25)))
    found = memory.recall("alpha", limit=5, trace="full")
    assert len(llm.asked("exploration")) == 3
    assert found.trace is not None
    searched = [span.content["query"] for span in found.trace.find("search.query") if span.content]
    assert searched == ["alpha", *searches[:3]]


def test_a_round_that_finds_nothing_new_is_the_last(open_memory: OpenMemory) -> None:
    words = iter(["tea", "ink", "rain", "snow"])
    llm = ScriptedLLM({"exploration": lambda request: {**NOTHING, "sub_queries": [next(words)]}})
    memory = open_memory(llm, exploration_budget=4, **UNSURE)
    fill(memory, "only this")
    memory.recall("alpha")
    assert len(llm.asked("exploration")) == 1


def test_gaps_are_short_distinct_and_few(open_memory: OpenMemory) -> None:
    gaps = ["the owner", "The  owner?", "", "x" * 999, *(f"gap {word}" for word in "abcdefgh")]
    llm = ScriptedLLM({"exploration": {**NOTHING, "gaps": gaps}})
    memory = open_memory(llm, **UNSURE)
    fill(memory, "something")
    found = memory.recall("alpha")
    assert found.evidence_gaps[0] == "the owner"
    assert len(found.evidence_gaps) == MAX_GAPS
    assert all(len(gap) <= 200 for gap in found.evidence_gaps)


def test_gaps_are_returned_without_any_result(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"exploration": {**NOTHING, "gaps": ["everything"]}})
    memory = open_memory(llm)
    fill(memory, "hidden", source="bob", private=True)
    found = memory.recall("alpha")
    assert found == []
    assert found.evidence_gaps == ["everything"]
    assert found.confidence == 0.0


@pytest.mark.parametrize("failure", [LLMError("down"), "no json"], ids=str)
def test_a_failed_exploration_keeps_the_evidence(open_memory: OpenMemory, failure: Any) -> None:
    memory = open_memory(ScriptedLLM({"exploration": failure}), **UNSURE)
    fill(memory, "alpha is a project", "its owner is Ines")
    with RecordingListener() as heard:
        found = memory.recall("omega")
    assert "alpha is a project" in contents(found)
    assert found.evidence_gaps == []
    assert [event.operation for event in heard.of(MemoryAnalysisFailedEvent)] == ["exploration"]


def test_exploration_without_a_model_searches_once_more_with_terms_of_the_evidence(
    open_memory: OpenMemory,
) -> None:
    memory = open_memory(None, exploration_budget=3, **UNSURE)
    fill(memory, "alpha is run by Ines", "nothing else")
    with RecordingListener() as heard:
        found = memory.recall("alpha", trace="full")
    assert found.trace is not None
    queries = [span.content["query"] for span in found.trace.find("search.query") if span.content]
    assert len(queries) == len(set(queries)) >= 2
    assert "ine" in queries[1].lower()
    assert found.evidence_gaps == []
    assert heard.of(MemoryAnalysisFailedEvent) == []


# -- confidence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_confidence_ignores_age_and_importance(
    open_memory: OpenMemory, depth: Literal["shallow", "deep"]
) -> None:
    """Probe 35: a perfect match a year old is certain; a fresh, important stranger is not."""
    memory = open_memory(None)
    memory.remember(
        "the boiler is serviced by Ines",
        "/old",
        created_at=NOW - timedelta(days=365),
        importance=0.0,
    )
    sure = memory.recall("the boiler is serviced by Ines", depth=depth, now=NOW)
    assert sure.confidence > 0.9
    memory.forget(scope="/old")
    memory.remember("quarterly revenue grew", "/new", created_at=NOW, importance=1.0)
    unsure = memory.recall("the boiler is serviced by Ines", depth=depth, now=NOW)
    assert len(unsure) == 1
    assert unsure.confidence < 0.4


# -- ranking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_score_is_the_sum_of_what_is_explained(
    open_memory: OpenMemory, depth: Literal["shallow", "deep"]
) -> None:
    memory = open_memory(None, semantic_weight=0.6, recency_weight=0.25, importance_weight=0.15)
    for i in range(30):
        memory.remember(
            f"note {i} about tea",
            importance=i / 30,
            created_at=NOW - timedelta(days=(7 * i) % 30),
        )
    found = memory.recall("tea note 7", depth=depth, now=NOW, limit=30)
    for match in found:
        c = match.components
        age = (NOW - match.record.created_at).days
        assert c.recency == pytest.approx(0.5 ** (age / 30))
        assert c.importance == match.record.importance
        assert c.similarity == pytest.approx(1 / (2 - c.cosine), abs=1e-5)
        assert c.lexical_weight == 0.6  # every word of the query is in the best match
        semantic = 0.4 * c.similarity + 0.6 * c.lexical
        assert c.semantic == pytest.approx(semantic, abs=1e-5)
        assert match.score == pytest.approx(
            0.6 * semantic + 0.25 * c.recency + 0.15 * c.importance, abs=1e-5
        )
        assert match.explain()["score"] == match.score
    scores = [match.score for match in found]
    assert scores == sorted(scores, reverse=True)
    assert found[:5] == memory.recall("tea note 7", depth=depth, now=NOW, limit=5)


def test_ties_go_to_the_newest_then_to_the_id(open_memory: OpenMemory) -> None:
    memory = open_memory(None, recency_weight=0.0, importance_weight=0.0)
    for record_id, age in (("c", 1), ("a", 1), ("b", 0), ("d", 2)):
        memory.remember("one text", record_id=record_id, created_at=NOW - timedelta(days=age))
    for depth in DEPTHS:
        found = memory.recall("one text", depth=depth, now=NOW)
        assert [match.record.id for match in found] == ["b", "a", "c", "d"]


def test_reasons_name_what_speaks_for_a_match(open_memory: OpenMemory) -> None:
    memory = open_memory(None)
    memory.remember("tea", importance=0.9, created_at=NOW)
    memory.remember("ink", importance=0.1, created_at=NOW - timedelta(days=300))
    reasons = {m.record.content: m.match_reasons for m in memory.recall("tea", now=NOW)}
    assert reasons == {"tea": ["semantic", "lexical", "recency", "importance"], "ink": ["semantic"]}


# -- events, trace, timeouts ---------------------------------------------------------------------


def test_a_recall_announces_its_start_and_end(open_memory: OpenMemory) -> None:
    memory = open_memory(None)
    fill(memory, "tea")
    with RecordingListener() as heard:
        found = memory.recall("tea", limit=3)
    begun, done = heard.events
    assert isinstance(begun, MemoryQueryStartedEvent)
    assert isinstance(done, MemoryQueryCompletedEvent)
    assert (begun.query, begun.limit, done.query) == ("tea", 3, "tea")
    assert done.results is found
    assert done.query_time_ms > 0
    assert {event.source_type for event in heard.events} == {"unified_memory"}
    assert heard.sources == [memory, memory]


def test_a_failed_recall_announces_its_error(open_memory: OpenMemory) -> None:
    memory = open_memory(None, FakeEmbedder(fail=True))
    with RecordingListener() as heard, pytest.raises(Exception, match="embedder"):
        memory.recall("tea")
    (failed,) = heard.of(MemoryQueryFailedEvent)
    assert failed.query == "tea"
    assert "embedder" in failed.error


def test_the_trace_keeps_texts_only_when_told_to(open_memory: OpenMemory) -> None:
    memory = open_memory(None, trace="off")
    fill(memory, "a secret recipe")
    assert memory.recall("recipe").trace is None
    kept = memory.recall("recipe", trace="on").trace
    full = memory.recall("recipe", trace="full").trace
    assert kept is not None
    assert full is not None
    assert "secret" not in str(kept.to_json())
    assert "secret" in str(full.to_json())
    assert kept.path == full.path == DEEP


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_recall_that_takes_too_long_is_a_timeout(
    open_memory: OpenMemory, depth: Literal["shallow", "deep"]
) -> None:
    embedder = FakeEmbedder()
    memory = open_memory(None, embedder, recall_timeout=0.1)
    fill(memory, "tea")
    embedder.delay = 0.5
    with pytest.raises(TimeoutError, match="recall_timeout"):
        memory.recall("tea", depth=depth)
    embedder.delay = 0.0
    assert contents(memory.recall("tea", depth=depth)) == ["tea"]


def test_a_save_that_takes_too_long_is_a_timeout_and_stores_nothing(
    open_memory: OpenMemory,
) -> None:
    embedder = FakeEmbedder()
    memory = open_memory(None, embedder, encode_timeout=0.1)
    fill(memory, "tea")
    embedder.delay = 0.5
    with pytest.raises(TimeoutError, match="encode_timeout"):
        memory.remember("ink")
    embedder.delay = 0.0
    assert [record.content for record in memory.list_records()] == ["tea"]
