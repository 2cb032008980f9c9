"""A memory with a scripted model, and OpenTelemetry kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from mnemotrace import Memory
from mnemotrace.telemetry import Instrumentation, instrument
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

OpenMemory = Callable[..., Memory]


@dataclass
class Kept:
    """What was recorded."""

    spans: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    handle: Instrumentation

    @property
    def tracer(self) -> Tracer:
        return self.spans.get_tracer("caller")

    @property
    def finished(self) -> list[ReadableSpan]:
        """The spans so far, in the order they ended."""
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.finished if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def points(self, name: str) -> list[Any]:
        """The data points of a metric; empty when nothing was recorded."""
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def otel() -> Iterator[Kept]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    spans, meters = TracerProvider(), MeterProvider([reader])
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    kept = Kept(spans, meters, exporter, reader, instrument(spans, meters))
    yield kept
    kept.handle.uninstrument()
    spans.shutdown()
    meters.shutdown()


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("telemetry") / "store"
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder(dimension=16)) as holder:
        holder.remember("The harbour closes at nine.", scope="/port")
        yield holder


@pytest.fixture
def open_memory(_shared: Memory) -> Iterator[OpenMemory]:
    """Open memories over one store that has a single record."""
    opened: list[Memory] = []
    place = _shared._core.store._space.engine._folder  # type: ignore[attr-defined]

    def build(**options: Any) -> Memory:
        options = {"llm": None, "embedder": FakeEmbedder(dimension=16)} | options
        opened.append(Memory(storage=place, **options))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()
    for record in _shared.list_records(include_private=True):
        if record.content != "The harbour closes at nine.":
            _shared.forget(record_ids=[record.id], include_private=True)


@pytest.fixture
def model() -> ScriptedLLM:
    return ScriptedLLM(
        {"save_analysis": {"scope": "/port", "categories": ["c"], "importance": 0.9}},
        model="anthropic/claude-test",
    )
