"""What every store does, on the embedded engine and on qdrant-client's reference."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from mnemotrace.errors import InvalidInputError, MemoryClosedError, RecordError, StoreError
from mnemotrace.stores.backend import (
    Access,
    Facet,
    NewVersion,
    Order,
    Retirement,
    SparseVector,
    StorageBackend,
    WriteBatch,
)
from mnemotrace.stores.points import point_id, validate_metadata
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.selection import Selection

from .building import (
    DEFAULT,
    EMBEDDER,
    EVERYTHING,
    MANIFEST,
    NOW,
    RELEVANCE,
    ago,
    found,
    ids,
    listed,
    save,
    supersede,
    terms,
    vector,
    version,
)
from .conftest import ReadOnly

ALICE = Selection(viewer="alice")

# -- before the first write -------------------------------------------------------------------


def test_a_store_satisfies_the_protocol(new_store: QdrantStore) -> None:
    assert isinstance(new_store, StorageBackend)


def test_a_store_that_was_never_written_is_empty(new_store: QdrantStore) -> None:
    assert new_store.manifest() is None
    assert new_store.count(EVERYTHING) == 0
    assert new_store.list_records(EVERYTHING, 10) == []
    assert new_store.get(EVERYTHING, ["a"]) == []
    assert new_store.vectors(EVERYTHING, ["a"]) == {}
    assert new_store.facet(EVERYTHING, Facet.SCOPES) == {}
    assert new_store.nearest(EVERYTHING, vector(1), 5, -1.0) == []
    assert new_store.dump(10) == ([], None)
    assert new_store.erase(EVERYTHING) == ([], 0)
    result = new_store.search(EVERYTHING, vector(1), terms(1), DEFAULT, 5)
    assert (result.candidates, result.best_cosine, result.best_lexical) == ([], None, 0.0)
    new_store.record_access([Access("a", 1, NOW)])
    new_store.flush()
    new_store.compact()
    new_store.drop()


def test_a_write_before_initialise_is_refused(new_store: QdrantStore) -> None:
    with pytest.raises(StoreError, match="not initialised"):
        new_store.commit(WriteBatch([version("a")]))


def test_the_first_initialise_wins(new_store: QdrantStore) -> None:
    assert new_store.initialise(MANIFEST) == MANIFEST
    other = replace(MANIFEST, embedder={**EMBEDDER, "dimension": 7})
    assert new_store.initialise(other) == MANIFEST
    assert new_store.manifest() == MANIFEST


def test_a_closed_store_refuses_every_use_and_closes_twice(store: QdrantStore) -> None:
    store.close()
    store.close()
    with pytest.raises(MemoryClosedError):
        store.count(Selection())
    with pytest.raises(MemoryClosedError):
        store.commit(WriteBatch([version("a")]))


# -- records come back as they went in -----------------------------------------------------------

METADATA: dict[str, Any] = {
    "zero": 0,
    "false": False,
    "empty": "",
    "nothing": None,
    "topics": ["user", "owned"],
    "dates": [],
    "entities": {},
    "float": 0.1 + 0.2,
    "long float": 1317709383.5015407,
    "big": 2**62,
    "negative": -(2**63),
    "when": datetime(2026, 3, 1, 9, 30, 0, 123456),
    "aware": datetime(2026, 3, 1, 9, 30, tzinfo=timezone(timedelta(hours=9))),
    "zoned": datetime(2026, 3, 1, 9, 30, tzinfo=ZoneInfo("Asia/Seoul")),
    "day": date(2026, 3, 1),
    "looks like a time": "2026-03-01T09:30:00",
    "nested": {"a/b": [{"~": date(2020, 2, 29)}, {"c": (1, 2)}], 'quo"te': {"": 1}},
    "회의": "자료 📎",
    "a.b": 1,
    "a[0]": 2,
}


def test_metadata_comes_back_equal(store: QdrantStore) -> None:
    """Probe 29: falsy values, the user's own keys, dates and times, to the type."""
    save(store, version("a", metadata=METADATA))
    back = store.get(Selection(), ["a"])[0].metadata
    expected = {**METADATA, "nested": {**METADATA["nested"]}}
    expected["nested"]["a/b"] = [{"~": date(2020, 2, 29)}, {"c": [1, 2]}]
    assert back == expected
    assert {key: type(value) for key, value in back.items()} == {
        key: type(value) for key, value in expected.items()
    }
    assert back["zoned"].tzinfo == ZoneInfo("Asia/Seoul")
    assert back["aware"].utcoffset() == timedelta(hours=9)
    assert back["when"].tzinfo is None


def leave_empty(store: QdrantStore) -> None:
    """Write nothing."""


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": {1, 2}},
        {"a": object},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": b"bytes"},
        {"a": 2**63},
        {"a": -(2**63) - 1},
        {"a": [{"b": {1: "number key"}}]},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": np.float32(1.5)},
        {"a": 1j},
    ],
    ids=repr,
)
def test_metadata_that_cannot_be_kept_is_refused_and_nothing_is_written(
    read_only: ReadOnly, metadata: dict[str, Any]
) -> None:
    store = read_only(leave_empty)
    with pytest.raises(RecordError, match="metadata"):
        save(store, version("good"), version("bad", metadata=metadata))
    assert store.count(EVERYTHING) == 0


def test_metadata_without_end_is_refused_in_a_short_message(read_only: ReadOnly) -> None:
    store = read_only(leave_empty)
    endless: dict[str, Any] = {"list": [1]}
    endless["list"].append(endless)
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    for metadata, what in (
        (endless, r"\['list'\]\S* is one of the values that it is itself a part of"),
        ({"deep": deep}, r"metadata\['deep'\] is nested more than 32 levels deep"),
        ({"k" * 500: object()}, "cannot be stored"),
        ({"number": 10**5000}, "more than 64 bits"),
    ):
        with pytest.raises(RecordError, match=what) as caught:
            save(store, version("a", metadata=metadata))
        assert len(str(caught.value)) < 250
    shared = {"twice": [1]}
    shared["again"] = shared["twice"]  # the same list in two places has an end
    validate_metadata(shared)


