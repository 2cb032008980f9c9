"""The trace records what ran, where it nested, what it cost; and nothing when it is off."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from mnemotrace.errors import ConfigurationError, InvalidInputError
from mnemotrace.trace import (
    MAX_SPANS,
    Level,
    Span,
    Trace,
    current_trace,
    leave_trace,
    note,
    note_content,
    plain,
    span,
    start_trace,
    watch,
    watching,
)


def opened(trace: Trace | None) -> Trace:
    assert trace is not None
    return trace


def model_call(
    name: str, model: str, tokens_in: int, tokens_out: int, cost: float | None, attempt: int = 1
) -> None:
    """One call of a language model, as `LLMService` records it."""
    with span(f"llm.{name}", kind="llm", attempt=attempt, model=model):
        note(tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)


def names_below(trace: Trace) -> dict[str, str]:
    """Each span's name with its parent's."""
    by_id = {0: trace.kind} | {item.id: item.name for item in trace.spans}
    return {item.name: by_id[item.parent or 0] for item in trace.spans}


def sample() -> Trace:
    with start_trace("recall", level="full", depth="deep") as opening:
        trace = opened(opening)
        with span("analyze_query", kind="step"):
            note(llm="skipped", reason="shorter than 200 characters")
        with span("search", kind="step"), span("search.query", kind="search", plan="selective"):
            note_content(query="차 한 잔")
        model_call("explore", "gpt-4o-mini", 120, 30, 0.002)
        note(results=5)
    return trace


def test_spans_nest_and_carry_their_facts() -> None:
    trace = sample()
    assert names_below(trace) == {
        "analyze_query": "recall",
        "search": "recall",
        "search.query": "search",
        "llm.explore": "recall",
    }
    assert trace.path == ("analyze_query", "search")
    assert trace.attrs == {"depth": "deep", "results": 5}
    [analysis] = trace.find("analyze_query")
    assert analysis.attrs == {"llm": "skipped", "reason": "shorter than 200 characters"}
    assert trace.find("no such span") == []


def test_times_are_inside_the_run_and_inside_the_parent() -> None:
    with start_trace("recall") as opening, span("outer"):
        time.sleep(0.002)
        with span("inner"):
            time.sleep(0.003)
    trace = opened(opening)
    [outer], [inner] = trace.find("outer"), trace.find("inner")
    assert outer.end_ns is not None
    assert inner.end_ns is not None
    assert trace.root.end_ns is not None
    assert 0 <= outer.start_ns < inner.start_ns < inner.end_ns <= outer.end_ns
    assert outer.end_ns <= trace.root.end_ns
    assert inner.duration_ms >= 3
    assert trace.duration_ms >= outer.duration_ms >= 5
    assert abs((datetime.now(UTC) - trace.started_at).total_seconds()) < 60


async def test_gathered_children_stay_below_their_own_parent() -> None:
    async def search(number: int) -> None:
        with span(f"search{number}"):
            await asyncio.sleep(0.001 * (5 - number))
            with span(f"query{number}"):
                await asyncio.sleep(0.001)
                note(number=number)

    with start_trace("recall") as opening, span("fan-out"):
        await asyncio.gather(*(search(number) for number in range(5)))
    trace = opened(opening)
    assert names_below(trace) == {"fan-out": "recall"} | {
        name: parent
        for number in range(5)
        for name, parent in (
            (f"search{number}", "fan-out"),
            (f"query{number}", f"search{number}"),
        )
    }
    for number in range(5):
        assert trace.find(f"query{number}")[0].attrs == {"number": number}
        assert trace.find(f"search{number}")[0].attrs == {}


async def test_worker_threads_with_the_context_write_into_the_trace() -> None:
    def work(name: str) -> None:
        with span(name):
            note(thread=threading.current_thread() is not threading.main_thread())

    with start_trace("remember") as opening, span("store"):
        await asyncio.to_thread(work, "to_thread")
        await asyncio.get_running_loop().run_in_executor(None, copy_context().run, work, "executor")
        await asyncio.get_running_loop().run_in_executor(None, work, "no context")
    trace = opened(opening)
    assert names_below(trace) == {"store": "remember", "to_thread": "store", "executor": "store"}
    assert trace.find("executor")[0].attrs == {"thread": True}


async def test_runs_at_the_same_time_do_not_mix() -> None:
    async def run(number: int) -> Trace:
        with start_trace("recall", number=number) as opening:
            for _ in range(3):
                with span(f"s{number}"):
                    await asyncio.sleep(0)
        return opened(opening)

    traces = await asyncio.gather(*(run(number) for number in range(50)))
    for number, trace in enumerate(traces):
        assert [item.name for item in trace.spans] == [f"s{number}"] * 3
        assert [item.id for item in trace.spans] == [1, 2, 3]
    assert len({trace.trace_id for trace in traces}) == 50


def test_an_error_marks_the_span_and_the_run_and_passes() -> None:
    with pytest.raises(ValueError, match="no vector"), start_trace("recall") as opening:
        with span("fine"):
            pass
        with span("search"):
            raise ValueError("no vector")
    trace = opened(opening)
    [search] = trace.find("search")
    assert (search.status, search.error) == ("error", "ValueError: no vector")
    assert search.end_ns is not None
    assert trace.find("fine")[0].status == "ok"
    assert (trace.status, trace.error) == ("error", "ValueError: no vector")


def test_an_error_caught_inside_the_run_leaves_the_run_ok() -> None:
    with start_trace("recall") as opening:
        try:
            with span("search"):
                raise ValueError
        except ValueError:
            pass
    trace = opened(opening)
    assert (trace.status, trace.error) == ("ok", None)
    assert trace.find("search")[0].error == "ValueError"


async def test_a_cancelled_run_is_cancelled_not_failed() -> None:
    holder: list[Trace] = []

    async def run() -> None:
        with start_trace("recall") as opening:
            holder.append(opened(opening))
            with span("wait"):
                await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holder[0].status == "cancelled"
    assert holder[0].find("wait")[0].status == "cancelled"
    assert holder[0].find("wait")[0].error is None


def test_long_and_unprintable_error_messages_are_kept_in_bounds() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("worse")

    for error, expected in (
        (ValueError("x" * 10_000), 500),
        (Unprintable(), len("Unprintable: (its message could not be read)")),
    ):
        with pytest.raises(type(error)), start_trace("recall") as opening:
            raise error
        assert len(opened(opening).error or "") == expected


def test_a_validation_error_is_recorded_without_the_refused_content() -> None:
    class Reply(BaseModel):
        importance: float

    with pytest.raises(ValueError), start_trace("remember") as opening:
        Reply.model_validate({"importance": "secret salary"})
    error = opened(opening).error
    assert error == "ValidationError: importance: float_parsing"


def test_off_records_nothing_even_inside_another_run() -> None:
    with start_trace("outer") as opening:
        with start_trace("recall", level="off") as inner:
            assert inner is None
            assert current_trace() is None
            with span("search") as item:
                assert item is None
                note(found=1)
                note_content(text="x")
        with span("after"):
            pass
    assert [item.name for item in opened(opening).spans] == ["after"]
    assert opened(opening).attrs == {}


def test_without_a_trace_everything_is_a_no_op() -> None:
    assert current_trace() is None
    with span("search") as item:
        note(found=1)
        note_content(text="x")
        assert current_trace() is None
    assert item is None


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'loud'"), start_trace("x", level="loud"):  # type: ignore[arg-type]
        pass


def test_texts_are_kept_at_level_full_only() -> None:
    kept: dict[str, Any] = {}
    levels: tuple[Level, ...] = ("on", "full")
    for level in levels:
        with start_trace("recall", level=level) as opening:
            note_content(query="private words")
            with span("search"):
                note_content(hit="more private words")
        kept[level] = json.dumps(opened(opening).to_json())
    assert "private words" not in kept["on"]
    assert "private words" in kept["full"]
    assert "more private words" in kept["full"]


def test_a_run_inside_a_run_has_its_own_trace_and_gives_the_outer_back() -> None:
    with start_trace("outer") as outer_opening:
        with start_trace("inner") as inner_opening, span("below"):
            assert current_trace() is inner_opening
        assert current_trace() is outer_opening
        with span("above"):
            pass
    assert [item.name for item in opened(inner_opening).spans] == ["below"]
    assert [item.name for item in opened(outer_opening).spans] == ["above"]
    assert current_trace() is None


async def test_work_that_outlives_its_run_adds_nothing_to_it() -> None:
    release = asyncio.Event()

    async def straggler() -> None:
        with span("began inside"):
            await release.wait()
            with span("began after"):
                note(late=True)
            note(late=True)

    with start_trace("remember") as opening:
        task = asyncio.create_task(straggler())
        await asyncio.sleep(0)
    trace = opened(opening)
    before = trace.to_json()
    release.set()
    await task
    assert trace.to_json() == before
    assert [item.name for item in trace.spans] == ["began inside"]
    assert trace.spans[0].end_ns is None
    assert trace.spans[0].duration_ms == 0.0


def test_leave_trace_detaches_only_its_own_context() -> None:
    with start_trace("remember") as opening:

        def background() -> None:
            leave_trace()
            with span("background"):
                pass

        copy_context().run(background)
        with span("foreground"):
            pass
    assert [item.name for item in opened(opening).spans] == ["foreground"]


def test_a_span_left_through_a_closed_generator_gives_its_context_back() -> None:
    def numbers() -> Iterator[int]:
        with span("numbers"):
            yield 1
            yield 2

    with start_trace("x") as opening:
        generator = numbers()
        next(generator)
        generator.close()  # type: ignore[attr-defined]
        with span("after"):
            pass
    assert names_below(opened(opening)) == {"numbers": "x", "after": "x"}
    assert opened(opening).find("numbers")[0].status == "cancelled"


def test_model_calls_are_totalled_by_tokens_cost_and_time() -> None:
    with start_trace("recall") as opening, span("explore", kind="step"):
        model_call("explore", "gpt-4o-mini", 120, 30, 0.002)
        model_call("analyze", "local", 10, 5, None, attempt=2)
        with pytest.raises(TimeoutError), span("llm.analyze", kind="llm", model="local"):
            raise TimeoutError("60 s")
    trace = opened(opening)
    calls = [item for item in trace.spans if item.kind == "llm"]
    assert trace.totals() == {
        "llm_calls": 3,
        "llm_failures": 1,
        "tokens_in": 130,
        "tokens_out": 35,
        "cost": 0.002,
        "llm_ms": pytest.approx(sum(item.duration_ms for item in calls)),
    }
    assert calls[0].parent == trace.find("explore")[0].id
    assert (calls[2].status, calls[2].error) == ("error", "TimeoutError: 60 s")


class Watching:
    """Keeps what it is told, and by which span the code was in at that time."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def span_started(self, trace: Trace, span: Span) -> None:
        self.seen.append(f"+{span.name}")

    def span_ended(self, trace: Trace, span: Span) -> None:
        assert span.end_ns is not None
        self.seen.append(f"-{span.name} {span.status}")


