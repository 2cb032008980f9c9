"""A standard OTLP collector gets it all: a receiver on this machine decodes real requests."""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from mnemotrace.telemetry import instrument
from mnemotrace.testing import FakeServer, ScriptedLLM

from .conftest import Kept, OpenMemory


class Collector:
    """Receives OTLP over HTTP with protobuf, as the standard collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.services: set[str] = set()
        self.status = 200
        self.requests = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.receive(self.path, body)
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def receive(self, path: str, body: bytes) -> None:
        self.requests += 1
        if self.status != 200:
            return
        request: Any
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                self._note(resource.resource)
                for scope in resource.scope_spans:
                    assert scope.scope.name == "mnemotrace"
                    self.spans += scope.spans
        else:
            assert path == "/v1/metrics"
            request = ExportMetricsServiceRequest.FromString(body)
            for resource in request.resource_metrics:
                self._note(resource.resource)
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    def _note(self, resource: Any) -> None:
        self.services |= {
            item.value.string_value for item in resource.attributes if item.key == "service.name"
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def providers(collector: Collector) -> tuple[TracerProvider, MeterProvider]:
    """What a user sets up for a collector."""
    resource = Resource.create({"service.name": "my-agent"})
    spans = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", timeout=1)
    spans.add_span_processor(BatchSpanProcessor(exporter))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{collector.url}/v1/metrics", timeout=1),
        export_interval_millis=math.inf,  # only when told to
    )
    return spans, MeterProvider([reader], resource)


def test_spans_and_metrics_arrive_at_a_collector(
    collector: Collector, open_memory: OpenMemory, model: ScriptedLLM
) -> None:
    spans, meters = providers(collector)
    with instrument(spans, meters):
        memory = open_memory(llm=model)
        memory.remember("The ferry is golden.")
        memory.recall("ferry")
        spans.force_flush()
        meters.force_flush()
    spans.shutdown()
    meters.shutdown()
    assert collector.services == {"my-agent"}
    received = {span.name: span for span in collector.spans}
    assert {"upsert_memory", "chat claude-test", "search_memory"} <= received.keys()
    ids = {span.span_id for span in collector.spans}
    for name, span in received.items():
        whole = name in ("upsert_memory", "search_memory")
        assert (span.parent_span_id == b"") if whole else (span.parent_span_id in ids), name
    told = {item.key: item.value for item in received["chat claude-test"].attributes}
    assert told["gen_ai.operation.name"].string_value == "chat"
    assert told["gen_ai.usage.input_tokens"].int_value > 0
    names = {"recall.duration", "recall.hits", "recall.confidence", "saves", "saves.pending"}
    assert {f"mnemotrace.{name}" for name in names} <= collector.metrics.keys()
    [point] = collector.metrics["gen_ai.client.token.usage"].histogram.data_points[:1]
    assert 64 in point.explicit_bounds


def test_a_collector_that_is_down_breaks_nothing(
    collector: Collector, open_memory: OpenMemory
) -> None:
    collector.status = 400
    spans, meters = providers(collector)
    with instrument(spans, meters):
        assert open_memory().recall("harbour")
        spans.force_flush()
        meters.force_flush()
    spans.shutdown()
    meters.shutdown()
    assert collector.requests > 0
    assert collector.spans == []


@pytest.mark.slow
def test_spans_of_litellm_nest_in_ours(
    open_memory: OpenMemory, otel: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Else it writes into whatever span is current, which has ended when its callback comes.
    monkeypatch.setenv("USE_OTEL_LITELLM_REQUEST_SPAN", "true")
    import litellm
    from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig

    callback = OpenTelemetry(
        OpenTelemetryConfig(exporter=otel.exporter), tracer_provider=otel.spans
    )
    monkeypatch.setattr(litellm, "callbacks", [callback])
    answers = {"SaveAnalysis": {"scope": "/port", "categories": [], "importance": 0.5}}
    with FakeServer(answers) as server:
        open_memory(llm=server.llm()).remember("The ferry is silver.")
        never = threading.Event()
        for _ in range(200):  # its callback comes after the answer
            if otel.named("litellm_request"):
                break
            never.wait(0.02)
    [ours] = [span for span in otel.finished if span.name.startswith("chat ")]
    theirs = otel.one("litellm_request")
    assert theirs.parent is not None
    assert theirs.parent.span_id == ours.context.span_id
    assert theirs.context.trace_id == ours.context.trace_id
