"""Every row of the seeds' configuration table: what `Memory(setting=value)` changes, seen from outside.

One test a row, each with values on both sides of the effect. The records lie in a real embedded
store; vectors come from a `FakeEmbedder`, answers from a `ScriptedLLM` or a `FakeServer`.
"""

from __future__ import annotations

import inspect
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mnemotrace import Memory, Recall
from mnemotrace.memory import DEFAULT_LLM
from mnemotrace.stores.open import open_store
from mnemotrace.testing import FakeEmbedder, FakeServer, ScriptedLLM

ROWS = (
    "llm",
    "storage",
    "embedder",
    "recency_weight",
    "semantic_weight",
    "importance_weight",
    "recency_half_life_days",
    "consolidation_threshold",
    "consolidation_limit",
    "default_importance",
    "batch_dedup_threshold",
    "confidence_threshold_high",
    "confidence_threshold_low",
    "complex_query_threshold",
    "exploration_budget",
    "query_analysis_threshold",
)
"""The first column of the seeds' reference table, in its order."""

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GIVEN: dict[str, Any] = {"scope": "/a", "categories": [], "importance": 0.5}
FILED = {"scope": "/project/shop", "categories": ["database"], "importance": 0.9}


def test_every_row_of_the_table_has_a_test() -> None:
    functions = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    tests = [name for name, _ in functions if name.startswith("test_row_")]
    covered = {row for row in ROWS if any(name.startswith(f"test_row_{row}_") for name in tests)}
    assert covered == set(ROWS)


# -- llm, storage, embedder -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore:Items? .* (is|are) using the .ReadOnly. qualifier:UserWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("settings", "asked"),
    [({}, DEFAULT_LLM), ({"llm": "gpt-4o"}, "gpt-4o")],
    ids=["default", "name"],
)
def test_row_llm_names_the_model_that_is_asked(
    settings: dict[str, Any], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer({"SaveAnalysis": FILED}) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with Memory(storage=":memory:", **settings) as memory:
            record = memory.remember("We chose PostgreSQL.")
        assert {request.body["model"] for request in server.chats} == {asked}
    assert DEFAULT_LLM == "gpt-4o-mini"
    assert (record.scope, record.categories, record.importance) == tuple(FILED.values())


@pytest.mark.parametrize(
    ("llm", "scope"),
    [
        (None, "/"),
        (lambda prompt: '{"scope": "/by/function", "importance": 0.1}', "/by/function"),
        (ScriptedLLM({"save_analysis": FILED}), "/project/shop"),
    ],
    ids=["none", "function", "instance"],
)
def test_row_llm_may_be_absent_a_function_or_an_instance(llm: Any, scope: str) -> None:
    with Memory(llm, ":memory:", FakeEmbedder()) as memory:
        assert memory.remember("We chose PostgreSQL.").scope == scope


def test_row_storage_decides_where_the_records_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(elsewhere))
    store = open_store(tmp_path / "own")
    places: list[tuple[Any, Path | None]] = [
        (None, elsewhere / "memory"),
        (str(tmp_path / "text"), tmp_path / "text"),
        (tmp_path / "path", tmp_path / "path"),
        (store, tmp_path / "own"),
        (":memory:", None),
    ]
    for number, (storage, _) in enumerate(places):
        with Memory(None, storage, FakeEmbedder()) as memory:
            memory.remember(f"Fact {number}.")
            if storage is store:
                assert memory.store is store
    monkeypatch.delenv("MNEMOTRACE_STORAGE_DIR")
    with Memory(None, embedder=FakeEmbedder()) as memory:
        memory.remember("Fact of the default.")
    assert (tmp_path / ".mnemotrace" / "memory").is_dir()  # tests run in tmp_path
    for number, (_, folder) in enumerate(places):
        if folder is not None:
            with Memory(None, folder, FakeEmbedder()) as memory:
                assert [r.content for r in memory.list_records()] == [f"Fact {number}."]


class EmbedderObject:
    """An object with `embed`, as the protocol has it."""

    dimension = 2

    def embed(self, texts: list[str]) -> list[list[float]]:
        return colours(texts)


def colours(texts: list[str]) -> list[list[float]]:
    return [[0.1 + text.count("red"), 0.1 + text.count("blue")] for text in texts]


