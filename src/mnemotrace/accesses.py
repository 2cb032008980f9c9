"""How often and when records were recalled: counted at once, written in batches.

Recalls are reads. What they count is written some minutes later, or at close.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from .flows.services import Services
from .stores.backend import Access

WRITE_SECONDS = 300.0
"""How long after the first recall that is not written yet."""
MOST_RECORDS = 10_000
"""So many records are written without waiting longer. A record costs 0.08 ms however often it was
recalled meanwhile, so it pays to wait."""


class AccessLog:
    """The accesses of one open memory that are not written yet; `note` from any thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runtime = services.runtime
        self._lock = threading.Lock()
        self._writing = asyncio.Lock()
        self._pending: dict[str, list[Any]] = {}
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def pending(self) -> dict[str, tuple[int, datetime]]:
        """How often, and when last, each record was recalled since the last writing."""
        with self._lock:
            return {key: (count, at) for key, (count, at) in self._pending.items()}

    def note(self, record_ids: Sequence[str], at: datetime) -> None:
        """Count that these records were recalled; never writes."""
        if not record_ids:
            return
        with self._lock:
            for record_id in record_ids:
                entry = self._pending.setdefault(record_id, [0, at])
                entry[0] += 1
                entry[1] = at
            full, first = len(self._pending) >= MOST_RECORDS, not self._planned
            self._planned = True
        if full:
            self._runtime.loop.call_soon_threadsafe(self._start)
        elif first:
            self._runtime.loop.call_soon_threadsafe(self._plan)

    def forget(self, record_ids: Iterable[str]) -> None:
        """Drop what was counted of records that are gone."""
        with self._lock:
            for record_id in record_ids:
                self._pending.pop(record_id, None)

    def clear(self) -> None:
        """Drop everything that was counted."""
        with self._lock:
            self._pending.clear()

    async def write(self) -> None:
        """Write what was counted, and wait for a writing that has begun.

        What could not be written is counted again.
        """
        async with self._writing:
            with self._lock:
                pending, self._pending = self._pending, {}
                self._planned = False
            if not pending:
                return
            accesses = [Access(key, count, at) for key, (count, at) in pending.items()]
            try:
                await self._services.in_thread(self._services.store.record_access, accesses)
            except Exception:
                self._count_again(pending)
                raise

    def _count_again(self, pending: dict[str, list[Any]]) -> None:
        with self._lock:
            for key, (count, at) in pending.items():
                entry = self._pending.setdefault(key, [0, at])
                entry[0] += count
                entry[1] = max(entry[1], at)

    def stop(self) -> None:
        """Plan no more writing: the memory is closing."""
        self._stopped = True
        self._cancel()

    def _plan(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._runtime.loop.call_later(WRITE_SECONDS, self._start)

    def _start(self) -> None:
        self._cancel()
        if self._pending and not self._stopped:
            self._runtime.spawn(self.write())

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
