"""Records saved while no model could be asked are analysed later, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mnemotrace import Memory, MemoryRecord
from mnemotrace.embedders.lexical import encode_document
from mnemotrace.errors import InvalidInputError, LLMError, LLMUnavailableError, ScopePermissionError
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.records import ANALYSED_FIELDS, pending_analysis, pending_fields, utc_now
from mnemotrace.stores.points import point_id
from mnemotrace.testing import RecordingListener, ScriptedLLM

OpenMemory = Callable[..., Memory]
Call = Callable[..., Any]

ANALYSIS: dict[str, Any] = {
    "scope": "/found",
    "categories": ["found"],
    "importance": 0.9,
    "entities": ["Ines"],
    "dates": ["2026-03-01"],
    "topics": ["tea"],
}


def down() -> ScriptedLLM:
    return ScriptedLLM({"save_analysis": LLMError("overloaded")})


def up(answer: Any = ANALYSIS, **settings: Any) -> ScriptedLLM:
    insert = {"actions": [], "insert_new": True}
    return ScriptedLLM({"save_analysis": answer, "consolidation": insert}, **settings)


def get(memory: Memory, record_id: str) -> MemoryRecord:
    record = memory.get(record_id, include_private=True)
    assert record is not None
    return record


@pytest.mark.parametrize("why", ["no model", "failing", "nonsense"])
def test_what_could_not_be_analysed_is_analysed_in_one_call(
    open_memory: OpenMemory, call: Call, why: str
) -> None:
    llm = {"no model": None, "failing": down(), "nonsense": up("no json")}[why]
    before = open_memory(llm=llm)
    records = before.remember_many([f"text {word}" for word in "abcdefghij"]).wait(20)
    complete = before.remember("complete", "/mine", ["mine"], importance=0.1)
    assert {record.analysis for record in records} == {"pending"}
    model = up(delay=0.01)
    after = open_memory(llm=model, llm_concurrency=4)
    result = call(after, "reanalyze")
    assert result == 10
    assert set(result.record_ids) == {record.id for record in records}
    assert result.failed == {}
    assert model.most_running == 4
    assert result.trace.totals()["llm_calls"] == 10
    assert result.trace.totals()["tokens_in"] > 0
    for old in records:
        new = get(after, old.id)
        assert (new.scope, new.categories, new.importance) == ("/found", ["found"], 0.9)
        assert new.metadata["entities"] == ["Ines"]
        assert (new.content, new.created_at) == (old.content, old.created_at)
        assert [v.scope for v in after.history(old.id)] == ["/", "/found"]
        assert [v.analysis for v in after.history(old.id)] == ["pending", None]
    assert get(after, complete.id) == complete
    found = after.recall("text c", scope="/found", limit=1)
    assert found[0].record.content == "text c"
    requests = len(model.requests)
    assert call(after, "reanalyze") == 0
    assert len(model.requests) == requests
    assert [get(after, old.id).version for old in records] == [2] * 10


GIVEN: list[dict[str, Any]] = [
    {"scope": "/mine"},
    {"scope": "/"},
    {"categories": ["mine"]},
    {"categories": []},
    {"importance": 0.5},
    {"importance": 0.0},
    {"scope": "/mine", "categories": ["mine"]},
    {"scope": "/mine", "importance": 0.5},
    {"categories": [], "importance": 0.5},
]


@pytest.mark.parametrize(
    ("when", "given"),
    [
        (when, given)
        for when in ("saved", "said again", "updated")
        for given in GIVEN
        if when != "said again" or given.get("scope") != "/mine"  # there it is another record
    ],
    ids=str,
)
def test_what_the_user_gave_is_kept(
    open_memory: OpenMemory, given: dict[str, Any], when: str
) -> None:
    """Also where it equals the default, and whether it came at once or later."""
    metadata = {"topics": 0, "mine": {"deep": [1, None]}, "when": utc_now()}
    memory = open_memory(llm=down())
    if when == "saved":
        old = memory.remember("a text", metadata=metadata, source="s", pinned=True, **given)
    else:
        old = memory.remember("a text", metadata=metadata, source="s", pinned=True)
        if when == "said again":
            old = memory.remember("a text", source="s", **given)
        else:
            old = memory.update(old.id, **given)
    for name, value in given.items():
        assert getattr(old, name) == value
    after = open_memory(llm=up())
    assert after.reanalyze() == 1
    new = get(after, old.id)
    expected = {"scope": "/found", "categories": ["found"], "importance": 0.9, **given}
    for name in ANALYSED_FIELDS:
        assert getattr(new, name) == expected[name], name
    assert new.metadata == {**metadata, "entities": ["Ines"], "dates": ["2026-03-01"]}
    assert (new.source, new.pinned, new.analysis) == ("s", True, None)


def test_nothing_waits_when_everything_was_given_in_the_end(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=None)
    record = memory.remember("a text")
    memory.update(record.id, scope="/mine", categories=["c"], importance=0.5)
    assert get(memory, record.id).analysis is None
    assert open_memory(llm=up()).reanalyze() == 0


@pytest.mark.parametrize(
    "failure",
    [LLMError("overloaded"), RuntimeError("boom"), "", "prose", {"scope": "/x"},
     {"scope": "/a/../b", "importance": 0.5}, {"scope": "/a", "importance": 7}],
    ids=str,
)  # fmt: skip
def test_what_still_fails_is_named_and_waits_on(open_memory: OpenMemory, failure: Any) -> None:
    memory = open_memory(llm=None)
    good, bad = memory.remember("good text"), memory.remember("bad text")

    def answer(request: LLMRequest) -> Any:
        return failure if '"bad text"' in request.prompt else ANALYSIS

    after = open_memory(llm=up(answer))
    with RecordingListener() as heard:
        result = after.reanalyze()
    assert result == 1
    assert result.record_ids == (good.id,)
    assert list(result.failed) == [bad.id]
    assert result.failed[bad.id]
    assert [e.operation for e in heard.of(MemoryAnalysisFailedEvent)] == ["save analysis"]
    assert get(after, bad.id) == bad
    assert open_memory(llm=up()).reanalyze() == 1
    assert get(after, bad.id).scope == "/found"


def test_without_a_model_nothing_changes_and_nothing_is_raised(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=None)
    record = memory.remember("a text")
    result = memory.reanalyze()
    assert result == 0
    assert "no language model" in result.failed[record.id]
    assert get(memory, record.id) == record


def test_a_model_out_of_reach_is_asked_once_not_for_each_record(open_memory: OpenMemory) -> None:
    open_memory(llm=None).remember_many([f"text {word}" for word in "abcdefgh"]).wait(20)
    llm = ScriptedLLM({"save_analysis": LLMUnavailableError("no connection")})
    result = open_memory(llm=llm, llm_concurrency=1).reanalyze()
    assert (result, len(result.failed)) == (0, 8)
    assert len(llm.requests) == 1


def test_a_view_analyses_only_what_it_may_see(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=None)
    inside = memory.scope("/crew/me").remember("inside")
    outside = memory.scope("/crew/you").remember("outside")
    hidden = memory.scope("/crew/me").remember("hidden", source="bob", private=True)
    at_root = memory.remember("at the root")
    for suggestion, scope in (("/crew/you", "/crew/me/crew/you"),):
        after = open_memory(llm=up({**ANALYSIS, "scope": suggestion}))
        assert after.scope("/crew/me").reanalyze().record_ids == (inside.id,)
        assert get(after, inside.id).scope == scope
    for record in (outside, hidden, at_root):
        assert get(memory, record.id) == record
    view = open_memory(llm=up()).scope("/crew/me")
    assert view.reanalyze(source="alice") == 0
    assert view.reanalyze(source="bob").record_ids == (hidden.id,)
    new = get(memory, hidden.id)
    assert (new.scope, new.private, new.source) == ("/crew/me/found", True, "bob")


def test_the_whole_memory_moves_no_record_out_of_the_view_it_was_saved_in(
    open_memory: OpenMemory,
) -> None:
    memory = open_memory(llm=None)
    mine = memory.scope("/crew/me").remember("inside")
    after = open_memory(llm=up())
    assert after.reanalyze() == 1
    assert get(after, mine.id).scope == "/crew/me/found"
    assert [r.id for r in after.scope("/crew/me").list_records()] == [mine.id]


def test_no_prompt_tells_of_scopes_beyond_the_record_s_own(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=None)
    memory.remember("secret", "/crew/you/vault", ["hush"], importance=0.5)
    memory.scope("/crew/me").remember("inside")
    llm = up()
    open_memory(llm=llm).reanalyze()
    (asked,) = llm.requests
    assert "vault" not in asked.prompt
    assert "hush" not in asked.prompt


def test_views_that_may_not_write_or_reach_refuse(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=up())
    with pytest.raises(ScopePermissionError):
        memory.slice(["/a"]).reanalyze()
    with pytest.raises(ScopePermissionError):
        memory.slice(["/a"], read_only=False).reanalyze("/b")
    with pytest.raises(InvalidInputError):
        memory.reanalyze(limit=-1)
    with pytest.raises(TypeError, match="include_private"):
        memory.reanalyze(include_privat=True)  # type: ignore[call-arg]


def test_a_limit_takes_the_newest_first(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=None)
    old = memory.remember("older", created_at="2026-01-01", categories=["c"])
    new = memory.remember("newer", created_at="2026-02-01")
    after = open_memory(llm=up())
    assert after.reanalyze(limit=0) == 0
    assert after.reanalyze(limit=1).record_ids == (new.id,)
    assert after.reanalyze(limit=5).record_ids == (old.id,)


def test_pending_background_saves_are_analysed_too(open_memory: OpenMemory) -> None:
    memory = open_memory(llm=down())
    receipt = memory.remember_many(["a", "b", "c"])
    assert len(memory.reanalyze().failed) == 3
    assert {record.analysis for record in receipt.wait(5)} == {"pending"}


@pytest.mark.parametrize("change", ["forget", "content", "importance", "everything"])
def test_a_record_that_changes_meanwhile_is_not_overwritten(
    open_memory: OpenMemory, change: str
) -> None:
    other = open_memory(llm=None)
    record = other.remember("a text")
    changes: dict[str, dict[str, Any]] = {
        "content": {"content": "another text"},
        "importance": {"importance": 0.5},
        "everything": {"scope": "/mine", "categories": [], "importance": 0.5},
    }

    async def answer(request: LLMRequest) -> Any:
        if change == "forget":
            await other.aforget(record_ids=[record.id])
        else:
            await other.aupdate(record.id, **changes[change])
        return ANALYSIS

    result = open_memory(llm=up(answer)).reanalyze()
    current = other.get(record.id)
    if change == "forget":
        assert current is None
        assert result == 0
        return
    assert current is not None
    if change == "content":
        assert list(result.failed) == [record.id]
        assert (current.content, current.analysis, current.scope) == (
            "another text",
            "pending",
            "/",
        )
    elif change == "importance":
        assert result == 1
        assert (current.scope, current.importance, current.analysis) == ("/found", 0.5, None)
    else:
        assert result == 0
        assert (current.scope, current.categories, current.analysis) == ("/mine", [], None)


def test_two_calls_at_once_analyse_each_record_once(open_memory: OpenMemory) -> None:
    open_memory(llm=None).remember_many([f"text {word}" for word in "abcdef"]).wait(20)
    memories = [open_memory(llm=up(delay=0.01)) for _ in range(2)]

    async def both() -> list[Any]:
        return list(await asyncio.gather(*(memory.areanalyze() for memory in memories)))

    results = asyncio.run(both())
    assert sum(results) == 6
    assert all(not result.failed for result in results)
    for record in memories[0].list_records():
        assert (record.version, record.scope, record.analysis) == (2, "/found", None)


def test_a_model_that_fills_a_record_with_labels_is_cut_short(open_memory: OpenMemory) -> None:
    huge = {**ANALYSIS, "categories": [f"c{i}" for i in range(9999)] + ["x" * 9999],
            "entities": [f"e{i}" for i in range(9999)]}  # fmt: skip
    memory = open_memory(llm=up(huge))
    record = memory.remember("a text")
    assert 0 < len(record.categories) <= 20
    assert 0 < len(record.metadata["entities"]) <= 50
    assert "x" * 9999 not in record.categories


@pytest.mark.parametrize("count", range(4))
def test_the_state_of_a_record_says_what_waits(count: int) -> None:
    names = ANALYSED_FIELDS[:count]
    state = pending_analysis(names)
    assert pending_fields(state) == names
    assert (state is None) == (count == 0)
    assert pending_fields(None) == pending_fields("other") == ()


def test_a_conversation_that_moves_keeps_its_context_and_lends_none(
    open_memory: OpenMemory,
) -> None:
    """The words of a turn go with it to its new scope, and leave the one it fell to."""
    talk = ["Ana: where did you grow up?", "Ben: in Oslo, by the harbour.", "Ana: did you sail?"]
    memory = open_memory(llm=None)
    memory.remember_many(talk, session="monday").wait(10)

    def answer(request: LLMRequest) -> Any:
        return {**ANALYSIS, "scope": "/" if "sail" in request.prompt else "/found"}

    after = open_memory(llm=up(answer))
    assert after.reanalyze() == 3
    records = {record.content: record for record in after.list_records()}
    assert [records[text].scope for text in talk] == ["/found", "/found", "/"]
    for text, before, behind in (
        (talk[0], [], [talk[1]]),
        (talk[1], [talk[0]], []),
        (talk[2], [], []),
    ):
        wanted = encode_document(text, before, behind)
        record = records[text]
        store: Any = after.store
        point = point_id(record.id, record.version)
        (row,) = store._generation().collection.retrieve([point], vectors=True)
        assert row.lexical.indices == wanted.indices
        assert row.lexical.values == pytest.approx(wanted.values, abs=1e-5)
