"""Probes 1-12: what one scope, view or source must never see, change or lose to another."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from mnemotrace import Memory, MemoryRecord
from mnemotrace.cli.app import app
from mnemotrace.errors import (
    InvalidInputError,
    RecordNotFoundError,
    SaveError,
    ScopePermissionError,
)
from mnemotrace.recall_explanation import Verdict
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

OpenMemory = Callable[..., Memory]
Call = Callable[..., Any]
KINDS = ("public", "private")
DEPTHS: tuple[Literal["shallow", "deep"], ...] = ("shallow", "deep")

LOOKALIKES = (
    "/app", "/apple", "/app_1", "/app%", "/app.x", "/app b", "/App", "/app-", "/ap", "/app*",
    "/app?", "/app2/app", "/other/app", "/앱", "/앱스토어", "/app/..x", "/app[0]", '/app"',
)  # fmt: skip


def below(path: str) -> set[str]:
    """Return the lookalikes that really lie in a subtree."""
    return {other for other in LOOKALIKES if other == path or other.startswith(path + "/")}


@pytest.fixture
def lookalikes(open_memory: OpenMemory) -> Memory:
    memory = open_memory()
    memory.remember_many(
        [
            {"content": f"the same words at {path}", "scope": path, "categories": [f"c{path}"]}
            for path in LOOKALIKES
        ]
    ).wait()
    return memory


def scopes_of(records: list[MemoryRecord]) -> set[str]:
    return {record.scope for record in records}


@pytest.mark.parametrize("path", LOOKALIKES)
def test_reading_one_scope_sees_no_lookalike(lookalikes: Memory, path: str, call: Call) -> None:
    """Probe 1: every reading operation on /app touches exactly /app."""
    wanted = below(path)
    memory = lookalikes
    for depth in DEPTHS:
        found = call(memory, "recall", "the same words", scope=path, depth=depth, limit=50)
        assert scopes_of([match.record for match in found]) == wanted
    assert scopes_of(call(memory, "list_records", path)) == wanted
    info = call(memory, "info", path)
    assert info.path == path
    assert info.record_count == len(wanted)
    assert info.categories == sorted(f"c{scope}" for scope in wanted)
    assert set(call(memory, "list_categories", path)) == {f"c{scope}" for scope in wanted}
    assert call(memory, "tree", path).splitlines()[0] == (
        f"{path} ({len(wanted)} record{'' if len(wanted) == 1 else 's'})"
    )
    assert all(child.startswith(path + "/") for child in call(memory, "list_scopes", path))


@pytest.mark.parametrize("path", LOOKALIKES)
@pytest.mark.parametrize("kind", ["scope", "slice"])
def test_a_view_of_one_scope_sees_no_lookalike(lookalikes: Memory, path: str, kind: str) -> None:
    """Probe 1: the same through a scope view and a slice."""
    view: Any = lookalikes.scope(path) if kind == "scope" else lookalikes.slice([path])
    wanted = below(path)
    for depth in DEPTHS:
        found = view.recall("the same words", depth=depth, limit=50)
        assert scopes_of([match.record for match in found]) == wanted
    assert scopes_of(view.list_records()) == wanted
    assert view.info().record_count == len(wanted)
    assert set(view.list_categories()) == {f"c{scope}" for scope in wanted}


@pytest.mark.parametrize("path", ["/app", "/app%", "/app_1", "/app*", "/앱", "/ap"])
@pytest.mark.parametrize("operation", ["forget", "retire", "reset", "view.forget", "view.reset"])
def test_erasing_one_scope_leaves_every_lookalike(
    lookalikes: Memory, path: str, operation: str
) -> None:
    """Probes 1 and 2: forget and reset on /app remove exactly /app."""
    memory = lookalikes
    gone = {
        "forget": lambda: memory.forget(scope=path),
        "retire": lambda: memory.forget(scope=path, erase=False),
        "reset": lambda: memory.reset(path),
        "view.forget": lambda: memory.scope(path).forget(categories=[f"c{s}" for s in LOOKALIKES]),
        "view.reset": lambda: memory.scope(path).reset(),
    }[operation]()
    assert gone == len(below(path))
    assert scopes_of(memory.list_records()) == set(LOOKALIKES) - below(path)


def test_forgetting_a_scope_leaves_the_record_at_the_root(open_memory: OpenMemory) -> None:
    """Probe 2: forget(scope="/t") leaves the record at "/" alone."""
    memory = open_memory()
    root = memory.remember("at the root", "/")
    memory.remember("in t", "/t")
    memory.remember("below t", "/t/u")
    assert memory.forget(scope="/t") == 2
    assert memory.list_records() == [root]


def test_reset_of_a_team_leaves_its_namesakes(open_memory: OpenMemory, call: Call) -> None:
    """Probe 2: reset("/team") leaves "/team-b", "/team.x" and "/team b" alone."""
    memory = open_memory()
    others = ["/", "/team-b", "/team.x", "/team b", "/tea", "/x/team"]
    for scope in [*others, "/team", "/team/a"]:
        memory.remember(f"note {scope}", scope)
    assert call(memory, "reset", "/team") == 2
    assert scopes_of(memory.list_records()) == set(others)


def near_the_query(count: int) -> dict[str, list[float]]:
    """Return vectors for a query, `count` texts that are nearly it and one far from it."""
    near = {f"near {i}": [1.0, 0.001 * (i + 1), 0.0] for i in range(count)}
    return {"query": [1.0, 0.0, 0.0], "far": [0.3, 0.9, 0.3], **near}


NEARER: dict[str, dict[str, Any]] = {
    "private": {"source": "bob", "private": True},
    "another scope": {"scope": "/elsewhere"},
    "another category": {"categories": ["x"]},
    "another source": {"source": "carol"},
    "other metadata": {"metadata": {"kind": "x"}},
    "too old": {"created_at": "2001-01-01T00:00:00Z"},
    "expired": {"valid_from": "2019-01-01", "expires_at": "2020-01-01T00:00:00Z"},
    "not yet valid": {"valid_from": "2120-01-01T00:00:00Z"},
}
ASKED: dict[str, dict[str, Any]] = {
    "private": {},
    "another scope": {"scope": "/home"},
    "another category": {"categories": ["y"]},
    "another source": {"source": "alice"},
    "other metadata": {"metadata_filter": {"kind": "y"}},
    "too old": {"since": "2015-01-01T00:00:00Z"},
    "expired": {},
    "not yet valid": {},
}
OUT_OF_TIME = ("expired", "not yet valid")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("hidden", NEARER)
def test_invisible_records_never_crowd_out_a_visible_one(
    open_memory: OpenMemory, hidden: str, depth: str, call: Call
) -> None:
    """Probes 3 and 4: seventy invisible records nearer to the query do not hide the visible one."""
    memory = open_memory(embedder=FakeEmbedder(near_the_query(70)))
    mine: dict[str, Any] = {
        "scope": "/home",
        "source": "alice",
        "categories": ["y"],
        "metadata": {"kind": "y"},
    }
    memory.remember("far", **mine)
    memory.remember_many(
        [{**mine, **NEARER[hidden], "content": f"near {i}"} for i in range(70)]
    ).wait()
    assert memory.info(include_private=True).record_count == (1 if hidden in OUT_OF_TIME else 71)
    found = call(memory, "recall", "query", limit=5, depth=depth, **ASKED[hidden])
    assert [match.record.content for match in found] == ["far"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_alice_gets_the_public_record_behind_bobs_private_ones(
    open_memory: OpenMemory, depth: str, view_of: Callable[..., Any]
) -> None:
    """Probe 3: twenty private records of bob nearer than one public one; alice gets that one."""
    memory = open_memory(embedder=FakeEmbedder(near_the_query(20)))
    for i in range(20):
        memory.remember(f"near {i}", "/home", source="bob", private=True)
    memory.remember("far", "/home", source="alice")
    view = view_of(memory)
    seen = view.recall("query", limit=5, depth=depth, source="alice")
    assert [match.record.content for match in seen] == ["far"]
    assert [match.record.content for match in view.recall("query", limit=5, depth=depth)] == ["far"]
    for who in ({"source": "bob"}, {"include_private": True}):
        nearest = view.recall("query", limit=5, depth=depth, **who)
        assert {match.record.source for match in nearest} == {"bob"}


@pytest.mark.parametrize("kind", ["scope", "slice", "subscope"])
def test_a_view_cannot_reach_a_foreign_record_by_id(
    open_memory: OpenMemory, kind: str, call: Call
) -> None:
    """Probe 5: from /agent/b, a record of /agent/a cannot be got, updated or forgotten by id."""
    memory = open_memory()
    foreign = memory.remember("a's note", "/agent/a", categories=["k"], metadata={"n": 1})
    views = {
        "scope": memory.scope("/agent/b"),
        "slice": memory.slice(["/agent/b", "/agent/ab"], read_only=False),
        "subscope": memory.scope("/agent").subscope("b"),
    }
    view = views[kind]
    assert call(view, "get", foreign.id) is None
    assert call(view, "history", foreign.id) == []
    for change in ({"content": "taken"}, {"importance": 1.0}, {"private": True}, {}):
        with pytest.raises(RecordNotFoundError):
            call(view, "update", foreign.id, **change)
    assert call(view, "forget", record_ids=[foreign.id]) == 0
    assert call(view, "forget", record_ids=[foreign.id], erase=False) == 0
    assert call(view, "forget", categories=["k"], include_private=True) == 0
    assert call(view, "reset") == 0
    assert memory.history(foreign.id) == [foreign]


def test_a_private_record_cannot_be_reached_by_id_by_others(
    open_memory: OpenMemory, call: Call
) -> None:
    """Probe 5, by source: only its own source, or include_private, reaches a private record."""
    memory = open_memory()
    secret = memory.remember("bob's secret", "/home", source="bob", private=True)
    for who in ({}, {"source": "alice"}, {"source": "Bob"}):
        assert call(memory, "get", secret.id, **who) is None
        assert call(memory, "history", secret.id, **who) == []
        with pytest.raises(RecordNotFoundError):
            call(memory, "update", secret.id, "changed", **who)
        assert call(memory, "forget", record_ids=[secret.id], **who) == 0
    assert call(memory, "get", secret.id, source="bob") == secret
    assert call(memory, "update", secret.id, importance=0.9, source="bob").private
    assert call(memory, "forget", record_ids=[secret.id], include_private=True) == 1


def test_a_record_cannot_be_moved_out_of_a_view(open_memory: OpenMemory) -> None:
    """Probe 5, the other way round: an update cannot push a record into a foreign scope."""
    memory = open_memory()
    own = memory.remember("mine", "/agent/b")
    with pytest.raises(ScopePermissionError):
        memory.slice(["/agent/b"], read_only=False).update(own.id, scope="/agent/a")
    with pytest.raises(ScopePermissionError):
        memory.slice(["/agent/b"]).update(own.id, importance=1.0)
    moved = memory.scope("/agent/b").update(own.id, scope="/agent/a")
    assert moved.scope == "/agent/b/agent/a"


SUGGESTIONS = (
    "/", "", "..", "/..", "../you", "/crew", "/crew/you", "crew/you", "/crew/me/../you", "you",
    "/crew/me/..", "//crew//you", "/crew/me2", "/nowhere", "/crew/you\n", "*", "/crew/*",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["scope", "slice", "argument"])
@pytest.mark.parametrize("suggestion", SUGGESTIONS)
def test_a_suggested_scope_never_widens_a_recall(
    open_memory: OpenMemory, suggestion: str, kind: str
) -> None:
    """Probe 6: whatever scope the model suggests inside /crew/me, nothing outside is searched."""
    llm = ScriptedLLM(
        {
            "query_analysis": {"sub_queries": ["plan"], "scopes": [suggestion]},
            "exploration": {"gaps": ["g"], "sub_queries": ["the plan"], "scopes": [suggestion]},
        }
    )
    memory = open_memory(
        llm=llm,
        query_analysis_threshold=0,
        confidence_threshold_high=1.0,
        confidence_threshold_low=1.0,
        exploration_budget=2,
    )
    for scope in ("/", "/crew", "/crew/you", "/crew/me2", "/crew/me", "/crew/me/sub"):
        memory.remember(f"plan at {scope}", scope, ["c"], importance=0.5)
    views = {"scope": memory.scope("/crew/me"), "slice": memory.slice(["/crew/me"])}
    view: Any = views.get(kind, memory)
    inside = {"scope": "/crew/me"} if kind == "argument" else {}
    found = view.recall("what is the plan for tomorrow", limit=50, **inside)
    assert llm.asked("exploration"), "exploration was not reached"
    assert {match.record.scope for match in found} == {"/crew/me", "/crew/me/sub"}


@pytest.mark.parametrize("suggestion", ["/", "/crew/you", "..", "/a/../../you", "you", "/" * 9])
def test_a_suggested_scope_never_places_a_save_outside_the_view(
    open_memory: OpenMemory, suggestion: str
) -> None:
    """Probe 6, for saving: an inferred scope lies inside the writer's view."""
    llm = ScriptedLLM({"save_analysis": {"scope": suggestion, "importance": 0.7}})
    memory = open_memory(llm=llm, consolidation_threshold=1.0)
    record = memory.scope("/crew/me").remember("my own note")
    assert record.scope == "/crew/me" or record.scope.startswith("/crew/me/")


