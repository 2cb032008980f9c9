"""Browsing: what the screens ask of a memory.

One rule of visibility holds for all of it: public records, those of the viewer, or everybody's
with `include_private`. Reads show what is stored; they never wait for pending saves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mnemotrace import curation, discovery
from mnemotrace.flows.requests import checked_count, checked_query
from mnemotrace.memory import Memory
from mnemotrace.reach import Reach
from mnemotrace.records import Forgotten, MemoryRecord, Recall, ScopeInfo
from mnemotrace.scopes import ROOT
from mnemotrace.stores.backend import Facet, Manifest, StorageBackend
from mnemotrace.stores.outbox import DeadLetter
from mnemotrace.stores.selection import Selection
from mnemotrace.twins import awaitable
from mnemotrace.views.base import Depth, Handle

from .filters import Filter

EXCERPT = 500
"""Characters of a text that a listed record keeps; the rest is read when it is shown."""
SCANNED = 1_000
"""Records that one look for words reads before it reports; then the next one goes on."""
CHUNK = 250


@dataclass(frozen=True, slots=True)
class Row:
    """A record as the list needs it."""

    id: str
    created_at: datetime
    scope: str
    excerpt: str
    private: bool = False
    pending: bool = False
    """Whether it still waits for its analysis by a model."""

    @classmethod
    def of(cls, record: MemoryRecord) -> Row:
        """Return the row of a record."""
        return cls(
            record.id,
            record.created_at,
            record.scope,
            record.content[:EXCERPT],
            record.private,
            bool(record.analysis),
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a listing goes on: the time of its last record, and how many of that time were seen."""

    at: datetime
    seen: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, newest first.

    Attributes:
        rows: the records that the filter lets through.
        mark: where the next part begins; None after the last.
        looked_at: how many records were read for it.
    """

    rows: tuple[Row, ...]
    mark: Mark | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class Outbox:
    """What is on its way into the store, as far as it may be seen.

    Attributes:
        waiting: batches that wait to be encoded or to be tried again.
        dead: batches that were given up.
        hidden: batches of either kind that hold nothing the viewer may see.
    """

    waiting: tuple[DeadLetter, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    hidden: int = 0


class Browsing(Handle):
    """The reads and the two actions of the browser; each is to be awaited from any loop.

    Args:
        memory: an open memory; it stays the caller's to close.
        source: whose private records are visible besides the public ones.
        include_private: everybody's private records are visible.
        read_only: refuse to forget and to retry, with ScopePermissionError.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        source: str | None = None,
        include_private: bool = False,
        read_only: bool = False,
    ) -> None:
        self._core = memory._core
        self._reach = Reach((ROOT,), ROOT, read_only)
        self.source = source
        self.include_private = include_private
        self.read_only = read_only
        self._seen_by(source, include_private)  # refuses a name that cannot be one

    @property
    def unsaved(self) -> int:
        """Batches that wait to be saved, those that are tried again included."""
        return self._core._queue.pending + self._core._queue.retrying

    @property
    def store(self) -> StorageBackend:
        """The store that is looked at."""
        return self._core.store

    @property
    def embedder(self) -> str:
        """The name of the embedder in use."""
        return self._core.services.embedder.name

    def _visible(self, scope: str = ROOT) -> Selection:
        self._core.check_open()
        return self._seen_by(self.source, self.include_private, scope)

    # -- reading ------------------------------------------------------------------------------

    async def _manifest(self) -> Manifest | None:
        """Return what the store says of itself; None where nothing was remembered yet."""
        self._core.check_open()
        return await self._core.services.in_thread(self._core.store.manifest)

    amanifest = awaitable(_manifest)

    async def _scopes(self) -> dict[str, int]:
        """Return how many records each scope and its subtree hold; the root is always there."""
        store, selection = self._core.store, self._visible()
        in_thread = self._core.services.in_thread
        total = await in_thread(store.count, selection)
        return {**await in_thread(store.facet, selection, Facet.SCOPES), ROOT: total}

    ascopes = awaitable(_scopes)

    async def _count(self, scope: str, chosen: Filter) -> int:
        """Return how many records of a subtree have the categories and sources asked for."""
        selection = self._filtered(scope, chosen)
        return await self._core.services.in_thread(self._core.store.count, selection)

    acount = awaitable(_count)

    async def _page(self, scope: str, chosen: Filter, mark: Mark | None, limit: int) -> Page:
        """Return the next records of a subtree, newest first.

        Without words `limit` records are read. With words, records are read until `limit` of them
        hold the words, or a thousand were read.
        """
        selection = self._filtered(scope, chosen)
        rows: list[Row] = []
        looked_at = 0
        while len(rows) < limit and looked_at < SCANNED:
            size = CHUNK if chosen.words else limit
            until = mark.at + timedelta(microseconds=1) if mark else None
            records = await self._core.services.in_thread(
                self._core.store.list_records,
                replace(selection, until=until),
                size,
                mark.seen if mark else 0,
            )
            looked_at += len(records)
            rows += [Row.of(r) for r in records if chosen.holds(r.id, r.content)]
            if not records:
                return Page(tuple(rows), None, looked_at)
            mark = _after(records, mark)
            if not chosen.words:
                break
        return Page(tuple(rows), mark, looked_at)

    apage = awaitable(_page)

    async def _record(self, record_id: str) -> tuple[MemoryRecord | None, list[MemoryRecord]]:
        """Return a record and all its versions, oldest first; (None, []) when none is visible."""
        store, selection = self._core.store, self._visible()
        in_thread = self._core.services.in_thread
        found = await in_thread(store.get, selection, [record_id])
        if not found:
            return None, []
        return found[0], await in_thread(curation.history, store, selection, record_id)

    arecord = awaitable(_record)

    async def _info(self, scope: str) -> ScopeInfo:
        """Summarise a subtree."""
        return await self._core.services.in_thread(
            discovery.info, self._core.store, self._visible(scope), scope
        )

    ainfo = awaitable(_info)

    async def _outbox(self) -> Outbox:
        """Return the pending and the given-up saves."""
        selection = self._visible()
        waiting, dead = await self._core.runtime.in_thread(self._queued)
        shown = [
            [curation.visible_part(b, selection) for b in batches] for batches in (waiting, dead)
        ]
        parts = [tuple(part for part in kind if part is not None) for kind in shown]
        return Outbox(parts[0], parts[1], len(waiting) + len(dead) - sum(map(len, parts)))

    aoutbox = awaitable(_outbox)

    def _queued(self) -> tuple[list[DeadLetter], list[DeadLetter]]:
        """Return the waiting batches, in the form of dead letters, and the dead letters."""
        outbox = self._core._queue.outbox
        waiting = [
            DeadLetter(
                batch.id,
                tuple(outbox.load(batch.id)),
                batch.error or "",
                batch.attempts,
                batch.accepted_at,
                batch.next_attempt_at or batch.accepted_at,
            )
            for batch in outbox.batches()
        ]
        # A batch that was saved meanwhile has no texts any more.
        return [batch for batch in waiting if batch.items], outbox.dead_letters()

    async def _recall(self, query: str, scope: str, limit: int, depth: Depth) -> Recall:
        """Recall from what is visible in a subtree, without waiting for pending saves.

        Raises:
            InvalidInputError: an empty query or a negative limit.
            EmbedderError, StoreError: the search could not be made at all.
            TimeoutError: it took longer than `recall_timeout`.
        """
        level = self._core.config.trace
        return await self._core.recall(
            checked_query(query),
            self._visible(scope),
            limit=checked_count(limit, "limit"),
            depth=depth,
            now=None,
            wait=False,
            level="on" if level == "off" else level,
        )

    arecall = awaitable(_recall)

    def _filtered(self, scope: str, chosen: Filter) -> Selection:
        return replace(self._visible(scope), categories=chosen.categories, sources=chosen.sources)

    # -- changing -----------------------------------------------------------------------------

    async def _forget(self, record_id: str) -> Forgotten:
        """Erase a visible record with all its versions; 0 when none is visible.

        Raises:
            ScopePermissionError: the browser is read-only.
        """
        self._reach.require_writable()
        selection = replace(self._visible(), record_ids=(record_id,))
        return await self._core.forget(selection, erase=True)

    aforget = awaitable(_forget)

    async def _retry_dead_letters(self) -> int:
        """Try given-up saves again that may be seen as a whole; returns how many batches.

        Raises:
            ScopePermissionError: the browser is read-only.
        """
        self._reach.require_writable()
        return await self._core.retry_dead_letters(self._visible())

    aretry_dead_letters = awaitable(_retry_dead_letters)


def _after(records: list[MemoryRecord], mark: Mark | None) -> Mark:
    """Return the mark behind these records, which began at `mark`."""
    last = records[-1].created_at
    seen = sum(record.created_at == last for record in records)
    return Mark(last, seen + (mark.seen if mark and mark.at == last else 0))
