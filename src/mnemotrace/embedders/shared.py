"""Models that take a while to load: one copy a process, loaded when first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedModel(Generic[T]):
    """One copy of a model for the whole process; `get` loads it once, whoever asks first.

    Args:
        load: makes it; called at most once at a time, and again if it raised.
    """

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._loaded: list[T] = []
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Make the lock anew: a thread that held it does not exist in a forked child."""
        self.lock = threading.RLock()
        """Held while it loads; also for models whose callers have to take turns."""

    def get(self) -> T:
        """Return the model."""
        if not self._loaded:
            with self.lock:
                if not self._loaded:
                    self._loaded.append(self._load())
        return self._loaded[0]
