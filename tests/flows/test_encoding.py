"""EncodingFlow: which steps a save takes, what the model is asked, and what becomes of records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mnemotrace import Memory, MemoryRecord
from mnemotrace.config import MemoryConfig
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import LLMError, RecordError, StoreError
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.flows.batch import EncodingRun, _cosines
from mnemotrace.flows.encoding import MAX_ATTEMPTS, EncodingFlow
from mnemotrace.flows.events import EncodingStarted
from mnemotrace.flows.requests import SaveRequest, save_request
from mnemotrace.flows.runtime import get_runtime
from mnemotrace.flows.services import Services
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.llm.resolve import resolve_llm
from mnemotrace.llm.service import LLMService
from mnemotrace.records import utc_now
from mnemotrace.stores.open import open_store
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM
from mnemotrace.trace import start_trace

OpenMemory = Callable[..., Memory]

NEAR = {
    "old": [1.0, 0.0, 0.0],
    "new": [0.98, 0.199, 0.0],
    "Old!": [0.98, 0.199, 0.0],
    "no longer old": [0.98, 0.199, 0.0],
    "also old": [0.95, 0.0, 0.312],
    "far": [0.0, 0.0, 1.0],
    "both old and new": [1.0, 0.1, 0.0],
}
COMPLETE: dict[str, Any] = {"scope": "/s", "categories": ["c"], "importance": 0.5}
INSERT = {"actions": [], "insert_new": True}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Memory]]:
    """One store for the whole module: making one takes half a second."""
    folder = tmp_path_factory.mktemp("encoding")
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder(dimension=3)) as holder:
        holder.remember("the first text makes the store")
        yield folder, holder


@pytest.fixture
def open_memory(shared: tuple[Path, Memory]) -> Iterator[OpenMemory]:
    folder, holder = shared
    holder.forget(scope="/", include_private=True)
    opened: list[Memory] = []

    def build(llm: Any = None, embedder: Any = None, **settings: Any) -> Memory:
        embedder = FakeEmbedder(NEAR) if embedder is None else embedder
        opened.append(Memory(llm=llm, storage=folder, embedder=embedder, **settings))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()
    holder.forget(scope="/", include_private=True)


def contents(memory: Memory) -> set[str]:
    return {record.content for record in memory.list_records(include_private=True)}


# -- the way a save takes ------------------------------------------------------------------------


@pytest.fixture
def encode(shared: tuple[Path, Memory], open_memory: OpenMemory) -> Iterator[Any]:
    """Run the flow by itself and return the records and the steps taken."""
    store = open_store(shared[0])

    def run(
        requests: list[SaveRequest], llm: Any = None, **settings: Any
    ) -> tuple[list[MemoryRecord], tuple[str, ...]]:
        services = Services(
            store,
            EmbeddingService(FakeEmbedder(NEAR)),
            LLMService(resolve_llm(llm)),
            MemoryConfig.build(**settings),
            get_runtime(),
        )

        async def encoding() -> tuple[list[MemoryRecord], tuple[str, ...]]:
            run = EncodingRun.of(requests, utc_now())
            with start_trace("encode") as trace:
                await EncodingFlow(services).run(start_event=EncodingStarted(run=run))
            assert trace is not None
            assert all(span.status == "ok" for span in trace.spans)
            return run.outcomes, trace.path

        return get_runtime().run(encoding())

    yield run
    store.close()


def request(content: str, **fields: Any) -> SaveRequest:
    return save_request(content, **{"scope": "/s", "reach": ("/",), **COMPLETE, **fields})


def test_the_flow_takes_only_the_steps_that_have_work(encode: Any) -> None:
    llm = ScriptedLLM(
        {"save_analysis": {"scope": "/x", "importance": 0.5}, "consolidation": INSERT}
    )
    cheap = ("embed", "find_similar", "write")
    assert encode([request("far")], llm)[1] == cheap
    assert llm.requests == []
    assert encode([request("far")], llm)[1] == cheap, "an exact duplicate asked the model"
    assert encode([request("a"), request("b")], None)[1] == ("embed", "dedup", *cheap[1:])
    assert encode([request("c", scope=None)], None)[1] == (
        "embed", "find_similar", "analyze", "write",
    )  # fmt: skip
    assert llm.requests == []
    assert encode([request("old", importance=None)], llm)[1] == (
        "embed", "find_similar", "analyze", "analyze.text", "write",
    )  # fmt: skip
    assert encode([request("new")], llm)[1] == (
        "embed", "find_similar", "analyze", "consolidate", "consolidate.text", "write",
    )  # fmt: skip


def test_encoding_the_same_requests_again_writes_nothing_again(encode: Any) -> None:
    """A batch that was written before a crash is recognised by its ids."""
    requests = [request("a"), request("b"), request("a", source="s")]
    first, _ = encode(requests)
    again, _ = encode(requests)
    assert [record.id for record in again] == [record.id for record in first]
    assert len({record.id for record in first}) == 2
    assert first[2].id == first[0].id


def test_every_step_of_the_flow_leads_somewhere() -> None:
    returns = EncodingFlow.validate_step_returns()
    assert set(returns) == {"embed", "dedup", "find_similar", "analyze", "consolidate", "write"}
    assert returns["write"] == ("Deduplicated", "EncodingFinished")


def test_one_batch_is_one_embedder_call(open_memory: OpenMemory) -> None:
    embedder = FakeEmbedder(NEAR)
    memory = open_memory(embedder=embedder)
    memory.remember_many([f"text {i}" for i in range(20)]).wait(20)
    assert embedder.calls == [[f"text {i}" for i in range(20)]]


# -- analysis ------------------------------------------------------------------------------------

ANALYSIS = {
    "scope": "/found",
    "categories": ["found", " found ", ""],
    "importance": 0.9,
    "entities": ["Ines"],
    "dates": ["2026-03-01"],
    "topics": ["tea"],
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"scope": "/found", "categories": ["found"], "importance": 0.9}),
        ({"scope": "/mine"}, {"scope": "/mine", "categories": ["found"], "importance": 0.9}),
        ({"categories": []}, {"scope": "/found", "categories": [], "importance": 0.9}),
        ({"importance": 0.0}, {"scope": "/found", "categories": ["found"], "importance": 0.0}),
        (
            {"metadata": {"topics": 0, "dates": None}},
            {"metadata": {"topics": 0, "dates": None, "entities": ["Ines"]}},
        ),
    ],
)
def test_analysis_fills_in_only_what_was_not_given(
    open_memory: OpenMemory, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    llm = ScriptedLLM({"save_analysis": ANALYSIS})
    record = open_memory(llm).remember("a text", **given)
    assert {name: getattr(record, name) for name in expected} == expected
    assert len(llm.requests) == 1
    assert record.analysis is None
    assert record.metadata["entities"] == ["Ines"]


def test_a_complete_save_asks_nothing(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"save_analysis": ANALYSIS})
    record = open_memory(llm).remember("a text", **COMPLETE)
    assert llm.requests == []
    assert record.metadata == {}


@pytest.mark.parametrize(
    "reply",
    [
        'Here it is:\n```json\n{"scope": "/found", "importance": 0.9}\n```\nDone.',
        '{"scope": "/found", "importance": 0.9}',
        'The answer is {"scope": "/found", "importance": 0.9, "mood": "fine"} as asked.',
    ],
)
def test_an_answer_may_come_with_fences_and_prose(open_memory: OpenMemory, reply: str) -> None:
    record = open_memory(ScriptedLLM({"save_analysis": reply})).remember("a text")
    assert (record.scope, record.importance, record.analysis) == ("/found", 0.9, None)


FAILURES: dict[str, Any] = {
    "model error": LLMError("overloaded"),
    "any error": RuntimeError("boom"),
    "empty": "",
    "prose": "I would put it under projects.",
    "half": {"scope": "/found"},
    "importance": {"scope": "/found", "importance": 7},
    "scope": {"scope": "/a/../b", "importance": 0.5},
    "wrong type": {"scope": ["/a"], "importance": 0.5},
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_analysis_leaves_safe_defaults_and_a_warning(
    open_memory: OpenMemory, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(ScriptedLLM({"save_analysis": FAILURES[failure]}))
    with RecordingListener() as heard, caplog.at_level(logging.WARNING, "mnemotrace"):
        record = memory.remember("a text")
        kept = memory.remember("another text", "/mine", ["mine"])
        in_view = memory.scope("/view").remember("a third text")
    assert (record.scope, record.categories, record.importance) == ("/", [], 0.5)
    assert record.analysis == "pending"
    assert (kept.scope, kept.categories, kept.importance) == ("/mine", ["mine"], 0.5)
    assert in_view.scope == "/view"
    events = heard.of(MemoryAnalysisFailedEvent)
    assert [event.operation for event in events] == ["save analysis"] * 3
    assert all(event.error for event in events)
    assert "save analysis" in caplog.text
    assert contents(memory) == {"a text", "another text", "a third text"}


def test_without_a_model_nothing_is_missing_and_nobody_is_warned(
    open_memory: OpenMemory, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(None, default_importance=0.3)
    with RecordingListener() as heard, caplog.at_level(logging.WARNING, "mnemotrace"):
        record = memory.remember("a text")
        complete = memory.remember("another text", **COMPLETE)
    assert (record.scope, record.categories, record.importance) == ("/", [], 0.3)
    assert record.analysis == "pending"
    assert complete.analysis is None
    assert heard.of(MemoryAnalysisFailedEvent) == []
    assert caplog.records == []


def test_one_failed_analysis_of_a_batch_costs_only_its_own(open_memory: OpenMemory) -> None:
    def answer(asked: LLMRequest) -> Any:
        return LLMError("no") if '"bad"' in asked.prompt else {"scope": "/ok", "importance": 0.7}

    memory = open_memory(ScriptedLLM({"save_analysis": answer}))
    records = memory.remember_many(["good", "bad", "fine"]).wait(10)
    assert [record.analysis for record in records] == [None, "pending", None]
    assert [record.scope for record in records] == ["/ok", "/", "/ok"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_texts_are_analysed_in_parallel_up_to_the_limit(
    open_memory: OpenMemory, concurrency: int
) -> None:
    llm = ScriptedLLM({"save_analysis": {"scope": "/x", "importance": 0.5}}, delay=0.01)
    memory = open_memory(llm, llm_concurrency=concurrency)
    memory.remember_many([f"text number {i}" for i in range(16)]).wait(20)
    assert llm.most_running == concurrency


def test_the_analysis_knows_the_scopes_and_categories_in_reach(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"save_analysis": {"scope": "/x", "importance": 0.5}})
    memory = open_memory(llm)
    memory.remember("far", "/team/a", ["public-label"], importance=0.5)
    memory.remember("hid", "/team/b", ["hidden"], importance=0.5, source="s", private=True)
    memory.remember("out", "/other", ["foreign"], importance=0.5)
    memory.scope("/team").remember("to be analysed")
    (asked,) = llm.asked("save_analysis")
    assert "/team/a" in asked.prompt
    assert "public-label" in asked.prompt
    for word in ("/team/b", "hidden", "/other", "foreign"):
        assert word not in asked.prompt


# -- consolidation -------------------------------------------------------------------------------


def plan(*actions: tuple[str, str] | tuple[str, str, str], insert: bool) -> ScriptedLLM:
    listed = [dict(zip(("id", "action", "content"), action, strict=False)) for action in actions]
    return ScriptedLLM({"consolidation": {"actions": listed, "insert_new": insert}})


def save_old(memory: Memory, **fields: Any) -> MemoryRecord:
    return memory.remember("old", record_id="o", **{**COMPLETE, **fields})


def test_keep_without_insert_leaves_one_record(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "keep"), insert=False))
    old = save_old(memory, source="a", metadata={"k": 1, "zero": 0})
    became = memory.remember("Old!", **COMPLETE, source="b", metadata={"k": 2, "m": False})
    assert became.id == "o"
    assert contents(memory) == {"old"}
    assert became.sources == ["a", "b"]
    assert became.source == "a"
    assert became.metadata == {"k": 2, "zero": 0, "m": False}
    assert [version.version for version in memory.history("o")] == [1, 2]
    assert memory.history("o")[0].metadata == old.metadata
    for source in ("a", "b"):
        assert [record.id for record in memory.list_records(source=source)] == ["o"]


def test_keep_with_insert_leaves_both(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "keep"), insert=True))
    old = save_old(memory)
    new = memory.remember("new", **COMPLETE)
    assert contents(memory) == {"old", "new"}
    assert memory.history("o") == [old]
    assert new.supersedes == []


def test_update_rewrites_the_old_record_as_a_new_version(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "update", "both old and new"), insert=False))
    old = save_old(memory)
    became = memory.remember("new", **COMPLETE)
    assert (became.id, became.version) == ("o", 2)
    assert contents(memory) == {"both old and new"}
    first, second = memory.history("o")
    assert (first.content, first.retired, first.superseded_by) == ("old", "superseded", "o")
    assert first.valid_to == second.valid_from
    assert second.content == "both old and new"
    assert second.created_at == old.created_at
    assert memory.recall("both old and new")[0].components.cosine == pytest.approx(1, abs=1e-4)
    past = memory.recall("old", as_of=old.valid_from)
    assert [match.record.content for match in past] == ["old"]


def test_delete_retires_the_old_record_in_favour_of_the_new(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "delete"), insert=True))
    old = save_old(memory)
    new = memory.remember("no longer old", **COMPLETE)
    assert contents(memory) == {"no longer old"}
    assert new.supersedes == ["o"]
    assert [version.content for version in memory.history(new.id)] == ["old", "no longer old"]
    retired = memory.history(new.id)[0]
    assert (retired.retired, retired.superseded_by) == ("superseded", new.id)
    past = memory.recall("old", as_of=old.valid_from)
    assert [match.record.content for match in past] == ["old"]


def test_a_deleting_plan_without_insert_still_keeps_the_new_text(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "delete"), insert=False))
    save_old(memory)
    memory.remember("no longer old", **COMPLETE)
    assert contents(memory) == {"no longer old"}


def test_update_and_insert_leave_both(open_memory: OpenMemory) -> None:
    memory = open_memory(plan(("o", "update", "both old and new"), insert=True))
    save_old(memory)
    new = memory.remember("new", **COMPLETE)
    assert new.id != "o"
    assert contents(memory) == {"both old and new", "new"}


def test_one_save_may_merge_with_one_and_replace_another(open_memory: OpenMemory) -> None:
    llm = plan(("o", "update", "both old and new"), ("p", "delete"), insert=False)
    memory = open_memory(llm)
    memory.remember("also old", record_id="p", **COMPLETE)
    llm_free = open_memory(None)
    llm_free.remember("old", record_id="o", **COMPLETE)
    became = memory.remember("new", **COMPLETE)
    assert contents(memory) == {"both old and new"}
    assert (became.id, became.supersedes) == ("o", ["p"])
    assert {v.content for v in memory.history("o")} == {"old", "also old", "both old and new"}


@pytest.mark.parametrize(
    ("settings", "asked", "shown"),
    [
        ({}, 1, {"old", "also old"}),
        ({"consolidation_limit": 1}, 1, {"old"}),
        ({"consolidation_limit": 0}, 0, set()),
        ({"consolidation_threshold": 1.0}, 0, set()),
        ({"consolidation_threshold": 0.97}, 1, {"old"}),
        ({"consolidation_threshold": 0.99}, 0, set()),
    ],
)
def test_only_similar_records_are_judged(
    open_memory: OpenMemory, settings: dict[str, Any], asked: int, shown: set[str]
) -> None:
    quiet = open_memory(None)
    for text in ("old", "also old", "far"):
        quiet.remember(text, **COMPLETE)
    llm = ScriptedLLM({"consolidation": INSERT})
    open_memory(llm, **settings).remember("new", **COMPLETE)
    assert len(llm.requests) == asked
    for text in ("old", "also old", "far"):
        assert any(f': "{text}"' in r.prompt for r in llm.requests) == (text in shown)


def test_a_save_to_a_scope_is_compared_within_that_scope_only(open_memory: OpenMemory) -> None:
    quiet = open_memory(None)
    quiet.remember("old", **{**COMPLETE, "scope": "/s/below"})
    quiet.remember("also old", **{**COMPLETE, "scope": "/other"})
    llm = ScriptedLLM({"consolidation": INSERT})
    open_memory(llm).remember("new", **COMPLETE)
    assert llm.requests == []


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "one by one"])
@pytest.mark.parametrize("view", ["/", "/team"])
def test_without_a_model_a_text_without_a_scope_goes_to_the_views_own(
    open_memory: OpenMemory, view: str, together: bool
) -> None:
    """Another scope's equal text is another record; the view's own is the same one."""
    memory = open_memory(None).scope(view)
    places: list[dict[str, Any]] = [{"scope": "/a"}, {}, {"scope": view}, {}, {"scope": "/a"}]
    saves = [{"content": "old", **place} for place in places]
    for batch in [saves] if together else [[save] for save in saves]:
        memory.remember_many(batch, categories=["c"], importance=0.5).wait(20)
    below = "/a" if view == "/" else f"{view}/a"
    assert sorted(r.scope for r in memory.list_records()) == sorted([below, view])


def test_what_a_dead_model_cannot_place_is_the_views_own(open_memory: OpenMemory) -> None:
    """A key that is missing is known beforehand, so the scope is as well."""
    memory = open_memory("gpt-4o-mini")
    memory.remember("old", scope="/a")
    assert [memory.remember("old").scope for _ in range(2)] == ["/", "/"]
    assert len(memory.list_records()) == 2


def test_a_model_is_not_asked_where_a_stored_text_belongs(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"save_analysis": {"scope": "/x", "importance": 0.5}})
    memory = open_memory(llm)
    old = memory.remember("old", **COMPLETE)
    assert memory.remember("old").id == old.id
    assert llm.requests == []
    assert memory.scope("/other").remember("old").scope == "/other/x"
    assert len(llm.requests) == 1


WHO: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"source": "a"}, {"source": "b"}, True),
    ({"source": "a"}, {}, True),
    ({"source": "a", "private": True}, {"source": "a", "private": True}, True),
    ({"source": "a", "private": True}, {"source": "b", "private": True}, False),
    ({"source": "a", "private": True}, {"source": "a"}, False),
    ({"source": "a"}, {"source": "a", "private": True}, False),
    ({"source": "a", "private": True}, {"source": "b"}, False),
    ({"source": "a", "private": True}, {"private": True}, False),
    ({"private": True}, {"source": "a", "private": True}, False),
    ({"private": True}, {}, False),
]


@pytest.mark.parametrize("text", ["old", "Old!"], ids=["same text", "similar text"])
@pytest.mark.parametrize(("first", "second", "merges"), WHO)
def test_private_and_public_records_merge_only_with_their_like(
    open_memory: OpenMemory, first: dict[str, Any], second: dict[str, Any], merges: bool, text: str
) -> None:
    memory = open_memory(plan(("o", "keep"), insert=False))
    old = save_old(memory, **first)
    became = memory.remember(text, **COMPLETE, **second)
    assert (became.id == "o") == merges
    assert became.private == second.get("private", False)
    if not merges:
        assert memory.history("o", include_private=True) == [old]
        assert len(memory.list_records(include_private=True)) == 2


def test_a_merge_keeps_what_was_asked_of_either(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.remember(
        "old", "/s", ["c"], {"a": 0, "b": ""}, 0.4, expires_at="2100-01-01", pinned=True
    )
    became = memory.remember("old", "/s", ["d"], {"c": None}, 0.3, source="s")
    assert became.categories == ["c", "d"]
    assert became.metadata == {"a": 0, "b": "", "c": None}
    assert became.importance == 0.4
    assert became.pinned
    assert became.sources == ["s"]
    assert became.expires_at is None
    assert memory.remember("old", "/s", importance=0.8).importance == 0.8


def test_parallel_saves_of_similar_texts_end_as_one_record(open_memory: OpenMemory) -> None:
    """Each writer looks again under the lock, so none misses what the other has just written."""

    def same(asked: LLMRequest) -> dict[str, Any]:
        ids = [line.split("id=")[1].split(":")[0] for line in asked.prompt.splitlines()[1:2]]
        return {"actions": [{"id": i, "action": "keep"} for i in ids], "insert_new": False}

    texts = ["copy", "Copy", "copy!", "COPY", "the copy", "a copy."]
    vectors = {**NEAR, **{text: [1.0, 0.001 * n, 0.0] for n, text in enumerate(texts)}}
    llm = ScriptedLLM({"consolidation": same}, delay=0.01)
    memory = open_memory(llm, FakeEmbedder(vectors))

    async def save() -> list[MemoryRecord]:
        return await asyncio.gather(*(memory.aremember(text, **COMPLETE) for text in texts))

    ids = {record.id for record in asyncio.run(save())}
    assert len(ids) == 1
    assert len(memory.list_records()) == 1


def test_a_record_that_never_rests_is_an_error_and_nothing_is_stored(
    open_memory: OpenMemory,
) -> None:
    other = open_memory(None)

    async def restless(asked: LLMRequest) -> dict[str, Any]:
        record = await other.aget("o")
        assert record is not None
        await other.aupdate("o", importance=1.0 if record.importance < 1.0 else 0.1)
        return {"actions": [{"id": "o", "action": "delete"}], "insert_new": True}

    llm = ScriptedLLM({"consolidation": restless})
    memory = open_memory(llm)
    save_old(memory)
    with pytest.raises(StoreError, match="Save again"):
        memory.remember("no longer old", **COMPLETE)
    assert len(llm.requests) == MAX_ATTEMPTS
    assert contents(memory) == {"old"}


# -- the caller's own id -------------------------------------------------------------------------


def test_a_chosen_id_is_a_record_of_its_own(open_memory: OpenMemory) -> None:
    """Neither the same text nor a plan makes a chosen id vanish into another record."""
    memory = open_memory(plan(("o", "keep"), insert=False))
    save_old(memory)
    for text, record_id in (("old", "p"), ("new", "q")):
        assert memory.remember(text, record_id=record_id, **COMPLETE).id == record_id
    receipt = memory.remember_many(
        ["far", {"content": "far", "record_id": "r"}, {"content": "far", "record_id": "s"}],
        **COMPLETE,
    )
    assert [record.id for record in receipt.wait(10)][1:] == ["r", "s"]
    for record_id in "opqrs":
        assert memory.get(record_id) is not None
    assert len(memory.list_records()) == 6


def test_a_chosen_id_never_gives_access_to_a_hidden_record(open_memory: OpenMemory) -> None:
    memory = open_memory()
    hidden = save_old(memory, source="a", private=True, metadata={"secret": 1})
    away = memory.remember("far", record_id="w", **{**COMPLETE, "scope": "/away"})
    with pytest.raises(RecordError):
        memory.remember("old", record_id="o", **COMPLETE)
    with pytest.raises(RecordError):
        memory.remember("old", record_id="o", **COMPLETE, source="b", private=True)
    with pytest.raises(RecordError):
        memory.scope("/s").remember("far", record_id="w")
    assert memory.history("o", include_private=True) == [hidden]
    assert memory.history("w") == [away]


# -- duplicates within a batch -------------------------------------------------------------------


def batch_vectors(*texts: str, cosine: float = 0.99) -> FakeEmbedder:
    off = (1 - cosine**2) ** 0.5
    first, *others = texts
    return FakeEmbedder({first: [1.0, 0.0, 0.0], **{text: [cosine, off, 0.0] for text in others}})


@pytest.mark.parametrize(
    ("first", "second", "cosine", "kept"),
    [
        ("the sky is blue", "the sky is blue indeed", 0.99, 1),
        ("the sky is blue", "the sky is blue indeed", 0.97, 2),
        ("the sky is blue", "The  sky is blue", 0.5, 2),
        ("the sky is blue", "the sky  is\nblue", 0.5, 1),
        ("Bob is allergic to nuts", "Bob is not allergic to nuts", 0.99, 2),
        ("order 1001 is paid", "order 1002 is paid", 0.999, 2),
        ("Anna owes Ben", "Ben owes Anna", 1.0, 2),
    ],
)
def test_near_duplicates_of_a_batch_are_dropped_unless_a_fact_differs(
    open_memory: OpenMemory, first: str, second: str, cosine: float, kept: int
) -> None:
    memory = open_memory(embedder=batch_vectors(first, second, cosine=cosine))
    records = memory.remember_many([first, second]).wait(10)
    assert len(records) == 2, "the receipt has one record for each text"
    assert len({record.id for record in records}) == len(memory.list_records()) == kept
    assert records[0].content == first


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({}, {}, 1),
        ({"scope": "/a"}, {"scope": "/b"}, 2),
        ({"source": "a"}, {"source": "b"}, 1),
        ({"source": "a", "private": True}, {"source": "a"}, 2),
        ({"source": "a", "private": True}, {"source": "b", "private": True}, 2),
        ({"source": "a", "private": True}, {"source": "a", "private": True}, 1),
    ],
)
def test_texts_of_a_batch_are_twins_only_in_one_place_for_one_audience(
    open_memory: OpenMemory, first: dict[str, Any], second: dict[str, Any], kept: int
) -> None:
    memory = open_memory()
    memory.remember_many([{"content": "far", **first}, {"content": "far", **second}]).wait(10)
    assert len(memory.list_records(include_private=True)) == kept


def test_a_dropped_twin_leaves_its_source_and_metadata_behind(open_memory: OpenMemory) -> None:
    memory = open_memory()
    records = memory.remember_many(
        [
            {"content": "far", "source": "a", "metadata": {"k": 1}, "categories": ["x"]},
            {"content": "far", "source": "b", "metadata": {"m": 2}, "categories": ["y"]},
        ]
    ).wait(10)
    (record,) = memory.list_records()
    assert [r.id for r in records] == [record.id] * 2
    assert record.sources == ["a", "b"]
    assert record.metadata == {"k": 1, "m": 2}
    assert record.categories == ["x", "y"]
    assert record.version == 1
    assert [r.id for r in memory.list_records(source="b")] == [record.id]


@pytest.mark.parametrize(("rows", "dimension"), [(1, 3), (70, 256), (130, 8), (5, 300_000)])
def test_products_made_in_squares_are_those_of_the_whole(rows: int, dimension: int) -> None:
    matrix = np.random.default_rng(1).normal(size=(rows, dimension)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    whole = matrix.astype(np.float64) @ matrix.T.astype(np.float64)
    seen = 0
    for start, block in _cosines(matrix):
        assert start == seen
        seen += len(block)
        assert block == pytest.approx(whole[start:seen, :seen], abs=1e-5)
    assert seen == rows


def test_each_text_of_a_batch_finds_the_newest_record_that_says_it(
    open_memory: OpenMemory,
) -> None:
    memory = open_memory()
    for number in range(4):  # more of one text than the batch has texts
        memory.remember(
            "far", record_id=f"far {number}", created_at=f"2026-01-0{number + 1}", **COMPLETE
        )
    memory.remember("old", record_id="old", created_at="2025-01-01", **COMPLETE)
    memory.remember("also old", source="a", private=True, scope="/s")

    saved = memory.remember_many(
        [
            {"content": " far ", **COMPLETE},
            {"content": "old", **COMPLETE},
            {"content": "new", **COMPLETE},
            {"content": "also old", "scope": "/s"},  # not the private one
            {"content": "far", "record_id": "far 1", **COMPLETE},
            {"content": "far", "scope": "/elsewhere"},
        ]
    ).wait(10)

    assert [record.id for record in saved[:2]] == ["far 3", "old"]
    assert saved[4].id == "far 1"
    known = {"far 0", "far 1", "far 2", "far 3", "old"}
    assert not known & {saved[2].id, saved[3].id, saved[5].id}
    assert len(memory.list_records(include_private=True)) == 9


def test_a_batch_longer_than_one_block_finds_its_twins(open_memory: OpenMemory) -> None:
    embedder = FakeEmbedder(dimension=3)
    memory = open_memory(embedder=embedder)
    texts = [f"word{i} text" for i in range(1100)]
    records = memory.remember_many([*texts, *texts[:50]]).wait(60)
    assert len(records) == 1150
    assert [r.id for r in records[1100:]] == [r.id for r in records[:50]]
    assert len(memory.list_records(limit=2000)) == 1100
