"""The trace: one record per run of what happened, step by step.

A run opens a `Trace` with `start_trace`; code below it opens spans with `span` and adds facts with
`note`. The current span travels in a context variable, so spans nest correctly across `await`,
`asyncio.gather`, tasks and worker threads that copy the context. Without an open trace every call
here does nothing.

The same record has several views (`mnemotrace.trace_views`): a terminal tree (`Trace.render`),
HTML in a notebook, a drawing of the workflow (`Trace.draw`) and JSON (`Trace.to_json`). Who wants
to see spans while the run goes on registers a `Watcher`; `catching` keeps the trace of a run that
somebody else begins.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, get_args

from .checks import shortened
from .errors import ConfigurationError, InvalidInputError

if TYPE_CHECKING:
    from .trace_views import TraceTree

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
MAX_SPANS = 10_000
"""Spans one trace keeps; later ones are only counted, so that no run can fill the memory."""
MAX_ERROR_LENGTH = 500
MAX_LIST_LENGTH = 50

Level = Literal["off", "on", "full"]
Status = Literal["ok", "error", "cancelled"]
_STATUSES = get_args(Status)


class Totals(TypedDict):
    """What the language model cost in one run."""

    llm_calls: int
    llm_failures: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    """In US dollars; None when no call reported a cost."""
    llm_ms: float


@dataclass(slots=True)
class Span:
    """One piece of a run.

    Attributes:
        id: unique within the trace; 0 is the run itself.
        parent: id of the span it ran in; None only for the run itself.
        kind: ``run``, ``step``, ``search``, ``llm``, ``embed``, ``store`` or another word.
        start_ns: nanoseconds since the trace began.
        end_ns: likewise; None while it is open, or when the run ended before it.
        error: exception type and message when `status` is ``error``.
        attempt: 1 for the first try, 2 for the first retry.
        attrs: facts: numbers, short texts, short lists.
        content: texts from memories and prompts; filled only at level ``full``.
    """

    id: int
    parent: int | None
    name: str
    kind: str
    start_ns: int
    end_ns: int | None = None
    status: Status = "ok"
    error: str | None = None
    attempt: int = 1
    attrs: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] | None = None

    @property
    def duration_ms(self) -> float:
        """Milliseconds from start to end; 0.0 for a span that has not ended."""
        return 0.0 if self.end_ns is None else (self.end_ns - self.start_ns) / 1e6

    def to_json(self) -> dict[str, Any]:
        """Return the span as plain JSON data."""
        return {
            "id": self.id,
            "parent": self.parent,
            "name": self.name,
            "kind": self.kind,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "status": self.status,
            "error": self.error,
            "attempt": self.attempt,
            "attrs": plain(dict(self.attrs)),  # a copy: another thread may be adding to it
            "content": None if self.content is None else plain(dict(self.content)),
        }


class Watcher(Protocol):
    """Sees the spans of runs while they happen: for live views and telemetry.

    Both methods run in the thread and the context of the code that is watched, so they must be
    quick. What they raise is logged once a watcher and disturbs nobody. The run itself is announced
    too, as the span with id 0. A span that the run leaves open (abandoned work) never ends.
    """

    def span_started(self, trace: Trace, span: Span) -> None:
        """A span begins; its `attrs` hold what is known so far."""

    def span_ended(self, trace: Trace, span: Span) -> None:
        """A span has ended, in the context it began in; its facts and status are final."""


class Trace:
    """The record of one run: the run's own span (`root`) and all spans below it, oldest first.

    Attributes:
        trace_id: 32 hexadecimal digits.
        level: ``on``, or ``full`` when texts are kept too.
        started_ns: wall clock at the start, nanoseconds since the Unix epoch.
        dropped: spans not kept because there were more than 10,000.
    """

    __slots__ = ("_clock_ns", "_ids", "_watchers", "closed", "dropped", "level", "root", "spans",
                 "started_ns", "trace_id")  # fmt: skip

    def __init__(self, kind: str, *, level: Level = "on", attrs: Mapping[str, Any] | None = None):
        self.trace_id = os.urandom(16).hex()
        self.level: Level = level
        self.root = Span(0, None, kind, "run", 0, attrs=dict(attrs or {}))
        self.spans: list[Span] = []
        self.dropped = 0
        self.closed = False
        self.started_ns = time.time_ns()
        self._ids = itertools.count(1)
        self._watchers: tuple[Watcher, ...] = ()
        self._clock_ns = time.perf_counter_ns()

    @property
    def kind(self) -> str:
        """What ran: ``recall``, ``remember`` and so on."""
        return self.root.name

    @property
    def attrs(self) -> dict[str, Any]:
        """Facts about the run as a whole."""
        return self.root.attrs

    @property
    def status(self) -> Status:
        """``ok``, ``error`` or ``cancelled``."""
        return self.root.status

    @property
    def error(self) -> str | None:
        """What ended the run; None when it went well."""
        return self.root.error

    @property
    def started_at(self) -> datetime:
        """When the run began, in UTC."""
        return datetime.fromtimestamp(self.started_ns / 1e9, UTC)

    @property
    def duration_ms(self) -> float:
        """Milliseconds the run took; so far, while it is open."""
        if self.root.end_ns is None and not self.closed:
            return self.elapsed_ns() / 1e6
        return self.root.duration_ms

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the steps taken, in the order they began."""
        return tuple(span.name for span in self.spans if span.kind == "step")

    def elapsed_ns(self) -> int:
        """Nanoseconds since the trace began."""
        return time.perf_counter_ns() - self._clock_ns

    def _announce(self, method: Literal["span_started", "span_ended"], item: Span) -> None:
        """Tell the watchers of this run."""
        for watcher in self._watchers:
            try:
                getattr(watcher, method)(self, item)
            except Exception:
                if id(watcher) not in _broken:
                    _broken.add(id(watcher))
                    logger.exception("Watcher %r failed in %s; the run goes on.", watcher, method)

    def find(self, name: str) -> list[Span]:
        """Return the spans of this name, oldest first; ``[]`` when there are none."""
        return [span for span in self.spans if span.name == name]

    def children(self) -> dict[int, list[Span]]:
        """Return the spans below each span id, oldest first; 0 is the run itself."""
        below: dict[int, list[Span]] = {}
        for item in self.spans:
            below.setdefault(item.parent or 0, []).append(item)
        return below

    def totals(self) -> Totals:
        """Return calls, failures, tokens, cost and time of the language model in this run."""
        total = Totals(
            llm_calls=0, llm_failures=0, tokens_in=0, tokens_out=0, cost=None, llm_ms=0.0
        )
        for item in self.spans:
            if item.kind != "llm":
                continue
            total["llm_calls"] += 1
            total["llm_failures"] += item.status != "ok"
            total["tokens_in"] += item.attrs.get("tokens_in") or 0
            total["tokens_out"] += item.attrs.get("tokens_out") or 0
            total["llm_ms"] += item.duration_ms
            if (cost := item.attrs.get("cost")) is not None:
                total["cost"] = (total["cost"] or 0.0) + cost
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the whole trace as plain JSON data, for `json.dumps` and `from_json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "trace_id": self.trace_id,
            "kind": self.kind,
            "level": self.level,
            "started_at": self.started_at.isoformat(),
            "started_ns": self.started_ns,
            "duration_ms": self.duration_ms,
            "status": self.status,
            "dropped": self.dropped,
            "totals": dict(self.totals()),
            "root": self.root.to_json(),
            "spans": [item.to_json() for item in list(self.spans)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trace:
        """Return the trace that `to_json` wrote; it is closed, nothing can be added.

        Raises:
            InvalidInputError: for data that is not a trace, or of an unknown schema version.
        """
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if version != SCHEMA_VERSION:
            raise InvalidInputError(
                f"This is not a trace of schema version {SCHEMA_VERSION} (found {version!r}). "
                "Pass the dict that Trace.to_json() returned, or use the release that wrote it."
            )
        try:
            if data["level"] not in ("on", "full"):
                raise ValueError(f"level is {data['level']!r}")
            root = _span_from_json(data["root"])
            trace = cls(root.name, level=data["level"])
            trace.root = root
            trace.spans = [_span_from_json(item) for item in data["spans"]]
            trace.trace_id = str(data["trace_id"])
            trace.started_ns = int(data["started_ns"])
            trace.dropped = int(data["dropped"])
            trace.spans.sort(key=lambda item: item.id)
            for before, item in itertools.pairwise([root, *trace.spans]):
                if item.parent is None or not 0 <= item.parent < item.id or item.id == before.id:
                    raise ValueError(f"span {item.id} has parent {item.parent}")
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The trace data is damaged ({type(error).__name__}: {error}). "
                "Pass the dict that Trace.to_json() returned, unchanged."
            ) from error
        trace.closed = True
        return trace

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12) of what `to_json` returns, for every kind of run."""
        from .trace_views import trace_schema

        return trace_schema()

    def render(self, width: int | None = None, *, ascii_only: bool | None = None) -> str:
        """Return the trace as a tree in plain text, without colour or a trailing newline.

        The totals and the route come first, then a line for each span with its time and a bar.

        Args:
            width: columns to wrap at, 20 at least; None for the terminal's, or 120 where there is
                none.
            ascii_only: use no other characters than ASCII; None for where the standard output
                cannot show others.

        Raises:
            InvalidInputError: `width` is not a whole number.
        """
        from .trace_views import trace_text

        if width is not None and (isinstance(width, bool) or not isinstance(width, int)):
            raise InvalidInputError(
                f"width must be a whole number of columns, or None for the terminal's, not {shortened(width)}."
            )
        return trace_text(self, width, ascii_only)

    def draw(self, form: Literal["svg", "mermaid"] = "svg") -> str:
        """Return a drawing of the workflow: every step there is, the path taken, visits and times.

        For recall, saving and extraction the steps and their transitions are those of the workflow
        class; for other runs, those that the trace has.

        Args:
            form: ``svg`` for a picture that stands alone (a notebook shows it), or ``mermaid`` for
                the text of a Mermaid flowchart.

        Raises:
            InvalidInputError: for another form.
        """
        from .trace_views import draw

        return draw(self, form)

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return f"<Trace {self.kind} {self.duration_ms:.1f} ms, {len(self.spans)} spans>"

    def __rich__(self) -> TraceTree:
        from .trace_views import trace_tree

        return trace_tree(self)

    def _repr_html_(self) -> str:
        from .trace_views import trace_html

        return trace_html(self)


_current: ContextVar[tuple[Trace, Span] | None] = ContextVar("mnemotrace_span", default=None)
_everywhere: tuple[Watcher, ...] = ()
_here: ContextVar[tuple[Watcher, ...]] = ContextVar("mnemotrace_watchers", default=())
_registering = threading.Lock()
_broken: set[int] = set()


def watch(watcher: Watcher) -> Callable[[], None]:
    """Let `watcher` see the spans of every run that begins from now on, in the whole process.

    Returns:
        A function that ends it; runs that are going on keep their watchers.
    """
    global _everywhere
    with _registering:
        _everywhere = (*_everywhere, watcher)

    def end() -> None:
        global _everywhere
        with _registering:
            _everywhere = tuple(item for item in _everywhere if item is not watcher)
            _broken.discard(id(watcher))

    return end


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let `watcher` see the spans of the runs that begin in this block, of this context only."""
    outside = _here.get()
    _here.set((*outside, watcher))
    try:
        yield
    finally:
        _here.set(outside)
        _broken.discard(id(watcher))


class Caught:
    """The trace of the first run that began in a `catching` block.

    Attributes:
        trace: None before a run began, and when its tracing is off.
    """

    __slots__ = ("trace",)

    def __init__(self) -> None:
        self.trace: Trace | None = None

    def span_started(self, trace: Trace, span: Span) -> None:
        """Keep the trace of the first run."""
        if self.trace is None:
            self.trace = trace

    def span_ended(self, trace: Trace, span: Span) -> None:
        """Nothing is to be done."""


@contextmanager
def catching() -> Iterator[Caught]:
    """Get hold of the trace of the run that begins in this block, also when the run fails."""
    caught = Caught()
    with watching(caught):
        yield caught


def current_trace() -> Trace | None:
    """Return the open trace this code runs under; None when there is none."""
    active = _current.get()
    return None if active is None or active[0].closed else active[0]


def leave_trace() -> None:
    """Detach the current context from its trace.

    For work that outlives the run that began it: it would otherwise write into that run's record.
    """
    _current.set(None)


@contextmanager
def start_trace(kind: str, /, *, level: Level = "on", **attrs: Any) -> Iterator[Trace | None]:
    """Record everything below as one run.

    Args:
        kind: what runs, such as ``recall``; the name of the root span.
        level: ``off`` records nothing and yields None, ``on`` records facts, ``full`` also the
            texts given to `note_content`.
        attrs: facts about the run.

    Raises:
        ConfigurationError: for another level.
    """
    if level == "off":
        outside = _current.get()
        _current.set(None)
        try:
            yield None
        finally:
            _current.set(outside)
        return
    if level not in ("on", "full"):
        raise ConfigurationError(f"trace={shortened(level)}: must be 'off', 'on' or 'full'.")
    trace = Trace(kind, level=level, attrs=attrs)
    trace._watchers = _everywhere + _here.get()
    outside = _current.get()
    _current.set((trace, trace.root))
    if trace._watchers:
        trace._announce("span_started", trace.root)
    try:
        yield trace
    except BaseException as error:
        _record_error(trace.root, error)
        raise
    finally:
        _current.set(outside)
        trace.root.end_ns = trace.elapsed_ns()
        trace.closed = True
        if trace._watchers:
            trace._announce("span_ended", trace.root)
            trace._watchers = ()  # a kept trace keeps nobody else alive


class span:
    """Record the block below as one span of the current trace; without a trace do nothing.

    Used as ``with span("search", kind="search", limit=10):``, in sync and async code alike. It
    yields the `Span`, or None when nothing is recorded. An exception marks the span and passes.

    Args:
        name: what runs; dots nest names (``search.query``).
        kind: ``step``, ``search``, ``llm``, ``embed``, ``store``, or ``internal`` for the rest.
        attempt: 1 for the first try.
        attrs: facts known at the start; add others with `note`.
    """

    __slots__ = ("_active", "_attempt", "_attrs", "_kind", "_name", "_outside")

    def __init__(
        self, name: str, /, *, kind: str = "internal", attempt: int = 1, **attrs: Any
    ) -> None:
        self._name = name
        self._kind = kind
        self._attempt = attempt
        self._attrs = attrs
        self._active: tuple[Trace, Span] | None = None

    def __enter__(self) -> Span | None:
        outside = _current.get()
        if outside is None or outside[0].closed:
            return None
        trace, parent = outside
        child = Span(
            next(trace._ids), parent.id, self._name, self._kind, trace.elapsed_ns(),
            attempt=self._attempt, attrs=self._attrs,
        )  # fmt: skip
        if len(trace.spans) < MAX_SPANS:
            trace.spans.append(child)
        else:
            trace.dropped += 1
        self._outside = outside
        self._active = (trace, child)
        _current.set(self._active)
        if trace._watchers:
            trace._announce("span_started", child)
        return child

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._active is None:
            return
        trace, child = self._active
        self._active = None
        _current.set(self._outside)
        if not trace.closed:
            child.end_ns = trace.elapsed_ns()
            if error is not None:
                _record_error(child, error)
            if trace._watchers:
                trace._announce("span_ended", child)


def note(**attrs: Any) -> None:
    """Add facts to the current span (to the run itself outside of any span)."""
    active = _current.get()
    if active is not None and not active[0].closed:
        active[1].attrs.update(attrs)


def note_content(**attrs: Any) -> None:
    """Add texts to the current span; kept only at level ``full``."""
    active = _current.get()
    if active is None or active[0].level != "full" or active[0].closed:
        return
    if active[1].content is None:
        active[1].content = {}
    active[1].content.update(attrs)


def plain(value: Any) -> Any:
    """Return `value` as strict JSON data.

    numpy scalars and arrays become numbers and lists, times ISO 8601 text, non-finite numbers
    text (``"nan"``), lists past 50 items end in a count, anything unknown its type's name.
    """
    if value is None or isinstance(value, (bool, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        kept = [plain(item) for item in value[:MAX_LIST_LENGTH]]
        return kept if len(value) <= MAX_LIST_LENGTH else [*kept, f"... {len(value)} in all"]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    to_list = getattr(value, "tolist", None)  # numpy scalars and arrays, without importing numpy
    if callable(to_list):
        return plain(to_list())
    return f"<{type(value).__name__}>"


def describe_error(error: BaseException) -> str:
    """Return exception type and message in at most 500 characters.

    A pydantic validation error is told without the values it refused: they are content.
    """
    try:
        message = _message(error)
    except Exception:  # noqa: BLE001  an exception that cannot be printed must not hide itself
        message = "(its message could not be read)"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 3] + "..."


def _message(error: BaseException) -> str:
    if not (type(error).__module__.startswith("pydantic_core") and hasattr(error, "errors")):
        return str(error)
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['type']}"
        for problem in problems
    )


def _record_error(target: Span, error: BaseException) -> None:
    # asyncio.CancelledError by name: importing asyncio here would double this module's import time.
    if type(error).__name__ == "CancelledError" or isinstance(
        error, (KeyboardInterrupt, GeneratorExit)
    ):
        target.status = "cancelled"
    else:
        target.status = "error"
        target.error = describe_error(error)


def _span_from_json(data: Mapping[str, Any]) -> Span:
    if data["status"] not in _STATUSES:
        raise ValueError(f"status is {data['status']!r}")
    return Span(
        id=int(data["id"]),
        parent=None if data["parent"] is None else int(data["parent"]),
        name=str(data["name"]),
        kind=str(data["kind"]),
        start_ns=int(data["start_ns"]),
        end_ns=None if data["end_ns"] is None else int(data["end_ns"]),
        status=data["status"],
        error=None if data["error"] is None else str(data["error"]),
        attempt=int(data["attempt"]),
        attrs=dict(data["attrs"]),
        content=None if data["content"] is None else dict(data["content"]),
    )
