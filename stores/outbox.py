"""Outbox: the durable queue of accepted, not yet encoded saves.

Accepted means on disk: `Outbox.accept` returns after the whole batch is synced to a SQLite file.
The encoder takes batches out with `batches` and `load`, and reports with `done`, `failed` or
`bury`. What a killed process leaves is taken over at the next open, and since record ids are fixed
at acceptance, encoding a batch again writes the same records.

All methods are synchronous and safe to call from several threads at once.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemotrace import scopes
from mnemotrace.errors import InvalidInputError, MemoryClosedError, StoreError
from mnemotrace.records import Forgotten

from . import outbox_queue as queue
from .outbox_file import QueueFile, claim_existing, free_paths, queue_paths, store_errors
from .outbox_items import DeadLetter, PendingBatch, PendingSave

__all__ = ["DeadLetter", "Outbox", "PendingBatch", "PendingSave"]

_EXIT_SECONDS = 5.0

_log = logging.getLogger("mnemotrace.outbox")
_inherited: list[QueueFile] = []
"""Files a forked child got from its parent. SQLite forbids even closing them there."""


@dataclass(slots=True)
class _Held:
    """What an outbox holds open, apart from it so that it can be released after it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    pid: int = field(default_factory=os.getpid)
    file: QueueFile | None = None
    temporary: Path | None = None

    def release(self) -> None:
        """Close the file, give up the lock, remove the temporary folder; safe to call twice."""
        file, self.file = self.file, None
        temporary, self.temporary = self.temporary, None
        try:
            if file is not None:
                file.close()
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def release_unowned(self) -> None:
        """Release what an outbox that was never closed left, at the latest when Python exits."""
        # A daemon thread that Python has stopped may hold the lock for ever. The file needs no
        # closing then: the system does it, and everything accepted is on disk.
        if self.pid == os.getpid() and self.lock.acquire(timeout=_EXIT_SECONDS):
            try:
                self.release()
            finally:
                self.lock.release()


