"""Events: time queries and saves, and hear when the language model could not help.

Run it with `python examples/events_listener.py`; it needs no network and no key.
"""

import logging
from collections import Counter

from mnemotrace import BaseEventListener, Memory, event_bus
from mnemotrace.events import (
    MemoryAnalysisFailedEvent,
    MemoryEvent,
    MemoryEventBus,
    MemoryQueryCompletedEvent,
    MemoryRetrievalCompletedEvent,
    MemorySaveCompletedEvent,
)

logging.getLogger("mnemotrace").setLevel(logging.ERROR)  # the listener below prints instead


class Monitor(BaseEventListener):
    """Prints how long things took; creating one registers its handlers."""

    def setup_listeners(self, event_bus: MemoryEventBus) -> None:
        @event_bus.on(MemorySaveCompletedEvent)
        def on_saved(source: object, event: MemorySaveCompletedEvent) -> None:
            print(f"saved in {event.save_time_ms:7.1f} ms: {event.value}")

        @event_bus.on(MemoryQueryCompletedEvent)
        def on_recalled(source: object, event: MemoryQueryCompletedEvent) -> None:
            print(f"found in {event.query_time_ms:7.1f} ms: {event.query}")

        @event_bus.on(MemoryRetrievalCompletedEvent)
        def on_task(source: object, event: MemoryRetrievalCompletedEvent) -> None:
            print(f"task {event.task_id} gets: {event.memory_content}")

        @event_bus.on(MemoryAnalysisFailedEvent)
        def on_degraded(source: object, event: MemoryAnalysisFailedEvent) -> None:
            print(f"went on without the model ({event.operation}): {event.error}")


counts: Counter[str] = Counter()


@event_bus.on(MemoryEvent)  # the base class: every event
def count(source: object, event: MemoryEvent) -> None:
    counts[event.type] += 1


def broken_model(prompt: str) -> str:
    raise RuntimeError("quota exceeded")


def main() -> None:
    Monitor()
    # The first save takes longer: it loads the embedding model.
    with Memory(storage=":memory:", llm=None) as memory:
        memory.remember("The tower clock is two minutes fast.", scope="/town")
        memory.remember("The market is on Saturday.", scope="/town")
        memory.recall("When is the market?")
        memory.retrieve_for("Plan a trip to the market.", task_id="trip", limit=1)

    # Texts without scope, categories and importance are analysed by the model. When it fails,
    # they are saved all the same.
    with Memory(storage=":memory:", llm=broken_model) as memory:
        record = memory.remember("The bridge is closed until June.")
        print(f"filed under {record.scope} with importance {record.importance}")

    event_bus.off(count)
    print("\nevents:")
    for kind, number in sorted(counts.items()):
        print(f"  {number} {kind}")


if __name__ == "__main__":
    main()