def test_an_inferred_scope_that_is_too_deep_inside_a_view_does_not_fail_the_save(
    open_memory: OpenMemory,
) -> None:
    """Probe 6, for saving: it is cut down to what a scope should be, within the view."""
    llm = ScriptedLLM({"save_analysis": {"scope": "/x" * 31, "importance": 0.7}})
    memory = open_memory(llm=llm, consolidation_threshold=1.0)
    record = memory.scope("/crew/me").remember("my own note")
    assert record.scope == "/crew/me/x/x/x"
    deepest = "/d" * 32
    assert memory.scope(deepest).remember("another note").scope == deepest


def test_a_writable_slice_refuses_foreign_scopes(open_memory: OpenMemory, call: Call) -> None:
    """Probe 7: a writable slice writes inside its scopes only, and says which they are."""
    memory = open_memory()
    view = memory.slice(["/team/a", "/team/b"], read_only=False)
    assert call(view, "remember", "in", "/team/b/deep").scope == "/team/b/deep"
    for scope in ("/elsewhere", "/team", "/", "/team/bc", "team"):
        with pytest.raises(PermissionError, match="/team/a, /team/b"):
            call(view, "remember", "out", scope)
        with pytest.raises(PermissionError, match="/team/a, /team/b"):
            call(view, "remember_many", ["out"], scope)
        with pytest.raises(PermissionError):
            call(view, "remember_many", [{"content": "in"}, {"content": "x", "scope": scope}])
    with pytest.raises(PermissionError, match="/team/a, /team/b"):
        call(view, "remember", "nowhere said")
    with pytest.raises(PermissionError, match="/team/a, /team/b"):
        call(view, "remember_many", ["nowhere said"])
    assert [record.content for record in memory.list_records()] == ["in"]


