"""Memory and its views: the methods that `Memory`, `MemoryScope` and `MemorySlice` share."""

from .curating import UNSET, Unset
from .kinds import MemoryScope, MemorySlice, MemoryView

__all__ = ["UNSET", "MemoryScope", "MemorySlice", "MemoryView", "Unset"]
