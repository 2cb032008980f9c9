"""Consolidation, probes 24 to 29: four outcomes, nothing lost, contradictions keep history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from mnemotrace import Memory, MemoryRecord
from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.records import utc_now
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

OpenMemory = Callable[..., Memory]
Call = Callable[..., Any]
Read = Callable[[Memory], dict[str, MemoryRecord]]

COMPLETE: dict[str, Any] = {"scope": "/home", "categories": ["c"], "importance": 0.5}
INSERT: dict[str, Any] = {"actions": [], "insert_new": True}


class Alike(FakeEmbedder):
    """Every text is near every other, so each save is judged against what is stored."""

    def __init__(self) -> None:
        super().__init__(dimension=3)

    def _hashed(self, text: str) -> list[float]:
        if text in FIXED_TEXTS:
            return super()._hashed(text)
        return [1.0, (len(text) % 7) / 100, 0.0]


def plan(*actions: tuple[str, str] | tuple[str, str, str], insert: bool = False) -> dict[str, Any]:
    keys = ("id", "action", "content")
    return {
        "actions": [dict(zip(keys, action, strict=False)) for action in actions],
        "insert_new": insert,
    }


def by_text(answers: Mapping[str, Any]) -> ScriptedLLM:
    """A model that judges by the new text, which comes last in the prompt; else inserts."""

    def judge(request: LLMRequest) -> Any:
        new = request.prompt.rsplit("New text:", 1)[-1]
        for text, answer in answers.items():
            if text in new:
                return answer
        return INSERT

    return ScriptedLLM({"consolidation": judge})


def texts(memory: Memory) -> set[str]:
    return {r.content for r in memory.list_records(limit=1000, include_private=True)}


# -- 27: what is not the same is never merged ----------------------------------------------------

OPPOSITES = [
    ("Bob is allergic to peanuts", "Bob is not allergic to peanuts"),
    ("Bob is not allergic to peanuts", "Bob is allergic to peanuts"),
    ("Bob never eats nuts.", "Bob eats nuts."),
    ("order 1001 is paid", "order 1002 is paid"),
    ("The door is closed.", "The door is open."),
    ("The gate is open at night", "The gate is closed at night"),
    ("Alice likes tea", "Alice dislikes tea"),
    ("Alice hates tea", "Alice likes tea"),
    ("Uploads are denied for guests", "Uploads are allowed for guests"),
    ("Backups are disabled", "Backups are enabled"),
    ("Sales increased in the north", "Sales decreased in the north"),
    ("他不喜欢狗", "喜欢狗"),
    ("밥은 땅콩 알레르기가 없다", "밥은 땅콩 알레르기가 있다"),
    ("땅콩 알레르기가 있다고 볼 수 없다", "땅콩 알레르기가 있다"),
    ("猫が好きではない", "猫が好き"),
]


@pytest.mark.parametrize(("old", "new"), OPPOSITES)
@pytest.mark.parametrize("outcome", ["keep", "update to the old", "update to the old and more"])
def test_an_opposite_is_never_swallowed(
    open_memory: OpenMemory, old: str, new: str, outcome: str
) -> None:
    """Probe 27: a model that takes opposites for the same does not make the new text vanish."""
    answer = {
        "keep": plan(("old", "keep")),
        "update to the old": plan(("old", "update", old)),
        "update to the old and more": plan(("old", "update", f"{old} as was said before")),
    }[outcome]
    memory = open_memory(llm=by_text({new: answer}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        became = memory.remember(new, **COMPLETE)
    assert became.content == new
    assert texts(memory) == {old, new}
    assert len(memory.history("old")) == 1
    assert [event.operation for event in heard.of(MemoryAnalysisFailedEvent)] == ["consolidation"]


SAME = [
    ("The user prefers dark mode", "User likes dark themes"),
    ("Bob lives in Paris. He never flies.", "Bob is living in Paris"),
    ("The door is open. The gate is closed.", "the gate's closed"),
    ("Deploys happen on Tuesday and not on Friday", "Not on Friday, on Tuesday: deploys happen"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_a_paraphrase_is_merged(open_memory: OpenMemory, old: str, new: str) -> None:
    """The guards let through what says the same in other words."""
    memory = open_memory(llm=by_text({new: plan(("old", "keep"))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    assert memory.remember(new, **COMPLETE).id == "old"
    assert texts(memory) == {old}


# -- 24 and 25: merged texts that must not be written --------------------------------------------

OLD, NEW = "Ines leads the alpha team of 14.", "Since May the alpha team has 16 people."


@pytest.mark.parametrize(
    "merged",
    [
        "Ines leads the alpha team of 16 since May. Her door code is 4711.",
        "Ines leads the alpha team of 16 since May, together with Bartholomew.",
        "Ines does not lead the alpha team of 16 people since May.",
        "Ines leads the alpha team of 16 since May. " + "It is a fine team indeed. " * 50,
        "이네스는 알파 팀을 이끈다.",
        "\u200b",
        "Ines leads the alpha team of 16 since May. \ud800",
    ],
    ids=["a number", "a name", "a negation", "too long", "another language", "invisible", "broken"],
)
def test_a_merged_text_that_invents_or_loses_is_refused(
    open_memory: OpenMemory, merged: str
) -> None:
    """Probes 24, 25: a record only ever becomes what was said of it."""
    embedder = Alike()
    memory = open_memory(llm=by_text({NEW: plan(("old", "update", merged))}), embedder=embedder)
    old = memory.remember(OLD, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        memory.remember(NEW, **COMPLETE)
    assert memory.history("old") == [old]
    assert texts(memory) == {OLD, NEW}
    assert heard.of(MemoryAnalysisFailedEvent)
    assert merged not in embedder.texts, "a text that is refused need not be embedded"


def test_a_merged_text_that_keeps_everything_is_written(open_memory: OpenMemory) -> None:
    merged = "Ines leads the alpha team, which has 16 people since May."
    memory = open_memory(llm=by_text({NEW: plan(("old", "update", merged))}), embedder=Alike())
    memory.remember(OLD, record_id="old", **COMPLETE)
    became = memory.remember(NEW, **COMPLETE)
    assert (became.id, became.content, became.version) == ("old", merged, 2)
    assert texts(memory) == {merged}


@pytest.mark.parametrize(
    "answer",
    [
        plan(("old", "keep"), ("old", "delete")),
        plan(("old", "delete"), ("old", "update", "old text and new text")),
        plan(("old", "update", "old text and new text"), ("old", "keep"), insert=True),
    ],
    ids=["keep, delete", "delete, update", "update, keep"],
)
def test_a_plan_that_contradicts_itself_leaves_the_record_alone(
    open_memory: OpenMemory, answer: Any
) -> None:
    """Probe 24."""
    memory = open_memory(llm=by_text({"new text": answer}), embedder=Alike())
    old = memory.remember("old text", record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        memory.remember("new text", **COMPLETE)
    assert memory.history("old") == [old]
    assert texts(memory) == {"old text", "new text"}
    assert heard.of(MemoryAnalysisFailedEvent)


def test_a_short_text_does_not_outdate_a_long_record(open_memory: OpenMemory) -> None:
    """Probe 25, for deletion: the end of a long record stays in reach."""
    long = "The archive is in Paris. " * 40 + "The vault code is 7413."
    new = "The archive moved to Rome."
    memory = open_memory(llm=by_text({new: plan(("old", "delete"))}), embedder=Alike())
    memory.remember(long, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        memory.remember(new, **COMPLETE)
    assert texts(memory) == {long, new}
    assert heard.of(MemoryAnalysisFailedEvent)


# -- several texts of one batch and one record ---------------------------------------------------


def test_two_texts_of_a_batch_that_rewrite_one_record_both_stay(open_memory: OpenMemory) -> None:
    """Each was judged alone, from the record as it was: the second must not undo the first."""
    llm = by_text(
        {
            "the roof is green": plan(("old", "update", "the house has a red door, a green roof")),
            "the yard is wide": plan(("old", "update", "the house has a red door, a wide yard")),
        }
    )
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("the house has a red door", record_id="old", **COMPLETE)
    new = ["the roof is green", "the yard is wide"]
    records = memory.remember_many(new, **COMPLETE).wait(20)
    said = " ".join(texts(memory))
    for word in ("red", "green", "wide"):
        assert word in said
    assert len(memory.history("old")) == 2
    for text, record in zip(new, records, strict=True):
        current = memory.get(record.id)
        assert current is not None
        assert text.split()[-1] in current.content


@pytest.mark.parametrize("order", [1, -1])
def test_a_text_that_is_kept_does_not_undo_what_another_adds(
    open_memory: OpenMemory, order: int
) -> None:
    llm = by_text(
        {
            "the roof is green": plan(("old", "update", "the house has a red door, a green roof")),
            "a red door has the house": plan(("old", "keep")),
        }
    )
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("the house has a red door", record_id="old", **COMPLETE)
    batch = ["the roof is green", "a red door has the house"][::order]
    memory.remember_many(batch, **COMPLETE).wait(20)
    assert any("green" in text and "red" in text for text in texts(memory))


@pytest.mark.parametrize("order", [1, -1])
def test_saying_it_again_does_not_undo_what_another_adds(
    open_memory: OpenMemory, order: int
) -> None:
    """A batch with the very text of a record, beside one that rewrites this record."""
    merged = "the house has a red door, a green roof"
    llm = by_text({"the roof is green": plan(("old", "update", merged))})
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("the house has a red door", record_id="old", **COMPLETE)
    batch = ["the roof is green", "the house has a red door"][::order]
    memory.remember_many(batch, **COMPLETE).wait(20)
    assert merged in texts(memory)


@pytest.mark.parametrize("order", [1, -1])
def test_a_text_is_current_although_another_of_its_batch_outdates_its_record(
    open_memory: OpenMemory, order: int
) -> None:
    llm = by_text({"Ann works at B": plan(("old", "delete"), insert=True)})
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("Ann works at A", record_id="old", **COMPLETE)
    batch = ["Ann works at B", "Ann works at A"][::order]
    records = memory.remember_many(batch, **COMPLETE).wait(20)
    assert texts(memory) == set(batch)
    for text, record in zip(batch, records, strict=True):
        current = memory.get(record.id)
        assert current is not None
        assert current.content == text


# -- 26 ------------------------------------------------------------------------------------------


def test_one_fact_in_many_words_saved_in_parallel_is_one_record(open_memory: OpenMemory) -> None:
    """Probe 26: from tasks and batches through two memories, judged by a model each time."""

    def same(request: LLMRequest) -> dict[str, Any]:
        ids = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", request.prompt)
        return plan(*((name, "keep") for name in ids))

    llm = ScriptedLLM({"consolidation": same}, delay=0.005)
    memories = [open_memory(llm=llm, embedder=Alike()) for _ in range(2)]
    words = ["reliably", "dependably", "steadily", "safely", "soundly", "firmly"]
    said = [f"the engine runs {word}" for word in words]

    async def save() -> list[MemoryRecord]:
        saves = [memories[i % 2].aremember(text, **COMPLETE) for i, text in enumerate(said * 2)]
        receipts = [await memory.aremember_many(said[:1], **COMPLETE) for memory in memories]
        batches = [record for receipt in receipts for record in await receipt]
        return [*await asyncio.gather(*saves), *batches]

    ids = {record.id for record in asyncio.run(save())}
    assert len(ids) == 1
    assert len(texts(memories[0])) == 1


# -- 28 ------------------------------------------------------------------------------------------


def test_a_contradiction_puts_the_newest_first_and_keeps_the_old(
    open_memory: OpenMemory, call: Call
) -> None:
    """Probe 28: works at A, then at B, then at C."""
    llm = by_text(
        {
            "works at Beta": plan(("old", "delete"), insert=True),
            "works at Gamma": plan(("second", "delete"), insert=True),
        }
    )
    memory = open_memory(llm=llm, embedder=Alike())
    first = memory.remember("Ann works at Alpha", record_id="old", **COMPLETE)
    second = call(memory, "remember", "Ann works at Beta", record_id="second", **COMPLETE)
    third = call(memory, "remember", "Ann works at Gamma", **COMPLETE)
    found = call(memory, "recall", "where does Ann work?")
    assert [match.record.content for match in found] == ["Ann works at Gamma"]
    versions = call(memory, "history", third.id)
    assert [version.content[-5:] for version in versions] == ["Alpha", " Beta", "Gamma"]
    assert [version.retired for version in versions] == ["superseded", "superseded", None]
    assert [version.superseded_by for version in versions] == [second.id, third.id, None]
    assert [version.valid_to for version in versions[:2]] == [
        second.valid_from, third.valid_from,
    ]  # fmt: skip
    for moment, text in (
        (first.valid_from, "Ann works at Alpha"),
        (second.valid_from, "Ann works at Beta"),
        (utc_now() + timedelta(seconds=1), "Ann works at Gamma"),
    ):
        past = call(memory, "recall", "where does Ann work?", as_of=moment)
        assert [match.record.content for match in past] == [text]


# -- 29 ------------------------------------------------------------------------------------------

METADATA: dict[str, Any] = {
    "zero": 0,
    "no": False,
    "blank": "",
    "nothing": None,
    "topics": ["mine"],
    "dates": [],
    "entities": None,
    "when": utc_now(),
}


def test_a_rewritten_record_keeps_the_metadata_of_both(open_memory: OpenMemory) -> None:
    """Probe 29: falsy values, the user's own keys and times survive merges and updates."""
    analysis = {
        "scope": "/x", "importance": 0.9, "entities": ["e"], "dates": ["d"], "topics": ["t"],
    }  # fmt: skip
    llm = ScriptedLLM(
        {
            "save_analysis": analysis,
            "consolidation": plan(("old", "update", "old text and new text")),
        }
    )
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("old text", "/home", metadata=METADATA, record_id="old")
    stored = memory.get("old")
    assert stored is not None
    assert stored.metadata == METADATA
    became = memory.remember("new text", "/home", metadata={"zero": 0.0, "more": 1})
    assert became.id == "old"
    assert became.metadata == {**METADATA, "zero": 0.0, "more": 1}
    changed = memory.update("old", content="another text")
    assert changed.metadata == became.metadata
    assert type(changed.metadata["no"]) is bool
    assert changed.metadata["when"] == METADATA["when"]