def test_a_watcher_sees_spans_while_they_happen() -> None:
    watcher = Watching()
    with watching(watcher), start_trace("recall"):
        with span("search"):
            assert watcher.seen == ["+recall", "+search"]
        with pytest.raises(KeyError), span("route"):
            raise KeyError("x")
    assert watcher.seen[2:] == ["-search ok", "+route", "-route error", "-recall ok"]
    with start_trace("recall"):
        pass
    assert len(watcher.seen) == 6  # it sees nothing outside its block


def test_a_watcher_of_the_process_sees_runs_of_every_thread_until_it_is_ended() -> None:
    watcher = Watching()
    end = watch(watcher)

    def run() -> None:
        with start_trace("elsewhere"):
            pass

    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        end()
    run()
    assert watcher.seen == ["+elsewhere", "-elsewhere ok"]


def test_a_watcher_that_fails_is_logged_once_and_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Watching):
        def span_started(self, trace: Trace, span: Span) -> None:
            raise RuntimeError("no display")

    watcher, good = Broken(), Watching()
    with watching(watcher), watching(good), start_trace("recall") as opening, span("search"):
        pass
    assert opened(opening).status == "ok"
    assert good.seen == ["+recall", "+search", "-search ok", "-recall ok"]
    assert [record.exc_text for record in caplog.records if "no display" in str(record.exc_text)]
    assert len(caplog.records) == 1