def test_a_read_only_view_changes_nothing(open_memory: OpenMemory, call: Call) -> None:
    """Probe 7: every changing method of a read-only slice raises PermissionError."""
    memory = open_memory()
    record = memory.remember("kept", "/team/a")
    view = memory.slice(["/team/a"])
    changing: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("remember", ("new", "/team/a"), {}),
        ("remember_many", (["new"], "/team/a"), {}),
        ("update", (record.id, "new"), {}),
        ("forget", (), {"scope": "/team/a"}),
        ("forget", (), {"record_ids": [record.id]}),
        ("reset", (), {}),
        ("retry_dead_letters", (), {}),
    ]
    for narrower in (view, view.scope("/team/a"), view.slice(["/team/a"], read_only=False)):
        for name, args, kwargs in changing:
            with pytest.raises(PermissionError):
                call(narrower, name, *args, **kwargs)
    assert memory.list_records() == [record]


def test_discovery_hides_private_rows_as_recall_does(
    open_memory: OpenMemory, view_of: Callable[..., Any], call: Call
) -> None:
    """Probe 8: list_records, info, tree, categories and scopes show what recall shows."""
    memory = open_memory()
    public = memory.remember(
        "public", "/home/a", categories=["open"], created_at=datetime(2026, 5, 1, tzinfo=UTC)
    )
    secret = memory.remember(
        "secret",
        "/home/vault",
        categories=["hush"],
        source="bob",
        private=True,
        created_at=datetime(2026, 4, 1, tzinfo=UTC),
    )
    nobodys = memory.remember("orphan", "/home/orphan", categories=["lone"], private=True)
    view = view_of(memory)
    audiences: list[tuple[dict[str, Any], list[MemoryRecord]]] = [
        ({}, [public]),
        ({"source": "alice"}, [public]),
        ({"source": "bob"}, [public, secret]),
        ({"include_private": True}, [public, secret, nobodys]),
    ]
    for who, seen in audiences:
        labels = {label for record in seen for label in record.categories}
        places = {record.scope for record in seen}
        info = call(view, "info", "/home", **who)
        assert info.record_count == len(seen)
        assert info.categories == sorted(labels)
        assert info.child_scopes == sorted(places)
        assert info.oldest_record == min(record.created_at for record in seen)
        assert info.newest_record == max(record.created_at for record in seen)
        tree = call(view, "tree", "/home", **who)
        assert {line.split(" (")[0].strip() for line in tree.splitlines()} == {"/home", *places}
        assert tree.splitlines()[0].endswith(f"({len(seen)} record{'s' * (len(seen) > 1)})")
        assert set(call(view, "list_categories", "/home", **who)) == labels
        assert set(call(view, "list_scopes", "/home", **who)) == places
        for record in (public, secret, nobodys):
            assert (call(view, "get", record.id, **who) is not None) == (record in seen)
        # A source filter also leaves out what has no source, in recall and listing alike.
        own = [r for r in seen if "source" not in who or r.source == who["source"]]
        listed = call(view, "list_records", **who)
        assert {record.id for record in listed} == {record.id for record in own}
        for depth in DEPTHS:
            found = call(view, "recall", "secret public orphan", depth=depth, **who)
            assert {match.record.id for match in found} == {record.id for record in own}


