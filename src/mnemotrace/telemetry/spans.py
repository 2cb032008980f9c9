"""Spans of a trace as OpenTelemetry spans, while they happen.

A span begins in the thread and the context of the code it is about, so it is made current there:
what other libraries record below it (litellm, an HTTP client) nests in it, and it nests in the
caller's own current span, because the runtime runs a call in a copy of the caller's context.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextvars import Token
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context

from mnemotrace.trace import Span, Trace, plain

from . import conventions as names

Value = str | bool | int | float | list[str]
_Open = tuple[OtelSpan, "Token[Context]"]

SAFE_TEXTS = frozenset(
    [
        *("depth", "empty", "judge", "llm", "plan", "read_barrier", "received", "returned"),
        *("since", "to", "until"),
    ]
)
"""Facts whose text is one of our own words. Others may quote a memory or a model's answer."""
SAFE_LISTS = frozenset({"actions", "scopes"})
_TOLD_OTHERWISE = frozenset({"cost", "model", "tokens_in", "tokens_out"})
MOST_CHARACTERS = 20_000
"""Longest text of a memory or a model in one attribute."""


class SpanWriter:
    """A `mnemotrace.trace.Watcher` that writes OpenTelemetry spans.

    Args:
        tracer: makes the spans.
        content: write the texts, too, that a trace of level ``full`` keeps, and error messages.
    """

    def __init__(self, tracer: Tracer, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._open: dict[str, dict[int, _Open]] = {}

    def span_started(self, trace: Trace, span: Span) -> None:
        """Begin the OpenTelemetry span and make it current."""
        spans = self._open.setdefault(trace.trace_id, {})
        current = otel_context.get_current()
        parent = None if span.parent is None else spans.get(span.parent)
        if parent is not None:
            current = set_span_in_context(parent[0], current)
        name, kind, attributes = _beginning(trace, span)
        started = self._tracer.start_span(
            name,
            context=current,
            kind=kind,
            attributes=attributes,
            start_time=trace.started_ns + span.start_ns,
        )
        token = otel_context.attach(set_span_in_context(started, current))
        spans[span.id] = (started, token)

    def span_ended(self, trace: Trace, span: Span) -> None:
        """End it, with what is known now."""
        spans = self._open.get(trace.trace_id, {})
        if span.id == 0:
            self._open.pop(trace.trace_id, None)
        found = spans.pop(span.id, None)
        if span.id == 0:
            for abandoned, _ in spans.values():  # their code goes on, in nobody's run
                abandoned.set_attribute(names.PREFIX + "abandoned", True)
                abandoned.end()
        if found is None:  # it began before anybody watched
            return
        ending, token = found
        otel_context.detach(token)
        try:
            if ending.is_recording():
                self._describe(ending, trace, span)
        finally:
            ending.end(trace.started_ns + (span.end_ns or trace.elapsed_ns()))

    def _describe(self, ending: OtelSpan, trace: Trace, span: Span) -> None:
        for name, value in _facts(span.attrs, self._content):
            ending.set_attribute(name, value)
        for name, value in _ending(trace, span):
            ending.set_attribute(name, value)
        if span.kind == "embed" and span.attrs.get("model"):
            model = names.provider_and_model(str(span.attrs["model"]))[1]
            ending.update_name(f"embeddings {model}")
        if span.status == "error":
            kind = names.error_type(span.error)
            ending.set_attribute(names.ERROR_TYPE, kind)
            ending.set_status(StatusCode.ERROR, span.error if self._content else kind)
        elif span.status == "cancelled":
            ending.set_attribute(names.PREFIX + "status", "cancelled")
        if self._content and trace.level == "full":
            for name, value in _content(trace, span):
                ending.set_attribute(name, value)


def _beginning(trace: Trace, span: Span) -> tuple[str, SpanKind, dict[str, Value]]:
    """Return name, kind and first attributes of a span."""
    attributes: dict[str, Value] = {names.PREFIX + "kind": span.kind}
    if span.attempt > 1:
        attributes[names.PREFIX + "attempt"] = span.attempt
    if span.id == 0:
        attributes[names.PREFIX + "run"] = span.name
        attributes[names.PREFIX + "trace_id"] = trace.trace_id
        operation = names.RUNS.get(span.name)
        if operation is None:
            return names.PREFIX + span.name, SpanKind.INTERNAL, attributes
        attributes[names.OPERATION] = operation
        return operation, SpanKind.INTERNAL, attributes
    if span.kind == "llm":
        provider, model = names.provider_and_model(str(span.attrs.get("model") or ""))
        attributes |= {
            names.OPERATION: "chat",
            names.PROVIDER: provider,
            names.REQUEST_MODEL: model,
            names.OUTPUT_TYPE: "json",
            names.PREFIX + "llm.purpose": span.name.partition(".")[2],
        }
        return f"chat {model}".strip(), SpanKind.CLIENT, attributes
    if span.kind == "embed":
        attributes[names.OPERATION] = "embeddings"
        return "embeddings", SpanKind.CLIENT, attributes
    if span.kind == "search":
        attributes[names.DB_OPERATION] = "search"
    return names.PREFIX + span.name, SpanKind.INTERNAL, attributes


def _ending(trace: Trace, span: Span) -> Iterator[tuple[str, Value]]:
    """Yield what the conventions have a name for and is known at the end only."""
    facts = span.attrs
    if span.id == 0 and span.name in names.RUNS:
        count = facts.get({"recall": "results", "encode": "texts"}.get(span.name, "analysed"))
        if isinstance(count, int):
            yield names.RECORD_COUNT, count
    elif span.kind in ("llm", "embed"):
        if facts.get("model"):
            provider, model = names.provider_and_model(str(facts["model"]))
            if span.kind == "embed":
                yield names.PROVIDER, provider
                yield names.REQUEST_MODEL, model
            else:
                yield names.RESPONSE_MODEL, model
        # A function reports no tokens at all, which is not the same as none used.
        if facts.get("tokens_in"):
            yield names.INPUT_TOKENS, int(facts["tokens_in"])
        if facts.get("tokens_out"):
            yield names.OUTPUT_TOKENS, int(facts["tokens_out"])
        if facts.get("cost") is not None:
            yield names.PREFIX + "cost_usd", float(facts["cost"])
    elif span.kind == "search":
        if isinstance(facts.get("results"), int):
            yield names.DB_ROWS, facts["results"]
        if facts.get("plan") in ("broad", "selective"):  # plans of our own store
            yield names.DB_SYSTEM, "qdrant"


def _facts(facts: Mapping[str, Any], content: bool) -> Iterator[tuple[str, Value]]:
    """Yield the facts of a span under our own names; texts that may quote a memory on request."""
    for key, value in list(facts.items()):
        if key in _TOLD_OTHERWISE:
            continue
        found = plain(value)
        name = names.PREFIX + key
        if isinstance(found, (bool, int, float)):
            yield name, found
        elif isinstance(found, str):
            if content or key in SAFE_TEXTS:
                yield name, found[:MOST_CHARACTERS]
        elif isinstance(found, list) and (content or key in SAFE_LISTS):
            yield name, [str(item) for item in found]


def _content(trace: Trace, span: Span) -> Iterator[tuple[str, Value]]:
    """Yield the texts that a trace of level ``full`` kept."""
    for key, value in (span.content or {}).items():
        yield names.PREFIX + "content." + key, _text(value)
    if span.id != 0 or span.name != "recall":
        return
    kept = [step.content for step in trace.spans if step.content]
    query = next((texts["query"] for texts in kept if "query" in texts), None)
    if query is not None:
        yield names.QUERY_TEXT, _text(query)
    results = next((texts["results"] for texts in reversed(kept) if "results" in texts), None)
    if results is not None:
        yield names.RECORDS, _text([{"content": text} for text in results])


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return text[:MOST_CHARACTERS]
