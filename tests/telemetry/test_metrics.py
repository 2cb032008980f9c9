"""Metrics: recalls, saves, models; with traces off, too."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter

from mnemotrace.errors import EmbedderError, SaveError
from mnemotrace.llm.protocol import LLMReply
from mnemotrace.telemetry import conventions, instrument
from mnemotrace.telemetry.metrics import MetricWriter
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

from .conftest import Kept, OpenMemory


def by(points: list[Any], **facts: str) -> Any:
    """The one data point with these attributes."""
    [point] = [
        point
        for point in points
        if all(point.attributes.get(name.replace("__", ".")) == v for name, v in facts.items())
    ]
    return point


@pytest.mark.parametrize("trace", ["on", "off"])
def test_recalls_and_saves_are_measured_whatever_the_trace_level(
    open_memory: OpenMemory, otel: Kept, trace: str
) -> None:
    memory = open_memory(trace=trace)
    found = memory.recall("harbour")
    memory.recall("harbour", limit=0)
    memory.remember("The ferry is violet.")
    memory.remember_many(["The pier is long.", "The pier is wet."]).wait()
    duration = by(otel.points("mnemotrace.recall.duration"), status="ok")
    assert duration.count == 2
    assert 0 < duration.sum < 30
    hits = by(otel.points("mnemotrace.recall.hits"))
    assert (hits.count, hits.sum) == (2, 1)
    confidence = by(otel.points("mnemotrace.recall.confidence"))
    assert math.isclose(confidence.max, found.confidence)
    assert by(otel.points("mnemotrace.saves")).value == 3
    assert by(otel.points("mnemotrace.save.duration")).count == 3
    assert otel.points("mnemotrace.failures") == []


def test_models_are_measured_with_tokens_and_cost(open_memory: OpenMemory, otel: Kept) -> None:
    answer = '{"scope": "/port", "categories": [], "importance": 0.5}'
    reply = LLMReply(answer, model="gpt-x-2026", tokens_in=120, tokens_out=30, cost=0.002)
    open_memory(llm=ScriptedLLM({"save_analysis": reply}, model="gpt-x")).remember("The ferry.")
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x-2026",
    }
    duration = by(otel.points("gen_ai.client.operation.duration"))
    assert dict(duration.attributes) == facts
    tokens = otel.points("gen_ai.client.token.usage")
    assert by(tokens, gen_ai__token__type="input").sum == 120
    assert by(tokens, gen_ai__token__type="output").sum == 30
    assert by(otel.points("mnemotrace.cost")).value == 0.002


def test_failures_are_counted_by_what_failed_and_how(
    open_memory: OpenMemory, otel: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = FakeEmbedder(dimension=16)
    memory = open_memory(
        llm=ScriptedLLM({"save_analysis": RuntimeError("down")}),
        embedder=embedder,
        save_attempts=1,
    )
    memory.remember("The ferry is late.")
    embedder.fail = True
    with pytest.raises(EmbedderError):
        memory.recall("harbour")
    with pytest.raises(SaveError):
        memory.remember_many(["The ferry is early."], scope="/b").wait()
    embedder.fail = False
    failures = otel.points("mnemotrace.failures")
    assert by(failures, operation="recall", error__type="EmbedderError").value == 1
    assert by(failures, operation="save", error__type="EmbedderError").value == 1
    assert by(failures, operation="analysis", analysis="save analysis").value == 1
    failed = by(otel.points("mnemotrace.recall.duration"), status="error")
    assert failed.attributes["error.type"] == "EmbedderError"
    model = by(otel.points("gen_ai.client.operation.duration"))
    assert model.attributes["error.type"] == "LLMError"
    memory.forget(scope="/b")


def pending(otel: Kept) -> dict[str, int]:
    return {p.attributes["state"]: p.value for p in otel.points("mnemotrace.saves.pending")}


def test_pending_saves_are_observed_while_they_wait(open_memory: OpenMemory, otel: Kept) -> None:
    embedder = FakeEmbedder(dimension=16)
    memory = open_memory(embedder=embedder)
    memory.recall("harbour")  # the embedder is known by now
    assert pending(otel) == {"waiting": 0, "retrying": 0}
    embedder.delay = 0.3
    memory.remember_many(["One is pending."], scope="/b")
    memory.remember_many(["Two is pending."], scope="/b")
    assert pending(otel) == {"waiting": 2, "retrying": 0}
    embedder.delay = 0.0
    memory.drain_writes()
    assert pending(otel) == {"waiting": 0, "retrying": 0}
    embedder.fail = True
    memory.remember_many(["Three is pending."], scope="/b")
    memory.drain_writes()
    assert pending(otel) == {"waiting": 0, "retrying": 1}
    embedder.fail = False


def test_after_its_end_nothing_is_recorded_and_a_new_one_is_observed_again(
    open_memory: OpenMemory, otel: Kept
) -> None:
    memory = open_memory()
    memory.recall("harbour")
    otel.handle.uninstrument()
    memory.recall("harbour")
    assert by(otel.points("mnemotrace.recall.duration")).count == 1
    assert pending(otel) == {}
    with instrument(otel.spans, otel.meters):
        memory.recall("harbour")
        assert by(otel.points("mnemotrace.recall.duration")).count == 2
        assert pending(otel) == {"waiting": 0, "retrying": 0}


def test_the_page_names_every_metric_and_every_attribute_of_spans() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "telemetry.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([a-z_.]+)` \| (?:histogram|counter|gauge)", page, re.MULTILINE))
    made: set[str] = set()

    class Noting(NoOpMeter):
        """Notes what is made."""

    for method in ("create_histogram", "create_counter", "create_observable_gauge"):
        real = getattr(NoOpMeter, method)

        def make(self: Any, name: str, *args: Any, real: Any = real, **options: Any) -> Any:
            made.add(name)
            return real(self, name, *args, **options)

        setattr(Noting, method, make)
    MetricWriter(Noting("x"))
    assert rows == made
    for name, value in vars(conventions).items():
        if name.isupper() and isinstance(value, str) and "." in value and value != "mnemotrace.":
            assert f"`{value}`" in page, name