def test_dead_letters_hide_private_texts(open_memory: OpenMemory, call: Call) -> None:
    """Probe 8: saves that were given up are shown to those who may see what they say."""
    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder, save_attempts=1)
    memory.remember("before")
    embedder.fail = True
    bobs: dict[str, Any] = {"content": "secret", "source": "bob", "private": True}
    away: dict[str, Any] = {"content": "away", "scope": "/away"}
    batches: list[list[Any]] = [["public", bobs], [away], [bobs]]
    for batch in batches:
        with pytest.raises(SaveError):
            memory.remember_many(batch, "/home").wait(10)

    def texts(view: Any, **who: Any) -> list[tuple[str, ...]]:
        return sorted(letter.texts for letter in call(view, "dead_letters", **who))

    assert texts(memory) == texts(memory, source="alice") == [("away",), ("public",)]
    assert texts(memory, source="bob") == [("away",), ("public", "secret"), ("secret",)]
    assert texts(memory.scope("/home"), include_private=True) == [
        ("public", "secret"),
        ("secret",),
    ]
    assert texts(memory.slice(["/away"]), include_private=True) == [("away",)]
    embedder.fail = False
    assert call(memory.scope("/home"), "retry_dead_letters") == 2
    assert call(memory, "retry_dead_letters") == 1
    memory.drain_writes()
    assert len(memory.list_records(include_private=True)) == 4


