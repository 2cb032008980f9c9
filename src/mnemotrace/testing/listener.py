"""A listener for tests that keeps every memory event."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

from mnemotrace.events import MemoryEvent, MemoryEventBus, event_bus

E = TypeVar("E", bound=MemoryEvent)


class RecordingListener:
    """Keeps all events emitted while it is open.

    >>> with RecordingListener() as heard:
    ...     memory.recall("port")                                   # doctest: +SKIP
    >>> heard.of(MemoryQueryCompletedEvent)[0].query_time_ms        # doctest: +SKIP

    Attributes:
        events: the events, oldest first.
        sources: the memory each one came from, in the same order.
    """

    def __init__(self, bus: MemoryEventBus = event_bus) -> None:
        self.events: list[MemoryEvent] = []
        self.sources: list[Any] = []
        self._bus = bus
        self._handler = self._hear

    def __enter__(self) -> Self:
        self._bus.on(MemoryEvent)(self._handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bus.off(self._handler)

    def of(self, event_class: type[E]) -> list[E]:
        """Return the events of a class or its subclasses, oldest first; [] if there were none."""
        return [event for event in self.events if isinstance(event, event_class)]

    def _hear(self, source: Any, event: MemoryEvent) -> None:
        self.sources.append(source)
        self.events.append(event)
