"""Traced steps are ordinary workflow steps that leave one span each and fail at once when wrong."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import statistics
import time
from typing import Any

import pytest
from llama_index_instrumentation.span_handlers import SimpleSpanHandler
from workflows import Context, Workflow, step
from workflows.errors import WorkflowTimeoutError, WorkflowValidationError
from workflows.events import Event, StartEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from mnemotrace.errors import ConfigurationError, FlowError, MnemotraceError
from mnemotrace.flows.runtime import Runtime
from mnemotrace.flows.steps import TracedWorkflow, result_of, traced_step
from mnemotrace.trace import Trace, note, span, start_trace


class Question(StartEvent):
    text: str = ""


class Sure(Event):
    answer: str = ""


class Unsure(Event):
    pass


class SurerThanSure(Sure):
    pass


class Stray(Event):
    pass


class Answer(StopEvent):
    text: str = ""


class Oracle(TracedWorkflow):
    """Two routes, told apart by the question."""

    @traced_step
    async def route(self, ev: Question) -> Sure | Unsure:
        """Decide."""
        note(length=len(ev.text))
        return Sure(answer=ev.text) if ev.text else Unsure()

    @traced_step(num_workers=1)
    async def search(self, ev: Unsure) -> Sure:
        async def one(number: int) -> None:
            with span("search.one", number=number):
                await asyncio.sleep(0.001)

        await asyncio.gather(*(one(number) for number in range(3)))
        return Sure(answer="found")

    @traced_step
    async def reply(self, ev: Sure) -> Answer:
        return Answer(text=ev.answer)


async def traced_run(flow: Workflow, **start: Any) -> tuple[Any, Trace]:
    with start_trace("run") as trace:
        result = await flow.run(**start)
    assert trace is not None
    return result, trace


async def test_each_execution_leaves_one_span_with_its_events_and_facts() -> None:
    result, trace = await traced_run(Oracle(timeout=10), text="tea")
    assert result.text == "tea"
    assert trace.path == ("route", "reply")
    route, reply = trace.spans
    assert route.attrs == {"received": "Question", "returned": "Sure", "length": 3}
    assert reply.attrs == {"received": "Sure", "returned": "Answer"}
    for item in trace.spans:
        assert (item.kind, item.status, item.attempt, item.parent) == ("step", "ok", 1, 0)
        assert item.end_ns is not None


async def test_the_path_follows_the_route_taken_and_inner_work_nests_below_its_step() -> None:
    _, trace = await traced_run(Oracle(timeout=10))
    assert trace.path == ("route", "search", "reply")
    [search] = trace.find("search")
    assert [item.parent for item in trace.find("search.one")] == [search.id] * 3


async def test_without_a_trace_the_flow_runs_the_same() -> None:
    assert (await Oracle(timeout=10).run(text="tea")).text == "tea"


def test_the_trace_reaches_the_steps_through_the_runtime() -> None:
    runtime = Runtime()

    class Blocking(TracedWorkflow):
        @traced_step
        async def work(self, ev: StartEvent) -> StopEvent:
            def blocking() -> int:
                with span("blocking"):
                    return 4

            return StopEvent(result=await runtime.in_thread(blocking))

    with start_trace("sync call") as trace:
        coroutine = traced_free_run(Blocking(timeout=10))
        assert runtime.run(coroutine, timeout=10) == 4
    runtime.close()
    assert trace is not None
    assert [(item.name, item.parent) for item in trace.spans] == [("work", 0), ("blocking", 1)]


async def traced_free_run(flow: Workflow) -> Any:
    return await flow.run()


async def test_runs_of_one_flow_at_the_same_time_keep_their_own_traces() -> None:
    flow = Oracle(timeout=20)
    runs = await asyncio.gather(*(traced_run(flow, text="x" * (n % 2) * n) for n in range(20)))
    for n, (result, trace) in enumerate(runs):
        assert result.text == ("x" * n if n % 2 else "found")
        assert len(trace.spans) == (2 if n % 2 else 6)


def test_the_engine_sees_the_methods_own_signature_and_name() -> None:
    assert list(inspect.signature(Oracle.route).parameters) == ["self", "ev"]
    assert Oracle.route.__name__ == "route"
    assert Oracle.route.__doc__ == "Decide."
    config = Oracle.search._step_config
    assert config.accepted_events == [Unsure]
    assert config.return_types == [Sure]
    assert config.num_workers == 1
    assert Oracle.route._step_config.return_types == [Sure, Unsure]
    assert Oracle(timeout=10).validate() is False


def test_the_engines_own_validation_still_finds_a_broken_graph() -> None:
    class Broken(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> Answer:
            return Answer()

        @traced_step
        async def unreachable(self, ev: Stray) -> Answer:
            return Answer()

    with pytest.raises(WorkflowValidationError, match="Stray"):
        Broken(timeout=10).validate()


async def test_a_step_may_ask_for_its_context() -> None:
    class Counting(TracedWorkflow):
        @traced_step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("seen", 3)
            return StopEvent(result=await ctx.store.get("seen"))

    result, trace = await traced_run(Counting(timeout=10))
    assert result == 3
    assert trace.spans[0].attrs["received"] == "StartEvent"


async def test_every_attempt_of_a_retried_step_has_its_own_span() -> None:
    class Flaky(TracedWorkflow):
        calls = 0

        @traced_step(retry_policy=retry_policy(wait=wait_fixed(0.0), stop=stop_after_attempt(3)))
        async def fetch(self, ev: StartEvent) -> StopEvent:
            self.calls += 1
            if self.calls < 3:
                raise ConnectionError(f"try {self.calls}")
            return StopEvent(result=self.calls)

    result, trace = await traced_run(Flaky(timeout=10))
    assert result == 3
    assert [(item.attempt, item.status, item.error) for item in trace.find("fetch")] == [
        (1, "error", "ConnectionError: try 1"),
        (2, "error", "ConnectionError: try 2"),
        (3, "ok", None),
    ]


async def test_an_error_reaches_the_caller_unwrapped_and_marks_the_span() -> None:
    class Failing(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> StopEvent:
            raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), start_trace("run") as trace:
        await Failing(timeout=10).run()
    assert trace is not None
    assert trace.find("begin")[0].error == "LookupError: gone"
    assert "returned" not in trace.find("begin")[0].attrs


class Slow(TracedWorkflow):
    """Waits in its only step, and remembers how that ended."""

    def __init__(self) -> None:
        super().__init__(timeout=100)
        self.began = asyncio.Event()
        self.ended = "not yet"

    @traced_step
    async def begin(self, ev: StartEvent) -> StopEvent:
        self.began.set()
        try:
            await asyncio.sleep(0.5)
            self.ended = "normally"
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        return StopEvent()


async def test_cancelling_the_awaiting_task_stops_the_step_and_marks_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = Slow()
    traces: list[Trace] = []

    async def run() -> None:
        with start_trace("run") as trace:
            assert trace is not None
            traces.append(trace)
            await flow.run()

    tasks_before = len(asyncio.all_tasks())
    task = asyncio.create_task(run())
    await flow.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flow.ended == "cancelled"
    assert traces[0].status == "cancelled"
    assert traces[0].find("begin")[0].status == "cancelled"
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == tasks_before
    del task
    gc.collect()  # a failure nobody looked at would be logged now
    assert caplog.text == ""


async def test_a_second_cancel_does_not_save_the_step_from_the_first() -> None:
    flow = Slow()

    async def run() -> None:
        await flow.run()

    task = asyncio.create_task(run())
    await flow.began.wait()
    task.cancel()
    await asyncio.sleep(0)  # it is now waiting for the run to stop
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while flow.ended == "not yet":
        await asyncio.sleep(0.005)
    assert flow.ended == "cancelled"


async def test_a_time_limit_around_a_run_stops_the_step() -> None:
    flow = Slow()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await flow.run()
    assert flow.ended == "cancelled"


async def test_the_engines_own_handler_would_lose_the_running_step() -> None:
    """The reason for `result_of`: when this fails, it has become needless."""
    flow = Slow()

    async def run() -> None:
        await Workflow.run(flow)

    task = asyncio.create_task(run())
    await flow.began.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.6)
    assert flow.ended == "normally"


async def test_result_of_stops_any_workflow_and_gives_results_and_errors_alike() -> None:
    class Other(Workflow):
        @step
        async def begin(self, ev: Question) -> Answer:
            if not ev.text:
                raise LookupError("no text")
            return Answer(text=ev.text)

    assert (await result_of(Other(timeout=5).run(text="tea"))).text == "tea"
    with pytest.raises(LookupError, match="no text"):
        await result_of(Other(timeout=5).run())
    flow = Slow()
    task = asyncio.create_task(result_of(Workflow.run(flow)))
    await flow.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flow.ended == "cancelled"


async def test_a_run_still_offers_what_its_handler_does() -> None:
    run = Oracle(timeout=5).run(text="tea")
    events = [type(event).__name__ async for event in run.stream_events()]
    assert events[-1] == "Answer"
    assert (await run).text == "tea"
    assert run.is_done()


@pytest.mark.parametrize(
    ("returned", "name"),
    [(Stray(), "Stray"), (SurerThanSure(), "SurerThanSure"), (None, "NoneType"), ("text", "str")],
    ids=["undeclared", "subclass", "none", "not an event"],
)
async def test_returning_what_is_not_declared_fails_at_once(returned: Any, name: str) -> None:
    class Wrong(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> Sure | Answer:
            return returned  # type: ignore[no-any-return]

        @traced_step
        async def end(self, ev: Sure) -> Answer:
            return Answer()

    began = time.perf_counter()
    with pytest.raises(FlowError) as caught, start_trace("run") as trace:
        await Wrong(timeout=30).run()
    assert time.perf_counter() - began < 5
    assert str(caught.value).startswith(
        f"Step 'begin' returned {name}, but its annotation declares only Answer, Sure."
    )
    assert isinstance(caught.value, MnemotraceError)
    assert trace is not None
    assert trace.find("begin")[0].status == "error"


async def test_the_engine_alone_would_wait_for_the_timeout() -> None:
    """The reason for the check: when this fails, the check has become needless."""

    class Wrong(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Sure | StopEvent:
            return Stray()  # type: ignore[return-value]

        @step
        async def end(self, ev: Sure) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowTimeoutError):
        await Wrong(timeout=0.2).run()


async def test_none_and_lists_are_fine_where_they_are_declared() -> None:
    class FanOut(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> list[Sure]:
            return [Sure(answer=str(number)) for number in range(3)]

        @traced_step
        async def each(self, ev: Sure) -> Unsure | None:
            return Unsure() if ev.answer != "1" else None

        @traced_step
        async def join(self, evs: list[Unsure]) -> StopEvent:
            return StopEvent(result=len(evs))

    result, trace = await traced_run(FanOut(timeout=5))
    assert result == 2
    assert trace.find("begin")[0].attrs["returned"] == "3 x Sure"
    assert sorted(item.attrs["returned"] for item in trace.find("each")) == [
        "None", "Unsure", "Unsure",
    ]  # fmt: skip
    assert trace.find("join")[0].attrs["received"] == "2 x Unsure"


async def test_a_list_with_an_undeclared_event_fails_at_once() -> None:
    class FanOut(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> list[Sure]:
            return [Sure(), Stray()]  # type: ignore[list-item]

        @traced_step
        async def join(self, evs: list[Sure]) -> StopEvent:
            return StopEvent(result=len(evs))

    with pytest.raises(FlowError, match="Stray"):
        await FanOut(timeout=30).run()


def test_a_plain_function_cannot_be_a_traced_step() -> None:
    with pytest.raises(TypeError, match="async def"):

        @traced_step
        def begin(self: Any, ev: StartEvent) -> StopEvent:
            return StopEvent()


@pytest.mark.parametrize("timeout", [None, 0, -1, math.inf, math.nan, "60", True])
def test_a_flow_needs_a_finite_timeout(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout="):
        Oracle(timeout=timeout)


def test_a_flow_without_a_timeout_is_refused() -> None:
    with pytest.raises(TypeError):
        Oracle()  # type: ignore[call-arg]


async def test_the_timeout_ends_a_run() -> None:
    class Endless(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(60)
            return StopEvent()

    with pytest.raises(WorkflowTimeoutError), start_trace("run") as trace:
        await Endless(timeout=0.1).run()
    assert trace is not None
    assert trace.find("begin")[0].status == "cancelled"


async def test_the_engine_still_asks_our_cached_step_table() -> None:
    """`_get_steps` is private: a release that stops calling it makes the cache dead weight."""
    calls = []

    class Watched(Oracle):
        def _get_steps(self) -> Any:
            steps = super()._get_steps()
            calls.append(steps)
            return steps

    flow = Watched(timeout=10)
    await flow.run(text="warm up")
    calls.clear()
    await flow.run(text="tea")
    assert len(calls) >= 2
    assert all(steps is calls[0] for steps in calls)
    assert set(calls[0]) == {"route", "search", "reply"}


async def test_steps_are_spans_of_the_engine_only_while_somebody_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`_dispatcher` is private: a release that stops looking there loses users' spans, or speed."""
    wrapped = []
    dispatcher = Oracle(timeout=10)._dispatcher._dispatcher
    span_of = type(dispatcher).span

    def span(self: Any, func: Any) -> Any:
        wrapped.append(func.__name__)
        return span_of(self, func)

    monkeypatch.setattr(type(dispatcher), "span", span)
    flow = Oracle(timeout=10)
    assert await flow.run(text="tea")
    assert wrapped == []
    handler = SimpleSpanHandler()
    dispatcher.root.add_span_handler(handler)
    try:
        assert await flow.run(text="tea")
    finally:
        dispatcher.root.span_handlers.remove(handler)
    assert set(wrapped) >= {"route", "reply"}
    names = {item.id_.split("-")[0].split(".")[-1] for item in handler.completed_spans}
    assert names >= {"route", "reply"}
    wrapped.clear()
    assert await flow.run(text="tea")
    assert wrapped == []


