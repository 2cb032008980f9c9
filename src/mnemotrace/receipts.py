"""The receipt of a background save: what was accepted, what became of it, and a way to wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import TYPE_CHECKING

from .checks import checked_seconds, counted
from .errors import SaveError
from .records import MemoryRecord

if TYPE_CHECKING:
    from .trace import Trace

MAX_TRACES = 10
"""Traces that a receipt keeps, the latest; a batch has one for each thousand texts and attempt."""


class SaveStatus(StrEnum):
    """How far a background save has come."""

    PENDING = "pending"
    """Accepted and on disk; not encoded yet."""
    RETRYING = "retrying"
    """An attempt failed; the texts are kept and will be tried again."""
    FAILED = "failed"
    """Every attempt failed; the texts are kept as a dead letter."""
    DONE = "done"
    """Encoded and in the store."""


class SaveReceipt:
    """What `remember_many` returns at once: the texts are on disk, their encoding goes on.

    Wait for it from any thread with `wait`, or await it on any event loop. A failed attempt makes
    it raise from then on; when a later attempt succeeds it is done after all. It need not be
    looked at: nothing warns when it is dropped.

    Its length is the number of texts accepted. It is safe to use from several threads at once.

    Args:
        id: the batch id in the outbox.
        record_ids: the id each text's record will have, in the order of the texts.
    """

    def __init__(self, id: str, record_ids: Iterable[str]) -> None:
        self._id = id
        self._record_ids = tuple(record_ids)
        self._lock = threading.Lock()
        self._waiters: list[Future[None]] = []
        self._status = SaveStatus.PENDING
        self._records: list[MemoryRecord] = []
        self._errors: list[Exception] = []
        self._traces: list[Trace] = []
        self._parked = False
        self._lost = False

    @property
    def id(self) -> str:
        """The batch id, as in the outbox and in dead letters."""
        return self._id

    @property
    def accepted(self) -> int:
        """How many texts were accepted."""
        return len(self._record_ids)

    @property
    def record_ids(self) -> list[str]:
        """The ids assigned at acceptance, one for each text, in order.

        A text that turns out to be known is not stored under its id; `records` has the record
        that stands for it.
        """
        return list(self._record_ids)

    @property
    def status(self) -> SaveStatus:
        """How far the save has come."""
        return self._status

    @property
    def done(self) -> bool:
        """Whether everything is encoded and in the store."""
        return self._status is SaveStatus.DONE

    @property
    def records(self) -> list[MemoryRecord]:
        """The records known so far; ``[]`` before the first.

        When done, one for each text in order. Texts that were merged yield the record that
        survived, so it may be there more than once; texts forgotten meanwhile are left out.
        """
        with self._lock:
            return list(self._records)

    @property
    def errors(self) -> list[Exception]:
        """What each failed attempt failed with, oldest first; kept when a later one succeeds."""
        with self._lock:
            return list(self._errors)

    @property
    def traces(self) -> list[Trace]:
        """The step-by-step records of the runs that encoded this batch, oldest first.

        There is one for each thousand texts, and for each failed attempt; the latest ten are kept.
        ``[]`` before the first run began, and when tracing is off.
        """
        with self._lock:
            return list(self._traces)

    @property
    def trace(self) -> Trace | None:
        """The latest of `traces`; None when there is none."""
        with self._lock:
            return self._traces[-1] if self._traces else None

    def wait(
        self, timeout: float | None = None, *, through_retries: bool = False
    ) -> list[MemoryRecord]:
        """Block until the save is done, or has failed.

        Args:
            timeout: seconds; None to wait as long as it takes.
            through_retries: wait while failed attempts are tried again, and raise only when the
                save is given up.

        Returns:
            The records, as in `records`.

        Raises:
            SaveError: an attempt failed (its cause is the error); the texts are kept. The message
                says whether they will be tried again.
            TimeoutError: it takes longer; it goes on in the background.
            InvalidInputError: `timeout` is not a number.
        """
        timeout = checked_seconds(timeout, "timeout")
        deadline = None if timeout is None else time.monotonic() + timeout
        while (waiter := self._unsettled(through_retries)) is not None:
            try:
                waiter.result(None if deadline is None else deadline - time.monotonic())
            except TimeoutError:
                raise self._timed_out(timeout) from None
            finally:
                self._drop(waiter)
        return self._outcome()

    async def await_done(
        self, timeout: float | None = None, *, through_retries: bool = False
    ) -> list[MemoryRecord]:
        """Wait as `wait` does, without blocking the event loop.

        Raises:
            SaveError: as for `wait`.
            TimeoutError: as for `wait`.
        """
        timeout = checked_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(timeout):
                while (waiter := self._unsettled(through_retries)) is not None:
                    try:
                        await asyncio.wrap_future(waiter)
                    finally:
                        self._drop(waiter)
        except TimeoutError:
            raise self._timed_out(timeout) from None
        return self._outcome()

    def __await__(self) -> Generator[object, None, list[MemoryRecord]]:
        """Wait until the save is done or has failed, as `await_done` does."""
        return self.await_done().__await__()

    def __len__(self) -> int:
        return self.accepted

    def _repr_html_(self) -> str:
        from .trace_views import receipt_html

        return receipt_html(self)

    def __repr__(self) -> str:
        with self._lock:
            what = f"{self.accepted} text{'' if self.accepted == 1 else 's'}"
            return f"<SaveReceipt {self._id}: {what} accepted, {self._progress()}>"

    # The encoding worker reports with these.

    def ran(self, trace: Trace | None) -> None:
        """Keep the trace of a run that encoded texts of this batch, a failed one too."""
        if trace is not None:
            with self._lock:
                self._traces = [*self._traces[1 - MAX_TRACES :], trace]

    def progress(self, records: Iterable[MemoryRecord]) -> None:
        """Add records that are already in the store while the rest is still being encoded."""
        with self._lock:
            self._records.extend(records)

    def resolve(self, records: Sequence[MemoryRecord]) -> None:
        """Report success: all records, which replace those reported as progress."""
        with self._lock:
            self._records = list(records)
            self._status = SaveStatus.DONE
            waiters, self._waiters = self._waiters, []
        _wake(waiters)

    def fail(self, error: Exception, final: bool) -> None:
        """Report a failed attempt; ignored when the save is done.

        Args:
            error: what it failed with.
            final: it will not be tried again on its own; the texts are a dead letter now.
        """
        with self._lock:
            if self._status is SaveStatus.DONE:
                return
            self._errors.append(error)
            self._status = SaveStatus.FAILED if final else SaveStatus.RETRYING
            waiters, self._waiters = self._waiters, []
        _wake(waiters)

    def park(self, error: Exception, *, kept: bool = True) -> None:
        """Report that nothing tries again before the next open, which finds the texts on disk.

        Args:
            error: why.
            kept: False when there is nothing to find: the texts went with the memory.
        """
        self._parked, self._lost = True, not kept
        self.fail(error, final=True)

    def _unsettled(self, through_retries: bool) -> Future[None] | None:
        """Return what is woken at the next change, or None when there is nothing to wait for."""
        with self._lock:
            retrying = self._status is SaveStatus.RETRYING and through_retries
            if self._status is not SaveStatus.PENDING and not retrying:
                return None
            waiter: Future[None] = Future()
            self._waiters.append(waiter)
            return waiter

    def _drop(self, waiter: Future[None]) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _outcome(self) -> list[MemoryRecord]:
        with self._lock:
            if self._status is SaveStatus.DONE:
                return list(self._records)
            cause = self._errors[-1]
            message = (
                f"Saving {counted(self.accepted, 'text')} of batch {self._id} {self._failure()} "
            )
            if self._lost:
                message += (
                    "The texts are lost: this memory keeps nothing once it is closed. Wait for "
                    "the receipt before close(), or keep the memory in a folder."
                )
            elif self._parked:
                message += (
                    "The texts are kept on disk and are saved when the memory is next opened."
                )
            elif self._status is SaveStatus.FAILED:
                message += (
                    "It was given up; the texts are kept as a dead letter. Remove the cause, then "
                    "call retry_dead_letters()."
                )
            else:
                message += (
                    "The texts are kept on disk and will be tried again; this receipt is done "
                    "when that succeeds."
                )
        raise SaveError(message) from cause

    def _timed_out(self, timeout: float | None) -> TimeoutError:
        with self._lock:
            return TimeoutError(
                f"Batch {self._id} was not saved within {timeout} s: {self._progress()}. What it "
                f"holds ({counted(self.accepted, 'text')}) is on disk, and saving goes on; wait "
                "again, or longer."
            )

    def _progress(self) -> str:
        if self._status is SaveStatus.DONE:
            return f"done, {counted(len({record.id for record in self._records}), 'record')}"
        if self._status is SaveStatus.PENDING:
            known = f", {len(self._records)} so far" if self._records else ""
            return f"encoding in the background{known}"
        if self._parked:
            what = "lost" if self._lost else "waits for the next open"
            return f"{self._failure()} ({what})"
        ahead = "given up" if self._status is SaveStatus.FAILED else "will be tried again"
        return f"{self._failure()} ({ahead})"

    def _failure(self) -> str:
        error = self._errors[-1]
        return f"failed at attempt {len(self._errors)}: {type(error).__name__}: {error}"


def _wake(waiters: Iterable[Future[None]]) -> None:
    for waiter in waiters:
        if waiter.set_running_or_notify_cancel():  # false for one whose task was cancelled
            waiter.set_result(None)