def test_every_field_of_a_record_comes_back(store: QdrantStore) -> None:
    full = version(
        "a",
        content="본문 with emoji 🙂 and \x00 null",
        scope="/팀/Ünal/c",
        categories=["x", "y"],
        importance=1 / 3,
        source="user:alice",
        sources=["user:alice", "user:bob"],
        private=True,
        created_at=ago(days=3, microseconds=1),
        updated_at=ago(days=2),
        last_accessed=ago(days=1),
        access_count=3,
        usefulness=-0.25,
        version=4,
        valid_from=ago(days=2),
        expires_at=NOW + timedelta(days=9),
        supersedes=["b", "c"],
        pinned=True,
        analysis="pending",
        session="s1",
        position=0,
        metadata={"k": "v"},
    ).record
    plain = version("p", created_at=ago(days=1)).record
    for record in (full, plain):
        save(store, NewVersion(record, "hash", vector(1)))
    back = {record.id: record for record in store.get(EVERYTHING, ["a", "p"])}
    assert back["a"].importance == pytest.approx(1 / 3, abs=1e-14)
    assert back["a"] == full.model_copy(update={"importance": back["a"].importance})
    # A version is valid from its making on, unless the record says otherwise.
    assert back["p"] == plain.model_copy(update={"valid_from": plain.created_at})


@pytest.mark.parametrize(
    ("source", "sources", "expected"),
    [
        (None, [], []),
        ("a", [], ["a"]),
        ("a", ["b"], ["a", "b"]),
        (None, ["b"], ["b"]),
        ("", [], [""]),
    ],
)
def test_the_source_is_the_first_of_the_sources(
    store: QdrantStore, source: str | None, sources: list[str], expected: list[str]
) -> None:
    save(store, version("a", source=source, sources=sources))
    back = store.get(Selection(), ["a"])[0]
    assert (back.source, back.sources) == (source, expected)


def test_text_that_is_not_unicode_is_refused(store: QdrantStore) -> None:
    bad = version("a").record.model_copy(update={"content": "half \ud83d"})
    with pytest.raises(RecordError, match="content"):
        store.commit(WriteBatch([NewVersion(bad, "hash", vector(1))]))


def test_ids_that_look_alike_are_different_records(store: QdrantStore) -> None:
    """Probe 23."""
    names = [f"customer-{n}" for n in range(5)] + ["1", "01", "", "고객-1", "a" * 500]
    save(store, *(version(name, content=name or "empty") for name in names))
    assert store.count(Selection()) == len(names)
    for name in names:
        assert ids(store.get(Selection(), [name])) == [name]


# -- vectors ---------------------------------------------------------------------------------------


def test_vectors_of_any_length_point_the_same_way(store: QdrantStore) -> None:
    """Probe 36: [10, 0] equals [1, 0], on write and on read."""
    save(store, version("a", (10,)), version("b", (0, 3e-12)), version("c", (3, 4)))
    for query in ((1.0,), (10.0,), (1e-9,), (1e9,)):
        result = store.search(Selection(), vector(*query), SparseVector(), RELEVANCE, 3)
        assert [c.record.id for c in result.candidates] == ["a", "c", "b"]
        assert [c.cosine for c in result.candidates] == pytest.approx([1.0, 0.6, 0.0], abs=1e-6)
        assert result.best_cosine == pytest.approx(1.0, abs=1e-6)
    assert store.vectors(Selection(), ["c", "x"])["c"] == pytest.approx(vector(0.6, 0.8))


def test_negative_cosines_are_found_down_to_the_threshold(store: QdrantStore) -> None:
    """Probe 36: a threshold of zero keeps zero; one of -1 keeps everything."""
    save(store, version("same", (1,)), version("across", (0, 1)), version("against", (-1,)))
    near = store.nearest(Selection(), vector(1), 10, -1.0)
    assert [(record.id, round(cosine, 5)) for record, cosine in near] == [
        ("same", 1.0),
        ("across", 0.0),
        ("against", -1.0),
    ]
    assert [r.id for r, _ in store.nearest(Selection(), vector(1), 10, 0.0)] == ["same", "across"]
    assert [r.id for r, _ in store.nearest(Selection(), vector(1), 10, 0.5)] == ["same"]
    assert [r.id for r, _ in store.nearest(Selection(), vector(1), 1, -1.0)] == ["same"]
    assert store.nearest(Selection(), vector(1), 0, -1.0) == []
    assert found(store) == ["same", "across", "against"]


@pytest.mark.parametrize("bad", [[0.0] * 4, [float("nan"), 0, 0, 0], [float("inf"), 0, 0, 0]])
def test_a_vector_without_direction_is_refused(store: QdrantStore, bad: list[float]) -> None:
    with pytest.raises(InvalidInputError, match="finite"):
        store.commit(WriteBatch([version("good"), version("bad", bad)]))
    with pytest.raises(InvalidInputError, match="finite"):
        found(store, query=bad)
    assert store.count(EVERYTHING) == 0


def test_a_vector_of_another_dimension_is_refused(store: QdrantStore) -> None:
    bad = NewVersion(version("a").record, "hash", np.ones(3, dtype=np.float32))
    with pytest.raises(InvalidInputError, match="dimension"):
        store.commit(WriteBatch([bad]))
    with pytest.raises(InvalidInputError, match="dimension"):
        store.search(Selection(), np.ones(5, dtype=np.float32), SparseVector(), RELEVANCE, 1)