@pytest.mark.parametrize(
    ("embedder", "dimension"),
    [
        (None, 256),
        (colours, 2),
        (EmbedderObject(), 2),
        ({"provider": "custom", "config": {"embedding_callable": colours}}, 2),
    ],
    ids=["default", "function", "object", "config"],
)
def test_row_embedder_makes_the_vectors(embedder: Any, dimension: int) -> None:
    with Memory(None, ":memory:", embedder, lexical_weight=0.0) as memory:
        memory.remember("a red door")
        memory.remember("a blue gate")
        manifest = memory.store.manifest()
        assert manifest is not None
        assert manifest.embedder["dimension"] == dimension
        assert memory.recall("something blue")[0].record.content == "a blue gate"


# -- ranking ----------------------------------------------------------------------------------

RANKED = FakeEmbedder({"question": [1.0, 0.0], "near": [1.0, 0.0], "fresh": [0.6, 0.8],
                       "vital": [0.6, 0.8]})  # fmt: skip


def best(**settings: Any) -> str:
    """Which of three records is first: the near one, the fresh one or the important one."""
    with Memory(None, ":memory:", RANKED, consolidation_threshold=1.0, **settings) as memory:
        old = NOW - timedelta(days=60)
        memory.remember("near", scope="/a", importance=0.1, created_at=old)
        memory.remember("fresh", scope="/b", importance=0.1, created_at=NOW)
        memory.remember("vital", scope="/c", importance=1.0, created_at=old)
        matches = memory.recall("question", now=NOW)
    assert len(matches) == 3
    return matches[0].record.content


@pytest.mark.parametrize(("value", "first"), [(None, "fresh"), (0.0, "vital")])
def test_row_recency_weight_lifts_what_is_recent(value: float | None, first: str) -> None:
    assert best(**{} if value is None else {"recency_weight": value}) == first


@pytest.mark.parametrize(("value", "first"), [(None, "fresh"), (2.0, "near")])
def test_row_semantic_weight_lifts_what_is_near(value: float | None, first: str) -> None:
    assert best(**{} if value is None else {"semantic_weight": value}) == first


@pytest.mark.parametrize(("value", "first"), [(None, "fresh"), (1.0, "vital")])
def test_row_importance_weight_lifts_what_is_important(value: float | None, first: str) -> None:
    assert best(**{} if value is None else {"importance_weight": value}) == first


@pytest.mark.parametrize(
    ("value", "recency", "first"), [(30, 0.25, "fresh"), (60, 0.5, "vital"), (6000, 0.993, "vital")]
)
def test_row_recency_half_life_days_sets_how_fast_recency_fades(
    value: float, recency: float, first: str
) -> None:
    assert best(recency_half_life_days=value) == first
    with Memory(None, ":memory:", FakeEmbedder(), recency_half_life_days=value) as memory:
        memory.remember("A tale.", created_at=NOW - timedelta(days=60))
        [match] = memory.recall("A tale.", now=NOW)
    assert match.components.recency == pytest.approx(recency, abs=1e-3)


# -- saving -----------------------------------------------------------------------------------

ALIKE = [f"the harbour opens at {hour} o'clock" for hour in range(5, 11)]
LIKE = FakeEmbedder({text: [1.0, 0.0] for text in ALIKE[:-1]} | {ALIKE[-1]: [0.9, 0.19**0.5]})
"""Five texts with one vector, and a last one with cosine 0.9 to them."""

KEEP_ALL = {"actions": [], "insert_new": True}


def judged(**settings: Any) -> list[str]:
    """Save five texts, then one like them; returns which ones the model was shown."""
    llm = ScriptedLLM({"consolidation": KEEP_ALL})
    with Memory(llm, ":memory:", LIKE, **settings) as memory:
        memory.remember_many(ALIKE[:-1], **GIVEN).wait()
        memory.remember(ALIKE[-1], **GIVEN)
        assert memory.info("/").record_count == len(ALIKE)
    [*requests] = llm.asked("consolidation")
    return [text for text in ALIKE[:-1] for request in requests if text in request.prompt]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, 5), (0.89, 5), (0.91, 0), (1.0, 0)],
    ids=["default", "below", "above", "off"],
)
def test_row_consolidation_threshold_decides_when_the_model_judges(
    value: float | None, shown: int
) -> None:
    settings = {} if value is None else {"consolidation_threshold": value}
    assert len(judged(**settings)) == shown


