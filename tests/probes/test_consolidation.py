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


PEANUTS = ("Bob is allergic to peanuts", "Bob is not allergic to peanuts")
ORDERS = ("order 1001 was shipped", "order 1002 was shipped")


@pytest.mark.parametrize(("one", "other"), [PEANUTS, PEANUTS[::-1], ORDERS])
@pytest.mark.parametrize("way", ["no model", "kept", "updated", "one batch"])
def test_opposites_at_a_cosine_of_96_are_two_records(
    open_memory: OpenMemory, one: str, other: str, way: str
) -> None:
    """Probe 27 by its very vectors, above both thresholds."""
    vectors = {one: [1.0, 0.0], other: [0.96, 0.28]}
    llm = {
        "kept": by_text({other: plan(("old", "keep"))}),
        "updated": by_text({other: plan(("old", "update", one))}),
    }.get(way)
    embedder = FakeEmbedder({text: [*vector, 0.0] for text, vector in vectors.items()})
    memory = open_memory(llm=llm, embedder=embedder, batch_dedup_threshold=0.95)
    if way == "one batch":
        memory.remember_many([one, other], **COMPLETE).wait(20)
    else:
        memory.remember(one, record_id="old", **COMPLETE)
        memory.remember(other, **COMPLETE)
    assert llm is None or llm.asked("consolidation")
    assert texts(memory) == {one, other}
    found = {match.record.content: match for match in memory.recall(one, limit=2)}
    assert found.keys() == {one, other}
    assert found[other].components.cosine == pytest.approx(0.96, abs=1e-3)


DIFFERENT = [
    ("Tests pass", "Tests fail"),
    ("my brother is 30", "my sister is 30"),
    ("her brother is 30", "my brother is 30"),
    ("the cat chased the dog", "the dog chased the cat"),
    ("the cat is black and the dog is white", "the cat is white"),
    ("Bob lives in Paris and Anna lives in Rome", "Bob lives in Rome"),
    ("Anna owes Ben money", "Ben owes Anna money"),
    ("The server was migrated", "The server will be migrated"),
    ("The flight goes to Rome", "The flight goes from Rome"),
    ("Bob likes tea but not coffee", "Bob likes coffee"),
    ("The user prefers dark mode", "User likes dark themes"),
    ("회의는 오전", "회의는 오후"),
    ("안나는 파리에 산다", "안나는 파리에 살았다"),
    ("안나는 벤에게 돈을 주었다", "벤은 안나에게 돈을 주었다"),
    ("会议在上午", "会议在下午"),
    ("我弟弟三十岁", "我妹妹三十岁"),
    ("会議は午前です", "会議は午後です"),
]


