"""MemoryCore: everything a memory does, as coroutines over Selections, on the runtime's loop.

`Memory`, `MemoryScope` and `MemorySlice` say *what may be seen*; the core does the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any

from workflows.errors import WorkflowTimeoutError

from . import curation, discovery
from .accesses import AccessLog
from .checks import counted
from .config import MemoryConfig
from .embedders.service import EmbeddingService
from .errors import MemoryClosedError, StoreError
from .events import (
    MemoryAnalysisFailedEvent,
    MemoryConsolidationEvent,
    MemoryEvent,
    MemoryQueryCompletedEvent,
    MemoryQueryFailedEvent,
    MemoryQueryStartedEvent,
    MemorySaveCompletedEvent,
    MemorySaveFailedEvent,
    MemorySaveStartedEvent,
    event_bus,
)
from .flows.batch import EncodingRun
from .flows.echo import Returned
from .flows.encoding import EncodingFlow
from .flows.events import EncodingStarted, ExtractionStarted, RecallStarted
from .flows.evidence import RecallRun
from .flows.extraction import ExtractionFlow, ExtractionRun
from .flows.recall import RecallFlow, ShallowRecall
from .flows.requests import SaveRequest, checked_text
from .flows.runtime import Runtime
from .flows.services import Services
from .llm.service import LLMService, Patience
from .reach import Reach
from .reanalysis import Reanalysis
from .receipts import SaveReceipt
from .recording import taped_encode, taped_recall
from .records import Extraction, Forgotten, MemoryRecord, Reanalyzed, Recall, ScopeInfo
from .saving import Left, SaveQueue, give_back, queue_for
from .stores.backend import StorageBackend
from .stores.outbox import DeadLetter
from .stores.selection import Selection
from .straight import in_loop
from .trace import Level, Trace, note, span, start_trace
from .transfer import exporting, importing
from .transfer.exporting import Exported, Progress, Target
from .transfer.importing import Imported, OnConflict, Source

log = logging.getLogger("mnemotrace")


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
        self._flows: tuple[EncodingFlow, RecallFlow, ShallowRecall, ExtractionFlow] | None = None
        self._queue: SaveQueue = queue_for(store, runtime, self._encode)
        self._accesses = AccessLog(self.services)
        self._returned = Returned()
        self._closed = False
        sidecar = store.sidecar
        self._folder = None if sidecar is None else sidecar.parent
        self._removal_told = False
        self._left = 0
        """Texts that were not saved when it was closed."""

    # -- plumbing -----------------------------------------------------------------------------

    @property
    def flows(self) -> tuple[EncodingFlow, RecallFlow, ShallowRecall, ExtractionFlow]:
        """The workflows, built on first use."""
        if self._flows is None:
            self._flows = (
                EncodingFlow(self.services),
                RecallFlow(self.services),
                ShallowRecall(self.services),
                ExtractionFlow(self.services),
            )
        return self._flows

    def check_open(self) -> None:
        """Raise MemoryClosedError after `close`."""
        if self._closed:
            raise MemoryClosedError()

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

    async def remember(self, request: SaveRequest) -> MemoryRecord:
        """Save one text now; returns the record it became, or was merged into."""
        self.check_open()
        return (await self._encode([request]))[0]

    @taped_encode
    async def _encode(self, requests: list[SaveRequest]) -> list[MemoryRecord]:
        """Run texts through the encoding flow and tell listeners; one record for each text."""
        for request in requests:
            self._emit(MemorySaveStartedEvent, value=request.content, metadata=request.metadata)
        begun = time.perf_counter()
        run = EncodingRun.of(requests, self.services.clock())
        trace: Trace | None = None
        try:
            with start_trace("encode", level=self.config.trace, texts=len(requests)) as trace:
                await _in_time(
                    self.flows[0].run(start_event=EncodingStarted(run=run)),
                    f"Saving {counted(len(requests), 'text')} took longer than "
                    f"encode_timeout={self.config.encode_timeout:g} s",
                )
        except Exception as error:
            for request in requests:
                self._emit(
                    MemorySaveFailedEvent, value=request.content, error=str(error), trace=trace
                )
            raise
        self._warn(run.failures)
        for decision, record in run.decisions:
            self._emit(
                MemoryConsolidationEvent,
                action=decision.action,
                accepted=decision.accepted,
                refused=decision.refused,
                record_id=decision.record_id,
                new_record_id=record.id,
                told=decision.told,
            )
        elapsed = (time.perf_counter() - begun) * 1000
        for request in requests:
            self._emit(
                MemorySaveCompletedEvent,
                value=request.content,
                save_time_ms=elapsed,
                trace=trace,
            )
        return run.outcomes

    async def remember_many(self, requests: list[SaveRequest]) -> SaveReceipt:
        """Accept texts durably and encode them in the background."""
        self.check_open()
        if not requests:
            receipt = SaveReceipt("empty", ())
            receipt.resolve([])
            return receipt
        if not self._queue.taken_up:
            await self.services.in_thread(self.store.claim)
            await self._take_up()
        attempts = self.config.save_attempts
        return await self._queue.accept(self.store, requests, self._encode, attempts)

    async def resume(self) -> None:
        """Queue what an earlier process left in the outbox.

        Raises:
            StoreLockedError: texts wait there, and another process has the place.
        """
        if await self.runtime.in_thread(self._queue.outbox.count):
            await self.services.in_thread(self.store.claim)
        await self._take_up()

    async def _take_up(self) -> None:
        """Queue what processes that are gone have left, once the place is this one's own.

        A memory may be opened while nobody has the place yet, and get it after another process
        that was killed; so this is looked at until it is so.
        """
        if self._queue.taken_up:
            return
        if not self.store.owned:
            await self.services.in_thread(self.store.manifest)  # takes a place that was left
        if self.store.owned:
            await self._queue.take_up(self._encode, self.config.save_attempts)

    async def drain(self, timeout: float | None = None) -> int:
        """Wait for pending saves; returns the texts still not saved, at the close if it is closed."""
        if self._closed:
            return self._left
        return await self._queue.drain(timeout)

    async def dead_letters(self, selection: Selection) -> list[DeadLetter]:
        """Return the saves that were given up, as far as they may be seen."""
        self.check_open()
        await self._take_up()
        letters = await self.runtime.in_thread(self._queue.outbox.dead_letters)
        parts = (curation.visible_part(letter, selection) for letter in letters)
        return [part for part in parts if part is not None]

    async def retry_dead_letters(self, selection: Selection) -> int:
        """Queue given-up batches again that may be seen as a whole; returns how many."""
        self.check_open()
        await self._take_up()
        letters = await self.runtime.in_thread(self._queue.outbox.dead_letters)
        ids = [
            letter.batch_id
            for letter in letters
            if curation.visible_part(letter, selection) == letter
        ]
        if not ids:
            return 0
        return await self._queue.retry_dead(self._encode, self.config.save_attempts, ids)

    async def _settled(self) -> None:
        """Check that the memory is open, and let the read see what was accepted before it."""
        self.check_open()
        self._notice_removal()
        await self._take_up()
        await self._barrier()

    def _notice_removal(self) -> None:
        """Say once that the folder went away: reads go on from what the engine has open.

        Looking costs a microsecond or two. Writes are refused (`stores.folder.removed`).
        """
        folder = self._folder
        if folder is None or self._removal_told or not self.store.owned or os.path.exists(folder):
            return
        self._removal_told = True
        log.warning(
            "The memory folder %s was removed while it was open. Answers come from what this "
            "process still has open of it, and are gone when it closes; nothing more can be "
            "stored. Put the folder back from a backup and open the memory again.",
            folder,
        )

    async def _barrier(self) -> None:
        """Let a read see everything that was accepted before it."""
        if self._queue.pending:
            with span("read_barrier", kind="store", pending_batches=self._queue.pending):
                await self._queue.drain()

    # -- recall -------------------------------------------------------------------------------

    @taped_recall
    async def recall(
        self,
        query: str,
        selection: Selection,
        *,
        limit: int,
        depth: str,
        now: datetime | None,
        zone: tzinfo | None = None,
        wait: bool,
        level: Level,
    ) -> Recall:
        """Run one recall and return its matches with the trace."""
        self.check_open()
        self._emit(MemoryQueryStartedEvent, query=query, limit=limit)
        begun = time.perf_counter()
        moment = now or selection.as_of or self.services.clock()
        run = RecallRun.of(query, selection, limit, depth, moment, self.config, zone)
        trace: Trace | None = None
        try:
            with start_trace("recall", level=level, depth=depth, limit=limit) as trace:
                self._notice_removal()
                await self._take_up()
                if wait:
                    await self._barrier()
                else:
                    note(read_barrier="off", pending_batches=self._queue.pending)
                if limit > 0 and depth == "deep":
                    flow_run = self.flows[1].run(start_event=RecallStarted(run=run))
                    await _in_time(flow_run, self._late_recall)
                elif limit > 0:
                    await self._search_once(run)
                note(results=len(run.matches), confidence=run.confidence)
        except Exception as error:
            self._emit(MemoryQueryFailedEvent, query=query, error=str(error), trace=trace)
            raise
        self._warn(run.failures)
        result = Recall(
            run.matches,
            query=query,
            trace=trace,
            confidence=run.confidence,
            evidence_gaps=run.gaps,
            errors=[*run.errors, *self._unsaved()],
        )
        if selection.as_of is None:
            self._accesses.note([match.record.id for match in result], self.services.clock())
        self._returned.add(match.record.id for match in reversed(result))
        self._emit(
            MemoryQueryCompletedEvent,
            query=query,
            results=result,
            query_time_ms=(time.perf_counter() - begun) * 1000,
        )
        return result

    @property
    def _late_recall(self) -> str:
        return f"The recall took longer than recall_timeout={self.config.recall_timeout:g} s"

    async def _search_once(self, run: RecallRun) -> None:
        """Run the one step of a shallow recall; the engine of the workflows would add 0.5 ms."""
        flow, started = self.flows[2], RecallStarted(run=run)
        late = f"{self._late_recall} and was stopped. Raise it, or find what is slow."
        if not in_loop():  # see `straight_recall`; who waits has the timeout
            begun = time.monotonic()
            await ShallowRecall.search(flow, started)
            if time.monotonic() - begun > self.config.recall_timeout:
                raise TimeoutError(late)
            return
        try:
            async with asyncio.timeout(self.config.recall_timeout) as limit:
                await ShallowRecall.search(flow, started)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(late) from error

    def straight_recall(self) -> Callable[[Coroutine[Any, Any, Any]], Any] | None:
        """Return how to run a shallow recall without the loop; None when it may have to wait.

        It needs no loop when the embedder is a plain function, known to fit the store, and
        everything accepted before is saved.
        """
        queue = self._queue
        if queue.pending or not queue.taken_up:
            return None
        if self._closed or self._flows is None or self.runtime.on_loop:
            return None
        threads = self.services.straight_threads()
        if threads is None:
            return None
        late = f"{self._late_recall} and was given up. Raise it, or find what is slow."
        timeout = self.config.recall_timeout
        return lambda coro: self.runtime.run_straight(coro, threads, timeout, late)

    def _unsaved(self) -> list[str]:
        """Say that accepted texts may be missing from what was found."""
        waiting = self._queue.retrying
        if not waiting:
            return []
        line = (
            f"{counted(waiting, 'accepted batch', 'accepted batches')} could not be saved yet and "
            "will be tried again; what is in there is not among the results"
        )
        return [line]

    async def extract(self, content: str, selection: Selection, now: datetime | None) -> Extraction:
        """Return the atomic statements of a text; the whole text as one when no model can help.

        Args:
            selection: what is visible to the caller: only that can be an echo.
            now: timezone-aware, from which relative times in the text count; when None, the
                present in this machine's time zone.
        """
        self.check_open()
        checked_text(content)
        moment = now or self.services.clock().astimezone()
        run = ExtractionRun(content, selection, moment, self._returned.ids)
        with start_trace("extract", level=self.config.trace, characters=len(content)) as trace:
            await _in_time(
                self.flows[3].run(start_event=ExtractionStarted(run=run)),
                f"The extraction took longer than encode_timeout={self.config.encode_timeout:g} s",
            )
            note(statements=len(run.results))
        self._warn(run.failures)
        return Extraction(run.results, trace=trace, echoes=run.echoes, failures=run.failures)

    # -- by id --------------------------------------------------------------------------------

    async def get(self, selection: Selection, record_id: str) -> MemoryRecord | None:
        """Return the visible living record, or None."""
        await self._settled()
        found = await self.services.in_thread(self.store.get, selection, [record_id])
        return found[0] if found else None

    async def history(self, selection: Selection, record_id: str) -> list[MemoryRecord]:
        """Return every version of a record and of those it took over from, oldest first."""
        await self._settled()
        return await self.services.in_thread(curation.history, self.store, selection, record_id)

    async def update(
        self, selection: Selection, record_id: str, changes: dict[str, Any]
    ) -> MemoryRecord:
        """Write a new version of a record; the old one stays in history."""
        await self._settled()
        return await curation.update(self.services, selection, record_id, changes)

    async def reanalyze(self, selection: Selection, limit: int | None) -> Reanalyzed:
        """Analyse the records whose analysis could not be made when they were saved."""
        await self._settled()
        patience = Patience(timeouts=self.config.llm_concurrency)
        work = Reanalysis(self.services, self.flows[0], patience)
        with start_trace("reanalyze", level=self.config.trace) as trace:
            result = await work.run(selection, limit)
            note(analysed=int(result), failed=len(result.failed))
        self._warn(work.failures)
        result.trace = trace
        return result

    async def forget(self, selection: Selection, *, erase: bool) -> Forgotten:
        """Erase (or only retire) the selected records, queued saves included."""
        await self._settled()
        async with self.services.write_lock:
            if erase:
                await self.services.in_thread(curation.leave_sources, self.services, selection)
                ids, versions = await self.services.in_thread(
                    curation.erase, self.services, selection
                )
            else:
                ids, versions = await self.services.in_thread(
                    curation.retire_all, self.services, selection
                )
        self._accesses.forget(ids)
        self._returned.discard(ids)
        if erase:
            await self.runtime.in_thread(curation.purge, self._queue.outbox, selection)
        return Forgotten(len(ids), record_ids=ids[:1000], versions=versions, erased=erase)

    async def reset(self, selection: Selection, *, everything: bool) -> Forgotten:
        """Erase a subtree whatever its privacy; with `everything`, the store as a whole."""
        await self._settled()
        if not everything:
            return await self.forget(replace(selection, include_private=True), erase=True)
        async with self.services.write_lock:
            records, versions = await self.services.in_thread(curation.empty, self.store)
        self._accesses.clear()
        self._returned.clear()
        await self.runtime.in_thread(lambda: self._queue.outbox.purge(everything=True))
        return Forgotten(records, versions=versions)

    # -- discovery ----------------------------------------------------------------------------

    async def list_records(
        self, selection: Selection, limit: int, offset: int
    ) -> list[MemoryRecord]:
        """Return visible records, newest first."""
        await self._settled()
        return await self.services.in_thread(self.store.list_records, selection, limit, offset)

    async def info(self, selection: Selection, path: str) -> ScopeInfo:
        """Summarise one subtree."""
        await self._settled()
        return await self.services.in_thread(discovery.info, self.store, selection, path)

    async def scopes_below(self, selection: Selection, path: str) -> list[str]:
        """Return the immediate child scopes of a path."""
        await self._settled()
        return await self.services.in_thread(discovery.children, self.store, selection, path)

    async def tree(self, selection: Selection, max_depth: int) -> str:
        """Return the scope tree of the selection as text, with record counts."""
        await self._settled()
        return await self.services.in_thread(discovery.tree, self.store, selection, max_depth)

    async def categories(self, selection: Selection) -> dict[str, int]:
        """Return categories with their counts, commonest first."""
        await self._settled()
        return await self.services.in_thread(discovery.categories, self.store, selection)

    # -- export files -------------------------------------------------------------------------

    async def export_records(
        self,
        selection: Selection,
        target: Target,
        *,
        history: bool,
        embeddings: bool,
        progress: Progress | None,
    ) -> Exported:
        """Write what a selection sees, with its retired versions on request, to an export file."""
        await self._settled()
        return await self.services.in_thread(
            functools.partial(
                exporting.export,
                self.store,
                replace(selection, history=history),
                target,
                embeddings=embeddings,
                progress=progress,
            )
        )

    async def import_records(
        self,
        file: Source,
        reach: Reach,
        visible: Selection,
        *,
        on_conflict: OnConflict,
        dry_run: bool,
        progress: Progress | None,
    ) -> Imported:
        """Check an export file, then write what of it is not stored yet."""
        on_conflict = importing.checked_choice(on_conflict)
        await self._settled()
        async with contextlib.AsyncExitStack() as stack:
            opening = importing.opened(file)
            copy = await self.services.in_thread(opening.__enter__)
            stack.push(opening.__exit__)
            plan = await self.services.in_thread(importing.check, copy, reach)
            return await importing.import_plan(
                self.services,
                plan,
                replace(visible, history=True),
                on_conflict=on_conflict,
                dry_run=dry_run,
                progress=progress,
            )

    # -- life cycle ---------------------------------------------------------------------------

    async def compact(self) -> None:
        """Reclaim space and build indexes."""
        self.check_open()
        await self._queue.drain()
        await self.services.in_thread(self.store.compact)

    async def leave(self) -> None:
        """At exit of the interpreter: finish what can be finished; the outbox keeps the rest."""
        if self._closed:
            return
        if not self._keeps:
            self._queue.hasten()
        await self._queue.drain()
        try:
            if not self._keeps:
                self._tell_unsaved(await self.runtime.in_thread(self._queue.left))
            await self._accesses.write()
            await self.services.in_thread(self.store.flush)
        except StoreError as error:
            log.error("What is in the memory could not be made safe at exit: %s", error)

    def late_at_exit(self, seconds: float) -> str:
        """Return what it means that `leave` was not done in time; blocks."""
        told = f"The process ended without close(), and {seconds:g} s after that began "
        try:
            left = self._queue.left()
        except StoreError:
            told += "some accepted texts may not be saved yet"
        else:
            told += f"{counted(left.waiting, 'accepted text')} not saved yet"
        if self._keeps:
            told += f": kept in {self.store.sidecar}, and saved when the memory is next opened"
        else:
            told += ": lost, because this memory keeps nothing once it is closed"
        return f"{told}. close() or a `with` block waits until they are."

    async def close(self) -> None:
        """Finish pending saves, write what is batched, release the store."""
        if self._closed:
            return
        self._queue.hasten()
        await self._queue.drain()
        if self._closed:  # by another task, meanwhile
            return
        self._closed = True
        self._accesses.stop()
        try:
            await self._accesses.write()
        finally:
            left = await give_back(
                self.store, self.runtime, self._queue, self._encode, kept=self._keeps
            )
            if left is not None:
                self._left = left.waiting
                self._tell_unsaved(left)
            await self.runtime.in_thread(self.store.close)

    @property
    def _keeps(self) -> bool:
        """Whether what is in the outbox is there at the next open."""
        return self.store.capabilities.persistent and self.store.sidecar is not None

    def _tell_unsaved(self, left: Left) -> None:
        """Warn of accepted texts that are not saved at the end of a memory."""
        if self._keeps and left.waiting:
            log.warning(
                "The memory was closed with %s not saved yet: kept in %s, and saved when the "
                "memory is next opened. drain_writes() before close() tells how many wait, a "
                "receipt's wait() why.",
                counted(left.waiting, "accepted text"),
                self.store.sidecar,
            )
        lost = left.waiting + left.dead
        if not self._keeps and lost:
            log.warning(
                "The memory was closed with %s not saved: lost, because this memory keeps nothing "
                "once it is closed. Before close(), drain_writes() tells how many wait and "
                "dead_letters() which were given up; a memory in a folder keeps them.",
                counted(lost, "accepted text"),
            )


async def _in_time(run: Awaitable[Any], what: str) -> None:
    """Wait for a run of a flow; raise TimeoutError, saying what took too long, when it did."""
    try:
        await run
    except WorkflowTimeoutError as error:
        raise TimeoutError(
            f"{what} and was stopped ({error}). Raise it, or find what is slow."
        ) from error
