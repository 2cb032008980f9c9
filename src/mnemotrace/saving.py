"""Background saves: from the outbox through the encoding flow, in order, with retries.

One queue serves a store, whichever `Memory` objects share it, so that the order in which texts
were accepted is the order in which they are encoded. A batch is encoded by the `Memory` that
accepted it or, once that is closed, by another one that is open. Everything here runs on the
runtime's loop, but for opening and closing a queue, which any thread may do.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from .errors import EmbedderMismatchError, InvalidInputError, MemoryClosedError, StoreError
from .flows.requests import SaveRequest
from .flows.runtime import Runtime
from .receipts import SaveReceipt
from .records import MemoryRecord, utc_now
from .stores.backend import StorageBackend
from .stores.outbox import Outbox, PendingSave
from .trace import catching

log = logging.getLogger("mnemotrace")

Encode = Callable[[list[SaveRequest]], Awaitable[list[MemoryRecord]]]

CHUNK = 1000
"""Texts encoded in one flow run; a larger `remember_many` takes several."""

RETRY_SECONDS = (1.0, 4.0, 16.0, 60.0)

# Trying again cannot help these: the texts or the store itself must change first.
_PERMANENT = (InvalidInputError, EmbedderMismatchError)


@dataclass(slots=True, eq=False)
class _Job:
    """One accepted batch on its way into the store."""

    batch_id: str
    encode: Encode
    max_attempts: int
    receipt: SaveReceipt | None = None
    attempts: int = 0
    saved: dict[str, MemoryRecord] = field(default_factory=dict)
    """What each text became so far, by the record id it was accepted with."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    """That of whoever accepted it, so that its save is recorded as work of that caller."""


@dataclass(frozen=True, slots=True)
class Left:
    """Accepted texts that are not saved: those still waiting, and those that were given up."""

    waiting: int = 0
    dead: int = 0


class SaveQueue:
    """The pending saves of one store.

    Attributes:
        outbox: the durable queue on disk.
    """

    def __init__(self, store: StorageBackend, runtime: Runtime) -> None:
        self.outbox = Outbox(store.sidecar)
        self._runtime = runtime
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._unsettled: dict[str, asyncio.Event] = {}
        self._retries: dict[str, tuple[asyncio.TimerHandle, _Job]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._taking_up = asyncio.Lock()
        self.taken_up = False
        """Whether what earlier processes left was queued, since the place belongs to this one."""
        self.encoders: list[Encode] = []
        """What each open `Memory` over this store encodes with; empty once the queue is closed."""

    async def accept(
        self, store: StorageBackend, requests: list[SaveRequest], encode: Encode, attempts: int
    ) -> SaveReceipt:
        """Put the texts on disk, all or none, then queue them; returns once they are durable."""
        saves = [PendingSave(r.record_id, r.content, r.position, r.options()) for r in requests]

        def accept() -> str:
            store.claim()  # where they could never be stored, nothing is accepted
            return self.outbox.accept(saves)

        batch_id = await self._runtime.in_thread(accept)
        receipt = SaveReceipt(batch_id, [r.record_id for r in requests])
        self._enqueue(_Job(batch_id, encode, attempts, receipt))
        return receipt

    async def take_up(self, encode: Encode, attempts: int) -> int:
        """Queue what an earlier process accepted and did not finish; returns how many batches.

        Done once, when the place is this process's own: nobody else accepts anything for it then.
        """
        async with self._taking_up:
            if self.taken_up:
                return 0
            await self._runtime.in_thread(self.outbox.adopt)
            count = 0
            for batch in await self._runtime.in_thread(self.outbox.batches):
                if batch.id not in self._unsettled and batch.id not in self._retries:
                    self._enqueue(_Job(batch.id, encode, attempts))
                    count += 1
            self.taken_up = True
            return count

    async def retry_dead(self, encode: Encode, attempts: int, ids: Iterable[str]) -> int:
        """Put dead letters back into the queue; returns how many batches."""
        revived = await self._runtime.in_thread(self.outbox.retry_dead, list(ids))
        for batch_id in revived:
            self._enqueue(_Job(batch_id, encode, attempts))
        return len(revived)

    @property
    def pending(self) -> int:
        """Batches that have not been tried yet."""
        return len(self._unsettled)

    async def drain(self, timeout: float | None = None) -> int:
        """Wait until everything accepted so far was tried; returns the texts still not saved.

        Raises:
            TimeoutError: when that took longer than `timeout` seconds; the saves go on.
        """
        waiting = list(self._unsettled.values())
        if waiting:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(event.wait() for event in waiting))
        if not self._retries and not self._unsettled:
            return 0
        return await self._runtime.in_thread(self.outbox.count)

    def _enqueue(self, job: _Job) -> None:
        self._unsettled.setdefault(job.batch_id, asyncio.Event())
        self._jobs.put_nowait(job)
        if self._worker is None or self._worker.done():
            self._worker = self._runtime.loop.create_task(self._work(), name="mnemotrace-saves")

    async def _work(self) -> None:
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            try:
                await self._runtime.loop.create_task(self._process(job), context=job.context)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # The outbox itself failed; the texts are on disk and the next open tries again.
                log.exception("The outbox could not record what became of a save")
                if job.receipt is not None:
                    job.receipt.park(error)
            finally:
                event = self._unsettled.pop(job.batch_id, None)
                if event is not None:
                    event.set()

    async def _process(self, job: _Job) -> None:
        saves = await self._runtime.in_thread(self.outbox.load, job.batch_id)
        for start in range(0, len(saves), CHUNK):
            requests = [
                SaveRequest.restore(save.content, save.record_id, save.position, save.options)
                for save in saves[start : start + CHUNK]
            ]
            with catching() as caught:
                try:
                    records = await self._encoder(job)(requests)
                except Exception as error:  # noqa: BLE001  whatever it is, the receipt carries it
                    failure: Exception | None = error
                else:
                    failure = None
            if job.receipt is not None:
                job.receipt.ran(caught.trace)
            if failure is not None:
                await self._failed(job, failure)
                return
            ids = [request.record_id for request in requests]
            await self._runtime.in_thread(self.outbox.done, job.batch_id, ids)
            job.saved.update(zip(ids, records, strict=True))
            if job.receipt is not None and start + CHUNK < len(saves):
                job.receipt.progress(records)
        if job.receipt is not None:
            accepted = job.receipt.record_ids
            job.receipt.resolve([job.saved[i] for i in accepted if i in job.saved])

    async def _failed(self, job: _Job, error: Exception) -> None:
        job.attempts += 1
        final = isinstance(error, _PERMANENT) or job.attempts >= job.max_attempts
        if final:
            await self._runtime.in_thread(self.outbox.bury, job.batch_id, _line(error))
        else:
            delay = RETRY_SECONDS[min(job.attempts, len(RETRY_SECONDS)) - 1]
            at = utc_now() + timedelta(seconds=delay)
            await self._runtime.in_thread(self.outbox.failed, job.batch_id, _line(error), at)
            handle = self._runtime.loop.call_later(delay, self._retry, job.batch_id)
            self._retries[job.batch_id] = (handle, job)
        log.warning(
            "Saving a batch failed (attempt %d): %s %s",
            job.attempts,
            _line(error),
            "It is kept as a dead letter." if final else "The texts are kept and will be retried.",
        )
        if job.receipt is not None:
            job.receipt.fail(error, final=final)

    def _encoder(self, job: _Job) -> Encode:
        encoders = list(self.encoders)
        return encoders[-1] if encoders and job.encode not in encoders else job.encode

    def _retry(self, batch_id: str) -> None:
        entry = self._retries.pop(batch_id, None)
        if entry is not None and self.encoders:
            self._enqueue(entry[1])

    @property
    def retrying(self) -> int:
        """Batches whose last attempt failed and that wait to be tried again."""
        return len(self._retries)

    def hasten(self) -> None:
        """Try at once what waits to be tried again."""
        for batch_id, (handle, _) in list(self._retries.items()):
            handle.cancel()
            self._retry(batch_id)

    def left(self) -> Left:
        """Return what is not saved; blocks.

        Raises:
            StoreError: the file cannot be read.
        """
        dead = sum(len(letter.items) for letter in self.outbox.dead_letters())
        return Left(self.outbox.count(), dead)

    def stop(self, *, kept: bool = True) -> None:
        """Plan no further retries.

        Args:
            kept: whether the texts are there at the next open, which tries them again.
        """
        for handle, job in self._retries.values():
            handle.cancel()
            if job.receipt is not None:
                error = MemoryClosedError("the memory was closed before the next attempt")
                job.receipt.park(error, kept=kept)
        self._retries.clear()


_queues: weakref.WeakKeyDictionary[object, SaveQueue] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def queue_for(store: StorageBackend, runtime: Runtime, encode: Encode) -> SaveQueue:
    """Return the one queue of this store's place for one more user; see `give_back`."""
    with _lock:
        queue = _queues.get(store.place)
        if queue is None:
            queue = _queues[store.place] = SaveQueue(store, runtime)
        queue.encoders.append(encode)
        return queue


def open_queues() -> list[SaveQueue]:
    """Return the queues of all stores that are open in this process."""
    with _lock:
        return list(_queues.values())


async def give_back(
    store: StorageBackend, runtime: Runtime, queue: SaveQueue, encode: Encode, *, kept: bool = True
) -> Left | None:
    """Take one user from a queue; the last one closes it.

    Args:
        kept: whether what is in the outbox is there at the next open.

    Returns:
        What the last user leaves unsaved, as far as it can be told; None when others go on.
    """

    def leave() -> Left | None:
        with _lock:
            queue.encoders.remove(encode)
            if queue.encoders:
                return None
            if _queues.get(store.place) is queue:
                del _queues[store.place]
            try:
                return queue.left()
            except StoreError as error:
                log.warning("Whether every accepted text is saved cannot be told: %s", error)
                return Left()
            finally:
                queue.outbox.close()

    left = await runtime.in_thread(leave)
    if left is not None:
        queue.stop(kept=kept)
    return left


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
