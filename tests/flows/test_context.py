"""Turns of a conversation are found by the words around them, and lend nothing they may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory
from mnemotrace.embedders.lexical import encode_document
from mnemotrace.errors import LLMError
from mnemotrace.flows import context, encoding
from mnemotrace.reindexing import reindex
from mnemotrace.stores.backend import SparseVector
from mnemotrace.stores.points import point_id
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

TALK = [
    "Ana: Where did you grow up?",
    "Ben: In Oslo, by the harbour.",
    "Ana: Did you sail there?",
    "Ben: Every summer.",
    "Ana: I never learned it.",
    "Ben: You should try.",
    "Ana: Perhaps next year.",
    "Ben: The club has courses.",
]


def vector_of(memory: Memory, record: Any) -> SparseVector | None:
    """Return the lexical vector as it is stored."""
    store: Any = memory.store
    collection = store._generation().collection
    rows = collection.retrieve([point_id(record.id, record.version)], vectors=True)
    return rows[0].lexical if rows else None


def same(stored: SparseVector | None, wanted: SparseVector) -> bool:
    """Compare vectors; the engine keeps weights in 32 bits."""
    if stored is None or stored.indices != wanted.indices:
        return False
    return stored.values == pytest.approx(wanted.values, abs=1e-5)


def among(texts: list[str], row: int) -> SparseVector:
    """Return the vector a text has among its neighbours."""
    return encode_document(texts[row], texts[:row][::-1], texts[row + 1 :])


def assert_context(memory: Memory, texts: list[str], **where: Any) -> None:
    """Check the vectors of all turns against those of the conversation as a whole."""
    records = {r.content: r for r in memory.list_records(limit=1000, **where)}
    assert set(texts) <= set(records)
    for row, text in enumerate(texts):
        assert same(vector_of(memory, records[text]), among(texts, row)), text


@pytest.fixture(scope="module")
def store() -> Iterator[Memory]:
    with Memory(storage=":memory:", embedder=FakeEmbedder(), llm=None) as memory:
        yield memory


@pytest.fixture
def memory(store: Memory) -> Memory:
    store.reset("/")
    return store


def test_turns_saved_one_by_one_have_the_context_of_the_whole(memory: Memory) -> None:
    for text in TALK:
        memory.remember(text, "/chat", session="monday")
    assert_context(memory, TALK)


def test_turns_saved_in_batches_have_the_context_of_the_whole(memory: Memory) -> None:
    memory.remember_many(TALK[:3], "/chat", session="monday").wait(10)
    memory.remember(TALK[3], "/chat", session="monday")
    memory.remember_many(TALK[4:], "/chat", session="monday").wait(10)
    assert_context(memory, TALK)


def test_a_batch_of_turns_is_a_conversation_and_a_batch_of_facts_is_not(memory: Memory) -> None:
    memory.remember_many(TALK, "/chat").wait(10)
    assert_context(memory, TALK)
    facts = [f"Order {n} was shipped on a Monday" for n in range(5)]
    memory.remember_many(facts, "/facts").wait(10)
    for record in memory.list_records("/facts"):
        assert same(vector_of(memory, record), encode_document(record.content))


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_an_answer_is_found_by_its_question(memory: Memory, depth: Any) -> None:
    memory.remember_many(TALK, "/chat", session="monday").wait(10)
    memory.remember_many([f"Cleo: about number {n}" for n in range(20)], "/chat").wait(10)
    found = [m.record.content for m in memory.recall("where did Ben grow up", depth=depth)]
    assert "Ben: In Oslo, by the harbour." in found[:2]


def test_sessions_scopes_and_privacies_do_not_lend_to_each_other(memory: Memory) -> None:
    """A vector never holds words of a record that whoever sees its own record may not see."""
    shared: dict[str, Any] = {"session": "monday"}
    memory.remember("Ana: public one", "/chat", **shared)
    memory.remember("Ana: secret one", "/chat", source="ana", private=True, **shared)
    memory.remember("Ben: secret two", "/chat", source="ben", private=True, **shared)
    memory.remember("Ana: elsewhere", "/other", **shared)
    memory.remember("Ana: another day", "/chat", session="tuesday")
    memory.remember("Ben: public two", "/chat", **shared)
    memory.remember("Ana: secret three", "/chat", source="ana", private=True, **shared)
    for texts in (
        ["Ana: public one", "Ben: public two"],
        ["Ana: secret one", "Ana: secret three"],
        ["Ben: secret two"],
        ["Ana: elsewhere"],
        ["Ana: another day"],
    ):
        assert_context(memory, texts, include_private=True)


def test_what_is_forgotten_leaves_no_word_in_its_neighbours(memory: Memory) -> None:
    """Probe 30: not even as a hashed term."""
    memory.remember_many(TALK, "/chat", session="monday").wait(10)
    ids = {r.content: r.id for r in memory.list_records(limit=100)}
    memory.forget(record_ids=[ids[TALK[1]], ids[TALK[2]]])
    assert_context(memory, [TALK[0], *TALK[3:]])
    memory.forget(record_ids=[ids[TALK[5]]], erase=False)
    assert_context(memory, [TALK[0], *TALK[3:5], *TALK[6:]])


def test_forgetting_a_part_by_time_source_or_label_does_the_same(memory: Memory) -> None:
    for n, text in enumerate(TALK):
        memory.remember(text, "/chat", ["even" if n % 2 == 0 else "odd"], session="monday")
    memory.forget(categories=["odd"])
    assert_context(memory, TALK[::2])


def test_a_changed_text_changes_what_it_lends(memory: Memory) -> None:
    memory.remember_many(TALK, "/chat", session="monday").wait(10)
    ids = {r.content: r.id for r in memory.list_records(limit=100)}
    memory.update(ids[TALK[3]], content="Ben: Only in winter, on skates.")
    assert_context(memory, [*TALK[:3], "Ben: Only in winter, on skates.", *TALK[4:]])
    memory.update(ids[TALK[0]], importance=0.9)
    assert_context(memory, [*TALK[:3], "Ben: Only in winter, on skates.", *TALK[4:]])


def test_a_turn_that_moves_away_takes_its_words_along(memory: Memory) -> None:
    memory.remember_many(TALK, "/chat", session="monday").wait(10)
    ids = {r.content: r.id for r in memory.list_records(limit=100)}
    memory.update(ids[TALK[2]], scope="/elsewhere")
    memory.update(ids[TALK[5]], private=True, source="ben")
    assert_context(memory, [TALK[0], TALK[1], TALK[3], TALK[4], *TALK[6:]])
    assert_context(memory, [TALK[2]])
    assert_context(memory, [TALK[5]], include_private=True)


def test_a_reindexed_store_has_the_same_context(tmp_path: Path) -> None:
    with Memory(storage=tmp_path, embedder=FakeEmbedder(dimension=8), llm=None) as memory:
        memory.remember_many(TALK, "/chat", session="monday").wait(10)
        memory.update(memory.list_records()[0].id, importance=0.1)
    other = FakeEmbedder(dimension=16)
    assert reindex(tmp_path, other) == len(TALK) + 1
    with Memory(storage=tmp_path, embedder=other, llm=None) as again:
        assert_context(again, TALK)


def test_the_order_is_that_of_saving_whatever_the_times_say(memory: Memory) -> None:
    for n, text in enumerate(TALK):
        memory.remember(
            text, "/chat", session="monday", created_at=f"2026-01-{28 - 2 * n:02}T00:00:00Z"
        )
    assert_context(memory, TALK)


def test_only_turns_and_named_sessions_take_part(memory: Memory) -> None:
    record = memory.remember("Ana: alone", "/chat")
    assert context.conversation_of(record) is None
    named = memory.remember("no label", "/chat", session="monday")
    assert context.conversation_of(named) is not None
    for wrong in ("", "  ", 7):
        with pytest.raises(ValueError, match="session"):
            memory.remember("x", "/chat", session=wrong)  # type: ignore[arg-type]


def test_the_context_can_be_switched_off(tmp_path: Path) -> None:
    """Whatever writes: saving, updating, analysing later, forgetting, erasing, re-embedding."""
    down = ScriptedLLM({"save_analysis": LLMError("down")})
    settings: dict[str, Any] = {"conversation_context": False, "consolidation_threshold": 1.0}

    def assert_alone(memory: Memory) -> None:
        for record in memory.list_records(limit=100):
            assert same(vector_of(memory, record), encode_document(record.content))

    with Memory(down, tmp_path, FakeEmbedder(dimension=8), **settings) as memory:
        ids = [r.id for r in memory.remember_many(TALK, "/chat", session="monday").wait(10)]
        assert_alone(memory)
        memory.update(ids[0], importance=0.9)
        memory.update(ids[1], content="Ben: Something else entirely.")
        assert_alone(memory)
        memory.forget(record_ids=[ids[2]], erase=False)
        assert_alone(memory)
        memory.forget(record_ids=[ids[3]])
        assert_alone(memory)
    answer = {"save_analysis": {"scope": "/x", "categories": ["talk"], "importance": 0.4}}
    with Memory(ScriptedLLM(answer), tmp_path, FakeEmbedder(dimension=8), **settings) as memory:
        assert memory.reanalyze() > 0
        assert_alone(memory)
        memory.reindex(FakeEmbedder(dimension=12))
        assert_alone(memory)
    reindex(tmp_path, FakeEmbedder(dimension=16), conversation_context=False)
    with Memory(None, tmp_path, FakeEmbedder(dimension=16), **settings) as memory:
        assert_alone(memory)


def test_an_erased_turn_takes_its_words_along_after_the_context_was_switched_off(
    tmp_path: Path,
) -> None:
    embedder = FakeEmbedder(dimension=8)
    with Memory(None, tmp_path, embedder) as memory:
        ids = [r.id for r in memory.remember_many(TALK, "/chat", session="monday").wait(10)]
        assert_context(memory, TALK)
    with Memory(None, tmp_path, embedder, conversation_context=False) as memory:
        memory.forget(record_ids=[ids[2]])
        for place in (0, 1, 3, 4, 5):  # all that had its words
            record = memory.get(ids[place])
            assert record is not None
            assert same(vector_of(memory, record), encode_document(TALK[place]))


def test_the_words_of_a_turn_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among its neighbours, when it is written; other texts once, too."""
    counted: list[str] = []

    def count(text: str, *among: Any) -> Any:
        counted.append(text)
        return encode_document(text, *among)

    for module in (context, encoding):
        monkeypatch.setattr(module, "encode_document", count)
    llm = ScriptedLLM({"save_analysis": {"scope": "/s", "importance": 0.4}})
    with Memory(storage=":memory:", embedder=FakeEmbedder(), llm=llm) as memory:
        memory.remember_many(TALK, session="monday").wait(10)
        memory.remember_many(["one fact", "another thing"]).wait(10)
    assert sorted(counted) == sorted([*TALK, "one fact", "another thing"])