def test_a_version_without_vectors_takes_those_it_replaces(store: QdrantStore) -> None:
    save(store, version("a", (3, 4), terms(1, 2)))
    assert supersede(store, "a", 1, version("a", None, version=2, importance=0.9))
    assert store.vectors(Selection(), ["a"])["a"] == pytest.approx(vector(0.6, 0.8))
    result = store.search(Selection(), vector(3, 4), terms(2), DEFAULT, 1)
    assert result.candidates[0].lexical == 1.0
    assert result.candidates[0].record.version == 2


def test_a_version_without_vectors_that_replaces_nothing_is_refused(store: QdrantStore) -> None:
    with pytest.raises(StoreError, match="no vectors"):
        store.commit(WriteBatch([version("a", None, version=2)]))
    assert store.count(EVERYTHING) == 0


# -- scopes and sources ------------------------------------------------------------------------------

NEIGHBOURS = ["/app", "/apple", "/app_1", "/app%", "/App", "/", "/application/app", "/앱", "/應用"]


@pytest.mark.parametrize("scope", NEIGHBOURS)
def test_a_scope_reaches_itself_and_nothing_that_looks_like_it(
    store: QdrantStore, scope: str
) -> None:
    """Probes 1 and 9."""
    save(store, *(version(place, scope=place) for place in NEIGHBOURS))
    save(store, *(version(place + "//x", scope=place + "/x") for place in NEIGHBOURS))
    inside = Selection(roots=(scope,))
    expected = {scope, scope + "//x"} if scope != "/" else listed(store)
    assert listed(store, inside) == expected
    assert set(found(store, inside, limit=100)) == expected
    assert store.count(inside) == len(expected)
    assert listed(store, Selection(at_scope=scope)) == {scope}
    assert set(store.erase(inside)[0]) == expected
    assert store.count(Selection()) == 2 * len(NEIGHBOURS) - len(expected)


def test_names_of_other_scripts_are_different_scopes(store: QdrantStore) -> None:
    """Probe 9."""
    save(store, *(version(s, scope=s) for s in ("/연구원", "/研究员", "/Ünal", "/Unal")))
    assert listed(store, Selection(roots=("/연구원",))) == {"/연구원"}
    assert store.facet(Selection(), Facet.SCOPES) == {
        "/연구원": 1,
        "/研究员": 1,
        "/Ünal": 1,
        "/Unal": 1,
    }


def test_erasing_a_scope_leaves_the_root_and_its_neighbours(store: QdrantStore) -> None:
    """Probe 2."""
    places = ["/", "/t", "/t/sub", "/team", "/team-b", "/team.x", "/team b"]
    save(store, *(version(place, scope=place) for place in places))
    assert store.erase(Selection(roots=("/t",)))[0] == ["/t", "/t/sub"]
    assert store.erase(Selection(roots=("/team",)))[0] == ["/team"]
    assert listed(store) == {"/", "/team-b", "/team.x", "/team b"}


def test_several_roots_are_searched_together(store: QdrantStore) -> None:
    save(store, *(version(s, scope=s) for s in ("/a", "/b/x", "/c")))
    assert listed(store, Selection(roots=("/a", "/b"))) == {"/a", "/b/x"}
    assert listed(store, Selection(roots=())) == set()
    assert found(store, Selection(roots=())) == []


def test_private_rows_nearer_than_a_public_one_do_not_hide_it(store: QdrantStore) -> None:
    """Probe 3."""
    save(store, *(version(f"bob {n}", (1,), source="bob", private=True) for n in range(40)))
    save(store, version("public", (1, 1)))
    assert found(store, ALICE, limit=5) == ["public"]
    assert [r.id for r, _ in store.nearest(ALICE, vector(1), 5, -1.0)] == ["public"]
    assert listed(store, ALICE, limit=5) == {"public"}
    assert store.count(ALICE) == 1


def test_many_of_another_category_do_not_hide_the_one_asked_for(store: QdrantStore) -> None:
    """Probe 4."""
    save(store, *(version(f"x {n}", (1,), categories=["x"]) for n in range(170)))
    save(store, version("y", (0, 1), categories=["y", "z"]))
    assert found(store, Selection(categories=("y",)), limit=5) == ["y"]
    assert found(store, Selection(categories=("z", "q")), limit=5) == ["y"]
    assert found(store, Selection(categories=())) == []


PRIVACY: dict[str, dict[str, Any]] = {
    "public": {"source": None},
    "public alice": {"source": "alice"},
    "secret alice": {"source": "alice", "private": True},
    "secret bob": {"source": "bob", "private": True},
    "secret nobody": {"source": None, "private": True},
    # Sources named like the marks this package uses itself.
    "secret anonymous": {"source": "anonymous", "private": True},
    "secret empty": {"source": "", "private": True},
    "secret source:alice": {"source": "source:alice", "private": True},
}


def fill_with_secrets(store: QdrantStore) -> None:
    """Write a record of each kind of privacy."""
    save(store, *(version(name, **fields) for name, fields in PRIVACY.items()))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), {"public", "public alice"}),
        (ALICE, {"public", "public alice", "secret alice"}),
        (Selection(viewer="anonymous"), {"public", "public alice", "secret anonymous"}),
        (Selection(viewer=""), {"public", "public alice", "secret empty"}),
        (Selection(viewer="nobody"), {"public", "public alice"}),
        (Selection(include_private=True), set(PRIVACY)),
        (Selection(viewer="bob", public_only=True), {"public", "public alice"}),
        (Selection(include_private=True, public_only=True), {"public", "public alice"}),
        (Selection(viewer="alice", private_only=True), {"secret alice"}),
        (Selection(private_only=True), {"secret nobody"}),
        (Selection(private_only=True, public_only=True), set()),
        (Selection(sources=("alice",)), {"public alice"}),
        (Selection(viewer="alice", sources=("alice",)), {"public alice", "secret alice"}),
        (Selection(viewer="alice", sources=("bob",)), set()),
        (Selection(sources=()), set()),
    ],
)
def test_a_viewer_sees_public_rows_and_its_own(
    read_only: ReadOnly, selection: Selection, expected: set[str]
) -> None:
    """Probes 8 and 11: one rule for every way of reading."""
    store = read_only(fill_with_secrets)
    assert listed(store, selection) == expected
    assert set(found(store, selection)) == expected
    assert {r.id for r, _ in store.nearest(selection, vector(1), 99, -1.0)} == expected
    assert set(ids(store.get(selection, list(PRIVACY)))) == expected
    assert set(store.vectors(selection, list(PRIVACY))) == expected
    assert store.count(selection) == len(expected)
    assert set(store.facet(selection, Facet.RECORD_IDS)) == expected


