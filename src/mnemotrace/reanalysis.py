"""Analysing later what could not be analysed when it was saved."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .embedders.lexical import text_hash
from .flows.batch import EncodingRun, Item, analysed_fields, next_version, succession
from .flows.encoding import EncodingFlow
from .flows.events import SimilarFound
from .flows.requests import SaveRequest
from .flows.services import Services
from .llm.service import Patience
from .records import ANALYSED_FIELDS, MemoryRecord, Reanalyzed, pending_analysis, pending_fields
from .stores.backend import StorageBackend
from .stores.selection import Selection

PAGE = 200
"""Records analysed before the first of them are written."""

_STATES = tuple(
    state
    for count in range(1, len(ANALYSED_FIELDS) + 1)
    for names in itertools.combinations(ANALYSED_FIELDS, count)
    if (state := pending_analysis(names)) is not None
)


@dataclass(slots=True)
class Reanalysis:
    """One pass over the records that wait for an analysis.

    Attributes:
        done: ids of the records that were filled in, in order.
        failed: why each of the others could not be, by id.
        failures: the same for the log and for listeners, one line each.
    """

    services: Services
    flow: EncodingFlow
    patience: Patience
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    async def run(self, selection: Selection, limit: int | None) -> Reanalyzed:
        """Analyse what waits in a selection, page by page, newest first.

        Args:
            selection: only these records are read and written.
            limit: the most records to try; None for all.
        """
        waiting = await self.services.in_thread(_waiting, self.services.store, selection, limit)
        for start in range(0, len(waiting), PAGE):
            await self._page(selection, waiting[start : start + PAGE])
        return Reanalyzed(self.done, failed=self.failed)

    async def _page(self, selection: Selection, records: list[MemoryRecord]) -> None:
        groups: dict[str, list[Item]] = {}
        for record in records:
            groups.setdefault(record.scope, []).append(_item(record))
        runs = [self._asking(items) for items in groups.values()]
        # The step of the encoding flow, by itself: the same prompts, the same care.
        analyze = EncodingFlow.analyze
        await asyncio.gather(*(analyze(self.flow, SimilarFound(run=run)) for run in runs))
        items = {item.request.record_id: item for run in runs for item in run.items}
        found: list[tuple[MemoryRecord, Item]] = []
        for record in records:
            item = items[record.id]
            if item.analysis is None:
                self.failed[record.id] = item.analysis_failed
            else:
                found.append((record, item))
        for run in runs:
            self.failures += run.failures
        async with self.services.write_lock:
            await self.services.in_thread(self._write, selection, found)

    def _asking(self, items: list[Item]) -> EncodingRun:
        return EncodingRun(items, self.services.clock(), patience=self.patience)

    def _write(self, selection: Selection, found: list[tuple[MemoryRecord, Item]]) -> None:
        """Write a new version of each record, unless it changed meanwhile."""
        store, now = self.services.store, self.services.clock()
        for analysed, item in found:
            assert item.analysis is not None
            current = store.get(selection, [analysed.id])
            if not current:
                continue  # forgotten, or out of reach, meanwhile
            old = current[0]
            missing = pending_fields(old.analysis)
            if not missing:
                continue
            if old.content != analysed.content or old.scope != analysed.scope:
                self.failed[old.id] = "it was changed while it was analysed; call again"
                continue
            fields = analysed_fields(item.analysis, missing, old.scope, old.metadata)
            record = next_version(old, now, **fields, analysis=None)
            if self.services.commit(succession([(old, record)]), [old]):
                self.done.append(old.id)
            else:
                self.failed[old.id] = "it was changed while it was analysed; call again"


def _waiting(store: StorageBackend, selection: Selection, limit: int | None) -> list[MemoryRecord]:
    """Return the records that wait for an analysis, newest first."""
    found: dict[str, MemoryRecord] = {}
    for state in _STATES:
        for record in _listed(store, replace(selection, analysis=state), limit):
            found[record.id] = record
    newest = sorted(found.values(), key=lambda r: (r.created_at, r.id), reverse=True)
    return newest[:limit]


def _listed(
    store: StorageBackend, selection: Selection, limit: int | None
) -> Iterator[MemoryRecord]:
    offset = 0
    while limit is None or offset < limit:
        page = store.list_records(selection, PAGE, offset)
        yield from page
        if len(page) < PAGE:
            break
        offset += len(page)


def _item(record: MemoryRecord) -> Item:
    """Return a record as a text to be analysed; it stays within the scope that it fell to."""
    missing = pending_fields(record.analysis)
    request = SaveRequest(
        content=record.content,
        record_id=record.id,
        scope=None if "scope" in missing else record.scope,
        reach=(record.scope,),
        categories=None if "categories" in missing else tuple(record.categories),
        metadata=record.metadata,
        importance=None if "importance" in missing else record.importance,
        source=record.source,
        private=record.private,
    )
    return Item(request, text_hash(record.content))
