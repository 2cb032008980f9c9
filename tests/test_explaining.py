"""Why a record was or was not returned: verdicts, changes that were tried, and nothing leaked."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory
from mnemotrace.errors import InvalidInputError, LLMError, ScopePermissionError
from mnemotrace.llm.protocol import TransientLLMError
from mnemotrace.recall_explanation import RecallExplanation, Verdict
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
LONG = "Please tell me everything that we know about the tea in the kitchen, " * 4
OpenMemory = Callable[..., Memory]
PRIVATE_TO_ALICE = "the private tea of Alice"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explaining") / "store"


@pytest.fixture(scope="module")
def holder(folder: Path) -> Iterator[Memory]:
    """One store for all tests: making one takes half a second."""
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder()) as memory:
        memory.remember("the first text makes the store")
        yield memory


@pytest.fixture
def open_memory(holder: Memory, folder: Path) -> Iterator[OpenMemory]:
    holder.forget(scope="/", include_private=True)
    opened: list[Memory] = []

    def build(llm: Any = None, **settings: Any) -> Memory:
        embedder = FakeEmbedder()
        opened.append(Memory(llm=llm, storage=folder, embedder=embedder, **settings))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()
    holder.forget(scope="/", include_private=True)


def write_notes(memory: Memory) -> None:
    """Thirty notes in two scopes, one a day."""
    for number in range(30):
        memory.remember(
            f"note {number} on tea {'kettle ' * (number % 3)}",
            scope="/a/x" if number % 2 else "/a/y",
            categories=[f"c{number % 3}"],
            metadata={"room": number % 4},
            record_id=f"n{number}",
            created_at=NOW - timedelta(days=30 - number),
            valid_from=NOW - timedelta(days=30 - number),
        )


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """The notes, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("notes") / "store"
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder()) as memory:
        write_notes(memory)
        yield memory


@pytest.fixture
def memory(open_memory: OpenMemory) -> Memory:
    """The notes, to be added to."""
    memory = open_memory()
    write_notes(memory)
    return memory


def holds(memory: Any, explanation: RecallExplanation, asked: dict[str, Any]) -> None:
    """Make sure that each proposed change of arguments returns the record at the rank it says."""
    for change in explanation.changes:
        if change.settings:
            continue
        found = memory.recall(explanation.query, **{**asked, **change.arguments})
        ids = [match.record.id for match in found]
        assert explanation.record_id in ids, (asked, str(explanation))
        assert ids.index(explanation.record_id) + 1 == change.rank


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_a_returned_record_has_its_rank_and_every_word(notes: Memory, depth: str) -> None:
    asked: dict[str, Any] = {"depth": depth, "now": NOW}
    found = notes.recall("tea kettle", **asked)
    why = notes.explain("tea kettle", found[2].record.id, **asked)
    assert (why.verdict, why.rank, why.returned) == (Verdict.RETURNED, 3, True)
    assert why.changes == () and why.confidence == found.confidence
    assert why.score is not None
    assert why.score["components"] == found[2].explain()["components"]
    words = why.score["terms"]
    assert {"tea", "kettl"} == {word["term"] for word in words}
    total = sum(word["score"] for word in words)
    assert total == pytest.approx(why.score["basis"]["lexical_score"], rel=1e-4)
    assert "rank 3 of 10" in str(why)


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_an_outranked_record_tells_what_it_lacks_and_what_brings_it_back(
    notes: Memory, depth: str
) -> None:
    asked: dict[str, Any] = {"depth": depth, "now": NOW}
    why = notes.explain("tea kettle", "n0", **asked)
    everything = notes.recall("tea kettle", limit=100, **asked)
    rank = [match.record.id for match in everything].index("n0") + 1
    assert (why.verdict, why.rank, why.found) == (Verdict.OUTRANKED, rank, 30)
    facts = why.reasons[0].facts
    assert facts["cut_id"] == everything[9].record.id
    assert facts["short_by"] == pytest.approx(everything[9].score - everything[rank - 1].score)
    assert sum(facts["differences"].values()) == pytest.approx(facts["short_by"], abs=1e-12)
    assert {"limit": rank} in [change.arguments for change in why.changes]
    assert "short by" in str(why)
    holds(notes, why, asked)
    with pytest.raises(AssertionError):  # one less is too few
        smaller = notes.recall("tea kettle", limit=rank - 1, **asked)
        assert "n0" in [match.record.id for match in smaller]