@pytest.mark.parametrize(("old", "new"), DIFFERENT)
def test_a_wrong_keep_swallows_no_new_text(open_memory: OpenMemory, old: str, new: str) -> None:
    """A single word tells two facts apart, a lower-case one too."""
    memory = open_memory(llm=by_text({new: plan(("old", "keep"))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        assert memory.remember(new, **COMPLETE).content == new
    assert texts(memory) == {old, new}
    assert [event.operation for event in heard.of(MemoryAnalysisFailedEvent)] == ["consolidation"]


WRONGLY_DELETED = [
    ("my brother is 30", "my sister is 30"),
    ("order 1001 is paid", "order 1002 is paid"),
    ("Ann has 2 cats", "Ann has 3 dogs"),
    ("Ann likes tea", "Ann works at Beta"),
    ("Ann likes tea", "Ann likes coffee"),
    ("Ann likes tea", "Ann moved to Munich"),
    ("Ann works at Alpha and owns a small boat", "Ann works at Beta"),
    ("내 동생은 서른 살이다", "내 누나는 서른 살이다"),
    ("안나는 차를 좋아한다", "안나는 뮌헨으로 이사했다"),
    ("안나는 파리에 살고 작은 배가 있다", "안나는 로마에 산다"),
    ("他住在巴黎，喜欢喝茶", "他住在罗马"),
    ("安娜的哥哥三十岁", "安娜的姐姐三十岁"),
]


@pytest.mark.parametrize(("old", "new"), WRONGLY_DELETED)
def test_a_wrong_delete_leaves_the_record(open_memory: OpenMemory, old: str, new: str) -> None:
    """What the new text does not speak of stays current, whatever the model deletes."""
    memory = open_memory(llm=by_text({new: plan(("old", "delete"))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        memory.remember(new, **COMPLETE)
    assert texts(memory) == {old, new}
    assert heard.of(MemoryAnalysisFailedEvent)


OUTDATED = [
    ("Tests pass", "Tests fail"),
    ("Ann lives in Berlin", "Ann moved to Munich"),
    ("The party is on Friday at 14:00 in room 5", "The party is cancelled"),
    ("We deploy on Tuesday", "We deploy on Friday"),
    ("회의는 오전", "회의는 오후"),
    ("안나는 베를린에 산다", "안나는 뮌헨으로 이사했다"),
    ("他住在柏林", "他搬到了慕尼黑"),
    ("会议在上午", "会议在下午"),
]


@pytest.mark.parametrize(("old", "new"), OUTDATED)
def test_a_right_delete_leaves_the_new_text_alone(
    open_memory: OpenMemory, old: str, new: str
) -> None:
    memory = open_memory(llm=by_text({new: plan(("old", "delete"))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    became = memory.remember(new, **COMPLETE)
    assert texts(memory) == {new}
    assert [version.content for version in memory.history(became.id)] == [old, new]


def test_a_record_goes_when_its_heir_says_all_of_it(open_memory: OpenMemory) -> None:
    """A model may clean up: one record takes all in, another one goes."""
    both = "Ann has 2 cats and 3 dogs"
    answer = plan(("old", "update", both), ("second", "delete"))
    llm = by_text({"3 dogs": answer})
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("Ann has 2 cats", record_id="old", **COMPLETE)
    memory.remember("ANN: has 2 cats!", record_id="second", **COMPLETE)
    became = memory.remember("Ann has 3 dogs", **COMPLETE)
    assert texts(memory) == {both}
    assert (became.id, became.supersedes) == ("old", ["second"])


def test_a_record_stays_when_its_heir_turns_out_not_to_say_it(open_memory: OpenMemory) -> None:
    """Another text of the batch rewrote the heir first, so nothing takes the record's place."""
    llm = by_text(
        {
            "7 fish": plan(("old", "update", "Ann has 2 cats and 7 fish")),
            "3 dogs": plan(("old", "update", "Ann has 2 cats and 3 dogs"), ("second", "delete")),
        }
    )
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("Ann has 2 cats", record_id="old", **COMPLETE)
    memory.remember("ANN has 2 cats!", record_id="second", **COMPLETE)
    memory.remember_many(["Ann has 7 fish", "Ann has 3 dogs"], **COMPLETE).wait(20)
    assert texts(memory) == {"Ann has 2 cats and 7 fish", "Ann has 3 dogs", "ANN has 2 cats!"}


SAME = [
    ("Bob lives in Paris. He never flies.", "Bob is living in Paris"),
    ("The door is open. The gate is closed.", "the gate's closed"),
    ("Bob lives in Paris and works at Acme", "Bob works at Acme."),
    ("The user prefers dark mode, since the screen is bright", "user prefers DARK mode"),
    (
        "Deploys happen on Tuesday and not on Friday",
        "deploys happen on Tuesday, and not on Friday!",
    ),
    ("안나는 파리에 살고 차를 좋아한다", "안나는 차를 좋아합니다"),
    ("他喜欢狗，也喜欢猫", "他喜欢狗"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_said_already_is_merged(open_memory: OpenMemory, old: str, new: str) -> None:
    """The guards let through what has the same words: other forms, order kept, less of them."""
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


SMALL_PRINT = "The archive is full. It has a red door. Ask for the code 7413"
LOSING = [
    ("Anna lives in Paris, likes tea and owns a small boat", "Anna lives in Rome",
     "Anna lives in Rome"),
    ("Anna likes tea and owns a small boat", "Anna works in 2 teams of 14 people in Rome",
     "Anna works in 2 teams of 14 people in Rome"),
    ("Anna likes tea and owns a small boat", "Anna works in 2 teams of 14 people in Rome",
     "Anna likes tea and works in 2 teams of 14 people in Rome"),
    ("Anna likes tea", "Anna likes coffee", "Anna likes coffee"),
    ("Ann has 2 cats", "Ann has 3 dogs", "Ann has 3 dogs"),
    ("order 1001 is paid", "order 1002 is paid", "order 1002 is paid"),
    ("my brother is 30", "my sister is 31", "my sister is 31"),
    ("The staging port is 8080", "The production port is 9090", "The production port is 9090"),
    (SMALL_PRINT, "The archive has 12 rooms and 3 keys",
     "The archive is full. It has a red door, 12 rooms and 3 keys"),
    ("안나는 파리에 살고 작은 배가 있다", "안나는 로마에 산다", "안나는 로마에 산다"),
    ("서버 암호는 7413이다. 담당자는 미나다.", "서버는 방 12개에 있다", "서버는 방 12개에 있다. 담당자는 미나다."),
    ("내 동생은 서른 살이다", "내 누나는 서른 살이다", "내 누나는 서른 살이다"),
    ("他住在巴黎，喜欢喝茶，有一条小船", "他住在罗马", "他住在罗马，喜欢喝茶"),
    ("端口是8080，密码是7413", "端口是9090，房间有12个", "端口是9090，房间有12个"),
    ("安娜的哥哥三十岁", "安娜的姐姐三十岁", "安娜的姐姐三十岁"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "merged"), LOSING)
def test_a_merge_that_drops_a_statement_is_refused(
    open_memory: OpenMemory, old: str, new: str, merged: str
) -> None:
    """Probe 25: however many numbers and words the new text brings, they stand for none of these."""
    memory = open_memory(llm=by_text({new: plan(("old", "update", merged))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        memory.remember(new, **COMPLETE)
    assert texts(memory) == {old, new}
    assert len(memory.history("old")) == 1
    assert [event.operation for event in heard.of(MemoryAnalysisFailedEvent)] == ["consolidation"]


UPDATES = [
    ("Ann lives in Paris", "Ann lives in Rome", "Ann lives in Rome"),
    ("lives in Paris", "lives in Rome", "lives in Rome"),
    ("Anna lives in Berlin", "Anna moved to Munich", "Anna lives in Munich"),
    ("Anna lives in Paris, likes tea and owns a small boat", "Anna lives in Rome",
     "Anna lives in Rome, likes tea and owns a small boat"),
    ("We run PostgreSQL 14 in Berlin", "We now run PostgreSQL 16", "We run PostgreSQL 16 in Berlin"),
    ("Tests pass", "Tests fail", "Tests fail"),
    ("Bob is allergic to nuts", "Bob is not allergic to nuts", "Bob is not allergic to nuts"),
    ("Bob likes tea.", "Ann never flies.", "Bob likes tea and Ann never flies."),
    ("안나는 파리에 살고 차를 좋아한다", "안나는 로마로 이사했다", "안나는 이제 로마에 살고 차를 좋아한다"),
    ("안나는 파리에 살고 작은 배가 있다", "안나는 로마에 산다", "안나는 로마에 산다. 안나는 작은 배가 있다."),
    ("회의는 오전 10시에 시작한다", "회의는 오후 2시에 시작한다", "회의는 오후 2시에 시작합니다"),
    ("他住在巴黎，喜欢喝茶", "他住在罗马", "他住在罗马，喜欢喝茶"),
    ("端口是8080", "端口是9090", "端口是9090"),
    ("彼はパリに住んでいる", "彼はローマに住んでいる", "彼はローマに住んでいる"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "merged"), UPDATES)
def test_a_true_update_is_written(open_memory: OpenMemory, old: str, new: str, merged: str) -> None:
    """A new value for the same thing, an opposite, or both texts in one: one record, with history."""
    memory = open_memory(llm=by_text({new: plan(("old", "update", merged))}), embedder=Alike())
    memory.remember(old, record_id="old", **COMPLETE)
    assert memory.remember(new, **COMPLETE).id == "old"
    assert texts(memory) == {merged}
    assert [version.content for version in memory.history("old")] == [old, merged]


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


def test_one_fact_in_many_forms_saved_in_parallel_is_one_record(open_memory: OpenMemory) -> None:
    """Probe 26: from tasks and batches through two memories, judged by a model each time."""

    def same(request: LLMRequest) -> dict[str, Any]:
        ids = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", request.prompt)
        return plan(*((name, "keep") for name in ids))

    llm = ScriptedLLM({"consolidation": same}, delay=0.005)
    memories = [open_memory(llm=llm, embedder=Alike()) for _ in range(2)]
    said = ["the engine runs well", "The engine runs well.", "engine is running well",
            "this engine runs really well", "THE ENGINE RUNS WELL", "the engine, it runs well!"]  # fmt: skip

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
