"""MemoryCore: everything a memory does, as coroutines over Selections, on the runtime's loop.

`Memory`, `MemoryScope` and `MemorySlice` say *what may be seen*; the core does the work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from . import prompts
from .config import MemoryConfig
from .embedders.lexical import encode_document, text_hash
from .embedders.service import EmbeddingService
from .errors import (
    LLMError,
    MemoryClosedError,
    RecordNotFoundError,
    StoreError,
)
from .events import (
    MemoryAnalysisFailedEvent,
    MemoryEvent,
    MemoryQueryCompletedEvent,
    MemoryQueryFailedEvent,
    MemoryQueryStartedEvent,
    MemorySaveCompletedEvent,
    MemorySaveFailedEvent,
    MemorySaveStartedEvent,
    event_bus,
)
from .flows.answers import ExtractedMemories
from .flows.batch import EncodingRun
from .flows.encoding import EncodingFlow
from .flows.events import EncodingStarted, RecallStarted
from .flows.evidence import RecallRun
from .flows.recall import RecallFlow, ShallowRecall
from .flows.requests import SaveRequest, checked_text
from .flows.runtime import Runtime
from .flows.services import Services
from .llm.service import LLMService
from .receipts import SaveReceipt
from .records import Forgotten, MemoryRecord, Recall, ScopeInfo
from .saving import SaveQueue, give_back, queue_for
from .scopes import ROOT, contains, depth
from .stores.backend import (
    Access,
    Facet,
    NewVersion,
    Order,
    Retirement,
    StorageBackend,
    WriteBatch,
)
from .stores.outbox import DeadLetter, PendingSave
from .stores.selection import Selection
from .trace import Level, Trace, note, span, start_trace

ACCESS_SECONDS = 30.0
ACCESS_RECORDS = 2000
UPDATE_ATTEMPTS = 5


class MemoryCore:
    """One opened store with its embedder, model, settings and queue."""

    def __init__(
        self,
        store: StorageBackend,
        embedder: EmbeddingService,
        llm: LLMService,
        config: MemoryConfig,
        runtime: Runtime,
    ) -> None:
        self.store = store
        self.config = config
        self.runtime = runtime
        self.services = Services(store, embedder, llm, config, runtime)
        self.owner: object = self
        """What event listeners get as the source."""
        self._flows: tuple[EncodingFlow, RecallFlow, ShallowRecall] | None = None
        self._queue: SaveQueue = queue_for(store, runtime)
        self._access: dict[str, list[Any]] = {}
        self._access_timer: asyncio.TimerHandle | None = None
        self._closed = False

    # -- plumbing -----------------------------------------------------------------------------

    @property
    def flows(self) -> tuple[EncodingFlow, RecallFlow, ShallowRecall]:
        """The workflows, built on first use."""
        if self._flows is None:
            self._flows = (
                EncodingFlow(self.services),
                RecallFlow(self.services),
                ShallowRecall(self.services),
            )
        return self._flows

    def check_open(self) -> None:
        """Raise MemoryClosedError after `close`."""
        if self._closed:
            raise MemoryClosedError(
                "This memory is closed. Open it again with Memory(storage=...)."
            )

    def _emit(self, kind: type[MemoryEvent], **values: Any) -> None:
        if event_bus.has_handlers(kind):
            event_bus.emit(self.owner, kind(**values))

    def _warn(self, failures: Iterable[str]) -> None:
        """Say once per run and reason that help by a language model was given up."""
        if not self.services.llm.configured:
            return
        for line in dict.fromkeys(failures):
            operation, _, error = line.partition(": ")
            self.services.llm.warn(operation, error)
            self._emit(MemoryAnalysisFailedEvent, operation=operation, error=error)

    # -- saving -------------------------------------------------------------------------------

    async def _encode(self, requests: list[SaveRequest]) -> tuple[list[MemoryRecord], Trace | None]:
        run = EncodingRun.of(requests, self.services.clock())
        with start_trace("encode", level=self.config.trace, texts=len(requests)) as trace:
            await self.flows[0].run(start_event=EncodingStarted(run=run))
        self._warn(run.failures)
        return run.outcomes, trace

    async def remember(self, request: SaveRequest) -> MemoryRecord:
        """Save one text now; returns the record it became, or was merged into."""
        self.check_open()
        self._emit(MemorySaveStartedEvent, value=request.content, metadata=request.metadata)
        begun = time.perf_counter()
        try:
            records, _ = await self._encode([request])
        except Exception as error:
            self._emit(
                MemorySaveFailedEvent,
                value=request.content,
                metadata=request.metadata,
                error=str(error),
            )
            raise
        self._emit(
            MemorySaveCompletedEvent,
            value=request.content,
            metadata=request.metadata,
            save_time_ms=(time.perf_counter() - begun) * 1000,
        )
        return records[0]

    async def _encode_batch(self, requests: list[SaveRequest]) -> list[MemoryRecord]:
        value = f"{len(requests)} texts"
        metadata = {"record_ids": [request.record_id for request in requests]}
        self._emit(MemorySaveStartedEvent, value=value, metadata=metadata)
        begun = time.perf_counter()
        try:
            records, _ = await self._encode(requests)
        except Exception as error:
            self._emit(MemorySaveFailedEvent, value=value, metadata=metadata, error=str(error))
            raise
        elapsed = (time.perf_counter() - begun) * 1000
        self._emit(MemorySaveCompletedEvent, value=value, metadata=metadata, save_time_ms=elapsed)
        return records

    async def remember_many(self, requests: list[SaveRequest]) -> SaveReceipt:
        """Accept texts durably and encode them in the background."""
        self.check_open()
        if not requests:
            receipt = SaveReceipt("empty", ())
            receipt.resolve([])
            return receipt
        return await self._queue.accept(requests, self._encode_batch, self.config.save_attempts)

    async def resume(self) -> int:
        """Queue what an earlier process left in the outbox."""
        return await self._queue.resume(self._encode_batch, self.config.save_attempts)

    async def drain(self, timeout: float | None = None) -> int:
        """Wait for pending saves; returns the texts still not saved."""
        if self._closed:
            return 0
        return await self._queue.drain(timeout)

    async def dead_letters(self, reach: Selection) -> list[DeadLetter]:
        """Return the saves that were given up, as far as the view reaches."""
        self.check_open()
        letters = await self.runtime.in_thread(self._queue.outbox.dead_letters)
        return [letter for letter in letters if _in_reach(letter, reach)]

    async def retry_dead_letters(self, reach: Selection) -> int:
        """Queue given-up saves again; returns how many batches."""
        letters = await self.dead_letters(reach)
        ids = [letter.batch_id for letter in letters]
        if not ids:
            return 0
        return await self._queue.retry_dead(self._encode_batch, self.config.save_attempts, ids)

    async def _barrier(self) -> None:
        """Let a read see everything that was accepted before it."""
        if self._queue.pending:
            with span("read_barrier", kind="store", pending_batches=self._queue.pending):
                await self._queue.drain()

    # -- recall -------------------------------------------------------------------------------

    async def recall(
        self,
        query: str,
        selection: Selection,
        *,
        limit: int,
        depth: str,
        now: datetime | None,
        wait: bool,
        level: Level,
    ) -> Recall:
        """Run one recall and return its matches with the trace."""
        self.check_open()
        self._emit(MemoryQueryStartedEvent, query=query, limit=limit)
        begun = time.perf_counter()
        moment = now or selection.as_of or self.services.clock()
        run = RecallRun.of(query, selection, limit, depth, moment, self.config)
        trace: Trace | None = None
        try:
            with start_trace("recall", level=level, depth=depth, limit=limit) as trace:
                if wait:
                    await self._barrier()
                else:
                    note(read_barrier="off", pending_batches=self._queue.pending)
                if limit > 0:
                    flow = self.flows[1] if depth == "deep" else self.flows[2]
                    await flow.run(start_event=RecallStarted(run=run))
                note(results=len(run.matches), confidence=run.confidence)
        except Exception as error:
            self._emit(MemoryQueryFailedEvent, query=query, limit=limit, error=str(error))
            raise
        self._warn(run.failures)
        result = Recall(
            run.matches,
            query=query,
            trace=trace,
            confidence=run.confidence,
            evidence_gaps=run.gaps,
            errors=run.errors,
        )
        if selection.as_of is None:
            self._touch(result)
        self._emit(
            MemoryQueryCompletedEvent,
            query=query,
            limit=limit,
            results=result,
            query_time_ms=(time.perf_counter() - begun) * 1000,
        )
        return result

    def _touch(self, result: Recall) -> None:
        """Count the recalled records; written in batches, never by the recall itself."""
        if not result:
            return
        at = self.services.clock()
        for match in result:
            entry = self._access.setdefault(match.record.id, [0, at])
            entry[0] += 1
            entry[1] = at
        if self._access_timer is None:
            delay = 0.0 if len(self._access) >= ACCESS_RECORDS else ACCESS_SECONDS
            self._access_timer = self.runtime.loop.call_later(delay, self._start_access_flush)

    def _start_access_flush(self) -> None:
        self._access_timer = None
        self.runtime.spawn(self.flush_access())

    async def flush_access(self) -> None:
        """Write the batched access statistics."""
        pending, self._access = self._access, {}
        if pending:
            accesses = [Access(key, count, at) for key, (count, at) in pending.items()]
            await self.services.in_thread(self.store.record_access, accesses)

    async def extract(self, content: str) -> list[str]:
        """Return the atomic statements of a text; the whole text as one when no model can help."""
        self.check_open()
        checked_text(content)
        system, prompt = prompts.extraction(content)
        try:
            answer = await self.services.llm.ask("extraction", system, prompt, ExtractedMemories)
        except LLMError as error:
            self._warn([f"extraction: {error}"])
            return [content]
        distinct = dict.fromkeys(text.strip() for text in answer.memories)
        return [text for text in distinct if text]

    # -- by id --------------------------------------------------------------------------------

    async def get(self, selection: Selection, record_id: str) -> MemoryRecord | None:
        """Return the visible living record, or None."""
        self.check_open()
        await self._barrier()
        found = await self.services.in_thread(self.store.get, selection, [record_id])
        return found[0] if found else None

    async def history(self, selection: Selection, record_id: str) -> list[MemoryRecord]:
        """Return every version of a record and of those it took over from, oldest first."""
        self.check_open()
        await self._barrier()
        everything = replace(selection, history=True)
        seen: set[str] = set()
        versions: list[MemoryRecord] = []
        wanted = [record_id]
        while wanted:
            seen.update(wanted)
            found = await self.services.in_thread(self.store.get, everything, wanted)
            versions += found
            wanted = sorted({i for record in found for i in record.supersedes} - seen)
        return sorted(versions, key=lambda v: (v.valid_from or v.created_at, v.version, v.id))

    async def update(
        self,
        selection: Selection,
        record_id: str,
        changes: dict[str, Any],
    ) -> MemoryRecord:
        """Write a new version of a record; the old one stays in history."""
        self.check_open()
        await self._barrier()
        services = self.services
        dense = None
        if "content" in changes:
            await services.manifest_for_writing()
            dense = (await services.embedder.embed_documents([changes["content"]]))[0]
        for _ in range(UPDATE_ATTEMPTS):
            async with services.write_lock:
                found = await services.in_thread(self.store.get, selection, [record_id])
                if not found:
                    raise RecordNotFoundError(
                        f"No record {record_id!r} is visible here; nothing was changed. "
                        "list_records() shows the ids in reach."
                    )
                old = found[0]
                now = services.clock()
                record = MemoryRecord.model_validate(
                    {
                        **old.model_dump(),
                        **changes,
                        "version": old.version + 1,
                        "updated_at": now,
                        "valid_from": now,
                        "analysis": None if "scope" in changes else old.analysis,
                    }
                )
                same_text = record.content == old.content
                version = NewVersion(
                    record,
                    text_hash(record.content),
                    None if same_text else dense,
                    None if same_text else encode_document(record.content),
                )
                retired = Retirement(old.id, old.version, now, "superseded", old.id)
                batch = WriteBatch([version], [retired], {old.id: old.version})
                if await services.in_thread(self.store.commit, batch):
                    return record
        raise StoreError(
            f"Record {record_id!r} kept changing while it was updated; nothing was changed. "
            "Try again."
        )

    async def forget(self, selection: Selection, *, erase: bool) -> Forgotten:
        """Erase (or only retire) the selected records, queued saves included."""
        self.check_open()
        await self._barrier()
        async with self.services.write_lock:
            if erase:
                ids, versions = await self.services.in_thread(self.store.erase, selection)
            else:
                ids, versions = await self.services.in_thread(self._retire_all, selection)
        for record_id in ids:
            self._access.pop(record_id, None)
        if erase:
            await self.runtime.in_thread(self._purge, selection)
        return Forgotten(len(ids), record_ids=ids[:1000], versions=versions, erased=erase)

    def _retire_all(self, selection: Selection) -> tuple[list[str], int]:
        now = self.services.clock()
        ids: list[str] = []
        while page := self.store.list_records(selection, 500):
            retire = [Retirement(r.id, r.version, now, "forgotten") for r in page]
            if self.store.commit(WriteBatch(retire=retire)):
                ids += [record.id for record in page]
        return ids, len(ids)

    async def reset(self, selection: Selection, *, everything: bool) -> Forgotten:
        """Erase a subtree whatever its privacy; with `everything`, the store as a whole."""
        self.check_open()
        if not everything:
            return await self.forget(replace(selection, include_private=True), erase=True)
        await self._queue.drain()
        async with self.services.write_lock:
            total = await self.services.in_thread(self.store.count, Selection(include_private=True))
            versions = await self.services.in_thread(
                self.store.count, Selection(include_private=True, history=True)
            )
            await self.services.in_thread(self.store.drop)
        self._access.clear()
        await self.runtime.in_thread(lambda: self._queue.outbox.purge(everything=True))
        return Forgotten(total, versions=versions)

    def _purge(self, selection: Selection) -> None:
        """Forget accepted saves that are not yet encoded, or were given up."""
        if selection.is_empty or selection.metadata or selection.until is not None:
            # Not yet records: their times and analysed metadata are not known.
            return
        self._queue.outbox.purge(
            record_ids=selection.record_ids, roots=selection.roots, where=_selects(selection)
        )

    # -- discovery ----------------------------------------------------------------------------

    async def list_records(
        self, selection: Selection, limit: int, offset: int
    ) -> list[MemoryRecord]:
        """Return visible records, newest first."""
        self.check_open()
        await self._barrier()
        return await self.services.in_thread(self.store.list_records, selection, limit, offset)

    async def info(self, selection: Selection, path: str) -> ScopeInfo:
        """Summarise one subtree."""
        self.check_open()
        await self._barrier()

        def read() -> ScopeInfo:
            count = self.store.count(selection)
            if not count:
                return ScopeInfo(path=path)
            oldest = self.store.list_records(selection, 1, 0, Order.OLDEST)
            newest = self.store.list_records(selection, 1)
            return ScopeInfo(
                path=path,
                record_count=count,
                categories=sorted(self.store.facet(selection, Facet.CATEGORIES)),
                oldest_record=oldest[0].created_at if oldest else None,
                newest_record=newest[0].created_at if newest else None,
                child_scopes=_children(self.store.facet(selection, Facet.SCOPES), path),
            )

        return await self.services.in_thread(read)

    async def scopes_below(self, selection: Selection, path: str) -> list[str]:
        """Return the immediate child scopes of a path."""
        self.check_open()
        await self._barrier()
        counts = await self.services.in_thread(self.store.facet, selection, Facet.SCOPES)
        return _children(counts, path)

    async def tree(self, selection: Selection, tops: Sequence[str], max_depth: int) -> str:
        """Return the scope tree as text, with record counts."""
        self.check_open()
        await self._barrier()

        def read() -> tuple[dict[str, int], dict[str, int]]:
            counts = self.store.facet(selection, Facet.SCOPES)
            totals = {
                top: self.store.count(selection) if top == ROOT else counts.get(top, 0)
                for top in tops
            }
            return counts, totals

        counts, totals = await self.services.in_thread(read)
        lines: list[str] = []
        for top in tops:
            lines.append(_tree_line(top, totals[top], 0))
            below = (p for p in counts if p != top and contains(top, p))
            for path in sorted(below, key=lambda p: p.split("/")):
                level = depth(path) - depth(top)
                if level <= max_depth:
                    lines.append(_tree_line(path, counts[path], level))
        return "\n".join(lines)

    async def categories(self, selection: Selection) -> dict[str, int]:
        """Return categories with their counts, commonest first."""
        self.check_open()
        await self._barrier()
        counts = await self.services.in_thread(self.store.facet, selection, Facet.CATEGORIES)
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    # -- life cycle ---------------------------------------------------------------------------

    async def compact(self) -> None:
        """Reclaim space and build indexes."""
        self.check_open()
        await self._queue.drain()
        await self.services.in_thread(self.store.compact)

    async def leave(self) -> None:
        """At exit of the interpreter: finish what can be finished; the outbox keeps the rest."""
        if not self._closed:
            await self._queue.drain()
            await self.flush_access()
            await self.services.in_thread(self.store.flush)

    async def close(self) -> None:
        """Finish pending saves, write what is batched, release the store."""
        if self._closed:
            return
        await self._queue.drain()
        if self._closed:  # by another task, meanwhile
            return
        self._closed = True
        if self._access_timer is not None:
            self._access_timer.cancel()
            self._access_timer = None
        try:
            await self.flush_access()
        finally:
            await give_back(self.store, self._queue)
            await self.runtime.in_thread(self.store.close)


def _children(counts: dict[str, int], path: str) -> list[str]:
    level = depth(path) + 1
    return sorted(p for p in counts if depth(p) == level and contains(path, p))


def _tree_line(path: str, count: int, level: int) -> str:
    return f"{'  ' * level}{path} ({count} record{'' if count == 1 else 's'})"


def _selects(selection: Selection) -> Callable[[PendingSave], bool]:
    """Return a test for queued saves that a forget also reaches; scopes and ids aside."""

    def test(save: PendingSave) -> bool:
        options = save.options
        source = options.get("source")
        hidden = options.get("private") and not selection.include_private
        if hidden and (source is None or source != selection.viewer):
            return False
        if selection.sources is not None and source not in selection.sources:
            return False
        labels = options.get("categories") or ()
        return selection.categories is None or not set(selection.categories).isdisjoint(labels)

    return test


def _in_reach(letter: DeadLetter, reach: Selection) -> bool:
    """Tell whether every text of a dead letter lies in a view."""
    places = [
        save.options.get("scope") or next(iter(save.options.get("reach") or ()), ROOT)
        for save in letter.items
    ]
    return all(any(contains(root, place) for root in reach.roots) for place in places)