def test_the_least_reduction_of_a_weight_is_found_and_holds(open_memory: OpenMemory) -> None:
    memory = open_memory(lexical_weight=0.0)
    memory.remember("red kettle", record_id="old", created_at=NOW - timedelta(days=300))
    for number in range(5):
        memory.remember(f"red paint {number}", created_at=NOW)
    why = memory.explain("red kettle", "old", limit=2, now=NOW, depth="shallow")
    assert why.verdict is Verdict.OUTRANKED
    (change,) = [change for change in why.changes if change.settings]
    weight = change.settings["recency_weight"]
    assert 0 < weight < memory.config.recency_weight
    for value, returned in ((weight, True), (round(weight + 0.01, 2), False)):
        other = open_memory(lexical_weight=0.0, recency_weight=value)
        found = other.recall("red kettle", limit=2, now=NOW, depth="shallow")
        assert ("old" in [match.record.id for match in found]) is returned
    assert f"Memory(recency_weight={weight:g})" in str(why)


@pytest.mark.parametrize(
    ("asked", "verdicts"),
    [
        ({"scope": "/a/x"}, ["scope"]),
        ({"scope": "/b"}, ["scope"]),
        ({"categories": ["c1"]}, ["category"]),
        ({"categories": []}, ["category"]),
        ({"source": "alice"}, ["source"]),
        ({"metadata_filter": {"room": 3}}, ["metadata"]),
        ({"metadata_filter": {"room": 2, "floor": 1}}, ["metadata"]),
        ({"metadata_filter": {"room": {"gt": 2}}}, ["metadata"]),
        ({"since": NOW - timedelta(days=5)}, ["time"]),
        ({"until": NOW - timedelta(days=29)}, ["time"]),
        ({"as_of": NOW - timedelta(days=29)}, ["not yet valid"]),
        ({"limit": 0}, ["outranked"]),
        ({"scope": "/a/x", "categories": ["c1"], "limit": 1}, ["scope", "category"]),
        (
            {"scope": "/b", "source": "bob", "since": NOW, "metadata_filter": {"room": 0}},
            ["scope", "source", "time", "metadata"],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_every_condition_is_named_and_can_be_undone(
    notes: Memory, asked: dict[str, Any], verdicts: list[str], depth: str
) -> None:
    asked = {**asked, "depth": depth, "now": NOW}
    why = notes.explain("tea kettle", "n2", **asked)
    assert [reason.kind.value for reason in why.reasons] == verdicts
    assert why.changes and all(reason.changes for reason in why.reasons)
    holds(notes, why, asked)
    json.dumps(why.to_json(), allow_nan=False)


def test_superseded_expired_forgotten_and_private_records(memory: Memory) -> None:
    memory.remember("green tea is out", record_id="gone")
    memory.forget(record_ids=["gone"], erase=False)
    memory.remember(
        "tea of the day", record_id="day", valid_from=NOW, expires_at=NOW + timedelta(days=1)
    )
    memory.remember(PRIVATE_TO_ALICE, record_id="hidden-p", source="alice", private=True)
    later: dict[str, Any] = {"limit": 40}
    for record_id, verdict in (("gone", "forgotten"), ("day", "expired"), ("hidden-p", "private")):
        why = memory.explain("tea", record_id, **later)
        assert why.verdict.value == verdict
        assert why.changes
        holds(memory, why, later)
    assert [change.arguments for change in why.changes] == [
        {"include_private": True},
        {"source": "alice"},
    ]


def test_a_record_whose_successor_was_returned_says_so(open_memory: OpenMemory) -> None:
    plan = {"actions": [{"id": "old", "action": "delete"}], "insert_new": True}
    memory = open_memory(ScriptedLLM({"consolidation": plan}), consolidation_threshold=0.2)
    fields: dict[str, Any] = {"scope": "/a", "categories": ["c"], "importance": 0.5}
    memory.remember("Ana works at Alpha", record_id="old", **fields)
    memory.remember("Ana works at Beta", record_id="new", **fields)
    why = memory.explain("Where does Ana work?", "old", depth="shallow")
    assert why.verdict is Verdict.SUPERSEDED
    assert why.reasons[0].facts["superseded_by"] == "new"
    assert why.reasons[0].facts["returned_at_rank"] == 1
    holds(memory, why, {"depth": "shallow"})


def test_a_record_with_the_same_text_as_a_returned_one_is_a_duplicate(memory: Memory) -> None:
    memory.remember("the very tea", scope="/one", record_id="one", importance=0.9)
    memory.remember("the very tea", scope="/two", record_id="two", importance=0.1)
    why = memory.explain("the very tea", "two", limit=1)
    assert [reason.kind for reason in why.reasons] == [Verdict.DUPLICATE, Verdict.OUTRANKED]
    assert why.reasons[0].facts["duplicate_of"] == "one"
    holds(memory, why, {"limit": 1})


def test_a_window_that_the_model_read_into_the_query_is_named(open_memory: OpenMemory) -> None:
    window = {
        "keywords": [], "sub_queries": [], "scopes": [], "complexity": "simple",
        "since": "2026-06-10T00:00:00Z", "until": "2026-06-12T00:00:00Z",
    }  # fmt: skip
    llm = ScriptedLLM({"query_analysis": window})
    memory = open_memory(llm, confidence_threshold_low=0.0)
    fields: dict[str, Any] = {"scope": "/a", "categories": [], "importance": 0.5}
    memory.remember("tea in the kitchen", record_id="in", created_at="2026-06-11", **fields)
    memory.remember("more tea in the kitchen", record_id="out", created_at="2026-06-01", **fields)
    why = memory.explain(LONG, "out", now=NOW)
    assert why.verdict is Verdict.NOT_SEARCHED
    assert "time window" in why.reasons[0].text
    assert {"depth": "shallow"} in [change.arguments for change in why.changes]
    holds(memory, why, {"now": NOW})
    asked = len(llm.requests)
    shallow = memory.explain(LONG, "out", now=NOW, depth="shallow")
    assert shallow.returned and len(llm.requests) == asked


def test_a_window_that_the_model_read_is_an_argument_to_change_beside_another_obstacle(
    open_memory: OpenMemory,
) -> None:
    """Not only depth="shallow", which gives up on the model altogether."""
    window = {"since": "2026-06-10T00:00:00Z", "until": "2026-06-12T00:00:00Z"}
    memory = open_memory(ScriptedLLM({"query_analysis": window}), confidence_threshold_low=0.0)
    fields: dict[str, Any] = {"scope": "/a", "categories": [], "importance": 0.5}
    memory.remember("tea", record_id="in", created_at="2026-06-11", **fields)
    created = datetime(2026, 6, 1, tzinfo=UTC)
    memory.remember("more tea", record_id="out", created_at=created, **fields)
    why = memory.explain(LONG, "out", now=NOW, scope="/b")
    assert why.verdict is Verdict.SCOPE
    assert [change.arguments for change in why.changes] == [
        {"scope": None, "since": created},
        {"scope": None, "depth": "shallow"},
    ]
    holds(memory, why, {"now": NOW, "scope": "/b"})
    asked: dict[str, Any] = {"now": NOW, "scope": "/b", "since": "2026-06-05"}
    why = memory.explain(LONG, "out", **asked)
    assert [change.arguments for change in why.changes] == [
        {"scope": None, "since": created},
        {"scope": "/a", "since": created},
    ]
    holds(memory, why, asked)


def test_scopes_that_the_model_suggested_are_named(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"query_analysis": {"scopes": ["/a"]}})
    memory = open_memory(llm, confidence_threshold_high=0.0, confidence_threshold_low=0.0)
    for scope, record_id in (("/a", "in"), ("/b", "out")):
        memory.remember(
            f"tea in {scope}", scope=scope, categories=[], importance=0.5, record_id=record_id
        )
    why = memory.explain(LONG, "out", now=NOW)
    assert why.verdict is Verdict.NOT_SEARCHED
    assert why.reasons[0].facts["scopes"] == ["/a"]
    assert [c.arguments for c in why.changes] == [{"scope": "/b"}, {"depth": "shallow"}]
    holds(memory, why, {"now": NOW})


def test_a_damaged_row_is_told_from_a_missing_one(memory: Memory) -> None:
    from mnemotrace.stores.points import point_id

    memory.remember("the worst tea", record_id="bad")
    collection = memory.store._open()[0]  # type: ignore[attr-defined]
    collection.set_payload([point_id("bad", 1)], {"content": 5})
    try:
        assert memory.explain("the worst tea", "bad").verdict is Verdict.UNREADABLE
        assert memory.explain("the worst tea", "ba").verdict is Verdict.UNKNOWN
    finally:
        memory.forget(record_ids=["bad"])
        collection.delete([point_id("bad", 1)])


def test_a_deep_inquiry_asks_the_model_no_question_twice(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"query_analysis": {"keywords": ["tea"], "sub_queries": ["kettle"]}})
    memory = open_memory(llm, confidence_threshold_low=0.0)
    for number in range(20):
        memory.remember(f"tea note {number}", scope="/a", categories=[], importance=0.5)
    last = memory.recall(LONG, limit=20, now=NOW)[-1].record.id
    llm.requests.clear()
    why = memory.explain(LONG, last, limit=5, now=NOW)
    assert why.verdict is Verdict.OUTRANKED and why.changes
    assert len(llm.requests) == len(set(map(str, llm.requests)))
    holds(memory, why, {"limit": 5, "now": NOW})


def test_a_model_that_fails_for_a_moment_is_asked_again_as_in_a_recall(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mnemotrace.llm.service.BACKOFF", 0.0)
    analysis = {"keywords": [], "sub_queries": ["a kettle"], "scopes": []}
    llm = ScriptedLLM({"query_analysis": [TransientLLMError("busy"), analysis]})
    memory = open_memory(llm, confidence_threshold_low=0.0)
    for number in range(8):
        memory.remember(f"tea {number}", scope="/a", categories=[], importance=0.5)
    last = memory.remember("a kettle", scope="/a", categories=[], importance=0.0).id
    why = memory.explain(LONG, last, limit=1, now=NOW)
    assert len(llm.requests) == 2  # and none for what was tried afterwards
    assert why.score is not None and "a kettle" in why.score["found_by"]


def test_a_model_that_is_down_is_not_asked_for_every_change(open_memory: OpenMemory) -> None:
    llm = ScriptedLLM({"query_analysis": LLMError("down")})
    memory = open_memory(llm, confidence_threshold_low=0.0)
    for number in range(8):
        memory.remember(f"tea {number}", scope="/a", categories=[], importance=0.5)
    last = memory.recall(LONG, now=NOW)[-1].record.id
    llm.requests.clear()
    why = memory.explain(LONG, last, limit=1, now=NOW)
    assert why.verdict is Verdict.OUTRANKED and why.changes
    assert len(llm.requests) == 1


def test_what_waits_to_be_saved_is_pending(open_memory: OpenMemory, holder: Memory) -> None:
    memory = open_memory(save_attempts=1)
    embedder = memory._core.services.embedder.embedder
    embedder.fail = True
    receipt = memory.remember_many([{"content": "tea for two", "record_id": "due"}], scope="/a/b")
    memory.drain_writes()
    embedder.fail = False
    try:
        why = memory.explain("tea", "due")
        assert why.verdict is Verdict.PENDING
        assert why.reasons[0].facts["state"] == "dead letter"
        assert "embedder down" in why.reasons[0].text and why.changes == ()
        assert memory.scope("/a").explain("tea", "due").verdict is Verdict.PENDING
        assert memory.scope("/b").explain("tea", "due").verdict is Verdict.UNKNOWN
    finally:
        memory.retry_dead_letters()
        memory.drain_writes()
    assert list(receipt.record_ids) == ["due"]
    assert memory.explain("tea", "due").returned


def test_a_recall_that_did_not_wait_is_told_to_wait(memory: Memory) -> None:
    embedder = memory._core.services.embedder.embedder
    embed, gate = embedder.embed, threading.Event()

    def gated(texts: list[str]) -> Any:
        if texts == ["tea for two"]:
            assert gate.wait(30)
        return embed(texts)

    memory._core.services.embedder._documents.function = gated
    memory.remember_many([{"content": "tea for two", "record_id": "due"}])
    threading.Timer(0.3, gate.set).start()
    why = memory.explain("two teas", "due", wait_for_writes=False, depth="shallow", limit=40)
    assert why.verdict is Verdict.PENDING and why.reasons[0].facts["state"] == "waiting"
    assert [change.arguments for change in why.changes] == [{"wait_for_writes": True}]
    holds(memory, why, {"depth": "shallow", "limit": 40})


# What may not be told.


def without_id(explanation: RecallExplanation) -> str:
    text = json.dumps(explanation.to_json()) + str(explanation) + explanation._repr_html_()
    return text.replace(explanation.record_id, "ID")


@pytest.fixture
def secretive(memory: Memory) -> Memory:
    memory.remember(
        PRIVATE_TO_ALICE, record_id="hidden-p", scope="/a/x", source="alice", private=True
    )
    memory.remember("ordinary tea", record_id="moved", scope="/b")
    memory.remember("other tea", record_id="hidden-there", scope="/b")
    memory.remember_many([{"content": "tea", "record_id": "hidden-sent", "scope": "/b"}]).wait()
    return memory


@pytest.mark.parametrize("depth", ["shallow", "deep"])
@pytest.mark.parametrize("hidden", ["hidden-p", "hidden-there", "hidden-sent"])
@pytest.mark.parametrize("kind", ["scope", "slice"])
def test_a_view_cannot_tell_a_hidden_record_from_one_that_does_not_exist(
    secretive: Memory, kind: str, hidden: str, depth: str
) -> None:
    view: Any = secretive.scope("/a") if kind == "scope" else secretive.slice(["/a/x", "/a/y"])
    for asked in ({}, {"limit": 0}, {"source": "bob"}, {"scope": "/a/x"}, {"as_of": NOW}):
        real = view.explain("tea", hidden, depth=depth, now=NOW, **asked)
        made_up = view.explain("tea", "no-such-id", depth=depth, now=NOW, **asked)
        assert real.verdict is Verdict.UNKNOWN
        assert without_id(real) == without_id(made_up)


def test_who_asks_as_a_source_is_not_told_of_private_memories_of_others(secretive: Memory) -> None:
    for asked in ({"source": "bob"}, {"source": "bob", "categories": ["c1"]}):
        real = secretive.explain("tea", "hidden-p", now=NOW, **asked)
        made_up = secretive.explain("tea", "no-such-id", now=NOW, **asked)
        assert without_id(real) == without_id(made_up)
    assert secretive.explain("tea", "hidden-p").verdict is Verdict.PRIVATE
    assert secretive.explain("private tea of Alice", "hidden-p", source="alice").returned
    assert secretive.explain("private tea of Alice", "hidden-p", include_private=True).returned
    view = secretive.scope("/a/x")
    assert view.explain("private tea of Alice", "hidden-p", source="alice").returned
    assert view.explain("tea", "hidden-p").verdict is Verdict.UNKNOWN


def test_nothing_of_a_record_that_left_the_view_is_told(secretive: Memory) -> None:
    view = secretive.scope("/b")
    assert view.explain("tea", "moved").returned
    secretive.update("moved", "a new text about tea", scope="/elsewhere")
    told = without_id(view.explain("tea", "moved"))
    assert "elsewhere" not in told and "new text" not in told
    assert view.explain("tea", "moved").verdict is Verdict.SUPERSEDED


def test_a_successor_that_may_not_be_seen_is_not_named(secretive: Memory) -> None:
    store = secretive.store
    from mnemotrace.stores.backend import Retirement, WriteBatch

    heir = Retirement("hidden-there", 1, NOW, "superseded", "hidden-p")
    assert store.commit(WriteBatch(retire=[heir]))
    why = secretive.scope("/b").explain("tea", "hidden-there")
    assert why.verdict is Verdict.SUPERSEDED
    assert "superseded_by" not in why.reasons[0].facts and "hidden-p" not in str(why)
    assert secretive.explain("tea", "hidden-there").reasons[0].facts["superseded_by"] == "hidden-p"


def test_changes_never_reach_beyond_the_view(notes: Memory) -> None:
    view = notes.scope("/a")
    asked: dict[str, Any] = {"scope": "x", "now": NOW}
    why = view.explain("tea kettle", "n2", **asked)
    assert why.verdict is Verdict.SCOPE and why.changes
    assert {"scope": None, "limit": why.changes[-1].rank} in [c.arguments for c in why.changes]
    holds(view, why, asked)
    with pytest.raises(ScopePermissionError):
        notes.slice(["/a/x"]).explain("tea", "n2", scope="/b")


# Everything else.


def test_an_inquiry_writes_nothing_and_tells_no_listener(notes: Memory) -> None:
    before, accesses = notes.store.sequence(), notes._core._accesses.pending
    with RecordingListener() as heard:
        notes.explain("tea", "n3")
        notes.explain("tea", "nobody")
    assert (notes.store.sequence(), notes._core._accesses.pending) == (before, accesses)
    assert heard.events == []


def test_the_async_twin_gives_the_same(notes: Memory) -> None:
    blocking = notes.explain("tea kettle", "n0", now=NOW)
    awaited = asyncio.run(notes.aexplain("tea kettle", "n0", now=NOW))
    assert awaited.to_json() == blocking.to_json()


def test_wrong_arguments_are_refused_like_those_of_recall(notes: Memory) -> None:
    for asked in ({"limit": -1}, {"depth": "mid"}, {"now": "soon"}, {"trace": "loud"}):
        with pytest.raises(InvalidInputError):
            notes.explain("tea", "n0", **asked)
    with pytest.raises(InvalidInputError):
        notes.explain("tea", "")
    with pytest.raises(TypeError, match="sorce"):
        notes.explain("tea", "n0", sorce="x")  # type: ignore[call-arg]


def test_a_new_store_explains_too(tmp_path: Path) -> None:
    with Memory(llm=None, storage=tmp_path / "new", embedder=FakeEmbedder()) as memory:
        assert memory.explain("tea", "n0").verdict is Verdict.UNKNOWN


def test_markup_and_control_characters_stay_data(memory: Memory) -> None:
    evil = "<img src=x onerror=alert(1)> \x1b[31mtea\u202e red"
    memory.remember(evil, scope="/<b>", record_id="<script>", source="<i>", metadata={"<u>": 1})
    for asked in ({}, {"scope": "/a"}, {"source": "<s>"}, {"metadata_filter": {"<u>": "<q>"}}):
        why = memory.explain("tea <b>red</b> \x1b[0m", "<script>", now=NOW, **asked)
        shown = why._repr_html_()
        for tag in ("<script>", "<img", "<i>", "<u>", "<q>", "<s>", "<b>red"):
            assert tag not in shown
        for text in (shown, str(why)):
            assert "\x1b" not in text and "\u202e" not in text


WORDS = ("tea", "kettle", "red", "cup", "water", "milk", "spoon", "steam")
PLACES = ("/", "/a", "/a/x", "/a/y", "/b")


def random_store(memory: Memory, dice: random.Random) -> list[str]:
    ids = []
    for number in range(40):
        content = " ".join(dice.choices(WORDS, k=dice.randint(2, 6))) + f" {number}"
        created = NOW - timedelta(days=dice.choice((0, 1, 5, 30, 200)))
        source = dice.choice((None, "alice", "bob"))

        def ends(days: int, created: datetime = created) -> datetime:
            return max(NOW + timedelta(days=days), created + timedelta(seconds=1))

        memory.remember(
            content,
            scope=dice.choice(PLACES),
            categories=dice.sample(("c1", "c2", "c3"), dice.randint(0, 2)),
            metadata={"k": dice.randint(0, 2)} if dice.random() < 0.7 else {},
            importance=dice.choice((0.0, 0.3, 0.5, 1.0)),
            source=source,
            private=dice.random() < 0.25,
            created_at=created,
            valid_from=created,
            expires_at=ends(dice.choice((-2, 3))) if dice.random() < 0.2 else None,
            record_id=f"r{number}",
        )
        ids.append(f"r{number}")
    living = [key for key in ids if memory.get(key, include_private=True) is not None]
    for record_id in dice.sample(living, 5):
        memory.update(record_id, f"{dice.choice(WORDS)} again", include_private=True)
    memory.forget(record_ids=dice.sample(ids, 5), include_private=True, erase=False)
    return [*ids, "nobody"]


def random_question(dice: random.Random) -> dict[str, Any]:
    first, last = sorted(NOW - timedelta(days=dice.choice((1, 10))) for _ in range(2))
    maybe = {
        "scope": dice.choice(PLACES),
        "categories": dice.sample(("c1", "c2", "c3"), dice.randint(1, 2)),
        "source": dice.choice(("alice", "bob", "carol")),
        "include_private": True,
        "since": first,
        "until": last,
        "as_of": NOW - timedelta(days=dice.choice((3, 100))),
        "metadata_filter": {"k": dice.randint(0, 2)},
    }
    asked = {name: value for name, value in maybe.items() if dice.random() < 0.22}
    return {
        **asked,
        "now": NOW,
        "limit": dice.choice((0, 1, 3, 10)),
        "depth": dice.choice(("shallow", "deep")),
    }


def erratic_model() -> ScriptedLLM:
    """Return a model whose answers look random, but are the same for the same question."""

    def answer(request: Any) -> Any:
        dice = random.Random(request.prompt)
        found: dict[str, Any] = {
            "keywords": dice.sample(WORDS, 2),
            "sub_queries": [" ".join(dice.sample(WORDS, 2))],
            "scopes": dice.sample(PLACES, dice.randint(0, 2)),
            "gaps": [],
        }
        if request.purpose == "exploration":
            del found["keywords"]
            return found
        if dice.random() < 0.3:
            found["since"] = (NOW - timedelta(days=dice.choice((2, 20)))).isoformat()
        del found["gaps"]
        return {**found, "complexity": dice.choice(("simple", "complex"))}

    return ScriptedLLM({"query_analysis": answer, "exploration": answer})


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("model", ["none", "erratic"])
def test_in_random_stores_every_proposed_change_returns_the_record(
    open_memory: OpenMemory, model: str, seed: int
) -> None:
    dice = random.Random(f"{model} {seed}")
    memory = open_memory()
    ids = random_store(memory, dice)
    if model == "erratic":
        memory = open_memory(erratic_model(), query_analysis_threshold=0)
    views: list[Any] = [memory, memory, memory.scope("/a"), memory.slice(["/a/x", "/b"])]
    explained = 0
    for _ in range(60):
        view, record_id, asked = dice.choice(views), dice.choice(ids), random_question(dice)
        query = " ".join(dice.choices(WORDS, k=2))
        try:
            found = view.recall(query, **asked)
        except ScopePermissionError:
            continue
        why = view.explain(query, record_id, **asked)
        assert why.returned == (record_id in [match.record.id for match in found])
        seen = view.history(record_id, asked.get("source"), asked.get("include_private", False))
        if view is not memory or asked.get("source"):
            assert (why.verdict is Verdict.UNKNOWN) == (not seen)
        if why.record is not None and not why.returned:
            explained += 1
            never = why.record.expires_at and why.record.expires_at <= (
                why.record.valid_from or NOW
            )
            assert why.changes or never, (asked, str(why))
            holds(view, why, asked)
    assert explained > 15
