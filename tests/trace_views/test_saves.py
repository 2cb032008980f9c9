"""How a save ran can be looked at: on the record, on the receipt, also when it failed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory, MemoryRecord, SaveReceipt, saving
from mnemotrace.errors import EmbedderError, SaveError
from mnemotrace.receipts import MAX_TRACES
from mnemotrace.testing import FakeEmbedder
from mnemotrace.trace import Trace, catching, start_trace


def opened(place: Path, **options: Any) -> Memory:
    return Memory(**{"storage": place, "llm": None, "embedder": FakeEmbedder(), **options})


def test_the_record_that_remember_returns_tells_how_it_was_saved(place: Path) -> None:
    with opened(place) as memory:
        record = memory.remember("The kiln is on.", scope="/a")
        again = memory.remember("The kiln is on.", scope="/a")
    assert record.trace is not None
    assert again.trace is not None
    assert record.trace.kind == "encode"
    assert record.trace.path == ("embed", "find_similar", "analyze", "write")
    assert record.trace.closed
    assert again.id == record.id
    assert again.trace.trace_id != record.trace.trace_id


async def test_so_does_that_of_its_async_twin_and_of_a_view(place: Path) -> None:
    async with opened(place) as memory:
        assert (await memory.aremember("The glaze is blue.")).trace is not None
        assert memory.scope("/b").remember("The clay is red.").trace is not None


def test_the_trace_is_no_part_of_the_memory(place: Path) -> None:
    with opened(place) as memory:
        record = memory.remember("The wheel turns.", scope="/a")
        found = memory.get(record.id)
        [match] = memory.recall("The wheel turns.", scope="/a", limit=1)
    assert found is not None
    assert found.trace is None
    assert match.record.trace is None
    assert found == record
    assert "trace" not in record.model_dump()
    assert "trace" not in record.model_dump_json()
    assert "trace" not in repr(record)
    assert "trace" not in MemoryRecord.model_json_schema()["properties"]
    for other in (
        record.model_copy(),
        record.model_copy(deep=True),
        copy.copy(record),
        copy.deepcopy(record),
        pickle.loads(pickle.dumps(record)),
        MemoryRecord.model_validate(record.model_dump()),
    ):
        assert other == record
        assert other.trace is None
    record.importance = 0.9
    assert record.trace is not None


def test_with_tracing_off_there_is_none(place: Path) -> None:
    with opened(place, trace="off") as memory:
        record = memory.remember("The shelf is full.")
        receipt = memory.remember_many(["The shelf is empty."])
        receipt.wait()
    assert record.trace is None
    assert receipt.trace is None
    assert receipt.traces == []


def test_the_receipt_has_one_trace_for_each_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "CHUNK", 2)
    with opened(place) as memory:
        receipt = memory.remember_many([f"Item {number} is on the shelf." for number in range(5)])
        receipt.wait()
    assert [trace.attrs["texts"] for trace in receipt.traces] == [2, 2, 1]
    assert receipt.trace is receipt.traces[-1]
    assert receipt.trace.path[:2] == ("embed", "find_similar")


def test_a_failed_attempt_leaves_its_trace_beside_the_one_that_succeeds(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "RETRY_SECONDS", (0.01,))
    embedder = FakeEmbedder()
    with opened(place, embedder=embedder) as memory:
        embedder.fail, embedder.fail_times = True, 1
        receipt = memory.remember_many(["The door is red."])
        receipt.wait(through_retries=True)
    assert [trace.status for trace in receipt.traces] == ["error", "ok"]
    assert receipt.traces[0].path == ("embed",)


def test_a_save_that_is_given_up_has_its_trace(place: Path) -> None:
    embedder = FakeEmbedder()
    with opened(place, embedder=embedder, save_attempts=1) as memory:
        embedder.fail = True
        receipt = memory.remember_many(["The gate is green."])
        with pytest.raises(SaveError):
            receipt.wait()
        assert receipt.trace is not None
        assert receipt.trace.status == "error"
        with catching() as caught, pytest.raises(EmbedderError):
            memory.remember("The roof is grey.")
        assert caught.trace is not None
        assert caught.trace.find("embed")[0].status == "error"
        embedder.fail = False


def test_a_receipt_keeps_the_latest_traces_only() -> None:
    receipt = SaveReceipt("batch", ["a"])
    traces = [Trace(f"run{number}") for number in range(MAX_TRACES + 3)]
    for trace in (*traces, None):
        receipt.ran(trace)
    assert receipt.traces == traces[3:]
    assert receipt.trace is traces[-1]


def test_catching_keeps_the_first_run_of_its_own_block_only() -> None:
    with start_trace("before"), catching() as caught:
        assert caught.trace is None
        with start_trace("first") as first, start_trace("inner"):
            pass
        with start_trace("second"):
            pass
    with start_trace("after"):
        pass
    assert caught.trace is first
    with catching() as nothing, start_trace("quiet", level="off"):
        pass
    assert nothing.trace is None


def test_reanalysing_has_a_trace_too(place: Path) -> None:
    with opened(place) as memory:
        trace = memory.reanalyze(limit=1).trace
    assert trace is not None
    assert trace.kind == "reanalyze"
    assert trace.draw().startswith("<svg")