class Outbox:
    """A durable queue of accepted saves in one folder.

    Nothing is written before the first `accept`. Several processes may share the folder: each
    accepts into a file of its own and takes over files whose process is gone, at opening and in
    `adopt`. Every other method sees this process's file only, save for `purge`, which reaches all.

    Args:
        folder: where the files are; made at the first `accept`. None for a temporary folder,
            which is removed on `close` with everything still in it.

    Raises:
        StoreCorruptError: a file there is not a readable outbox; nothing was changed.
        StoreError: a file there cannot be opened; the message says why.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._closed = False
        self._held = _Held()
        self._finalizer = weakref.finalize(self, self._held.release_unowned)
        try:
            self.adopt()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def accept(self, items: Sequence[PendingSave]) -> str:
        """Put a batch on disk, all of it or nothing.

        Args:
            items: at least one save, each record id once. They are encoded in this order.

        Returns:
            The batch id. When this returns, the batch survives a kill and a power loss.

        Raises:
            RecordError: an item cannot be stored (not valid Unicode, an option of a kind that has
                no form on disk, a record id twice); nothing was accepted.
            InvalidInputError: there are no items.
            StoreNotWritableError: the folder is read-only or the disk is full; nothing was
                accepted.
            StoreError: the file failed; nothing was accepted.
        """
        rows = queue.checked_rows(items)
        batch_id = str(uuid.uuid4())
        with self._locked() as held:
            file = held.file or self._own_file(held)
            file.require_in_place()
            queue.add(file, batch_id, rows)
        return batch_id

    def adopt(self) -> int:
        """Take over the files of processes that are gone.

        Returns:
            How many waiting texts came with them; 0 when there was nothing to take over.

        Raises:
            StoreCorruptError: a file is not a readable outbox; it was left as it is.
        """
        found = 0
        with self._locked() as held:
            for path in self._foreign_paths(held):
                claimed = claim_existing(path)
                if claimed is None:
                    continue
                if held.file is None:
                    held.file = claimed
                    found += queue.count(claimed)
                    continue
                try:
                    found += queue.count(claimed)
                    queue.move(claimed, held.file)
                except BaseException:
                    claimed.close()
                    raise
        return found

    def count(self) -> int:
        """Return how many texts wait to be encoded; dead letters are not counted."""
        with self._locked() as held:
            return 0 if held.file is None else queue.count(held.file)

    def batches(self) -> list[PendingBatch]:
        """Return the batches that wait, oldest first; ``[]`` when none do."""
        with self._locked() as held:
            return [] if held.file is None else queue.batches(held.file)

    def load(self, batch_id: str) -> list[PendingSave]:
        """Return the saves of a batch, waiting or dead, in the order they were accepted.

        Returns:
            ``[]`` when there is no such batch, or nothing is left of it.
        """
        with self._locked() as held:
            return [] if held.file is None else queue.load(held.file, batch_id)

    def pending(self, limit: int | None = None) -> list[PendingSave]:
        """Return the saves that wait, oldest batch first; ``[]`` when none do.

        Args:
            limit: the most to return; None for all.
        """
        with self._locked() as held:
            return [] if held.file is None else queue.pending(held.file, limit)

    def waiting(self, record_ids: Iterable[str]) -> set[str]:
        """Return which of these records are still in the queue and not dead.

        An encoder asks this right before it writes: what was forgotten since `load` is gone.
        """
        with self._locked() as held:
            return set() if held.file is None else queue.waiting(held.file, record_ids)

    def done(self, batch_id: str, record_ids: Iterable[str] | None = None) -> None:
        """Remove saves that are encoded; what is already gone is ignored.

        Args:
            batch_id: as returned by `accept`.
            record_ids: the records of the batch that are done; None for all of it.
        """
        with self._locked() as held:
            if held.file is not None and queue.remove(held.file, batch_id, record_ids):
                try:
                    held.file.wipe()
                except StoreError as error:  # the saves are done all the same; purge tries again
                    _log.warning("%s", error)

    def failed(self, batch_id: str, error: str, retry_at: datetime | None) -> int:
        """Note a failed attempt; the batch stays in the queue.

        Args:
            batch_id: as returned by `accept`.
            error: what it failed with.
            retry_at: when to try again; None for at once.

        Returns:
            How many attempts have failed by now; 0 when no such batch waits.
        """
        with self._locked() as held:
            if held.file is None:
                return 0
            return queue.note_failure(held.file, batch_id, error, retry_at)

    def bury(self, batch_id: str, error: str) -> None:
        """Give a waiting batch up: its texts become a dead letter and are kept. Counts as an attempt.

        Args:
            batch_id: as returned by `accept`; one that does not wait is ignored.
            error: what it failed with.
        """
        with self._locked() as held:
            if held.file is not None:
                queue.bury(held.file, batch_id, error)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the batches that were given up, oldest first; ``[]`` when there are none."""
        with self._locked() as held:
            return [] if held.file is None else queue.dead_letters(held.file)

    def retry_dead(self, ids: Iterable[str] | None = None) -> list[str]:
        """Put dead letters back into the queue, to be tried at once and as often as a new batch.

        Args:
            ids: batch ids; ids that are not dead letters are ignored. None for all.

        Returns:
            The batch ids put back, oldest first; ``[]`` when there were none.
        """
        with self._locked() as held:
            return [] if held.file is None else queue.revive(held.file, ids)

    def discard_dead(self, ids: Iterable[str]) -> list[str]:
        """Erase dead letters for good; no byte of their texts stays.

        Args:
            ids: batch ids; ids that are not dead letters are ignored.

        Returns:
            The batch ids erased, oldest first; ``[]`` when there were none.
        """
        with self._locked() as held:
            return [] if held.file is None else queue.discard(held.file, ids)

    def purge(
        self,
        *,
        record_ids: Iterable[str] | None = None,
        roots: Iterable[str] | None = None,
        where: Callable[[PendingSave], bool] | None = None,
        everything: bool = False,
    ) -> Forgotten:
        """Remove saves, waiting and dead, and leave no byte of whatever was removed before.

        The conditions intersect; an empty one selects nothing. It reaches the files of the other
        processes that share the folder too. Call it on every forget, also of records that are
        long encoded: their texts have passed through the queue.

        Args:
            record_ids: only these records.
            roots: only saves in these subtrees. One whose scope is still to be inferred counts
                at the start of its writer's ``reach``, or at the root when it has none.
            where: only saves for which this is true.
            everything: all of them, when no condition is given.

        Returns:
            How many records were removed, and their ids.

        Raises:
            InvalidInputError: no condition and not `everything`.
            StoreNotWritableError: the folder is read-only or the disk is full.
            StoreError: a file failed or is in use; calling again goes on.
        """
        if record_ids is None and roots is None and where is None and not everything:
            raise InvalidInputError(
                "Nothing says which saves to remove. Give a condition, or everything=True."
            )
        chosen = queue.Chosen(
            None if record_ids is None else frozenset(record_ids),
            None if roots is None else scopes.cover(roots),
            where,
        )
        gone: dict[str, None] = {}
        with self._locked() as held:
            while True:
                if held.file is not None:
                    gone.update(dict.fromkeys(queue.purge(held.file, chosen)))
                foreign = self._foreign_paths(held)
                for path in foreign:
                    gone.update(dict.fromkeys(_purge_foreign(path, chosen)))
                if all(path.exists() for path in foreign):
                    break
                # A file that vanished was taken over: its saves may be in one that was seen before.
        return Forgotten(len(gone), record_ids=list(gone)[:1000])

    def close(self) -> None:
        """Close the file; what waits stays on disk for the next open. Safe to call twice.

        A temporary outbox is removed with everything in it, so it must have run empty before.
        """
        if self._held.pid != os.getpid():
            self._start_over_after_fork()
        with self._held.lock:
            self._closed = True
            self._finalizer.detach()
            self._held.release()

    @contextmanager
    def _locked(self) -> Iterator[_Held]:
        """Give sole use of what is open, to one thread at a time."""
        if self._held.pid != os.getpid():
            self._start_over_after_fork()
        with self._held.lock:
            if self._closed:
                raise MemoryClosedError()
            yield self._held

    def _start_over_after_fork(self) -> None:
        """Leave the parent's file to the parent."""
        if self._held.file is not None:
            _inherited.append(self._held.file)
        self._finalizer.detach()
        self._held = _Held()
        self._finalizer = weakref.finalize(self, self._held.release_unowned)

    def _foreign_paths(self, held: _Held) -> list[Path]:
        """Return the outbox files in the folder but one's own."""
        own = None if held.file is None else held.file.path
        paths = [] if self._folder is None else queue_paths(self._folder)
        return [path for path in paths if path != own]

    def _own_file(self, held: _Held) -> QueueFile:
        """Open the first file that no other owner has, and make it if need be."""
        if self._folder is None:
            with store_errors(Path(tempfile.gettempdir()), "making a temporary folder"):
                held.temporary = held.temporary or Path(tempfile.mkdtemp(prefix="mnemotrace-"))
            folder = held.temporary
        else:
            folder = self._folder
            with store_errors(folder, "making its folder"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held.file = next(
            file
            for path in free_paths(folder)
            if (file := QueueFile.claim(path, create=True)) is not None
        )
        return held.file


def _purge_foreign(path: Path, chosen: queue.Chosen) -> list[str]:
    """Remove the chosen saves from another owner's file; ``[]`` when it is gone meanwhile."""
    try:
        file = QueueFile.visit(path)
    except StoreError:
        if not path.exists():
            return []
        raise
    try:
        return queue.purge(file, chosen)
    finally:
        file.close()