def test_totals_without_calls_have_no_cost() -> None:
    with start_trace("recall") as opening:
        pass
    assert opened(opening).totals()["cost"] is None
    assert opened(opening).totals()["llm_calls"] == 0


def test_json_round_trips_exactly() -> None:
    trace = sample()
    data = json.loads(json.dumps(trace.to_json(), allow_nan=False))
    assert data["schema_version"] == 1
    again = Trace.from_json(data)
    assert again.to_json() == data
    assert again.closed
    assert again.spans == trace.spans
    assert again.path == trace.path
    assert again.duration_ms == trace.duration_ms
    assert str(again) == str(trace)


class Plan(StrEnum):
    BROAD = "broad"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.float64(2.5), 2.5),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.float32("nan"), "nan"),
        (math.inf, "inf"),
        (Plan.BROAD, "broad"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (("a", {"b": np.int32(1)}), ["a", {"b": 1}]),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: "x"}, {"1": "x"}),
        (Path("notes/a.txt"), "notes/a.txt"),
        (b"bytes", "<bytes>"),
        (object(), "<object>"),
        (None, None),
        (True, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_facts_become_strict_json(value: Any, expected: Any) -> None:
    result = plain(value)
    assert result == expected
    assert type(result) is type(expected)
    json.dumps(result, allow_nan=False)


def test_long_lists_are_cut_in_json() -> None:
    result = plain(list(range(1000)))
    assert result[:2] == [0, 1]
    assert len(result) == 51
    assert result[-1] == "... 1000 in all"


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": None},
        {"spans": None},
        {"spans": [{"id": 1}]},
        {"root": 5},
        {"level": "loud"},
        {"started_ns": "soon"},
    ],
)
def test_damaged_or_foreign_json_is_refused_clearly(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="to_json"):
        Trace.from_json(sample().to_json() | change)
    with pytest.raises(InvalidInputError):
        Trace.from_json("a string")  # type: ignore[arg-type]


