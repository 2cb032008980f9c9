"""Memory events: what a memory announces about its work, and the bus that carries it.

Every operation emits events with ``source_type="unified_memory"``. A handler is a plain function
``handler(source, event)``; it runs in the thread that emits, so keep it short. That thread is
mostly the memory's own loop, where a blocking call such as ``source.recall(...)`` is refused: hand
such work to a thread, a task or a queue. A handler that raises is logged and never disturbs the
memory.
"""

from __future__ import annotations

import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .checks import shortened
from .errors import InvalidInputError
from .records import utc_now

if TYPE_CHECKING:
    from .trace import Trace

logger = logging.getLogger(__name__)

Handler = Callable[[Any, Any], object]
H = TypeVar("H", bound=Callable[..., object])


@dataclass(frozen=True, kw_only=True)
class MemoryEvent:
    """What all memory events have; a handler registered for it sees every one of them.

    Attributes:
        type: the event's name in snake case, such as ``memory_query_started``.
        source_type: ``unified_memory`` always.
        timestamp: when it happened, UTC.
    """

    type: ClassVar[str] = "memory"
    source_type: str = "unified_memory"
    timestamp: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, kw_only=True)
class MemoryQueryStartedEvent(MemoryEvent):
    """A recall begins."""

    type: ClassVar[str] = "memory_query_started"
    query: str
    limit: int


@dataclass(frozen=True, kw_only=True)
class MemoryQueryCompletedEvent(MemoryEvent):
    """A recall returned; `results` holds its matches, best first."""

    type: ClassVar[str] = "memory_query_completed"
    query: str
    results: Sequence[Any]
    query_time_ms: float


@dataclass(frozen=True, kw_only=True)
class MemoryQueryFailedEvent(MemoryEvent):
    """A recall failed; the caller gets the error too.

    `trace` is the record of the run up to there; None when tracing is off.
    """

    type: ClassVar[str] = "memory_query_failed"
    query: str
    error: str
    trace: Trace | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class MemorySaveStartedEvent(MemoryEvent):
    """A save begins; `value` is the text."""

    type: ClassVar[str] = "memory_save_started"
    value: str
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class MemorySaveCompletedEvent(MemoryEvent):
    """A save is durable and visible.

    `trace` is the record of the run that saved it, which it may share with other texts of its
    batch: steps, and the tokens, cost and time of every call of a model. None when tracing is off.
    """

    type: ClassVar[str] = "memory_save_completed"
    value: str
    save_time_ms: float
    trace: Trace | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class MemorySaveFailedEvent(MemoryEvent):
    """A save failed; background saves keep their texts in the outbox.

    `trace` is the record of the run up to there; None when tracing is off.
    """

    type: ClassVar[str] = "memory_save_failed"
    value: str
    error: str
    trace: Trace | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class MemoryRetrievalStartedEvent(MemoryEvent):
    """Memory for an agent's task is being gathered, by `retrieve_for`.

    `task_id` is the caller's name for the task; None when it gave none.
    """

    type: ClassVar[str] = "memory_retrieval_started"
    task_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryRetrievalCompletedEvent(MemoryEvent):
    """Memory for an agent's task was gathered; `memory_content` is the text for its prompt."""

    type: ClassVar[str] = "memory_retrieval_completed"
    task_id: str | None = None
    memory_content: str
    retrieval_time_ms: float


@dataclass(frozen=True, kw_only=True)
class MemoryAnalysisFailedEvent(MemoryEvent):
    """The language model failed and the memory went on without it; a warning, nothing is lost.

    `operation` names what was to be analysed, such as ``save analysis`` or ``query analysis``.
    """

    type: ClassVar[str] = "memory_analysis_failed"
    operation: str
    error: str


@dataclass(frozen=True, kw_only=True)
class MemoryConsolidationEvent(MemoryEvent):
    """The language model decided what becomes of a stored record that is like a new text.

    Emitted when the save is done, once for each such decision. What a model tells is data, and
    may hold anything.

    Attributes:
        action: ``keep``, ``update`` or ``delete``.
        accepted: whether it was done.
        refused: why it was not; empty when it was.
        record_id: the stored record; empty when the model named one that it was not shown.
        new_record_id: the record that the new text became, or became part of.
        told: what the model says about it: ``reason``, and what it quotes as ``subject``,
            ``attribute``, ``old_value`` and ``new_value``; a key that it left out is not there.
    """

    type: ClassVar[str] = "memory_consolidation"
    action: str
    accepted: bool
    refused: str
    record_id: str
    new_record_id: str
    told: Mapping[str, str] = field(default_factory=dict)