def test_what_a_viewer_may_not_see_it_cannot_erase(store: QdrantStore) -> None:
    """Probe 5: not even by id, nor by way of a record it may see."""
    save(store, version("secret", source="bob", private=True), version("mine", source="alice"))
    for selection in (
        Selection(viewer="alice", record_ids=("secret",)),
        Selection(viewer="alice", sources=("bob",)),
        Selection(roots=("/",), record_ids=("secret",)),
    ):
        assert store.erase(selection) == ([], 0)
    assert store.erase(ALICE) == (["mine"], 1)
    assert listed(store, Selection(viewer="bob")) == {"secret"}


def test_a_source_filter_matches_every_source_of_a_record(store: QdrantStore) -> None:
    """Probe 11."""
    save(store, version("both", source="user:alice", sources=["user:alice", "user:bob"]))
    save(store, version("bob", source="user:bob"), version("none"))
    assert listed(store, Selection(sources=("user:alice",))) == {"both"}
    assert listed(store, Selection(sources=("user:bob",))) == {"both", "bob"}


def test_scopes_of_any_size_each_return_their_own_best_hit(store: QdrantStore) -> None:
    """Probe 10."""
    sizes = {"/one": 1, "/three": 3, "/many": 93, "/most": 700}
    for scope, size in sizes.items():
        save(
            store,
            *(version(f"{scope} {n}", (1, 1 + n), scope=scope) for n in range(size)),
        )
    for scope in sizes:
        assert found(store, Selection(roots=(scope,)), limit=1) == [f"{scope} 0"]


# -- other conditions --------------------------------------------------------------------------------


def test_filters_intersect_and_an_empty_list_selects_nothing(store: QdrantStore) -> None:
    """Probe 17, at the store."""
    save(store, version("x", categories=["c"]), version("y", categories=["d"]))
    assert store.erase(Selection(record_ids=("x",), categories=("d",))) == ([], 0)
    assert store.erase(Selection(record_ids=())) == ([], 0)
    assert store.erase(Selection(roots=())) == ([], 0)
    assert store.erase(Selection(record_ids=("x",), categories=("c",))) == (["x"], 1)
    assert listed(store) == {"y"}


SEOUL = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 11, 20),
        datetime(2026, 11, 20, tzinfo=UTC),
        datetime(2026, 11, 20, 9, tzinfo=SEOUL),
        datetime.fromisoformat("2026-11-20T00:00:00Z"),
    ],
    ids=["naive", "utc", "seoul", "z suffix"],
)
def test_a_window_is_half_open_whatever_the_spelling_of_its_ends(
    store: QdrantStore, moment: datetime
) -> None:
    """Probe 18: older_than never removes what is as new or newer."""
    day = datetime(2026, 11, 20, tzinfo=UTC)
    times = {
        "before": day - timedelta(microseconds=1),
        "at": day,
        "after": day + timedelta(microseconds=1),
        "seoul": datetime(2026, 11, 20, 8, 59, 59, tzinfo=SEOUL),
    }
    save(store, *(version(name, created_at=time) for name, time in times.items()))
    assert listed(store, Selection(until=moment)) == {"before", "seoul"}
    assert listed(store, Selection(since=moment)) == {"at", "after"}
    assert listed(store, Selection(since=moment, until=day + timedelta(microseconds=1))) == {"at"}
    assert listed(store, Selection(since=moment, until=moment)) == set()
    assert store.erase(Selection(until=moment))[0] == ["before", "seoul"]
    assert listed(store) == {"at", "after"}


def fill_with_metadata(store: QdrantStore) -> None:
    """Write a record of each kind of metadata."""
    rows: dict[str, dict[str, Any]] = {
        "one": {"n": 1, "other": "x"},
        "one point zero": {"n": 1.0},
        "true": {"n": True},
        "null": {"n": None},
        "text": {"n": "1"},
        "list": {"n": [2, 3.5]},
        "long": {"n": 0.1 + 0.2},
        "time": {"when": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1)},
        "odd": {"a.b": 1, 'quo"te': "x" * 300, "a[0]": 2, "": 3},
        "nested": {"a": {"b": 1}},
        "none": {},
    }
    save(store, *(version(name, metadata=metadata) for name, metadata in rows.items()))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"n": 1}, {"one", "one point zero"}),
        ({"n": 1.0}, {"one", "one point zero"}),
        ({"n": True}, {"true"}),
        ({"n": False}, set()),
        ({"n": None}, {"null"}),
        ({"n": "1"}, {"text"}),
        ({"n": [1, "1"]}, {"one", "one point zero", "text"}),
        ({"n": []}, set()),
        ({"n": 2}, {"list"}),
        ({"n": 3.5}, {"list"}),
        ({"n": 0.30000000000000004}, {"long"}),
        ({"n": 0.3}, set()),
        ({"n": {"gte": 1}}, {"one", "one point zero", "list"}),
        ({"n": {"gt": 1, "lt": 3}}, {"list"}),
        ({"n": {"lt": 1}}, {"long"}),
        ({"n": {"all": [{"gte": 1}, {"lte": 1}]}}, {"one", "one point zero"}),
        ({"n": {"all": [1, 2]}}, set()),
        ({"n": {"all": [2, 3.5]}}, {"list"}),
        ({"n": 1, "other": "x"}, {"one"}),
        ({"missing": 1}, set()),
        ({"when": datetime(2026, 1, 1, 9, tzinfo=SEOUL)}, {"time"}),
        ({"when": datetime(2026, 1, 1)}, {"time"}),
        ({"when": {"gte": datetime(2026, 1, 1), "lt": date(2026, 1, 2)}}, {"time"}),
        ({"when": {"gt": "2026-01-01"}}, set()),
        ({"day": date(2026, 1, 1)}, {"time"}),
        ({"day": {"lte": "2026-01-01"}}, {"time"}),
        ({"a.b": 1}, {"odd"}),
        ({'quo"te': "x" * 300}, {"odd"}),
        ({"a[0]": {"gte": 2}}, {"odd"}),
        ({"": 3}, {"odd"}),
    ],
)
def test_metadata_conditions(
    read_only: ReadOnly, condition: dict[str, Any], expected: set[str]
) -> None:
    store = read_only(fill_with_metadata)
    assert listed(store, Selection(metadata=condition)) == expected
    assert set(found(store, Selection(metadata=condition), limit=99)) == expected