def test_the_command_line_hides_private_rows_as_recall_does(tmp_path: Path) -> None:
    """Probe 8: list, tree, info, recall and show print what the methods return."""
    folder = tmp_path / "store"
    with Memory(llm=None, storage=folder) as memory:
        memory.remember("all may know this", "/home", ["open"])
        hidden = memory.remember(
            "nobody else knows", "/vault", ["hush"], source="bob", private=True
        )

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--storage", str(folder)])
        return result.output

    for who, sees in (
        ([], False),
        (["--source", "bob"], True),
    ):
        for command in (["list"], ["recall", "who knows what", "--no-llm"]):
            assert ("nobody else knows" in printed(*command, *who)) == sees
        assert ("/vault" in printed("tree", *who)) == sees
        assert ("hush" in printed("info", *who)) == sees
        assert ("nobody else knows" in printed("show", hidden.id, *who)) == sees
        assert ("nobody else knows" in printed("show", hidden.id, "--history", *who)) == sees


def test_forgetting_by_others_leaves_private_rows(open_memory: OpenMemory, call: Call) -> None:
    """Probe 8: forget reaches the private rows that recall would show, no others."""
    memory = open_memory()
    memory.remember("public", "/home", source="alice")
    secret = memory.remember("secret", "/home", source="bob", private=True)
    assert call(memory, "forget", scope="/home") == 1
    assert call(memory, "forget", scope="/home", source="alice") == 0
    assert memory.list_records(include_private=True) == [secret]
    assert call(memory, "forget", scope="/home", source="bob") == 1