async def test_a_step_added_later_is_seen_despite_the_cache() -> None:
    class Growing(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> Sure | StopEvent:
            return Sure(answer="more")

    flow = Growing(timeout=5)
    assert set(flow._get_steps()) == {"begin"}

    @step(workflow=Growing)
    async def added(ev: Sure) -> StopEvent:
        return StopEvent(result=ev.answer)

    assert await flow.run() == "more"


def test_validate_step_returns_lists_the_graph() -> None:
    assert Oracle.validate_step_returns() == {
        "route": ("Sure", "Unsure"),
        "search": ("Sure",),
        "reply": ("Answer",),
    }


def test_validate_step_returns_names_an_event_that_leads_nowhere() -> None:
    class DeadEnd(TracedWorkflow):
        @traced_step
        async def begin(self, ev: StartEvent) -> Stray | StopEvent:
            return StopEvent()

    with pytest.raises(FlowError, match="'begin' of DeadEnd may return Stray"):
        DeadEnd.validate_step_returns()


@pytest.mark.slow
async def test_tracing_a_run_costs_little_beside_the_engine() -> None:
    class Plain(Workflow):
        @step
        async def route(self, ev: Question) -> Sure | Unsure:
            return Sure(answer=ev.text)

        @step
        async def search(self, ev: Unsure) -> Sure:
            return Sure()

        @step
        async def reply(self, ev: Sure) -> Answer:
            return Answer(text=ev.answer)

    # The cached step table saves what the spans cost; half as much again is room for noise.
    times: dict[type[Workflow], list[float]] = {Oracle: [], Plain: []}
    flows: list[Workflow] = [Oracle(timeout=10), Plain(timeout=10)]
    for _ in range(150):
        for flow in flows:
            began = time.perf_counter()
            await traced_run(flow, text="tea")
            times[type(flow)].append(time.perf_counter() - began)
    assert statistics.median(times[Oracle]) < 1.5 * statistics.median(times[Plain])
