"""Metrics: recalls and saves as their events tell, models and embedders as their spans tell.

Events come whatever the trace level is, so recalls and saves are counted with ``trace="off"``, too.
Tokens, cost and model times are in spans only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from mnemotrace.events import (
    MemoryAnalysisFailedEvent,
    MemoryEvent,
    MemoryQueryCompletedEvent,
    MemoryQueryFailedEvent,
    MemorySaveCompletedEvent,
    MemorySaveFailedEvent,
    event_bus,
)
from mnemotrace.saving import open_queues
from mnemotrace.trace import Span, Trace

from . import conventions as names

PENDING = names.PREFIX + "saves.pending"
_active = 0
"""Meters in use. OpenTelemetry cannot take a callback back, so it must fall silent by itself."""


def _observe(options: CallbackOptions) -> Iterable[Observation]:
    """Yield the batches that wait, over all memories open in this process."""
    if not _active:
        return
    queues = open_queues()
    yield Observation(sum(queue.pending for queue in queues), {"state": "waiting"})
    yield Observation(sum(queue.retrying for queue in queues), {"state": "retrying"})


class MetricWriter:
    """A `mnemotrace.trace.Watcher` and event handler that records metrics."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, text: str, bounds: tuple[float, ...]) -> Any:
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=bounds
            )

        prefix = names.PREFIX
        self._recall_seconds = histogram(
            prefix + "recall.duration", "s", "Time of a recall.", names.SECONDS
        )
        self._hits = histogram(
            prefix + "recall.hits", "{record}", "Records a recall returned.", names.HITS
        )
        self._confidence = histogram(
            prefix + "recall.confidence", "1", "Confidence of a recall.", names.SHARES
        )
        self._save_seconds = histogram(
            prefix + "save.duration", "s", "Time to save the batch of a text.", names.SECONDS
        )
        self._saves = meter.create_counter(prefix + "saves", "{text}", "Texts saved.")
        self._failures = meter.create_counter(
            prefix + "failures", "{failure}", "Recalls, saves and analyses that failed."
        )
        self._cost = meter.create_counter(
            prefix + "cost", "{USD}", "What models and embedders said that they cost."
        )
        self._seconds = histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            names.MODEL_SECONDS,
        )
        self._tokens = histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            names.TOKENS,
        )
        meter.create_observable_gauge(
            PENDING, [_observe], "{batch}", "Accepted batches that are not saved yet."
        )

    def start(self) -> None:
        """Begin to listen."""
        global _active
        _active += 1
        for event, handler in self._handlers():
            event_bus.on(event)(handler)

    def stop(self) -> None:
        """Listen no more."""
        global _active
        _active -= 1
        for _, handler in self._handlers():
            event_bus.off(handler)

    def _handlers(self) -> Iterable[tuple[type[MemoryEvent], Any]]:
        return (
            (MemoryQueryCompletedEvent, self._recalled),
            (MemoryQueryFailedEvent, self._recall_failed),
            (MemorySaveCompletedEvent, self._saved),
            (MemorySaveFailedEvent, self._save_failed),
            (MemoryAnalysisFailedEvent, self._analysis_failed),
        )

    # -- events -------------------------------------------------------------------------------

    def _recalled(self, source: Any, event: MemoryQueryCompletedEvent) -> None:
        facts = {"status": getattr(event.results, "status", "ok")}
        self._recall_seconds.record(event.query_time_ms / 1000, facts)
        self._hits.record(len(event.results), facts)
        confidence = getattr(event.results, "confidence", None)
        if confidence is not None:
            self._confidence.record(confidence, facts)

    def _recall_failed(self, source: Any, event: MemoryQueryFailedEvent) -> None:
        kind = _kind_of(event.trace)
        if event.trace is not None:
            facts = {"status": "error", names.ERROR_TYPE: kind}
            self._recall_seconds.record(event.trace.duration_ms / 1000, facts)
        self._failures.add(1, {"operation": "recall", names.ERROR_TYPE: kind})

    def _saved(self, source: Any, event: MemorySaveCompletedEvent) -> None:
        self._saves.add(1)
        self._save_seconds.record(event.save_time_ms / 1000)

    def _save_failed(self, source: Any, event: MemorySaveFailedEvent) -> None:
        self._failures.add(1, {"operation": "save", names.ERROR_TYPE: _kind_of(event.trace)})

    def _analysis_failed(self, source: Any, event: MemoryAnalysisFailedEvent) -> None:
        self._failures.add(1, {"operation": "analysis", "analysis": event.operation})

    # -- spans --------------------------------------------------------------------------------

    def span_started(self, trace: Trace, span: Span) -> None:
        """Do nothing: what is counted is known at the end."""

    def span_ended(self, trace: Trace, span: Span) -> None:
        """Record a call of a model or of a hosted embedder."""
        if span.kind not in ("llm", "embed"):
            return
        facts: dict[str, str] = {names.OPERATION: "chat" if span.kind == "llm" else "embeddings"}
        if span.attrs.get("model"):
            provider, model = names.provider_and_model(str(span.attrs["model"]))
            facts |= {names.PROVIDER: provider, names.REQUEST_MODEL: model}
        failed = {names.ERROR_TYPE: names.error_type(span.error)} if span.status == "error" else {}
        self._seconds.record(span.duration_ms / 1000, facts | failed)
        for kind, key in (("input", "tokens_in"), ("output", "tokens_out")):
            if span.attrs.get(key):
                self._tokens.record(int(span.attrs[key]), facts | {names.TOKEN_TYPE: kind})
        if span.attrs.get("cost"):
            self._cost.add(float(span.attrs["cost"]), facts)


def _kind_of(trace: Trace | None) -> str:
    return names.error_type(None if trace is None else trace.error)
