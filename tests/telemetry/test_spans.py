"""Live spans: how they nest, what they are called and say, and what they keep to themselves."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from mnemotrace.errors import ConfigurationError, EmbedderError
from mnemotrace.telemetry import instrument
from mnemotrace.telemetry.conventions import provider_and_model
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

from .conftest import Kept, OpenMemory

LONG = "What does the secret plan say about the opening hours of the harbour? " * 4


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def span_id(span: Any) -> int:
    return int(span.get_span_context().span_id)


def test_a_recall_nests_in_the_callers_span_and_its_steps_in_it(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory()
    with otel.tracer.start_as_current_span("caller") as caller:
        found = memory.recall("harbour", limit=3)
        assert otel_trace.get_current_span() is caller
    run = otel.one("search_memory")
    assert parent_of(run) == span_id(caller)
    assert run.kind is SpanKind.INTERNAL
    told = attributes(run)
    assert told["gen_ai.operation.name"] == "search_memory"
    assert told["gen_ai.memory.record.count"] == len(found) == 1
    assert told["mnemotrace.confidence"] == found.confidence
    assert found.trace is not None
    assert told["mnemotrace.trace_id"] == found.trace.trace_id
    for step in ("analyze_query", "select_scopes", "search", "route", "synthesize"):
        assert parent_of(otel.one(f"mnemotrace.{step}")) == span_id(run), step
    search = otel.one("mnemotrace.search.query")
    assert parent_of(search) == span_id(otel.one("mnemotrace.search"))
    told = attributes(search)
    assert (told["db.system.name"], told["db.operation.name"]) == ("qdrant", "search")
    assert told["db.response.returned_rows"] == 1
    assert told["mnemotrace.scopes"] == ("/",)


@pytest.mark.parametrize("way", ["await", "thread", "shallow"])
def test_it_nests_whatever_way_the_memory_is_called(
    open_memory: OpenMemory, otel: Kept, way: str
) -> None:
    memory = open_memory()
    with otel.tracer.start_as_current_span("caller") as caller:
        if way == "await":
            asyncio.run(memory.arecall("harbour"))
        elif way == "shallow":
            memory.recall("harbour", depth="shallow")
        else:
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(memory.recall, "harbour"))
            thread.start()
            thread.join()
        assert otel_trace.get_current_span() is caller
    run = otel.one("search_memory")
    assert parent_of(run) == span_id(caller)
    inner = [span for span in otel.finished if span not in (run, otel.one("caller"))]
    assert inner
    assert {span.context.trace_id for span in inner} == {run.context.trace_id}


def test_without_a_callers_span_a_run_begins_a_trace_of_its_own(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory()
    memory.recall("harbour")
    memory.recall("harbour")
    runs = otel.named("search_memory")
    assert [parent_of(run) for run in runs] == [None, None]
    assert runs[0].context.trace_id != runs[1].context.trace_id


def test_times_are_those_of_the_trace_and_parts_lie_within_the_whole(
    open_memory: OpenMemory, otel: Kept
) -> None:
    trace = open_memory().recall("harbour").trace
    assert trace is not None
    run = otel.one("search_memory")
    assert run.start_time == trace.started_ns
    assert run.start_time is not None and run.end_time is not None
    assert run.end_time - run.start_time == trace.root.end_ns
    for span in otel.finished:
        assert span.start_time is not None and span.end_time is not None
        assert run.start_time <= span.start_time <= span.end_time <= run.end_time


def test_a_save_with_a_model_has_the_conventions_attributes(
    open_memory: OpenMemory, otel: Kept, model: ScriptedLLM
) -> None:
    open_memory(llm=model).remember("The ferry is red.")
    told = attributes(otel.one("upsert_memory"))
    assert told["gen_ai.operation.name"] == "upsert_memory"
    assert told["gen_ai.memory.record.count"] == 1
    call = otel.one("chat claude-test")
    assert call.kind is SpanKind.CLIENT
    told = attributes(call)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.provider.name"] == "anthropic"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == "claude-test"
    assert told["gen_ai.output.type"] == "json"
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] > 0
    assert told["mnemotrace.llm.purpose"] == "save_analysis"
    ancestors = {span_id(span): parent_of(span) for span in otel.finished}
    above = [span_id(call)]
    while (parent := ancestors[above[-1]]) is not None:
        above.append(parent)
    assert above[-1] == span_id(otel.one("upsert_memory"))


def test_what_is_recorded_while_a_model_answers_nests_in_its_span(
    open_memory: OpenMemory, otel: Kept
) -> None:
    def answers(prompt: str) -> str:
        with otel.tracer.start_as_current_span("POST"):
            return '{"scope": "/port", "categories": [], "importance": 0.5}'

    open_memory(llm=answers).remember("The ferry is green.")
    [call] = [span for span in otel.finished if span.name.startswith("chat ")]
    assert parent_of(otel.one("POST")) == span_id(call)
    # A function says nothing of tokens; that is not the same as none.
    assert "gen_ai.usage.input_tokens" not in attributes(call)
    assert attributes(call)["gen_ai.provider.name"] == "custom"


def test_background_saves_nest_in_the_span_of_whoever_accepted_them(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory(embedder=FakeEmbedder(dimension=16, delay=0.02))
    callers = []
    for number in range(3):
        with otel.tracer.start_as_current_span("caller") as caller:
            memory.remember_many([f"Background {number} is here."], scope="/b")
            callers.append(span_id(caller))
    memory.drain_writes()
    assert [parent_of(run) for run in otel.named("upsert_memory")] == callers


def test_a_failure_sets_the_status_and_tells_its_type_only(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory()
    memory._core.services.embedder.embedder.fail = ValueError("the SECRET text")
    with pytest.raises(EmbedderError):
        memory.recall("harbour")
    run = otel.one("search_memory")
    assert run.status.status_code is StatusCode.ERROR
    assert run.status.description == "EmbedderError"
    assert attributes(run)["error.type"] == "EmbedderError"
    assert "SECRET" not in everything(otel)


def test_a_model_that_fails_is_an_error_of_its_span_and_not_of_the_run(
    open_memory: OpenMemory, otel: Kept
) -> None:
    broken = ScriptedLLM({"save_analysis": RuntimeError("the SECRET text")}, model="gpt-test")
    open_memory(llm=broken).remember("The ferry is blue.")
    call = otel.one("chat gpt-test")
    assert (call.status.status_code, attributes(call)["error.type"]) == (
        StatusCode.ERROR,
        "LLMError",
    )
    assert attributes(call)["gen_ai.provider.name"] == "openai"
    assert otel.one("upsert_memory").status.status_code is StatusCode.UNSET
    assert "SECRET" not in everything(otel)


def everything(otel: Kept) -> str:
    """All that left the process, as one text."""
    return "".join(span.to_json() for span in otel.finished)


@pytest.fixture
def explored(open_memory: OpenMemory) -> Callable[[Kept], str]:
    """Save and recall with a model that talks, at level full; returns what was recorded."""

    def run(otel: Kept) -> str:
        said: dict[str, Any] = {
            "save_analysis": {"scope": "/port", "categories": ["SECRET-label"], "importance": 0.5},
            "query_analysis": {"sub_queries": ["SECRET sub query"], "scopes": ["/port"]},
            "exploration": {"gaps": ["SECRET gap"], "sub_queries": ["SECRET more"], "scopes": []},
        }
        memory = open_memory(
            llm=ScriptedLLM(said),
            trace="full",
            confidence_threshold_low=1.0,
            confidence_threshold_high=1.0,
            complex_query_threshold=1.0,
        )
        memory.remember("The SECRET memory of the harbour.")
        assert memory.recall(f"SECRET {LONG}")
        return everything(otel)

    return run


def test_no_text_leaves_the_process_unless_asked_for(
    explored: Callable[[Kept], str], otel: Kept
) -> None:
    text = explored(otel)
    assert otel.named("mnemotrace.explore")
    assert "SECRET" not in text
    assert "harbour" not in text


def test_texts_are_sent_on_request_at_level_full(
    explored: Callable[[Kept], str], otel: Kept
) -> None:
    instrument(otel.spans, otel.meters, content=True)
    text = explored(otel)
    told = attributes(otel.one("search_memory"))
    assert str(told["gen_ai.memory.query.text"]).startswith("SECRET What does")
    assert "SECRET memory" in str(told["gen_ai.memory.records"])
    assert "SECRET gap" in text


def test_texts_are_not_sent_at_level_on_even_on_request(
    open_memory: OpenMemory, otel: Kept
) -> None:
    instrument(otel.spans, otel.meters, content=True)
    open_memory().recall("SECRET harbour")
    assert otel.named("search_memory")
    assert "SECRET" not in everything(otel)


def test_with_tracing_off_there_are_no_spans(open_memory: OpenMemory, otel: Kept) -> None:
    open_memory(trace="off").remember("The ferry is black.")
    open_memory().recall("harbour", trace="off")
    assert otel.finished == []


async def test_a_run_that_is_cancelled_leaves_no_span_open(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory(llm=ScriptedLLM({"query_analysis": {}}, delay=30.0))
    recall = asyncio.create_task(memory.arecall(LONG))
    while not memory._core.services.llm.llm.requests:  # type: ignore[attr-defined]
        await asyncio.sleep(0.005)
    recall.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recall
    for _ in range(200):
        if otel.named("search_memory"):
            break
        await asyncio.sleep(0.005)
    run = otel.one("search_memory")
    assert attributes(run)["mnemotrace.status"] == "cancelled"
    assert run.status.status_code is StatusCode.UNSET
    [call] = [span for span in otel.finished if span.name.startswith("chat")]
    assert call.end_time is not None


def test_an_exporter_or_tracer_that_fails_never_breaks_a_memory(
    open_memory: OpenMemory, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(otel_trace.TracerProvider):
        def get_tracer(self, *args: Any, **kwargs: Any) -> Any:
            class Tracer:
                def start_span(self, *args: Any, **kwargs: Any) -> None:
                    raise RuntimeError("tracer bug")

            return Tracer()

    with instrument(Broken()), caplog.at_level(logging.ERROR):
        assert open_memory().recall("harbour")
        assert open_memory().remember("The ferry is pink.").content
    assert len(caplog.records) == 1
    assert "tracer bug" in caplog.text


def test_it_ends_and_a_second_one_takes_the_place_of_the_first(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory()
    again = instrument(otel.spans, otel.meters)
    assert again.active and not otel.handle.active
    memory.recall("harbour")
    assert len(otel.named("search_memory")) == 1
    otel.handle.uninstrument()  # the first one; it is over already
    memory.recall("harbour")
    assert len(otel.named("search_memory")) == 2
    again.uninstrument()
    again.uninstrument()
    memory.recall("harbour")
    assert len(otel.named("search_memory")) == 2


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r'pip install "mnemotrace\[otel\]"'):
        instrument()
    wrong: Any = "yes"
    with pytest.raises(ConfigurationError, match="True or False"):
        instrument(content=wrong)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("gpt-4o-mini", ("openai", "gpt-4o-mini")),
        ("ollama/llama3.2", ("ollama", "llama3.2")),
        ("gemini/gemini-2.0-flash", ("gcp.gemini", "gemini-2.0-flash")),
        ("huggingface/org/model", ("huggingface", "org/model")),
        ("amazon-bedrock/titan", ("aws.bedrock", "titan")),
        ("my_function", ("custom", "my_function")),
        ("", ("custom", "")),
    ],
)
def test_models_are_split_into_the_conventions_provider_and_the_model(
    name: str, split: tuple[str, str]
) -> None:
    assert provider_and_model(name) == split