@pytest.mark.parametrize(
    "condition",
    [
        {"n": {"between": [1, 2]}},
        {"n": {}},
        {"n": {"gt": None}},
        {"n": {"gt": "soon"}},
        {"n": {"gt": 1, "lt": "2026-01-01"}},
        {"n": [[1]]},
        {"n": object},
        {'q"': {"gt": 1}},
    ],
    ids=repr,
)
def test_a_metadata_condition_without_meaning_is_refused(
    read_only: ReadOnly, condition: dict[str, Any]
) -> None:
    store = read_only(fill_with_metadata)
    with pytest.raises(InvalidInputError):
        store.count(Selection(metadata=condition))


def test_narrowing_twice_by_one_key_needs_both(store: QdrantStore) -> None:
    save(store, version("a", metadata={"n": [1, 2]}), version("b", metadata={"n": [1]}))
    both = Selection(metadata={"n": 1}).narrow(metadata={"n": 2})
    assert listed(store, both) == {"a"}


def test_a_changed_metadata_condition_is_not_mistaken_for_the_old_one(store: QdrantStore) -> None:
    save(store, version("a", metadata={"n": 1}), version("b", metadata={"n": 2}))
    condition = {"n": 1}
    selection = Selection(metadata=condition)
    assert listed(store, selection) == {"a"}
    condition["n"] = 2
    assert listed(store, selection) == {"b"}


def test_rows_are_found_by_text_hash_and_by_analysis(store: QdrantStore) -> None:
    save(store, version("a", content="same"), version("b", content="same", scope="/x"))
    save(store, version("c", analysis="pending"))
    assert listed(store, Selection(text_hashes=("hash of same",))) == {"a", "b"}
    assert listed(store, Selection(text_hashes=("hash of same",), roots=("/x",))) == {"b"}
    assert listed(store, Selection(analysis="pending")) == {"c"}


# -- versions and time -------------------------------------------------------------------------------


def test_a_new_version_retires_the_old_one_and_keeps_it_readable(store: QdrantStore) -> None:
    save(store, version("a", content="old", created_at=ago(days=9)))
    new = version("a", content="new", version=2, created_at=ago(days=9), updated_at=ago(days=1))
    assert supersede(store, "a", 1, new, at=ago(days=1))
    assert [r.content for r in store.get(Selection(), ["a"])] == ["new"]
    history = sorted(store.get(Selection(history=True), ["a"]), key=lambda r: r.version)
    assert [(r.content, r.retired, r.superseded_by) for r in history] == [
        ("old", "superseded", "a"),
        ("new", None, None),
    ]
    assert history[0].valid_to == history[1].valid_from == ago(days=1)
    assert store.count(Selection()) == 1
    assert [r.content for r in store.list_records(Selection(), 10)] == ["new"]


def test_a_failed_expectation_writes_nothing(store: QdrantStore) -> None:
    """Probe 20: whatever of a batch cannot be done, the old version stays readable."""
    save(store, version("a", content="old"))
    new = version("a", content="new", version=2)
    retire = [Retirement("a", 1, NOW)]
    before = store.sequence()
    assert not store.commit(WriteBatch([new], retire, {"a": 2}))
    assert not store.commit(WriteBatch([new], retire, {"a": 1, "b": 1}))
    assert not store.commit(WriteBatch([version("b")], [], {"b": 0, "a": 0}))
    with pytest.raises(RecordError):
        store.commit(WriteBatch([new, version("c", metadata={"x": {1}})], retire, {"a": 1}))
    assert store.sequence() == before
    assert [(r.content, r.retired) for r in store.get(EVERYTHING, ["a", "b", "c"])] == [
        ("old", None)
    ]
    assert store.commit(WriteBatch([new], retire, {"a": 1, "b": 0}))
    assert store.sequence() > before


def test_a_retired_record_is_neither_current_nor_absent(store: QdrantStore) -> None:
    save(store, version("a"))
    assert store.commit(WriteBatch((), [Retirement("a", 1, NOW, "forgotten")], {"a": 1}))
    assert store.count(Selection()) == 0
    assert [r.retired for r in store.get(Selection(history=True), ["a"])] == ["forgotten"]
    assert not store.commit(WriteBatch([version("a", version=2)], (), {"a": 1}))
    assert not store.commit(WriteBatch([version("a", version=2)], (), {"a": 0}))


def test_writing_a_version_again_changes_nothing_else(store: QdrantStore) -> None:
    save(store, version("a"), version("b"))
    save(store, version("a"))
    assert store.count(EVERYTHING) == 2
    assert store.commit(WriteBatch((), [Retirement("gone", 1, NOW)]))
    assert store.count(EVERYTHING) == 2