def test_row_consolidation_threshold_of_one_turns_consolidation_off() -> None:
    llm = ScriptedLLM()  # would fail if asked
    same = FakeEmbedder({"the gate is open": [1.0, 0.0], "the gate is shut": [1.0, 0.0]})
    with Memory(llm, ":memory:", same, consolidation_threshold=1.0) as memory:
        memory.remember("the gate is open", **GIVEN)
        memory.remember("the gate is shut", **GIVEN)
        assert memory.info("/").record_count == 2
    assert llm.requests == []


@pytest.mark.parametrize(("value", "shown"), [(None, 5), (2, 2), (1, 1), (0, 0)])
def test_row_consolidation_limit_bounds_what_one_save_is_compared_with(
    value: int | None, shown: int
) -> None:
    settings = {} if value is None else {"consolidation_limit": value}
    assert len(judged(**settings)) == shown


@pytest.mark.parametrize("value", [None, 0.0, 0.8])
def test_row_default_importance_is_given_when_nothing_else_says(value: float | None) -> None:
    settings = {} if value is None else {"default_importance": value}
    with Memory(None, ":memory:", FakeEmbedder(), **settings) as memory:  # type: ignore[arg-type]
        record = memory.remember("The door is green.")
        given = memory.remember("The roof is red.", importance=0.3)
    assert record.importance == (0.5 if value is None else value)
    assert given.importance == 0.3


@pytest.mark.parametrize(
    ("value", "kept"),
    [(None, 2), (0.97, 2), (0.95, 1)],
    ids=["default", "above", "below"],
)
def test_row_batch_dedup_threshold_drops_later_repetitions_of_a_batch(
    value: float | None, kept: int
) -> None:
    first, second = "the kettle is warm", "a kettle is warm"
    near = FakeEmbedder({first: [1.0, 0.0], second: [0.96, 0.28]})
    settings = {} if value is None else {"batch_dedup_threshold": value}
    with Memory(None, ":memory:", near, **settings) as memory:  # type: ignore[arg-type]
        memory.remember_many([first, second])
        memory.drain_writes()
        contents = [record.content for record in memory.list_records()]
    assert len(contents) == kept
    assert first in contents


# -- recall -----------------------------------------------------------------------------------

STORED = "the ferry leaves from the old pier"
ASKED = "which boats sail in the morning"
LONG = f"{ASKED} {'and what else is known about them ' * 6}"
COMPLEX = {"sub_queries": ["boats"], "complexity": "complex"}
FOUND = {"gaps": ["the time"], "sub_queries": ["ferry timetable"]}


class Recaller:
    """Recalls with any settings from one store, whose evidence has one confidence."""

    def __init__(self, folder: Path) -> None:
        texts = {STORED: [1.0, 0.0, 0.0], ASKED: [0.7, 0.714, 0.0], LONG: [0.7, 0.714, 0.0]}
        self._folder = folder
        self._embedder = FakeEmbedder(texts)
        with self.memory() as memory:
            memory.remember(STORED, scope="/a")
        self.confidence = self.recall(ASKED, exploration_budget=0).confidence
        assert 0.1 < self.confidence < 0.9  # room on both sides

    def memory(self, llm: Any = None, **settings: Any) -> Memory:
        return Memory(llm, self._folder, self._embedder, lexical_weight=0.0, **settings)

    def recall(self, query: str, llm: Any = None, **settings: Any) -> Recall:
        with self.memory(llm, **settings) as memory:
            return memory.recall(query)

    def explored(self, query: str, **settings: Any) -> bool:
        """Whether recall explored; `above` and `below` are relative to the confidence."""
        answers: dict[str, Any] = {"query_analysis": COMPLEX, "exploration": FOUND}
        recall = self.recall(query, ScriptedLLM(answers), **settings)
        assert recall.trace is not None
        return "explore" in recall.trace.path


@pytest.fixture
def recaller(tmp_path: Path) -> Recaller:
    return Recaller(tmp_path / "store")