class MemoryEventBus:
    """Calls the handlers registered for an event's class or one of its base classes.

    Safe to use from several threads. Handlers run in the order they were registered; one
    registered for several classes of the same event runs once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registered: tuple[tuple[type[MemoryEvent], Handler], ...] = ()
        self._by_class: dict[type[MemoryEvent], tuple[Handler, ...]] = {}

    def on(self, *event_classes: type[MemoryEvent]) -> Callable[[H], H]:
        """Return a decorator that registers a function for these classes and gives it back.

        Raises:
            InvalidInputError: when no class is given, or one that is not a memory event.
            TypeError: when the handler is not callable, or is a coroutine function: nobody would
                await it.
        """
        if not event_classes:
            raise InvalidInputError("on() needs at least one event class, such as MemoryEvent.")
        for event_class in event_classes:
            if not (isinstance(event_class, type) and issubclass(event_class, MemoryEvent)):
                raise InvalidInputError(
                    f"on() takes classes of memory events, such as MemoryQueryCompletedEvent, "
                    f"not {shortened(event_class)}."
                )

        def register(handler: H) -> H:
            if not callable(handler):
                raise TypeError(f"An event handler must be callable, not {shortened(handler)}.")
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
                getattr(handler, "__call__", None)  # noqa: B004  an object with async __call__
            ):
                raise TypeError(
                    f"Event handler {_name(handler)} is a coroutine function, which nobody would "
                    "await. Register a plain function; it may start a task or fill a queue."
                )
            with self._lock:
                added = tuple((event_class, handler) for event_class in event_classes)
                self._registered = (*self._registered, *added)
                self._by_class = {}
            return handler

        return register

    def off(self, handler: Handler) -> bool:
        """Unregister a handler from every class; return False when it was not registered."""
        with self._lock:
            kept = tuple(entry for entry in self._registered if entry[1] != handler)
            found = len(kept) != len(self._registered)
            self._registered = kept
            self._by_class = {}
        return found

    def has_handlers(self, event_class: type[MemoryEvent]) -> bool:
        """Tell whether an event of this class would reach anyone."""
        return bool(self._registered) and bool(self._handlers(event_class))

    def emit(self, source: Any, event: MemoryEvent) -> None:
        """Call the handlers of this event in turn; what they raise is logged."""
        if not self._registered:
            return
        for handler in self._handlers(type(event)):
            try:
                result = handler(source, event)
            except KeyboardInterrupt:
                raise
            except BaseException:  # SystemExit here would end the loop thread
                logger.exception(
                    "Event handler %s failed on %s; the memory goes on without it.",
                    _name(handler),
                    event.type,
                )
            else:
                if inspect.iscoroutine(result):
                    result.close()
                    logger.error(
                        "Event handler %s returned a coroutine for %s, which nobody awaits; "
                        "register a plain function.",
                        _name(handler),
                        event.type,
                    )

    def _handlers(self, event_class: type[MemoryEvent]) -> tuple[Handler, ...]:
        by_class = self._by_class  # replaced, never emptied, by registrations in other threads
        found = by_class.get(event_class)
        if found is None:
            with self._lock:
                once: list[Handler] = []
                for registered_class, handler in self._registered:
                    if issubclass(event_class, registered_class) and handler not in once:
                        once.append(handler)
                found = self._by_class[event_class] = tuple(once)
        return found


event_bus = MemoryEventBus()
"""The bus every `Memory` of this process emits on."""


class BaseEventListener(ABC):
    """A group of handlers in one class: creating an instance registers them.

    Keep no other reference to it: the bus holds the handlers until `MemoryEventBus.off`.
    """

    def __init__(self) -> None:
        self.setup_listeners(event_bus)

    @abstractmethod
    def setup_listeners(self, event_bus: MemoryEventBus) -> None:
        """Register handlers with ``@event_bus.on(EventClass)``."""


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