def test_a_second_retirement_does_not_move_the_first(store: QdrantStore) -> None:
    save(store, version("a"))
    for day in (5, 1):
        store.commit(WriteBatch((), [Retirement("a", 1, ago(days=day))]))
    assert store.get(EVERYTHING, ["a"])[0].valid_to == ago(days=5)


def test_as_of_shows_the_store_as_it_was(store: QdrantStore) -> None:
    """Probe 57, at the store: half-open validity, expiry judged at that time."""
    save(store, version("a", content="v1", created_at=ago(days=10)))
    change = version("a", content="v2", version=2, created_at=ago(days=10), updated_at=ago(days=5))
    assert supersede(store, "a", 1, change, at=ago(days=5))
    save(
        store,
        version("brief", created_at=ago(days=8), expires_at=ago(days=6), metadata={"k": 1}),
    )
    store.commit(WriteBatch((), [Retirement("a", 2, ago(days=1), "forgotten")]))

    def at(**parts: float) -> set[str]:
        return {r.content for r in store.list_records(Selection(as_of=ago(**parts)), 10)}

    assert at(days=11) == set()
    assert at(days=10) == {"v1"}
    assert at(days=8) == {"v1", "text of brief"}
    assert at(days=6, microseconds=1) == {"v1", "text of brief"}
    assert at(days=6) == {"v1"}
    assert at(days=5, microseconds=1) == {"v1"}
    assert at(days=5) == {"v2"}
    assert at(days=1) == set()
    brief = Selection(as_of=ago(days=7), metadata={"k": 1})
    assert store.list_records(brief, 10)[0].metadata == {"k": 1}
    assert found(store, Selection(as_of=ago(days=7)), limit=9) == ["brief", "a"]


def test_an_expired_record_is_out_of_sight_but_not_out_of_history(store: QdrantStore) -> None:
    save(store, version("never"))
    assert listed(store) == {"never"}  # so that the store has no expiring record at first
    save(store, version("soon", expires_at=NOW), version("later", expires_at=NOW + timedelta(1)))
    assert listed(store, Selection(now=ago(seconds=1))) == {"never", "soon", "later"}
    assert listed(store, Selection(now=NOW)) == {"never", "later"}
    assert set(found(store, Selection(now=NOW))) == {"never", "later"}
    assert store.count(Selection(now=NOW + timedelta(days=2))) == 1
    assert listed(store, Selection(history=True, now=NOW)) == {"never", "soon", "later"}


def test_erasing_takes_every_version_and_what_it_took_over_from(store: QdrantStore) -> None:
    save(store, version("a"), version("b"), version("c", scope="/other"), version("keep"))
    assert supersede(store, "a", 1, version("a", version=2))
    assert supersede(store, "b", 1, version("a", version=3))  # b was merged into a
    assert supersede(store, "c", 1, version("b", version=2))  # and c into b
    store.commit(WriteBatch((), [Retirement("b", 2, NOW, superseded_by="a")]))
    assert store.erase(Selection(record_ids=("a",))) == (["a"], 6)
    assert ids(store.get(EVERYTHING, ["a", "b", "c", "keep"])) == ["keep"]


def test_erasing_a_scope_takes_retired_versions_that_lay_there(store: QdrantStore) -> None:
    save(store, version("moved", scope="/old"), version("stays", scope="/old"))
    assert supersede(store, "moved", 1, version("moved", version=2, scope="/new"))
    assert store.erase(Selection(roots=("/old",))) == (["stays"], 2)
    assert [(r.id, r.version) for r in store.get(EVERYTHING, ["moved", "stays"])] == [("moved", 2)]


def test_erasing_a_retired_record_takes_what_it_took_over_from(store: QdrantStore) -> None:
    save(store, version("a"), version("b"), version("other"))
    assert supersede(store, "b", 1, version("a", version=2))
    store.commit(WriteBatch((), [Retirement("a", n, NOW, "forgotten") for n in (1, 2)]))
    assert store.erase(Selection(record_ids=("a",))) == (["a"], 3)
    assert ids(store.get(EVERYTHING, ["a", "b", "other"])) == ["other"]


def test_erasing_spares_a_record_that_lived_on_after_being_taken_over(store: QdrantStore) -> None:
    save(store, version("a"), version("b"))
    assert supersede(store, "b", 1, version("a", version=2))
    save(store, version("b", version=2))
    store.commit(WriteBatch((), [Retirement("a", 1, NOW)]))
    assert store.erase(Selection(record_ids=("a",))) == (["a"], 3)
    assert [(r.id, r.version) for r in store.get(EVERYTHING, ["a", "b"])] == [("b", 2)]


def test_a_retired_version_with_a_hidden_living_one_goes_alone(store: QdrantStore) -> None:
    save(store, version("a", scope="/x"), version("b", scope="/x"))
    private = version("a", version=2, scope="/x", source="bob", private=True)
    assert supersede(store, "a", 1, private)
    assert store.erase(Selection(viewer="alice")) == (["b"], 2)
    assert [(r.id, r.version) for r in store.get(EVERYTHING, ["a", "b"])] == [("a", 2)]


def test_erasing_reaches_expired_records(store: QdrantStore) -> None:
    save(store, version("a", expires_at=ago(days=1)))
    assert listed(store) == set()
    assert store.erase(Selection()) == (["a"], 1)
    assert store.count(EVERYTHING) == 0


def test_a_retired_record_is_erased_by_its_id(store: QdrantStore) -> None:
    save(store, version("a"))
    store.commit(WriteBatch((), [Retirement("a", 1, NOW, "forgotten")]))
    assert store.erase(Selection(record_ids=("a",))) == (["a"], 1)


# -- lists, facets, pages --------------------------------------------------------------------------


