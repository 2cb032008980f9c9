"""Record and replay: the same results, offline, and never an answer that was not recorded."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mnemotrace import Memory, areplay, compare, record, replay
from mnemotrace.errors import (
    EmbedderError,
    EmbedderMismatchError,
    InvalidInputError,
    ReplayError,
    TapeError,
)
from mnemotrace.llm.protocol import TransientLLMError
from mnemotrace.records import Recall, utc_now
from mnemotrace.replaying import Replay
from mnemotrace.tape import load
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

LONG = "Please tell me everything that we know about the tea in the kitchen, " * 4
UNSTABLE = {"last_accessed", "access_count", "usefulness"}
SCRIPT: dict[str, Any] = {
    "save_analysis": {"scope": "/kitchen", "categories": ["drink"], "importance": 0.7},
    "consolidation": {"actions": [], "insert_new": True},
    "query_analysis": {"keywords": ["tea"], "sub_queries": ["red kettle"], "scopes": ["/kitchen"]},
    "exploration": {"gaps": ["the price"], "sub_queries": ["green tea"], "scopes": []},
}


def no_embedder(texts: list[str]) -> list[list[float]]:
    raise AssertionError("a replay must not embed anything")


class NoModel:
    async def complete(self, request: Any) -> Any:
        raise AssertionError("a replay must not ask a model")


class Kitchen:
    """Opens memories over a few stores by name, and closes them at the end."""

    def __init__(self, folder: Path, stores: dict[str, tuple[Path, Memory]], pool: Path) -> None:
        self.folder = folder
        self.tape = folder / "run.json"
        self._stores = stores
        self._pool = pool
        self._opened: list[Memory] = []

    def memory(self, name: str, llm: Any = None, embedder: Any = None, **settings: Any) -> Memory:
        """Open an empty store that was written before; a new one for names with ``new``.

        How rare a word is counts in a score, and an engine counts what was erased for a while:
        only in new stores are scores the same to the last bit.
        """
        place = self.folder / name
        if not name.startswith("new"):
            if name not in self._stores:
                place = self._pool / name
                holder = Memory(llm=None, storage=place, embedder=FakeEmbedder())
                holder.remember("the first text makes the store")
                self._stores[name] = (place, holder)
            place, holder = self._stores[name]
            holder.forget(scope="/", include_private=True)
        embedder = FakeEmbedder() if embedder is None else embedder
        memory = Memory(llm=llm, storage=place, embedder=embedder, **settings)
        self._opened.append(memory)
        return memory

    def offline(self, name: str, **settings: Any) -> Memory:
        """Open a store whose model and embedder must not be used."""
        return self.memory(name, NoModel(), no_embedder, **settings)

    def close(self) -> None:
        for memory in self._opened:
            memory.close()


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, tuple[Path, Memory]]]:
    """Stores that tests use one after the other: making one takes half a second."""
    stores: dict[str, tuple[Path, Memory]] = {}
    yield stores
    for _, holder in stores.values():
        holder.close()


@pytest.fixture
def kitchen(
    tmp_path: Path,
    stores: dict[str, tuple[Path, Memory]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kitchen]:
    kitchen = Kitchen(tmp_path, stores, tmp_path_factory.mktemp("stores"))
    yield kitchen
    kitchen.close()


def records(memory: Memory) -> dict[str, Any]:
    found = memory.list_records(limit=10_000, include_private=True)
    return {record.id: record.model_dump(exclude=UNSTABLE) for record in found}


def require_same(done: Replay) -> None:
    assert done.same, str(done)
    for run in done:
        if run.recorded_trace is not None and "read_barrier" not in str(run.recorded_trace):
            assert run.trace is not None
            comparison = compare(run.recorded_trace, run.trace)
            assert comparison.identical, str(comparison)


def test_saves_and_deep_recalls_come_out_the_same_in_another_store(kitchen: Kitchen) -> None:
    unsure = {"confidence_threshold_low": 1.0, "confidence_threshold_high": 1.0}
    memory = kitchen.memory("new a", ScriptedLLM(SCRIPT), consolidation_threshold=0.5, **unsure)
    with record(kitchen.tape) as tape:
        memory.remember("the tea is red", metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)})
        memory.remember("the tea is red and hot", source="ana", private=True, record_id="mine")
        memory.remember_many([f"note {number} on tea" for number in range(5)], scope="/notes")
        deep = memory.recall(LONG, limit=4)
        shallow = memory.recall("red tea", depth="shallow", source="ana", scope="/kitchen")
        nothing = memory.recall("tea", limit=0)
    assert tape.runs == 6 and deep.evidence_gaps == ["the price"]

    other = kitchen.offline("new b", recency_weight=0.9)  # the recorded settings count
    done = replay(kitchen.tape, other)
    require_same(done)
    assert records(other) == records(memory)
    for run, found in zip(done[3:], (deep, shallow, nothing), strict=True):
        assert isinstance(run.result, Recall)
        again = [(match.record.id, match.score, match.components) for match in run.result]
        assert again == [(match.record.id, match.score, match.components) for match in found]
        assert run.result.confidence == found.confidence
        assert run.result.evidence_gaps == found.evidence_gaps
    assert all(run.trace is not None and run.trace.totals() for run in done)
    assert "1. encode: 1 record, the same" in str(done)


def test_a_replay_on_the_same_store_adopts_what_was_saved(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a", ScriptedLLM(SCRIPT))
    with record(kitchen.tape):
        memory.remember("the tea is red")
        memory.recall("tea")
    before = records(memory)
    assert replay(kitchen.tape, memory).same
    assert records(memory) == before


def test_background_saves_are_waited_for_at_the_end_of_the_block(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    with record(kitchen.tape) as tape:
        memory.remember_many(["one cup", "two cups", "one cup"])
    assert tape.runs == 1
    other = kitchen.offline("b")
    require_same(replay(kitchen.tape, other))
    assert records(other) == records(memory) and len(records(other)) == 2


def test_async_blocks_and_the_async_twin(kitchen: Kitchen) -> None:
    memory, other = kitchen.memory("new a"), kitchen.offline("new b")

    async def run() -> Replay:
        async with record(kitchen.tape):
            await memory.aremember_many(["one cup", "two cups"])
            await memory.arecall("cup")
            await memory.arecall("cup", depth="shallow")
        return await areplay(kitchen.tape, other)

    done = asyncio.run(run())
    require_same(done)
    assert [run.kind for run in done] == ["encode", "recall", "recall"]


def test_blocks_of_several_threads_and_tasks_do_not_mix(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    memory.remember("the first text")
    paths = [kitchen.folder / f"{name}.json" for name in "abcd"]

    def work(path: Path) -> None:
        with record(path):
            for number in range(3):
                memory.remember_many([f"{path.stem} {number}"])
                memory.recall(f"{path.stem} {number}")

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    memory.remember("of nobody's block")
    memory.recall("of nobody's block")
    for thread in threads:
        thread.join()
    for path in paths:
        runs = load(path).runs
        assert sorted(run.kind for run in runs) == ["encode"] * 3 + ["recall"] * 3
        saved = [s["content"] for run in runs for s in run.arguments.get("saves", ())]
        assert saved == [f"{path.stem} {number}" for number in range(3)]


def test_parallel_questions_find_their_answers_in_any_order(kitchen: Kitchen) -> None:
    def analysis(request: Any) -> Any:
        name = next(word for word in ("red", "blue", "green") if f"{word} cup" in request.prompt)
        return {"scope": f"/{name}", "categories": [name], "importance": 0.5}

    llm = ScriptedLLM({"save_analysis": analysis}, delay=0.01)
    memory = kitchen.memory("a", llm, consolidation_threshold=1.0)
    with record(kitchen.tape):
        memory.remember_many(["a red cup", "a blue cup", "a green cup"]).wait()
    tape = json.loads(kitchen.tape.read_text())
    assert len({answer["key"] for answer in tape["body"]["runs"][0]["answers"]}) == 3
    other = kitchen.offline("b")
    require_same(replay(kitchen.tape, other))
    assert {r["scope"] for r in records(other).values()} == {"/red", "/blue", "/green"}


@pytest.mark.parametrize(
    "failures",
    [
        [TransientLLMError("busy"), {"scope": "/x", "categories": [], "importance": 0.1}],
        [TransientLLMError("busy")] * 3,
        ["this is no JSON"],
        [RuntimeError("the model is down")],
    ],
    ids=["once", "always", "prose", "down"],
)
def test_failures_of_the_model_are_replayed(kitchen: Kitchen, failures: list[Any]) -> None:
    from mnemotrace.llm import service

    memory = kitchen.memory("a", ScriptedLLM({"save_analysis": failures}))
    with pytest.MonkeyPatch.context() as patch, record(kitchen.tape):
        patch.setattr(service, "BACKOFF", 0.0)
        memory.remember("the tea is red")
    other = kitchen.offline("b")
    require_same(replay(kitchen.tape, other))
    assert records(other) == records(memory)


def test_a_model_without_a_key_stays_without_one(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = kitchen.memory("a", "gpt-4o-mini")
    with record(kitchen.tape):
        memory.remember("the tea is red")
        memory.recall(LONG)
    monkeypatch.setenv("OPENAI_API_KEY", "not a key")
    require_same(replay(kitchen.tape, kitchen.offline("b")))


def test_a_failing_embedder_fails_again(kitchen: Kitchen) -> None:
    embedder = FakeEmbedder()
    memory = kitchen.memory("a", embedder=embedder)
    memory.remember("the first text")
    embedder.fail = True
    with record(kitchen.tape):
        with pytest.raises(EmbedderError):
            memory.remember("the tea is red")
        with pytest.raises(EmbedderError):
            memory.recall("tea")
    embedder.fail = False
    done = replay(kitchen.tape, kitchen.memory("a"))
    require_same(done)
    assert all(isinstance(run.error, EmbedderError) for run in done)


def test_what_is_not_on_the_tape_is_named(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a", ScriptedLLM(SCRIPT), consolidation_threshold=0.3)
    with record(kitchen.tape):
        memory.remember("the tea is red")
    other = kitchen.memory("b", ScriptedLLM(SCRIPT))
    other.remember("the tea was red")  # something to judge, which there was not
    before = records(other)
    with pytest.raises(ReplayError, match=r"Run 1 \(encode\).*save_analysis.*the tea is red"):
        replay(kitchen.tape, other)
    assert records(other) == before


def test_a_text_that_was_not_embedded_is_named(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    memory.remember("the tea is red")
    with record(kitchen.tape):
        memory.recall("tea")
    tape = load(kitchen.tape)
    tape.runs[0].arguments["query"] = "coffee"
    tape.save(kitchen.tape)
    for limit in (1, 10):
        tape.runs[0].arguments["limit"] = limit
        with pytest.raises(ReplayError, match='a query was to be embedded: "coffee"'):
            replay(kitchen.tape, memory)


def test_a_store_of_another_embedder_is_refused(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    with record(kitchen.tape):
        memory.remember("the tea is red")
    other = kitchen.memory("new", embedder=FakeEmbedder(seed=1))
    other.remember("the tea was red")
    with pytest.raises(EmbedderMismatchError):
        replay(kitchen.tape, other)


def test_a_changed_store_is_told(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    memory.remember("the tea is red")
    with record(kitchen.tape):
        memory.recall("tea", depth="shallow")
    memory.remember("tea tea tea")
    (run,) = replay(kitchen.tape, memory)
    assert not run.same
    assert "1 matches were recorded, now there are 2" in run.differences
    assert "different" in str(Replay([run]))


def test_what_expired_since_is_still_there_in_a_replay(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = kitchen.memory("a")
    memory.remember("the tea is hot", expires_at=utc_now() + timedelta(hours=1), record_id="hot")
    with record(kitchen.tape):
        memory.recall("tea")
    later = utc_now() + timedelta(days=1)
    monkeypatch.setattr("mnemotrace.stores.qdrant.utc_now", lambda: later)
    assert memory.get("hot") is None
    (run,) = replay(kitchen.tape, memory)
    assert run.same and run.result


def test_arguments_of_every_kind_come_back(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    now = datetime(2026, 6, 1, 9, tzinfo=ZoneInfo("Asia/Seoul"))
    memory.remember("the tea is red", metadata={"at": now, "n": 1}, categories=["c"], scope="/ä/차")
    asked: dict[str, Any] = {
        "scope": "/ä", "categories": ["c"], "since": "2020-01-01", "until": now + timedelta(9999),
        "metadata_filter": {"n": {1, 2}, "at": {"gte": now - timedelta(1)}}, "now": now,
        "source": None, "include_private": True,
    }  # fmt: skip
    with record(kitchen.tape):
        found = memory.recall("tea 茶 \u2028 \x00", **asked)
        memory.scope("/ä").recall("tea", as_of=utc_now())
        memory.slice(["/ä", "/b"]).recall("tea", depth="shallow")
    assert len(found) == 1
    require_same(replay(kitchen.tape, memory))


def test_a_tape_is_private_compact_and_exact(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    kitchen.tape.write_text("something older")
    kitchen.tape.chmod(0o644)
    with record(kitchen.tape):
        memory.remember("the tea is red")
        memory.recall("the tea is red")
        memory.recall("the tea is red", depth="shallow")
    assert stat.S_IMODE(kitchen.tape.stat().st_mode) == 0o600
    assert [path.name for path in kitchen.folder.glob("*run*")] == ["run.json"]
    tape = load(kitchen.tape)
    assert len(tape.vectors) == 1  # of one text, though it was embedded three times
    asked = memory._core.services.embedder
    vector = asyncio.run(memory._runtime.arun(asked.embed_queries(["the tea is red"])))[0]
    assert (tape.vector(0) == vector).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged: it is not whole JSON"),
        (lambda text: "", "damaged"),
        (lambda text: "[" * 100_000, "damaged"),
        (lambda text: "[]", "is not a tape"),
        (lambda text: '{"format": "other"}', "is not a tape"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "version 2"),
        (lambda text: text.replace('"limit":10', '"limit":11'), "checksum"),
        (lambda text: text.replace('"body"', '"soul"'), "damaged"),
    ],
)
def test_files_that_are_no_whole_tapes_are_refused(
    kitchen: Kitchen, spoil: Callable[[str], str], message: str
) -> None:
    memory = kitchen.memory("a")
    with record(kitchen.tape):
        memory.recall("tea")
    whole = kitchen.tape.read_text()
    kitchen.tape.write_text(spoil(whole))
    assert kitchen.tape.read_text() != whole
    with pytest.raises(TapeError, match=message):
        replay(kitchen.tape, memory)


def test_places_where_no_tape_can_be_are_refused_before_the_block(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    for path in (kitchen.folder / "none" / "run.json", kitchen.folder):
        with pytest.raises(TapeError, match="Choose another path"), record(path):
            pytest.fail("the block must not begin")
    with pytest.raises(TapeError, match="cannot be read"):
        replay(kitchen.folder / "missing.json", memory)
    with pytest.raises(InvalidInputError, match="open Memory"):
        replay(kitchen.tape, "run.json")  # type: ignore[arg-type]
    recording = record(kitchen.tape)
    with recording:
        pass
    with pytest.raises(TapeError, match="used once"):
        recording.__enter__()
    assert replay(kitchen.tape, memory) == []


def test_a_block_that_fails_keeps_what_it_did(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    with pytest.raises(LookupError), record(kitchen.tape):
        memory.remember("the tea is red")
        raise LookupError
    assert len(load(kitchen.tape).runs) == 1
    memory.recall("after the block")
    assert len(load(kitchen.tape).runs) == 1


def test_nothing_is_kept_outside_of_a_block_or_by_an_explanation(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    memory.remember("the tea is red")
    with record(kitchen.tape) as tape:
        memory.explain("tea", "nobody")
    memory.recall("tea")
    assert tape.runs == 0


@pytest.mark.slow
def test_a_thousand_saves_fit_on_a_tape(kitchen: Kitchen) -> None:
    memory = kitchen.memory("a")
    with record(kitchen.tape):
        memory.remember_many([f"note {number} on tea" for number in range(1000)]).wait()
    other = kitchen.offline("b")
    require_same(replay(kitchen.tape, other))
    assert records(other) == records(memory)
