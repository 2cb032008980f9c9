"""Filing: what a model suggests for a save fits the scopes and categories there are."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from mnemotrace import Memory, scopes
from mnemotrace.errors import ScopeError
from mnemotrace.flows.answers import SaveAnalysis
from mnemotrace.flows.filing import Filing, spelling
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

SCOPES = {
    "/project": 9,
    "/project/alpha": 5,
    "/project/alpha/api design": 2,
    "/project/Beta-Two": 3,
    "/연구": 1,
    "/연구/언어 모델": 1,
    "/deep": 1,
    "/deep/a": 1,
    "/deep/a/b": 1,
    "/deep/a/b/c": 1,
    "/deep/a/b/c/d": 1,
}
LABELS = {"Database": 4, "database": 1, "user-interface": 2, "데이터베이스": 1}


def settled(scope: str, base: str = "/", categories: tuple[str, ...] = ()) -> SaveAnalysis:
    answer = SaveAnalysis(scope=scope, importance=0.5, categories=list(categories))
    return Filing(SCOPES, LABELS).settle(answer, base)


@pytest.mark.parametrize(
    ("suggested", "scope"),
    [
        ("/project/alpha", "/project/alpha"),
        ("/Project/ALPHA", "/project/alpha"),
        ("project/alpha/", "/project/alpha"),
        (" /project / alpha ", "/project/alpha"),
        ("/project/alpha/API-Design", "/project/alpha/api design"),
        ("/project/alpha/api_design", "/project/alpha/api design"),
        ("/project/beta two", "/project/Beta-Two"),
        ("/ｐｒｏｊｅｃｔ/ａｌｐｈａ", "/project/alpha"),
        ("/연구/언어-모델", "/연구/언어 모델"),
        ("/연구/언어모델", "/연구/언어모델"),
        ("/PROJECT/gamma", "/project/gamma"),
        ("/Customer/Acme Corp", "/Customer/Acme Corp"),
        ("/project/alpha2", "/project/alpha2"),
        ("/", "/"),
    ],
)
def test_an_existing_scope_is_used_where_only_its_spelling_differs(
    suggested: str, scope: str
) -> None:
    assert settled(suggested).scope == scope


@pytest.mark.parametrize(
    ("suggested", "scope"),
    [
        (
            "/project/alpha/architecture/decisions/databases/postgresql",
            "/project/alpha/architecture",
        ),
        ("/a/b/c/d", "/a/b/c"),
        ("/deep/a/b/c", "/deep/a/b/c"),
        ("/Deep/A/B/C/D", "/deep/a/b/c/d"),
        ("/deep/a/b/c/d/e/f", "/deep/a/b/c/d"),
        ("/x" * 31, "/x/x/x"),
    ],
)
def test_new_scopes_are_shallow_but_existing_deep_ones_are_used(suggested: str, scope: str) -> None:
    assert settled(suggested).scope == scope


@pytest.mark.parametrize(
    ("suggested", "scope"),
    [
        ("/project/alpha/notes", "/project/alpha/notes"),
        ("/Project/Alpha/notes", "/project/alpha/notes"),
        ("notes", "/project/alpha/notes"),
        ("/", "/project/alpha"),
        ("/project", "/project/alpha/project"),
        ("/other/x", "/project/alpha/other/x"),
        ("/API design", "/project/alpha/api design"),
        ("/a/b/c/d/e", "/project/alpha/a/b/c"),
    ],
)
def test_a_scope_never_leaves_the_writers_own(suggested: str, scope: str) -> None:
    assert settled(suggested, "/project/alpha").scope == scope


@pytest.mark.parametrize(
    ("suggested", "scope"),
    [
        ("/project/alpha (5)", "/project/alpha"),
        ('"/project/alpha/api design" (2)', "/project/alpha/api design"),
        ("`/project/alpha`", "/project/alpha"),
        ("/project/{identifier}", "/project"),
        ("/{entity type}/{identifier}", "/"),
        ("/<project>/[name]", "/"),
        ("none", "/"),
        ("(none)", "/"),
        ("N/A", "/"),
        ("/none/such", "/none/such"),
        ("/release (2)", "/release"),
        ("/project/alpha; reuse an existing one if it fits", "/project"),
        ("/project/" + "a" * 41 + "/b", "/project"),
        ("The user database of the project is PostgreSQL", "/"),
    ],
)
def test_what_models_copy_from_the_prompt_is_no_part_of_a_scope(suggested: str, scope: str) -> None:
    assert settled(suggested).scope == scope


@pytest.mark.parametrize("seed", range(5))
def test_whatever_passes_as_a_scope_is_fitted_without_an_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        text = "".join(
            rng.choice("/.\"`'{}<>() 1aA연-_\u00a0\u0130") for _ in range(rng.randrange(20))
        )
        try:
            scopes.normalise(text)
        except ScopeError:
            continue
        for base in ("/", "/project/alpha", "/연구"):
            path = settled(text, base).scope
            assert scopes.contains(base, path)
            assert scopes.normalise(path) == path
            assert scopes.depth(path) <= scopes.depth(base) + 3


def test_a_scope_whose_name_ends_in_a_number_in_brackets_is_used_as_it_is() -> None:
    filing = Filing({"/release (2)": 1, "/release": 5}, {})
    answer = filing.settle(SaveAnalysis(scope="/release (2)", importance=0), "/")
    assert answer.scope == "/release (2)"


def test_a_writer_whose_own_scope_is_as_deep_as_can_be_stays_there() -> None:
    base = "/x" * 32
    assert settled("/more", base).scope == base


@pytest.mark.parametrize("suggested", ["/a/../b", "..", "/a\x00b", "/" + "a" * 2000, "/a" * 40])
def test_what_is_no_scope_is_refused(suggested: str) -> None:
    with pytest.raises(ScopeError):
        settled(suggested)


def test_the_larger_of_two_spellings_wins_unless_one_is_exact() -> None:
    filing = Filing({"/team": 2, "/Team": 7}, {})
    assert filing.settle(SaveAnalysis(scope="/TEAM", importance=0), "/").scope == "/Team"
    assert filing.settle(SaveAnalysis(scope="/team", importance=0), "/").scope == "/team"


def test_categories_are_spelled_as_the_existing_ones() -> None:
    given = (
        "none",
        "DATABASE",
        "database",
        "User Interface",
        "데이터베이스",
        "ｎｅｗ",
        "New",
        "x" * 61,
    )
    assert settled("/a", categories=given).categories == [
        "Database", "user-interface", "데이터베이스", "ｎｅｗ",
    ]  # fmt: skip
    assert len(settled("/a", categories=tuple("abcdefghijkl")).categories) == 8


def test_one_batch_spells_new_scopes_and_categories_one_way() -> None:
    filing = Filing({}, {})
    answers = [
        SaveAnalysis(scope=scope, importance=0.5, categories=[label])
        for scope, label in [("/Shop/Web", "Cart"), ("/shop/web", "cart"), ("/SHOP/app", "CART")]
    ]
    done = [filing.settle(answer, "/") for answer in answers]
    assert [answer.scope for answer in done] == ["/Shop/Web", "/Shop/Web", "/Shop/app"]
    assert {tuple(answer.categories) for answer in done} == {("Cart",)}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("User DB", "user-db", True),
        ("user__db", "user db", True),
        ("userdb", "user db", False),
        ("v1-1", "v11", False),
        ("-", "_", False),
        ("é", "e\u0301", True),
    ],
)
def test_spelling(one: str, other: str, same: bool) -> None:
    assert (spelling(one) == spelling(other)) is same


# -- through a memory ------------------------------------------------------------------------------


def analysed(**answer: Any) -> ScriptedLLM:
    return ScriptedLLM({"save_analysis": {"scope": "/new", "importance": 0.7, **answer}})


def test_saves_reuse_scopes_and_categories_of_the_store() -> None:
    llm = analysed(scope="/Project/Alpha/Decisions/Databases", categories=["DATABASE", "sql"])
    with Memory(llm=llm, storage=":memory:", embedder=FakeEmbedder()) as memory:
        memory.remember("one", "/project/alpha", ["database"], importance=0.5)
        record = memory.remember("two")
        assert record.scope == "/project/alpha/Decisions"
        assert record.categories == ["database", "sql"]
        many = memory.remember_many([f"text {i}" for i in range(5)]).wait(20)
        assert {r.scope for r in many} == {record.scope}
        (asked, *_) = llm.asked("save_analysis")
        assert "Existing scopes (records):\n/project/alpha (1)\n" in asked.prompt
        assert "Existing categories:\n- database\n" in asked.prompt


def test_the_whole_tree_is_summarised_in_the_prompt_and_stays_within_its_tokens() -> None:
    from mnemotrace.scope_tree import SCOPE_TOKENS
    from mnemotrace.tokens import count_tokens

    llm = analysed()
    with Memory(llm=llm, storage=":memory:", embedder=FakeEmbedder()) as memory:
        given: list[dict[str, Any]] = [
            {"content": f"n {i}", "scope": f"/customer/number-{i}/notes"} for i in range(400)
        ]
        given += [{"content": f"d {i}", "scope": "/zoo/birds/owls/snowy"} for i in range(2)]
        memory.remember_many(given, categories=["c"], importance=0.5).wait(60)
        memory.remember("what is this?")
    (asked,) = llm.asked("save_analysis")
    tree = asked.prompt.split("Existing scopes (records):\n")[1].split("\n\n")[0]
    assert "/customer (400)" in tree
    assert "/zoo/birds/owls/snowy (2)" in tree, "a small deep branch is not hidden by 400 others"
    assert " more" in tree
    assert 0.9 * SCOPE_TOKENS < count_tokens(tree) <= SCOPE_TOKENS


def test_analysis_fills_metadata_and_leaves_the_users_own_alone() -> None:
    """Probe 29: whatever the user put under these keys stays, values that count as false too."""
    found = {"entities": ["Sarah", "Bo"], "dates": ["2026-03-01"], "topics": ["migration"]}
    with Memory(llm=analysed(**found), storage=":memory:", embedder=FakeEmbedder()) as memory:
        record = memory.remember("text one")
        assert record.metadata == found
        own: dict[str, Any] = {"entities": 0, "dates": "", "topics": False, "mine": None}
        assert memory.remember("text two", metadata=own).metadata == own
        partly = {"topics": ["my own"], "at": datetime(2026, 3, 1, 12, tzinfo=UTC)}
        record = memory.remember("text three", metadata=partly)
        assert record.metadata == {**found, **partly}
        read = memory.get(record.id)
        assert read is not None
        assert read.metadata == {**found, **partly}
        said = memory.remember("text three", metadata={"mine": 0})
        assert said.id == record.id
        assert said.metadata == {**found, **partly, "mine": 0}
        changed = memory.update(record.id, content="text three and a half")
        assert changed.metadata == said.metadata


def test_nothing_found_leaves_no_empty_metadata() -> None:
    llm = analysed(entities=[], dates=None, topics=[" ", {"kind": "x"}])
    with Memory(llm=llm, storage=":memory:", embedder=FakeEmbedder()) as memory:
        assert memory.remember("text").metadata == {}


def test_fields_that_were_given_are_not_analysed_away() -> None:
    llm = analysed(scope="/other", categories=["other"], importance=0.9)
    with Memory(llm=llm, storage=":memory:", embedder=FakeEmbedder()) as memory:
        record = memory.remember("text", "/Mine/A", ["Mine"])
        assert (record.scope, record.categories, record.importance) == ("/Mine/A", ["Mine"], 0.9)
