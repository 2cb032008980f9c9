"""OpenTelemetry: the spans of a recall inside the agent's own span, printed as a tree.

Run it with `python examples/telemetry.py`; it needs `pip install 'mnemotrace[otel]'`, no network
and no key. docs/telemetry.md tells how to send the same to a collector.
"""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mnemotrace import Memory
from mnemotrace.telemetry import instrument

SHOWN = ("gen_ai.memory.record.count", "mnemotrace.confidence", "db.response.returned_rows")


def model(prompt: str) -> str:  # stands for a real one
    return '{"scope": "/town", "categories": ["market"], "importance": 0.8}'


def print_tree(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent:
            facts = [f"{name}={span.attributes[name]}" for name in SHOWN if name in span.attributes]
            print("  " * depth + span.name, *facts)
            print_tree(spans, span.context.span_id, depth + 1)


def main() -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    with instrument(tracer_provider, MeterProvider([reader])):
        tracer = tracer_provider.get_tracer("my-agent")
        with (
            Memory(storage=":memory:", llm=model) as memory,
            tracer.start_as_current_span("my agent plans a trip"),
        ):
            memory.remember("The market is on Saturday.")
            memory.recall("When is the market?")
        data = reader.get_metrics_data()

    print_tree(list(exporter.get_finished_spans()))
    print("\nmetrics:")
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in sorted(scope.metrics, key=lambda metric: metric.name):
                print(f"  {metric.name}")


if __name__ == "__main__":
    main()