def test_pages_are_by_time_then_id_and_join_without_gaps(store: QdrantStore) -> None:
    days = [3, 1, 1, 1, 2, 1, 3, 0, 1, 1]
    save(store, *(version(f"r{n}", created_at=ago(days=day)) for n, day in enumerate(days)))
    newest = [f"r{n}" for _, n in sorted((day, n) for n, day in enumerate(days))]
    oldest = [f"r{n}" for _, n in sorted((-day, n) for n, day in enumerate(days))]
    for size in (1, 2, 3, 4, 10, 11):
        for order, expected in ((Order.NEWEST, newest), (Order.OLDEST, oldest)):
            pages = [
                ids(store.list_records(Selection(), size, start, order))
                for start in range(0, 12, size)
            ]
            assert [name for page in pages for name in page] == expected
    assert store.list_records(Selection(), 0) == []
    assert store.list_records(Selection(), 5, 10) == []
    assert ids(store.list_records(Selection(), 2, -3)) == newest[:2]


def test_facets_count_exactly_what_may_be_seen(store: QdrantStore) -> None:
    save(
        store,
        version("1", scope="/a/b/c", categories=["x", "y"], source="s"),
        version("2", scope="/a/b", categories=["x"], sources=["s", "t"]),
        version("3", scope="/a"),
        version("4", scope="/", categories=["z"], source="bob", private=True),
        version("5", scope="/ab", categories=["x"]),
    )
    assert supersede(store, "5", 1, version("5", version=2, scope="/ab", categories=["w"]))
    assert store.facet(Selection(), Facet.SCOPES) == {"/a": 3, "/a/b": 2, "/a/b/c": 1, "/ab": 1}
    assert store.facet(Selection(), Facet.CATEGORIES) == {"x": 2, "y": 1, "w": 1}
    assert store.facet(Selection(), Facet.SOURCES) == {"s": 2, "t": 1}
    inside = Selection(roots=("/a/b",), viewer="bob")
    assert store.facet(inside, Facet.CATEGORIES) == {"x": 2, "y": 1}
    assert store.facet(Selection(viewer="bob"), Facet.CATEGORIES)["z"] == 1


def test_counts_are_exact_where_little_is_hidden(store: QdrantStore) -> None:
    """Such counts are made by subtraction."""
    hidden: dict[str, Any] = {"categories": ["x", "h"], "scope": "/a/b", "private": True}
    save(store, *(version(f"r{n}", categories=["x"], scope="/a") for n in range(20)))
    save(store, version("p", source="bob", **hidden), version("q", source="al", **hidden))
    assert supersede(store, "r0", 1, version("r0", version=2, categories=["y"], scope="/a"))
    for selection, count, x in ((Selection(), 20, 19), (Selection(viewer="bob"), 21, 20)):
        assert store.count(selection) == count
        seen = store.facet(selection, Facet.CATEGORIES)
        assert (seen["x"], seen["y"], seen.get("h", 0)) == (x, 1, x - 19)
        scopes = {"/a": count} | ({"/a/b": 1} if count == 21 else {})
        assert store.facet(selection, Facet.SCOPES) == scopes
    assert store.count(EVERYTHING) == 23


def test_a_facet_forgets_what_was_erased(store: QdrantStore) -> None:
    save(store, version("a", scope="/a", categories=["x"]), version("b", scope="/b"))
    store.erase(Selection(roots=("/a",)))
    assert store.facet(Selection(), Facet.SCOPES) == {"/b": 1}
    assert store.facet(EVERYTHING, Facet.CATEGORIES) == {}


def test_a_dump_pages_over_every_stored_version(store: QdrantStore) -> None:
    save(store, *(version(f"r{n}") for n in range(23)), version("p", private=True))
    assert supersede(store, "r3", 1, version("r3", version=2))
    seen: list[tuple[str, int]] = []
    cursor: str | None = None
    while True:
        page, cursor = store.dump(7, cursor)
        assert len(page) <= 7
        seen += [(record.id, record.version) for record in page]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 25
    assert ("r3", 2) in seen


def test_access_is_added_to_current_versions(store: QdrantStore) -> None:
    save(store, version("a", private=True, source="s"), version("b"), version("c"))
    assert supersede(store, "b", 1, version("b", version=2))
    later = NOW + timedelta(hours=1)
    before = store.sequence()
    store.record_access(
        [
            Access("a", 2, later),
            Access("a", 1, NOW),
            Access("b", 1, ago(days=1)),
            Access("x", 1, NOW),
        ]
    )
    rows = {(r.id, r.version): r for r in store.get(EVERYTHING, ["a", "b", "c"])}
    assert (rows["a", 1].access_count, rows["a", 1].last_accessed) == (3, later)
    assert (rows["b", 2].access_count, rows["b", 2].last_accessed) == (1, NOW)
    assert rows["b", 1].access_count == rows["c", 1].access_count == 0
    assert store.sequence() > before
    store.record_access([Access("a", 1, NOW)])
    assert store.get(EVERYTHING, ["a"])[0].access_count == 4


def test_many_accesses_are_all_counted(store: QdrantStore) -> None:
    save(store, *(version(f"r{n}") for n in range(120)))
    times = [NOW + timedelta(hours=n % 2) for n in range(120)]
    store.record_access([Access(f"r{n}", 1 + n % 3, times[n]) for n in range(120)])
    store.record_access([Access(f"r{n}", 1, NOW) for n in range(0, 120, 2)])
    rows = {r.id: r for r in store.get(EVERYTHING, [f"r{n}" for n in range(120)])}
    for n in range(120):
        assert rows[f"r{n}"].access_count == 1 + n % 3 + (n % 2 == 0)
        assert rows[f"r{n}"].last_accessed == times[n]


