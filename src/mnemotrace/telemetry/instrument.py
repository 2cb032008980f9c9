"""instrument: OpenTelemetry on, and off again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mnemotrace import __version__
from mnemotrace.checks import shortened
from mnemotrace.errors import ConfigurationError
from mnemotrace.trace import watch

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SCOPE = "mnemotrace"
"""The name of the instrumentation scope."""

_lock = threading.Lock()
_current: Instrumentation | None = None


class Instrumentation:
    """What `instrument` switched on. It may be used in a ``with`` block, too."""

    def __init__(self, ends: list[Callable[[], None]]) -> None:
        self._ends = ends

    @property
    def active(self) -> bool:
        """Whether it is on."""
        return bool(self._ends)

    def uninstrument(self) -> None:
        """Switch it off; spans that are open are still ended. Safe to call twice."""
        with _lock:
            self._end()

    def _end(self) -> None:
        global _current
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        if _current is self:
            _current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.uninstrument()


def instrument(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
) -> Instrumentation:
    """Send what every memory of this process does to OpenTelemetry, as live spans and metrics.

    Spans nest in the caller's current span, and what litellm and HTTP clients record nests in
    ours. Runs with ``trace="off"`` have no spans; recalls and saves are counted all the same.
    What goes wrong here is logged once and never breaks a memory.

    Called again, the new one takes the place of the one before: nothing is recorded twice.

    Args:
        tracer_provider: of spans; OpenTelemetry's global one when None.
        meter_provider: of metrics; the global one when None.
        content: also send the texts that a trace of level ``full`` keeps (queries, memories, what
            a model answered), and the messages of errors. Without it only numbers, names of
            steps, models and scopes, and the types of errors leave the process.

    Returns:
        A handle whose `uninstrument()` ends it.

    Raises:
        ImportError: OpenTelemetry is not installed; the message has the command.
        ConfigurationError: `content` is not True or False, or a provider is none.
    """
    global _current
    if not isinstance(content, bool):
        raise ConfigurationError(f"content must be True or False, not {shortened(content)}.")
    for name, provider, method in (
        ("tracer_provider", tracer_provider, "get_tracer"),
        ("meter_provider", meter_provider, "get_meter"),
    ):
        if provider is not None and not callable(getattr(provider, method, None)):
            raise ConfigurationError(
                f"{name}={shortened(provider)} is no provider: it has no {method}(). Pass one of "
                "OpenTelemetry's, or None for its global one."
            )
    try:
        from opentelemetry import metrics, trace

        from .metrics import MetricWriter
        from .spans import SpanWriter
    except ImportError as error:
        raise ImportError(
            f"Telemetry needs OpenTelemetry ({error}). Install it with: "
            'pip install "mnemotrace[otel]"'
        ) from error
    tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
    meter = metrics.get_meter(SCOPE, __version__, meter_provider)
    with _lock:
        if _current is not None:
            _current._end()
        writer = MetricWriter(meter)
        writer.start()
        # Metrics first: what they record while the span is current links to it.
        numbers = watch(writer)
        _current = Instrumentation(
            [numbers, watch(SpanWriter(tracer, content=content)), writer.stop]
        )
        return _current