@pytest.mark.parametrize(("id_", "parent"), [(1, 1), (1, 2), (0, 0), (1, None), (-1, 0)])
def test_json_whose_spans_would_nest_in_a_circle_is_refused(id_: int, parent: int | None) -> None:
    data = sample().to_json()
    data["spans"] = [Span(id_, parent, "x", "internal", 0, 1).to_json()]
    with pytest.raises(InvalidInputError, match="parent"):
        Trace.from_json(data)


def test_a_run_with_endless_spans_stays_bounded() -> None:
    with start_trace("remember") as opening:
        for number in range(MAX_SPANS + 15):
            with span("item"):
                note(number=number)
    trace = opened(opening)
    assert len(trace.spans) == MAX_SPANS
    assert trace.dropped == 15
    assert trace.attrs == {}
    assert "15 more spans were not kept" in trace.render()
    assert Trace.from_json(trace.to_json()).dropped == 15


def test_an_open_trace_tells_its_time_so_far() -> None:
    with start_trace("recall") as opening:
        time.sleep(0.002)
        assert opened(opening).duration_ms >= 2
        assert opened(opening).render().startswith("recall ")


def test_traces_are_freed_without_the_cycle_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(item, Trace) for item in gc.get_objects())
        for _ in range(100):
            sample()
        after = sum(isinstance(item, Trace) for item in gc.get_objects())
    finally:
        gc.enable()
    assert after == before


def test_eight_spans_cost_about_a_tenth_of_a_millisecond() -> None:
    def run() -> None:
        with start_trace("recall"):
            for number in range(8):
                with span("search", kind="search", number=number):
                    note(found=3)

    times = []
    for _ in range(300):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    # 0.02 ms here; the bound leaves room for a busy or slow machine.
    assert statistics.median(times) < 0.0003


def test_the_module_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import mnemotrace.trace; "
        "print([m for m in ('rich', 'numpy', 'pydantic', 'asyncio', 'workflows') "
        "if m in set(sys.modules) - before])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