# -- unreadable rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        {"importance": 7.5},
        {"importance": "high"},
        {"created_at": "once"},
        {"content": 5},
        {"version": "first"},
        {"scope": "/a/../b"},
        {"metadata": "text"},
        {"valid_from": 3},
    ],
    ids=str,
)
def test_an_unreadable_row_is_left_out_and_named(
    store: QdrantStore, damage: dict[str, Any]
) -> None:
    """Probe 19: it never breaks a search, and never costs a readable record its place."""
    save(store, version("bad", (1,)), *(version(f"good {n}", (1, n + 1)) for n in range(5)))
    opened = store._open()
    assert opened is not None
    opened[0].set_payload([point_id("bad", 1)], damage)
    result = store.search(Selection(), vector(1), SparseVector(), RELEVANCE, 3)
    assert [c.record.id for c in result.candidates] == ["good 0", "good 1", "good 2"]
    assert result.unreadable == ["bad"]
    assert listed(store) == {f"good {n}" for n in range(5)}
    assert store.get(Selection(), ["bad"]) == []
    assert "bad" not in [r.id for r, _ in store.nearest(Selection(), vector(1), 9, -1.0)]
    assert len(store.dump(10)[0]) == 5
    assert store.erase(Selection(record_ids=("bad",)))[1] == 1
    assert store.search(Selection(), vector(1), SparseVector(), RELEVANCE, 3).unreadable == []


# -- the store as a whole --------------------------------------------------------------------------


def test_drop_makes_the_store_as_new(store: QdrantStore) -> None:
    save(store, version("a"))
    before = store.sequence()
    store.drop()
    assert store.manifest() is None
    assert store.count(EVERYTHING) == 0
    assert store.sequence() > before
    other = replace(MANIFEST, embedder={**EMBEDDER, "dimension": 2})
    assert store.initialise(other) == other
    store.commit(WriteBatch([NewVersion(version("b").record, "h", np.ones(2, dtype=np.float32))]))
    assert listed(store) == {"b"}


NEW_EMBEDDER = {"provider": "test", "model": "toy-2", "dimension": 2, "canary": [0.0, 1.0]}


def fill(source: QdrantStore, target: StorageBackend) -> None:
    """Re-embed everything: two numbers per record."""
    cursor: str | None = None
    while True:
        page, cursor = source.dump(2, cursor)
        target.commit(
            WriteBatch(
                [NewVersion(r, "h", np.array([1, len(r.id)], dtype=np.float32)) for r in page]
            )
        )
        if cursor is None:
            return


def test_a_reindex_changes_nothing_until_it_is_finished(store: QdrantStore) -> None:
    """Probe 22, at the store."""
    save(store, version("a"), version("bb"), version("c", private=True))
    assert supersede(store, "a", 1, version("a", version=2))
    target = store.begin_reindex(NEW_EMBEDDER)
    begun = target.manifest()
    assert begun is not None and begun.dimension == 2 and begun.generation == 2
    fill(store, target)
    assert target.count(EVERYTHING) == 4
    current = store.manifest()
    assert current is not None and current.embedder == EMBEDDER and current.generation == 1
    assert found(store, query=(1, 0), limit=1) == ["a"]
    store.finish_reindex()
    current = store.manifest()
    assert current is not None and current.embedder == NEW_EMBEDDER and current.reindex is None
    assert store.count(EVERYTHING) == 4
    two = np.array([0, 1], dtype=np.float32)
    result = store.search(Selection(), two, SparseVector(), RELEVANCE, 1)
    assert result.candidates[0].record.id == "bb"
    with pytest.raises(StoreError, match="begin"):
        store.finish_reindex()


def test_a_reindex_goes_on_for_the_same_embedder_and_starts_over_for_another(
    store: QdrantStore,
) -> None:
    save(store, version("a"))
    fill(store, store.begin_reindex(NEW_EMBEDDER))
    again = store.begin_reindex({**NEW_EMBEDDER, "canary": [1e-6, 1.0]})
    assert again.count(EVERYTHING) == 1
    other = store.begin_reindex({**NEW_EMBEDDER, "canary": [1.0, 0.0]})
    assert other.count(EVERYTHING) == 0
    assert store.count(EVERYTHING) == 1


def test_the_first_generation_is_never_reindexed(new_store: QdrantStore) -> None:
    with pytest.raises(StoreError, match="empty"):
        new_store.begin_reindex(NEW_EMBEDDER)


# -- threads ---------------------------------------------------------------------------------------


def test_a_commit_is_seen_whole_or_not_at_all(store: QdrantStore) -> None:
    """Probe 21: readers never see both versions of a record, or none."""
    save(store, version("a", version=1))
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            current = store.get(Selection(), ["a"])
            hits = found(store)
            if len(current) != 1 or hits != ["a"] or store.count(Selection()) != 1:
                wrong.append((current, hits))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 30):
        assert supersede(store, "a", number, version("a", version=number + 1))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_of_many_writers_that_expect_the_same_exactly_one_wins(store: QdrantStore) -> None:
    def create(n: int) -> bool:
        return store.commit(WriteBatch([version("a", content=f"by {n}")], (), {"a": 0}))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(20))) == 1
    assert store.count(EVERYTHING) == 1


def test_a_search_is_the_same_alone_and_among_eight(embedded: QdrantStore) -> None:
    """Probe 42, at the store."""
    rng = np.random.default_rng(5)
    save(embedded, *(version(f"r{n}", rng.normal(size=4)) for n in range(300)))
    queries = [rng.normal(size=4) for _ in range(40)]
    alone = [found(embedded, query=query, ranking=DEFAULT) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda q: found(embedded, query=q, ranking=DEFAULT), queries))
    assert together == alone


def test_the_sidecar_of_an_embedded_store_lies_in_its_folder(
    embedded: QdrantStore, tmp_path: Path
) -> None:
    assert embedded.sidecar is not None
    assert embedded.sidecar.is_relative_to(tmp_path)
