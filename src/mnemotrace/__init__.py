"""Agent memory you can trace.

`Memory` remembers, recalls, extracts and forgets; `Flow` and `MemoryMixin` put it into your own
classes. What is listed here is loaded on first use, so importing the package costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparing import compare
    from .events import BaseEventListener, event_bus
    from .flows.flow import Flow, MemoryMixin
    from .llm.configured import LLM
    from .memory import Memory
    from .receipts import SaveReceipt
    from .recording import record
    from .records import MemoryMatch, MemoryRecord, Recall, ScopeInfo
    from .reindexing import reindex
    from .replaying import areplay, replay
    from .trace_views import progress
    from .views import MemoryScope, MemorySlice

__version__ = "0.1.0"

_HOMES = {
    "BaseEventListener": "mnemotrace.events",
    "Flow": "mnemotrace.flows.flow",
    "LLM": "mnemotrace.llm.configured",
    "Memory": "mnemotrace.memory",
    "MemoryMatch": "mnemotrace.records",
    "MemoryMixin": "mnemotrace.flows.flow",
    "MemoryRecord": "mnemotrace.records",
    "MemoryScope": "mnemotrace.views",
    "MemorySlice": "mnemotrace.views",
    "Recall": "mnemotrace.records",
    "SaveReceipt": "mnemotrace.receipts",
    "ScopeInfo": "mnemotrace.records",
    "areplay": "mnemotrace.replaying",
    "compare": "mnemotrace.comparing",
    "event_bus": "mnemotrace.events",
    "progress": "mnemotrace.trace_views",
    "record": "mnemotrace.recording",
    "reindex": "mnemotrace.reindexing",
    "replay": "mnemotrace.replaying",
}

__all__ = [
    "LLM",
    "BaseEventListener",
    "Flow",
    "Memory",
    "MemoryMatch",
    "MemoryMixin",
    "MemoryRecord",
    "MemoryScope",
    "MemorySlice",
    "Recall",
    "SaveReceipt",
    "ScopeInfo",
    "areplay",
    "compare",
    "event_bus",
    "progress",
    "record",
    "reindex",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
