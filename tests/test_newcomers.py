"""What newcomers and checkers of the first release ran into, each as a behaviour."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Flow, Memory, Recall, event_bus, reindex
from mnemotrace.errors import (
    ConfigurationError,
    InvalidInputError,
    MnemotraceError,
    RecordError,
    SaveError,
    ScopeError,
    ScopePermissionError,
    StoreError,
    StoreNotWritableError,
)
from mnemotrace.events import MemoryEvent, MemoryQueryStartedEvent
from mnemotrace.testing import FakeEmbedder


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as opened:
        yield opened


def test_a_text_that_becomes_private_is_private_in_history_and_as_of_too(memory: Memory) -> None:
    record = memory.remember("Alice earns ninety thousand.", source="alice")
    before = datetime.now(UTC)
    memory.update(record.id, private=True, source="alice")
    assert memory.history(record.id) == []
    assert memory.history(record.id, source="bob") == []
    assert memory.recall("Alice earns", as_of=before) == []
    assert [v.version for v in memory.history(record.id, source="alice")] == [1, 2]
    assert memory.forget(record_ids=[record.id]) == 0


def test_a_text_that_becomes_public_is_forgotten_whole(memory: Memory) -> None:
    record = memory.remember("The code is 1234.", source="bob", private=True)
    memory.update(record.id, private=False, source="bob")
    assert memory.forget(record_ids=[record.id]).versions == 2
    assert memory.history(record.id, include_private=True) == []


def test_forgetting_a_source_leaves_what_others_said_too(memory: Memory) -> None:
    memory.remember("Tea is at four.", scope="/t", source="carol")
    memory.remember("Tea is at four.", scope="/t", source="dave")
    memory.remember("Coffee is at ten.", scope="/t")
    memory.remember("Coffee is at ten.", scope="/t", source="dave")
    memory.remember("Dave is late.", scope="/t", source="dave")
    assert memory.forget(source="dave") == 1
    left = {r.content: (r.source, r.sources) for r in memory.list_records()}
    assert left == {
        "Tea is at four.": ("carol", ["carol"]),
        "Coffee is at ten.": (None, []),
    }


def test_texts_of_a_batch_that_differ_in_any_word_are_both_kept() -> None:
    def alike(texts: list[str]) -> list[list[float]]:
        return [[1.0, 1.0] for _ in texts]

    pairs = ["three people", "four people", "kim pays", "lee pays", "ten grams", "ten pounds"]
    with Memory(llm=None, storage=":memory:", embedder=alike) as memory:
        assert len(memory.remember_many(pairs).wait()) == 6
        assert memory.info().record_count == 6


def test_a_recall_says_that_accepted_texts_wait_to_be_tried_again() -> None:
    embedder = FakeEmbedder(fail=True)
    with Memory(llm=None, storage=":memory:", embedder=embedder) as memory:
        receipt = memory.remember_many(["The ferry leaves at six."])
        with pytest.raises(SaveError):
            receipt.wait(10)
        embedder.fail = False
        found = memory.recall("ferry")
        assert found == []
        assert found.status == "partial"
        assert "tried again" in found.errors[0]
    assert receipt.done  # closing tries once more


def test_queued_saves_are_forgotten_by_metadata_and_by_age_as_well(tmp_path: Path) -> None:
    embedder = FakeEmbedder(fail=True)
    with Memory(llm=None, storage=tmp_path, embedder=embedder, save_attempts=1) as memory:
        memory.remember_many(
            [
                {"content": "one", "metadata": {"user": "u1"}},
                {"content": "two", "created_at": "2020-01-01"},
                {"content": "three", "metadata": {"user": "u2"}},
            ]
        )
        memory.drain_writes()
        memory.forget(metadata_filter={"user": "u1"})
        memory.forget(older_than="2021-01-01")
        assert [text for letter in memory.dead_letters() for text in letter.texts] == ["three"]


def test_a_reset_store_opens_again_empty(tmp_path: Path) -> None:
    with Memory(llm=None, storage=tmp_path, embedder=FakeEmbedder()) as memory:
        memory.remember("gone")
        memory.reset()
    with Memory(llm=None, storage=tmp_path, embedder=FakeEmbedder(dimension=8)) as memory:
        assert memory.list_records() == []
        memory.remember("here")
        assert memory.info().record_count == 1


def test_a_resumed_reindex_does_not_bring_back_what_was_forgotten_or_changed(
    tmp_path: Path,
) -> None:
    old, new = FakeEmbedder(dimension=16), FakeEmbedder(dimension=24)
    with Memory(llm=None, storage=tmp_path, embedder=old) as memory:
        ids = memory.remember_many([f"fact number {n}" for n in range(40)]).record_ids
        memory.drain_writes()
        new.fail_times = 0
        calls = 0

        def half_way(texts: list[str]) -> list[list[float]]:
            nonlocal calls
            calls += 1
            if calls > 3:  # the first measures the embedder
                raise ConnectionError("stopped in the middle")
            return [list(map(float, vector)) for vector in new.embed(texts)]

        with pytest.raises(Exception, match="stopped in the middle"):
            memory.reindex(half_way, batch_size=10)
        memory.forget(record_ids=ids[:5])
        memory.update(ids[6], content="fact number six, corrected")
    reindex(tmp_path, new, batch_size=10)
    with Memory(llm=None, storage=tmp_path, embedder=new) as memory:
        assert memory.info().record_count == 35
        assert all(memory.get(record_id) is None for record_id in ids[:5])
        changed = memory.get(ids[6])
        assert changed is not None
        assert changed.content == "fact number six, corrected"
        assert [v.version for v in memory.history(ids[6])] == [1, 2]


def test_a_handler_that_exits_does_not_hang_the_caller(memory: Memory) -> None:
    @event_bus.on(MemoryQueryStartedEvent)
    def leave(source: object, event: MemoryEvent) -> None:
        raise SystemExit(1)

    try:
        began = time.monotonic()
        assert memory.recall("anything") == []
        assert time.monotonic() - began < 20
    finally:
        event_bus.off(leave)


def test_a_flow_refuses_what_is_not_a_memory() -> None:
    with pytest.raises(ConfigurationError, match="is not a memory"):
        Flow(memory=3)  # type: ignore[arg-type]


def test_a_slice_lists_its_own_subtrees_at_the_top(memory: Memory) -> None:
    memory.remember("a", scope="/t/a")
    memory.remember("b", scope="/t/b/c")
    view = memory.slice(["/t/a", "/t/b"])
    assert view.list_scopes() == ["/t/a", "/t/b"]
    assert view.list_scopes("/t/b") == ["/t/b/c"]
    assert memory.slice(["/t/a", "/empty"]).list_scopes() == ["/t/a"]


@pytest.mark.parametrize("query", [None, 5, ["tea"], b"tea"])
def test_a_query_of_another_type_is_told_apart_from_an_empty_one(query: Any) -> None:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as memory:
        with pytest.raises(InvalidInputError, match=re.escape(f"must be a string, not {query!r}.")):
            memory.recall(query)
        with pytest.raises(InvalidInputError, match="empty"):
            memory.recall(" ")


@pytest.mark.parametrize("storage", ["localhost:6333", "qdrant.example.org:443", "10.0.0.7:6333/"])
def test_a_host_and_port_are_not_taken_for_a_folder(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"'http://{storage}'"):
        Memory(llm=None, storage=storage, embedder=FakeEmbedder())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["notes:2", "C:memory", "a:b:6333", "my notes:6333"])
def test_other_names_with_a_colon_are_folders(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory(llm=None, storage=name, embedder=FakeEmbedder()) as memory:
        memory.remember("tea", scope="/", categories=["c"], importance=0.5)
    assert (tmp_path / name).is_dir()


@pytest.mark.parametrize("budget", ["x", 1.5, True, 0, -5])
def test_a_token_budget_must_be_a_whole_number_of_at_least_1(budget: Any) -> None:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as memory:
        memory.remember("tea", scope="/", categories=["c"], importance=0.5)
        found = memory.recall("tea")
        with pytest.raises(InvalidInputError, match="budget_tokens"):
            found.format(budget_tokens=budget)
        with pytest.raises(InvalidInputError, match="budget_tokens"):
            memory.retrieve_for("tea", budget_tokens=budget)


def test_a_folder_removed_while_it_is_open_is_told_before_anything_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = Memory(llm=None, storage=folder, embedder=FakeEmbedder())
    memory.remember("tea", scope="/", categories=["c"], importance=0.5)
    shutil.rmtree(folder)
    with pytest.raises(StoreNotWritableError, match="was removed or replaced while it was open"):
        memory.remember("rice", scope="/", categories=["c"], importance=0.5)
    with contextlib.suppress(StoreError):
        memory.close()


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("  ", RecordError),
        ({"content": "x", "importance": 7}, RecordError),
        ({"content": "x", "scope": "/a/../b"}, ScopeError),
        ({"content": "x", "created_at": "soon"}, InvalidInputError),
        (5, RecordError),
    ],
)
def test_a_bad_text_of_a_batch_is_named_and_nothing_is_accepted(
    memory: Memory, bad: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"^Item 3 of remember_many: "):
        memory.remember_many(["tea", "rice", bad, "salt"])
    assert memory.info("/").record_count == 0


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"content": "x", "categry": "c"}, "unknown key 'categry'. Did you mean 'categories'?"),
        ({"content": "x", "user_id": "ana"}, "unknown key 'user_id'. Memories of different users"),
        ({"content": "x", "role": "user"}, "unknown key 'role'. Known keys: categories, content,"),
        ({"text": "x"}, "unknown key 'text'. Here that is 'content'."),
        ({"content": "x", 5: "y"}, "has the key 5. Keys are names"),
        ({"scope": "/a"}, "has no 'content'"),
    ],
)
def test_a_wrong_key_of_a_batch_is_named_with_its_item(
    memory: Memory, item: dict[Any, Any], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Item 2 of remember_many has ") as caught:
        memory.remember_many(["tea", item])
    assert told in str(caught.value)
    assert str(caught.value).endswith("Nothing was stored.")
    assert memory.info("/").record_count == 0


@pytest.mark.parametrize("method", ["forget", "reset"])
def test_an_id_where_a_scope_belongs_is_refused(memory: Memory, method: str) -> None:
    record = memory.remember("tea", scope="/a")
    mine = memory.remember("rice", scope="/a", record_id="mine")
    kept = [
        memory.remember("salt", scope=f"/{record.id}x"),
        memory.remember("oil", scope="/a", record_id="secret", source="ana", private=True),
    ]
    call = getattr(memory, method)
    for wrong in (record.id, f" {record.id} ", str(uuid.uuid4()), mine.id):
        with pytest.raises(InvalidInputError, match=r"the id of a record\. Nothing was") as told:
            call(wrong)
        assert f"forget(record_ids=[{wrong!r}])" in str(told.value)
    with pytest.raises(InvalidInputError, match="is the id of a record"):
        getattr(memory.scope("/a"), method)(mine.id)
    assert call("nothing") == call(f"/{record.id}") == 0
    if method == "forget":
        assert call("secret") == 0  # nobody is told of a record that is hidden
        assert call(kept[0].scope[1:], categories=["none"]) == 0  # there is such a scope
    assert call(kept[0].scope[1:]) == 1
    assert memory.forget(record_ids=[record.id]) == 1


def test_a_text_of_a_batch_outside_of_the_view_is_named(memory: Memory) -> None:
    memory.remember("tea", scope="/a")
    with pytest.raises(ScopePermissionError, match=r"^Item 2 of remember_many: "):
        memory.slice(["/a"], read_only=False).remember_many(
            [{"content": "x", "scope": "/a"}, {"content": "y", "scope": "/b"}]
        )


@pytest.mark.parametrize(
    "storage", ["http://127.0.0.1:99999", "http://[::bad", "a\0b", "a\ud800", "http://h:port"]
)
def test_a_storage_that_cannot_be_one_is_told(storage: str) -> None:
    with pytest.raises(ConfigurationError, match="storage="):
        Memory(llm=None, storage=storage, embedder=FakeEmbedder())


def test_what_a_recall_shows_of_itself_is_short() -> None:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as memory:
        assert repr(memory.recall("tea")) == "<Recall of 0 matches, confidence 0.00>"
        for n in range(7):
            memory.remember(f"tea {n}\n" + "leaf " * 5000, scope="/kitchen")
        found = memory.recall("tea leaf")
        shown = repr(found)
        assert shown.startswith(f"<Recall of 7 matches, confidence {found.confidence:.2f}\n")
        assert shown.endswith("\n  … and 2 more>")
        assert len(shown.splitlines()) == 7 and len(shown) < 1000
        assert repr(found[0]).startswith(f"<MemoryMatch [{found[0].score:.2f}] 'tea ")
        assert repr(found[0]).endswith("…' (/kitchen)>") and "\n" not in repr(found[0])
        assert "1 part of the search failed" in repr(Recall(errors=["the engine failed"]))


def _forgotten(memory: Memory) -> None:
    memory.forget(record_ids=["k"], erase=False)


def _changed(memory: Memory) -> None:
    memory.update("k", content="another text")


@pytest.mark.parametrize("what", [_forgotten, _changed])
def test_an_id_whose_record_has_moved_on_is_refused_and_no_text_is_dropped(
    memory: Memory, what: Callable[[Memory], None]
) -> None:
    first = memory.remember("x y", record_id="k")
    assert memory.remember("x y", record_id="k") == first
    what(memory)
    history = memory.history("k")
    with pytest.raises(RecordError, match="is taken"):
        memory.remember("x y", record_id="k")
    receipt = memory.remember_many([{"content": "x y", "record_id": "k"}])
    assert receipt is not None
    with pytest.raises(SaveError, match="is taken"):
        receipt.wait()
    assert memory.history("k") == history
    memory.forget(record_ids=["k"])
    assert memory.remember("x y", record_id="k").version == 1


def test_the_id_of_an_expired_record_is_refused_too(memory: Memory) -> None:
    over: dict[str, Any] = {
        "record_id": "e",
        "valid_from": "2019-01-01",
        "expires_at": "2020-01-01",
    }
    memory.remember("e f", **over)
    assert memory.remember("e f", **over).id == "e"  # the same save, said again
    with pytest.raises(RecordError, match="is taken"):
        memory.remember("e f", record_id="e")


def test_a_taken_id_says_the_same_of_what_may_be_seen_and_what_may_not(memory: Memory) -> None:
    memory.remember("seen", record_id="a")
    memory.remember("unseen", record_id="b", source="bob", private=True)
    told = []
    for name in ("a", "b"):
        with pytest.raises(RecordError) as caught:
            memory.remember("other", record_id=name)
        told.append(str(caught.value).replace(repr(name), "ID"))
    assert told[0] == told[1]


def test_history_is_in_order_when_a_future_record_became_current_early(memory: Memory) -> None:
    first = memory.remember("Office is in Busan.", valid_from="2030-01-01")
    memory.remember("Office is in Busan.")
    assert [record.version for record in memory.history(first.id)] == [1, 2]


def test_turns_that_were_saved_together_are_listed_in_their_order(memory: Memory) -> None:
    texts = [f"Ana: line {number}" for number in range(12)]
    memory.remember_many(texts, session="mon", scope="/s")
    memory.drain_writes()
    listed = [record.content for record in memory.list_records("/s")]
    assert listed == texts[::-1]
    pages = [memory.list_records("/s", limit=5, offset=start) for start in (0, 5, 10)]
    assert [record.content for page in pages for record in page] == texts[::-1]


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ({"valid_from": "2030-01-01"}, r"not after valid_from.*Swap them\?"),
        ({"created_at": "2029-01-01"}, "not after the present"),
        ({"created_at": "2020-02-01"}, "not after created_at"),
        ({}, "not after the present"),
    ],
)
def test_a_text_that_ends_before_it_begins_is_refused(
    memory: Memory, begins: dict[str, Any], said: str
) -> None:
    ends = "2029-01-01" if "valid_from" in begins else "2020-01-01"
    with pytest.raises(InvalidInputError, match=said):
        memory.remember("x", expires_at=ends, **begins)
    with pytest.raises(InvalidInputError, match=said):
        memory.remember_many(["x"], expires_at=ends, **begins)
    assert memory.info().record_count == 0


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed")
@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_a_folder_that_went_away_is_told_once_by_whatever_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, depth: Any
) -> None:
    folder = tmp_path / "memory"

    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "was removed while" in r.getMessage()]

    memory = Memory(llm=None, storage=folder, embedder=FakeEmbedder())
    assert memory.recall("tea", depth=depth) == []  # nothing is there yet, and nothing is gone
    memory.remember("tea", scope="/a")
    assert memory.recall("tea", depth=depth)
    assert told() == []
    shutil.rmtree(folder)
    for read in (lambda: memory.recall("tea", depth=depth), memory.list_records, memory.tree):
        with contextlib.suppress(MnemotraceError):
            read()
    (line,) = told()
    assert str(folder) in line and "backup" in line
    with contextlib.suppress(StoreError):
        memory.close()


def test_a_record_cannot_be_changed_to_have_expired(memory: Memory) -> None:
    record = memory.remember("x")
    with pytest.raises(InvalidInputError, match=r"is past.*erase=False"):
        memory.update(record.id, expires_at="2020-01-01")
    assert memory.get(record.id) == record


@pytest.mark.parametrize("value", [30, 0, 1.5, True, [], timedelta(days=30)])
def test_what_is_no_time_is_told_with_all_that_is_one(memory: Memory, value: Any) -> None:
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("created_at", lambda: memory.remember("x", created_at=value)),
        ("since", lambda: memory.recall("x", since=value)),
        ("as_of", lambda: memory.list_records(as_of=value)),
    ]
    if not isinstance(value, timedelta):
        calls.append(("older_than", lambda: memory.forget(older_than=value)))
    for name, call in calls:
        with pytest.raises(InvalidInputError, match=rf"{name} must be a time.*ISO 8601 text"):
            call()


@pytest.mark.parametrize("value", ["0001-01-01T00:00+10:00", "9999-12-31T23:59-10:00"])
def test_a_time_that_has_no_year_in_utc_is_refused(memory: Memory, value: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: memory.remember("x", created_at=value),
        lambda: memory.remember_many(
            [{"content": "x", "created_at": datetime.fromisoformat(value)}]
        ),
        lambda: memory.recall("x", since=value),
        lambda: memory.list_records(until=value),
        lambda: memory.forget(older_than=value),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="years 1 to 9999 in UTC"):
            call()
    assert memory.list_records() == []
    memory.remember("y")
    for bound in (value, datetime.fromisoformat(value)):
        with pytest.raises(InvalidInputError, match=r"metadata range 'due'.*a time"):
            memory.recall("x", metadata_filter={"due": {"gte": bound}})


def test_records_are_forgotten_by_their_age(memory: Memory) -> None:
    now = datetime.now(UTC)
    for days in (10, 40):
        memory.remember(f"{days} days old", created_at=now - timedelta(days=days))
    assert memory.forget(older_than=timedelta.max) == 0
    with pytest.raises(InvalidInputError, match="below 0"):
        memory.forget(older_than=timedelta(days=-1))
    assert memory.forget(older_than=timedelta(days=30)) == 1
    assert [record.content for record in memory.list_records()] == ["10 days old"]


def test_a_window_that_ends_before_it_begins_is_refused(memory: Memory, tmp_path: Path) -> None:
    window: dict[str, Any] = {"since": "2026-02-01", "until": "2026-01-01"}
    calls: list[Callable[[], Any]] = [
        lambda: memory.recall("x", **window),
        lambda: memory.recall("x", depth="shallow", **window),
        lambda: memory.list_records(**window),
        lambda: memory.explain("x", "id", **window),
        lambda: memory.export_records(tmp_path / "out.jsonl", **window),
    ]
    for use in calls:
        with pytest.raises(
            InvalidInputError, match=r"since=2026-02-01.* is after until=2026-01-01"
        ):
            use()
    assert not (tmp_path / "out.jsonl").exists()