@pytest.mark.parametrize(("offset", "explores"), [(-0.05, False), (0.05, True)])
def test_row_confidence_threshold_high_returns_results_directly(
    recaller: Recaller, offset: float, explores: bool
) -> None:
    high = recaller.confidence + offset
    low = min(high, 0.01)
    assert (
        recaller.explored(
            LONG,
            confidence_threshold_high=high,
            confidence_threshold_low=low,
            complex_query_threshold=1.0,
        )
        is explores
    )


@pytest.mark.parametrize(("offset", "explores"), [(-0.05, False), (0.05, True)])
def test_row_confidence_threshold_low_explores_below_it(
    recaller: Recaller, offset: float, explores: bool
) -> None:
    low = recaller.confidence + offset
    assert (
        recaller.explored(ASKED, confidence_threshold_low=low, confidence_threshold_high=1.0)
        is explores
    )


@pytest.mark.parametrize(
    ("query", "offset", "explores"),
    [(LONG, -0.05, False), (LONG, 0.05, True), (ASKED, 0.05, False)],
    ids=["complex, above", "complex, below", "simple"],
)
def test_row_complex_query_threshold_explores_for_complex_queries(
    recaller: Recaller, query: str, offset: float, explores: bool
) -> None:
    assert (
        recaller.explored(
            query,
            complex_query_threshold=recaller.confidence + offset,
            confidence_threshold_low=0.0,
            confidence_threshold_high=1.0,
        )
        is explores
    )


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_row_exploration_budget_bounds_the_rounds(tmp_path: Path, budget: int) -> None:
    count = 60  # more than the searches of all rounds can bring
    texts = [f"ship number {number}" for number in range(count)]
    axes = np.eye(count + 1).tolist()
    vectors = dict(zip([*texts, ASKED], axes, strict=True))
    vectors[ASKED] = [0.1] * 10 + [0.0] * (count - 10) + [1.0]  # finds the first ten texts
    hints = {f"hint {place}": [0.2 * x for x in axes[place]] for place in range(20, count, 10)}
    for vector in hints.values():
        vector[-1] = 1.0  # a faint match: a clear one would end the search
    rounds = iter([{"sub_queries": [hint]} for hint in hints])
    llm = ScriptedLLM({"exploration": lambda request: next(rounds)})
    with Memory(
        llm,
        tmp_path / "store",
        FakeEmbedder(vectors | hints),
        lexical_weight=0.0,
        exploration_budget=budget,
        confidence_threshold_low=1.0,
        confidence_threshold_high=1.0,
    ) as memory:
        # Texts that no query means come in the order of their ids; the hinted ones are not first.
        named = [{"content": text, "record_id": f"{n:02}"} for n, text in enumerate(texts)]
        memory.remember_many(named, **GIVEN).wait()
        recall = memory.recall(ASKED, limit=1)
    assert recall.trace is not None
    assert len(llm.asked("exploration")) == budget
    assert recall.trace.path.count("explore") == budget


def test_row_exploration_budget_defaults_to_one_round(recaller: Recaller) -> None:
    llm = ScriptedLLM({"exploration": FOUND})
    settings = {"confidence_threshold_low": 1.0, "confidence_threshold_high": 1.0}
    recaller.recall(ASKED, llm, **settings)
    assert len(llm.asked("exploration")) == 1


@pytest.mark.parametrize(
    ("threshold", "length", "calls"),
    [(None, 199, 0), (None, 200, 1), (20, 19, 0), (20, 20, 1), (500, 499, 0), (0, 1, 1)],
)
def test_row_query_analysis_threshold_is_the_length_from_which_a_query_is_analysed(
    threshold: int | None, length: int, calls: int
) -> None:
    llm = ScriptedLLM({"query_analysis": {"sub_queries": ["ferry"]}})
    settings: dict[str, Any] = {} if threshold is None else {"query_analysis_threshold": threshold}
    with Memory(llm, ":memory:", FakeEmbedder(), exploration_budget=0, **settings) as memory:
        memory.remember(STORED, **GIVEN)
        memory.recall("ferry ".ljust(length, "x")[:length])
    assert len(llm.asked("query_analysis")) == calls
