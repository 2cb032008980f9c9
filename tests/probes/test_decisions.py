"""What a model decided about a stored record is told: as an event, and in the trace of the save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mnemotrace import Memory
from mnemotrace.events import MemoryAnalysisFailedEvent, MemoryConsolidationEvent
from mnemotrace.testing import RecordingListener, ScriptedLLM

from .test_consolidation import Alike

OpenMemory = Callable[..., Memory]
GIVEN: dict[str, Any] = {"scope": "/a", "categories": ["c"], "importance": 0.5}


def judging(answer: dict[str, Any]) -> ScriptedLLM:
    return ScriptedLLM({"consolidation": answer})


def test_a_decision_is_an_event_and_in_the_trace(open_memory: OpenMemory) -> None:
    told = {"reason": "Tom is the lead now", "subject": "the team", "attribute": "lead",
            "old_value": "Sarah", "new_value": "Tom"}  # fmt: skip
    actions: list[dict[str, Any]] = [
        {"id": "lead", "action": "delete", "both_hold": False, **told},
        {"id": "tea", "action": "delete", "reason": "I do not like it"},
        {"id": "nobody", "action": "delete"},
    ]
    answer = {"actions": actions, "insert_new": True}
    memory = open_memory(
        llm=judging(answer), embedder=Alike(),
        trace="full",
    )  # fmt: skip
    memory.remember_many(["Sarah leads the team", "Sarah likes tea"], **GIVEN).wait(20)
    old = {record.content: record.id for record in memory.list_records()}
    actions[0]["id"] = old["Sarah leads the team"]
    actions[1]["id"] = old["Sarah likes tea"]
    with RecordingListener() as heard:
        became = memory.remember("Tom leads the team", **GIVEN)
    assert {r.content for r in memory.list_records()} == {"Tom leads the team", "Sarah likes tea"}
    assert [v.content for v in memory.history(became.id)] == [
        "Sarah leads the team", "Tom leads the team",
    ]  # fmt: skip
    events = heard.of(MemoryConsolidationEvent)
    assert [(e.action, e.accepted, e.record_id) for e in events] == [
        ("delete", False, ""),
        ("delete", True, old["Sarah leads the team"]),
        ("delete", False, old["Sarah likes tea"]),
    ]
    assert {event.new_record_id for event in events} == {became.id}
    assert events[1].told == told
    assert "speaks of all" in events[2].refused
    assert heard.of(MemoryAnalysisFailedEvent)
    assert became.trace is not None
    (judged,) = (span for span in became.trace.spans if span.name == "consolidate.text")
    assert [d["accepted"] for d in judged.attrs["decisions"]] == [False, True, False]
    assert judged.content is not None
    assert judged.content["told"][1] == told
    assert "Sarah" not in str(judged.attrs)


def test_a_paraphrase_becomes_a_second_wording_of_its_record(open_memory: OpenMemory) -> None:
    answer: dict[str, Any] = {
        "actions": [{"id": "old", "action": "keep", "same_meaning": True}],
        "insert_new": False,
    }
    memory = open_memory(llm=judging(answer), embedder=Alike())
    memory.remember("The user prefers dark mode", record_id="old", **GIVEN)
    became = memory.remember("User likes dark themes", **GIVEN)
    assert became.id == "old"
    assert became.content == "The user prefers dark mode. User likes dark themes"
    became = memory.remember("User hates dark themes", **GIVEN)
    assert became.content == "User hates dark themes"


def test_a_decision_that_another_text_of_the_batch_overtook_is_told_as_refused(
    open_memory: OpenMemory,
) -> None:
    def judge(request: Any) -> dict[str, Any]:
        if "Beta" in request.prompt.rsplit("New text:", 1)[-1]:
            return {"actions": [{"id": "old", "action": "delete"}], "insert_new": True}
        return {
            "actions": [
                {"id": "old", "action": "update", "content": "Ann works at Alpha. Ann swims"}
            ],
            "insert_new": False,
        }

    memory = open_memory(
        llm=ScriptedLLM({"consolidation": judge}), embedder=Alike(),
    )  # fmt: skip
    memory.remember("Ann works at Alpha", record_id="old", **GIVEN)
    with RecordingListener() as heard:
        memory.remember_many(["Ann swims", "Ann works at Beta"], **GIVEN).wait(20)
    told = [(e.action, e.accepted) for e in heard.of(MemoryConsolidationEvent)]
    assert told == [("update", True), ("delete", False)]