def test_names_in_any_script_are_scopes_of_their_own(open_memory: OpenMemory, call: Call) -> None:
    """Probe 9: 연구원 and 研究员 are two scopes; Ünal keeps its letters, composed or not."""
    memory = open_memory()
    names = [
        "연구원",
        "研究员",
        "研究院",
        "Ünal",
        "Unal",
        "ünal",
        "İpek",
        "Ipek",
        "سارة",
        "саша",
        "🙂",
    ]
    for name in names:
        memory.remember(f"note of {name}", f"/agent/{name}")
    assert set(memory.list_scopes("/agent")) == {f"/agent/{name}" for name in names}
    for name in names:
        for form in ("NFC", "NFD"):
            path = f"/agent/{unicodedata.normalize(form, name)}"
            assert call(memory, "info", path).record_count == 1
            assert memory.scope(path).list_records()[0].content == f"note of {name}"


def test_scopes_of_any_size_return_their_own_best(open_memory: OpenMemory) -> None:
    """Probe 10: scopes of 1, 3, 93 and 3,000 records in one store each return their best hit."""
    memory = open_memory(embedder=FakeEmbedder(dimension=16))
    sizes = {"/one": 1, "/three": 3, "/some": 93, "/many": 3000}
    batch = [
        {"content": f"filler {i} of {scope}", "scope": scope, "importance": 0.9}
        for scope, size in sizes.items()
        for i in range(size - 1)
    ]
    batch += [
        {"content": f"the needle of {scope}", "scope": scope, "importance": 0.5} for scope in sizes
    ]
    memory.remember_many(batch).wait()
    for scope, size in sizes.items():
        assert memory.info(scope).record_count == size
        for depth in DEPTHS:
            found = memory.recall("needle", scope=scope, limit=3, depth=depth)
            assert found[0].record.content == f"the needle of {scope}"
            assert {match.record.scope for match in found} == {scope}
            assert len(found) == min(size, 3)


def test_a_source_recalls_its_own_memories_only(
    open_memory: OpenMemory, view_of: Callable[..., Any], call: Call
) -> None:
    """Probe 11: source="user:alice" recalls memories of that source, nothing private of others."""
    memory = open_memory()
    for source in ("user:alice", "user:alice2", "user", "user:bob", None):
        for private in (False, True):
            kind = "private" if private else "public"
            memory.remember(f"{kind} note by {source}", "/home", source=source, private=private)
    view = view_of(memory)
    own = {"public note by user:alice", "private note by user:alice"}
    for depth in DEPTHS:
        found = call(view, "recall", "note", source="user:alice", depth=depth, limit=50)
        assert {match.record.content for match in found} == own
        found = call(view, "recall", "note", depth=depth, limit=50)
        assert all(match.record.content.startswith("public") for match in found)
        assert len(found) == 5
    assert {r.content for r in call(view, "list_records", source="user:alice")} == own


