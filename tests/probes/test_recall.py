"""Probes 31-33, 36, 37 and 40-42: recall finds what is there, and says when it could not look."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pytest

from mnemotrace import Memory, Recall
from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.errors import InvalidInputError, StoreError
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

OpenMemory = Callable[..., Memory]
Call = Callable[..., Any]
DEPTHS: tuple[Literal["shallow", "deep"], ...] = ("shallow", "deep")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def contents(found: Recall) -> list[str]:
    return [match.record.content for match in found]


# -- 31, 32, 33 ----------------------------------------------------------------------------------


def suggesting(*scopes: str) -> ScriptedLLM:
    return ScriptedLLM(
        {
            "query_analysis": {"sub_queries": ["alpha"], "scopes": list(scopes)},
            "exploration": {"gaps": [], "sub_queries": [], "scopes": list(scopes)},
        }
    )


@pytest.mark.parametrize("place", ["/", "/p", "/p/x/y"])
@pytest.mark.parametrize(
    "llm", [None, suggesting("/x"), suggesting("/p/x", "/x"), ScriptedLLM()], ids=[0, 1, 2, 3]
)
def test_a_match_above_the_other_scopes_is_found(
    open_memory: OpenMemory, call: Call, llm: Any, place: str
) -> None:
    """Probe 31: records at / or /p are in reach of a deep recall although /x and /p/x exist."""
    memory = open_memory(llm=llm, query_analysis_threshold=0)
    for scope in ("/x", "/p/x", "/p/z", "/q/r/s"):
        for i in range(5):
            memory.remember(f"filler {i} of {scope}", scope, ["c"], importance=0.9)
    memory.remember("the alpha needle", place, ["c"], importance=0.1)
    base = None if place == "/" else "/p"
    for within in (None, base):
        found = call(memory, "recall", "alpha needle", scope=within, limit=3)
        assert contents(found)[0] == "the alpha needle"
    if base is not None:
        assert contents(call(memory.scope(base), "recall", "alpha needle"))[0] == "the alpha needle"


def test_what_fell_to_the_root_while_the_model_was_down_is_found(
    open_memory: OpenMemory, call: Call
) -> None:
    """Probe 31: memories saved to "/" because analysis failed are found later."""
    down = open_memory(llm=ScriptedLLM({"save_analysis": RuntimeError("rate limit")}))
    fallen = down.remember("the boiler is serviced by Ines")
    assert (fallen.scope, fallen.categories, fallen.importance) == ("/", [], 0.5)
    assert fallen.analysis == "pending"
    up = open_memory(llm=suggesting("/house"), query_analysis_threshold=0)
    up.remember("the house is blue", "/house", ["c"], importance=0.9)
    found = call(up, "recall", "who services the boiler")
    assert contents(found)[0] == fallen.content


@pytest.mark.parametrize("llm", [None, suggesting("/scope-0", "/scope-1")], ids=["none", "model"])
def test_the_needle_in_the_last_of_a_thousand_scopes_is_found(
    open_memory: OpenMemory, llm: Any
) -> None:
    """Probe 32: any number of top-level scopes is searched, whatever a model suggests."""
    memory = open_memory(llm=llm, embedder=FakeEmbedder(dimension=16), query_analysis_threshold=0)
    memory.remember_many(
        [
            {
                "content": f"filler number {i}" if i < 999 else "the needle with the answer",
                "scope": f"/scope-{i}",
                "categories": ["c"],
                "importance": 0.5,
            }
            for i in range(1000)
        ]
    ).wait()
    assert len(memory.list_scopes()) == 1000
    for depth in DEPTHS:
        found = memory.recall("needle answer", depth=depth)
        assert contents(found)[0] == "the needle with the answer"


@pytest.mark.parametrize(
    "suggestion", ["/nowhere", "/home/nowhere", "home", "", "..", "/home/../home", "/home\x00"]
)
def test_a_suggested_scope_that_does_not_exist_falls_back(
    open_memory: OpenMemory, call: Call, view_of: Callable[..., Any], suggestion: str
) -> None:
    """Probe 33: when no suggested scope exists, the caller's own scope is searched."""
    memory = open_memory(llm=suggesting(suggestion), query_analysis_threshold=0)
    memory.remember("alpha at home", "/home/room", ["c"], importance=0.5)
    memory.remember("alpha abroad", "/away", ["c"], importance=0.5)
    view = view_of(memory)
    found = call(view, "recall", "where is alpha")
    expected = {"alpha at home"} if view is not memory else {"alpha at home", "alpha abroad"}
    assert set(contents(found)) == expected


# -- 36 ------------------------------------------------------------------------------------------