def test_an_update_looks_the_old_version_up_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = memory.remember("Ana: Do you ski?", "/chat", session="monday")
    asked: list[Any] = []
    get = memory.store.get

    def counting(*args: Any) -> Any:
        asked.append(args)
        return get(*args)

    monkeypatch.setattr(memory.store, "get", counting)
    memory.update(record.id, content="Ana: Do you skate?")
    assert len(asked) == 1


def test_a_turn_that_is_said_again_in_another_conversation_is_a_turn_of_its_own(
    memory: Memory,
) -> None:
    """The same short answer belongs to two questions, and to two days."""
    first = ["Ana: Do you like jazz?", "Ben: Yes, a lot."]
    second = ["Ana: Are you allergic to peanuts?", "Ben: Yes, a lot."]
    one = memory.remember_many(first, "/c", session="s1", created_at="2025-01-01").wait(10)
    two = memory.remember_many(second, "/c", session="s2", created_at="2025-06-01").wait(10)
    assert one[1].id != two[1].id
    assert [record.session for record in two] == ["s2", "s2"]
    assert same(vector_of(memory, two[1]), among(second, 1))
    again = memory.remember("Ben: Yes, a lot.", "/c", session="s2")
    assert again.id == two[1].id
    both = [{"content": "Ben: Fine.", "session": name} for name in ("s1", "s2")]
    assert len({record.id for record in memory.remember_many(both, "/c").wait(10)}) == 2