def test_a_viewer_sees_what_is_public_and_its_own(
    open_memory: OpenMemory, view_of: Callable[..., Any], call: Call
) -> None:
    """viewer="user:alice" says who asks; source= then still says whose memories are wanted."""
    memory = open_memory()
    for source in ("user:alice", "user:bob", None):
        for private in (False, True):
            kind = "private" if private else "public"
            memory.remember(f"{kind} note by {source}", "/home", source=source, private=private)
    view = view_of(memory)
    public = {f"public note by {source}" for source in ("user:alice", "user:bob", None)}
    asked = [
        ({"viewer": "user:alice"}, public | {"private note by user:alice"}),
        ({"viewer": "user:alice", "source": "user:bob"}, {"public note by user:bob"}),
        ({"viewer": "user:bob", "source": "user:bob"}, {f"{k} note by user:bob" for k in KINDS}),
        ({"viewer": "nobody"}, public),
    ]
    for arguments, wanted in asked:
        for depth in DEPTHS:
            found = call(view, "recall", "note", depth=depth, limit=50, **arguments)
            assert {match.record.content for match in found} == wanted
        assert {r.content for r in call(view, "list_records", **arguments)} == wanted
        text = call(view, "retrieve_for", "note", limit=50, **arguments)
        assert len(text.splitlines()) == len(wanted)
    why = memory.explain("note", memory.list_records(source="user:bob")[0].id, viewer="user:alice")
    assert why.verdict is Verdict.UNKNOWN
    with pytest.raises(InvalidInputError, match="viewer"):
        view.recall("note", viewer=" ")
    # As a criterion of its own, the viewer would make forget() forget everything in sight.
    with pytest.raises(InvalidInputError, match="criterion"):
        memory.forget(viewer="user:alice")
    assert memory.forget(scope="/home", viewer="user:alice") == 4


def test_what_is_private_to_nobody_takes_include_private(open_memory: OpenMemory) -> None:
    """Without a source there is nobody else who could ask for it."""
    memory = open_memory()
    record = memory.remember("a note of the house", "/home", private=True)
    others: list[dict[str, Any]] = [{}, {"source": "alice"}, {"source": "anonymous"}]
    for who in (*others, {"viewer": "alice"}):
        assert memory.recall("note", **who) == []
    assert memory.get(record.id, source="alice") is None
    assert [match.record for match in memory.recall("note", include_private=True)] == [record]


def test_one_memory_serves_two_sessions_without_mixing_them(open_memory: OpenMemory) -> None:
    """Probe 12: the same object used for alice, then bob, then both at once, never mixes them."""
    memory = open_memory()
    for who in ("alice", "bob"):
        for i in range(5):
            memory.remember(f"{who} keeps secret number {i}", source=who, private=True)

    def session(who: str) -> set[str]:
        found = memory.recall("secret number", source=who, limit=50)
        found += memory.recall("secret number", source=who, limit=50, depth="shallow")
        return {record.content.split()[0] for record in (match.record for match in found)}

    assert session("alice") == {"alice"}
    assert session("bob") == {"bob"}
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(session, ["alice", "bob"] * 16))
    assert sessions == [{"alice"}, {"bob"}] * 16


def test_nothing_private_reaches_the_model_of_another_writer(open_memory: OpenMemory) -> None:
    """Probe 12, for prompts: what one writer keeps private is in no prompt made for another."""
    same: dict[str, Any] = {"sub_queries": [], "scopes": []}
    llm = ScriptedLLM(
        {
            "save_analysis": {"scope": "/vault/of/bob", "categories": ["hush"], "importance": 0.5},
            "consolidation": {"actions": [], "insert_new": True},
            "query_analysis": same,
            "exploration": same,
        }
    )
    memory = open_memory(llm=llm, query_analysis_threshold=0, confidence_threshold_high=1.0)
    secret = "bob's door code is 4711"
    memory.remember(secret, source="bob", private=True)
    llm.requests.clear()
    memory.remember(secret + " they say", source="alice")
    memory.recall("what is the door code", source="alice")
    memory.recall("what is the door code")
    assert llm.requests
    for request in llm.requests:
        assert secret + '"' not in request.prompt
    for request in llm.asked("save_analysis"):
        assert "hush" not in request.prompt
        assert "/vault" not in request.prompt