DIRECTIONS = {
    "same, short": [1e-6, 0.0],
    "same": [1.0, 0.0],
    "same, long": [1e6, 0.0],
    "between": [1.0, 1.0],
    "across": [0.0, 3.0],
    "against": [-5.0, 0.0],
}
COSINES = {
    "same, short": 1.0,
    "same": 1.0,
    "same, long": 1.0,
    "between": 0.5**0.5,
    "across": 0.0,
    "against": -1.0,
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("length", [1e-5, 1.0, 10.0, 1e7])
def test_the_length_of_vectors_does_not_matter(
    open_memory: OpenMemory, call: Call, depth: str, length: float
) -> None:
    """Probe 36: [10,0] matches [1,0] perfectly; negative cosines are there, with their value."""
    embedder = FakeEmbedder({**DIRECTIONS, "?": [length, 0.0]})
    memory = open_memory(embedder=embedder, consolidation_threshold=1.0)
    for text in DIRECTIONS:
        memory.remember(text, created_at=NOW)
    found = call(memory, "recall", "?", depth=depth, now=NOW)
    cosines = {match.record.content: match.components.cosine for match in found}
    assert cosines == pytest.approx(COSINES, abs=1e-5)
    similarity = {match.record.content: match.components.similarity for match in found}
    assert similarity == pytest.approx({k: 1 / (2 - c) for k, c in COSINES.items()}, abs=1e-5)
    assert contents(found)[-1] == "against"
    assert found.confidence == pytest.approx(1.0)


def test_a_memory_with_only_opposite_records_still_returns_them(open_memory: OpenMemory) -> None:
    """Probe 36: a threshold of zero would hide everything here."""
    embedder = FakeEmbedder({"?": [1.0, 0.0], "a": [-1.0, 0.1], "b": [-1.0, -0.5]})
    memory = open_memory(embedder=embedder)
    memory.remember("a")
    memory.remember("b")
    for depth in DEPTHS:
        found = memory.recall("?", depth=depth)
        assert set(contents(found)) == {"a", "b"}
        assert found.confidence == 0.0


# -- 37 ------------------------------------------------------------------------------------------


def test_limits_are_kept(open_memory: OpenMemory, call: Call, view_of: Callable[..., Any]) -> None:
    """Probe 37: limit=0 gives [], a limit beyond the store gives everything once."""
    memory = open_memory()
    for i in range(30):
        memory.remember(f"note {i}", "/home")
    view = view_of(memory)
    for depth in DEPTHS:
        nothing = call(view, "recall", "note", limit=0, depth=depth)
        assert nothing == []
        assert isinstance(nothing, Recall)
        for limit, expected in ((1, 1), (29, 29), (30, 30), (1000, 30)):
            found = call(view, "recall", "note", limit=limit, depth=depth)
            assert len({match.record.id for match in found}) == len(found) == expected


def test_extremes_are_no_special_cases(open_memory: OpenMemory) -> None:
    """Probe 37, next of kin: huge limits, offsets, texts and queries just work."""
    memory = open_memory()
    long = memory.remember("needle in " + "much hay " * 5_000, "/home")
    memory.remember("short", "/home")
    for depth in DEPTHS:
        for limit in (10_000, 2**31, 2**63, 10**30):
            assert len(memory.recall("needle", limit=limit, depth=depth)) == 2
        assert memory.recall("needle " * 2_000, depth=depth)[0].record.id == long.id
    for limit in (2**31, 2**63, 10**30):
        assert len(memory.list_records(limit=limit)) == 2
        assert memory.list_records(offset=limit) == []
    assert memory.tree(max_depth=10**30).startswith("/ (2 records)")
    assert memory.get(long.id) == long
    one: Any = np.int64(1)
    quarter: Any = np.float32(0.25)
    assert len(memory.recall("needle", limit=one)) == 1
    assert memory.update(long.id, importance=quarter).importance == 0.25
    for name in ("limit", "offset"):
        for wrong in (-1, 1.5, "3", None, True):
            with pytest.raises(InvalidInputError, match=name):
                memory.list_records(**{name: wrong})  # type: ignore[arg-type]
    for wrong in (-1, 1.5, "3", None):
        with pytest.raises(InvalidInputError, match="max_depth"):
            memory.tree(max_depth=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": None}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"depth": "medium"}, "depth"),
        ({"depth": ""}, "depth"),
        ({"depth": None}, "depth"),
        ({"trace": "loud"}, "trace"),
        ({"query": ""}, "empty"),
        ({"query": " \n"}, "empty"),
        ({"query": None}, "must be a string, not None"),
        ({"query": ["note"]}, "must be a string, not .'note'."),
        ({"categories": [""]}, "categories"),
        ({"categories": 5}, "categories"),
        ({"source": ""}, "source"),
        ({"source": 5}, "source"),
        ({"include_private": 1}, "include_private"),
        ({"since": "yesterday"}, "since"),
        ({"until": 5}, "until"),
        ({"as_of": "x"}, "as_of"),
        ({"now": "x"}, "now"),
        ({"metadata_filter": "x"}, "metadata_filter"),
        ({"metadata_filter": {"k": {"near": 1}}}, "near"),
        ({"metadata_filter": {"k": object}}, "k"),
        ({"scope": "/a/../b"}, r"\.\."),
        ({"scope": 5}, "scope"),
        ({"wait_for_writes": "no"}, "wait_for_writes"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_recall_is_a_clear_error(
    open_memory: OpenMemory, call: Call, arguments: dict[str, Any], says: str
) -> None:
    """Probe 37: a wrong value is named, at both depths, on an empty and on a filled store."""
    memory = open_memory()
    for _ in range(2):
        for depth in DEPTHS:
            with pytest.raises(InvalidInputError, match=f"(?i){says}"):
                call(memory, "recall", **{"query": "note", "depth": depth, **arguments})
        memory.remember("note")


def test_an_unknown_keyword_is_named_with_the_nearest_one(
    open_memory: OpenMemory, call: Call, view_of: Callable[..., Any]
) -> None:
    """Probe 37: unknown keywords are errors on every method of every view."""
    view = view_of(open_memory())
    for name, args, wrong, nearest in (
        ("recall", ("q",), {"limits": 3}, "limit"),
        ("recall", ("q",), {"include_privat": True}, "include_private"),
        ("remember", ("t",), {"catagories": ["c"]}, "categories"),
        ("remember_many", (["t"],), {"import": 1.0}, "importance"),
        ("forget", (), {"older": "2026-01-01"}, "older_than"),
        ("update", ("i",), {"contents": "x"}, "content"),
        ("tree", (), {"depth": 2}, "max_depth"),
        ("list_records", (), {"ofset": 2}, "offset"),
        ("drain_writes", (), {"time_out": 2}, "timeout"),
    ):
        with pytest.raises(TypeError, match=f"Did you mean '{nearest}'"):
            call(view, name, *args, **wrong)
    with pytest.raises(TypeError, match="It takes"):
        call(view, "recall", "q", zzz=1)
    with pytest.raises(ValueError, match="recency_weight"):
        Memory(llm=None, storage=":memory:", recency_wieght=0.5)  # type: ignore[call-arg]


# -- 40 ------------------------------------------------------------------------------------------

TEXTS = {
    "ko": ("프로젝트 알파의 마감일은 유월 삼일입니다", "서버 점검은 매주 화요일에 합니다", "마감일은 유월"),
    "zh": ("阿尔法项目的截止日期是六月三日", "服务器每周二进行维护", "截止日期"),
    "ja": ("アルファ計画の締め切りは六月三日です", "サーバーの保守は毎週火曜日です", "締め切り"),
    "kana": ("ﾃﾞｰﾀﾍﾞｰｽは毎晩バックアップします", "会議は毎週あります", "データベース"),
    "ru": ("Крайний срок проекта Альфа третьего июня", "Сервер обслуживают по вторникам", "срок проекта"),
    "accents": ("La réunion a été déplacée à l'Élysée", "Le serveur est prêt", "déplacée à l'Élysée"),
    "german": ("Die Straße über die Brücke ist gesperrt", "Der Zug fährt um neun", "Straße über die Brücke"),
    "vietnamese": ("Hạn chót của dự án là ngày ba tháng sáu", "Máy chủ bảo trì thứ ba", "Hạn chót của dự án"),
    "hindi": ("परियोजना की अंतिम तिथि तीन जून है", "सर्वर का रखरखाव मंगलवार को", "अंतिम तिथि"),
    "thai": ("กำหนดส่งโครงการคือวันที่สามมิถุนายน", "บำรุงรักษาเซิร์ฟเวอร์ทุกวันอังคาร", "กำหนดส่ง"),
    "full width": ("注文番号ＡＢＣ１２３を確認した", "注文はまだありません", "ABC123"),
    "half width": ("order code XYZ987 was checked", "orders are still open", "ＸＹＺ９８７"),
}  # fmt: skip


@pytest.mark.parametrize("stored_form", ["NFC", "NFD"])
def test_an_exact_fragment_is_recalled_in_any_script(
    open_memory: OpenMemory, stored_form: Any
) -> None:
    """Probe 40: composed or not, full or half width, among texts that are as near for the vector."""
    blind = FakeEmbedder(dimension=16)
    seeing = blind.embed

    def embed(texts: list[str]) -> list[list[float]]:
        return seeing(texts) if tuple(texts) == FIXED_TEXTS else [[1.0] * 16] * len(texts)

    blind.embed = embed  # type: ignore[method-assign]
    memory = open_memory(embedder=blind, consolidation_threshold=1.0)
    memory.remember_many(
        [
            {"content": unicodedata.normalize(stored_form, text), "importance": 0.5}
            for pair in TEXTS.values()
            for text in pair[:2]
        ],
        created_at=NOW,
    ).wait()
    assert memory.info().record_count == 2 * len(TEXTS), "texts were dropped as duplicates"
    for language, (text, _, fragment) in TEXTS.items():
        for asked in {
            unicodedata.normalize("NFC", fragment),
            unicodedata.normalize("NFD", fragment),
        }:
            for depth in DEPTHS:
                found = memory.recall(asked, depth=depth, limit=3, now=NOW)
                best = unicodedata.normalize("NFC", found[0].record.content)
                assert best == text, language
                assert found[0].components.lexical == pytest.approx(1.0)


# -- 41 ------------------------------------------------------------------------------------------


@pytest.fixture
def flaky(delegating: Any) -> Any:
    """A real store whose searches fail while `failing` says so."""

    class Flaky(delegating):  # type: ignore[misc]
        failing: Any = staticmethod(lambda: False)

        def search(self, *args: Any) -> Any:
            if self.failing():
                raise StoreError("this shard is offline")
            return self.inner.search(*args)

    return Flaky


def test_a_failed_search_among_several_is_reported(
    open_memory: OpenMemory, flaky: Any, call: Call
) -> None:
    """Probe 41: the rest is returned, the failure is in trace, status and errors."""
    llm = ScriptedLLM({"query_analysis": {"sub_queries": ["beta"], "scopes": []}})
    memory = open_memory(wrap=flaky, llm=llm, query_analysis_threshold=0)
    store: Any = memory.store
    memory.remember("alpha text", "/a", ["c"], importance=0.5)
    memory.remember("beta text", "/b", ["c"], importance=0.5)
    searches = iter(range(100))
    store.failing = lambda: next(searches) == 1
    found = call(memory, "recall", "alpha")
    assert "alpha text" in contents(found)
    assert found.status == "partial"
    assert any("offline" in line for line in found.errors)
    assert any("offline" in str(span.attrs) for span in found.trace.find("search.query"))
    assert "offline" in found.trace.render()
    store.failing = lambda: False
    assert call(memory, "recall", "alpha").status == "ok"


def test_when_every_search_fails_recall_raises(
    open_memory: OpenMemory, flaky: Any, call: Call
) -> None:
    """Probe 41: a store that cannot be searched never looks like "no memories"."""
    llm = ScriptedLLM({"query_analysis": {"sub_queries": ["beta"], "scopes": []}})
    memory = open_memory(wrap=flaky, llm=llm, query_analysis_threshold=0)
    store: Any = memory.store
    memory.remember("alpha text", "/a", ["c"], importance=0.5)
    store.failing = lambda: True
    for depth in DEPTHS:
        with pytest.raises(StoreError, match="offline"):
            call(memory, "recall", "alpha", depth=depth)


# -- 42 ------------------------------------------------------------------------------------------


def test_eight_threads_get_what_one_gets(open_memory: OpenMemory) -> None:
    """Probe 42: the same recall at the same time from eight threads gives the same result."""
    memory = open_memory()
    memory.remember_many(
        [f"note {i} about {word}" for i in range(40) for word in ("tea", "ink", "rain")],
        created_at=NOW,
    ).wait()

    def ask(depth: Literal["shallow", "deep"]) -> list[tuple[str, float]]:
        found = memory.recall("note about ink", depth=depth, now=NOW, limit=20)
        return [(match.record.id, match.score) for match in found]

    alone = {depth: ask(depth) for depth in DEPTHS}
    with ThreadPoolExecutor(8) as pool:
        for depth in DEPTHS:
            together = list(pool.map(ask, [depth] * 24))
            assert together == [alone[depth]] * 24


def test_the_query_is_passed_to_the_model_as_it_is(open_memory: OpenMemory) -> None:
    """The original query is always searched, whatever sub-queries the model gives."""
    asked: list[LLMRequest] = []

    def answer(request: LLMRequest) -> dict[str, Any]:
        asked.append(request)
        return {"sub_queries": ["tea", "ink", "rain", "snow"], "scopes": []}

    embedder = FakeEmbedder()
    memory = open_memory(
        llm=ScriptedLLM({"query_analysis": answer}),
        embedder=embedder,
        query_analysis_threshold=10,
    )
    memory.remember("a note about fog", "/n", ["c"], importance=0.5)
    memory.recall("what is noted about the fog")
    assert "what is noted about the fog" in asked[0].prompt
    assert embedder.calls[-1] == ["what is noted about the fog", "tea", "ink"]
