"""What the flows work with: the store, the embedder, the model, the settings and the clock."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from mnemotrace.config import MemoryConfig
from mnemotrace.embedders.lexical import LEXICAL_NAME, text_hash
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import StoreCorruptError
from mnemotrace.llm.service import LLMService
from mnemotrace.records import MemoryRecord, utc_now
from mnemotrace.scope_tree import scope_tree
from mnemotrace.stores.backend import (
    Facet,
    Manifest,
    SparseVector,
    StorageBackend,
    WriteBatch,
)
from mnemotrace.stores.points import SCHEMA_VERSION
from mnemotrace.stores.selection import Selection

from . import context
from .runtime import Runtime

T = TypeVar("T")


# Writers of one store take turns, whichever Memory object they came through.
_write_locks: weakref.WeakKeyDictionary[object, asyncio.Lock] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class Services:
    """The collaborators of the flows; one per `Memory`, used on the runtime's loop only."""

    store: StorageBackend
    embedder: EmbeddingService
    llm: LLMService
    config: MemoryConfig
    runtime: Runtime
    clock: Callable[[], datetime] = utc_now
    _verified: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def write_lock(self) -> asyncio.Lock:
        """The lock that writers of this store hold from the last look to the commit."""
        return _write_locks.setdefault(self.store.place, asyncio.Lock())

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking store work in a worker thread, within the current trace."""
        return await self.runtime.in_thread(function, *args)

    def straight_threads(self) -> Executor | None:
        """Return threads to embed a query and search in, when that needs no event loop."""
        manifest = self.store.manifest()
        if manifest is None or manifest.embedder is not self._verified:
            return None
        return self.embedder.straight_threads()

    async def manifest_for_reading(self) -> Manifest | None:
        """Return the manifest once this embedder is known to fit it; None for a new store.

        Raises:
            EmbedderMismatchError: the store was written by another embedder.
            StoreCorruptError: the store has a schema or tokenizer this version does not know.
        """
        manifest = self.store.manifest()
        if manifest is None or manifest.embedder is self._verified:
            return manifest
        if manifest.schema_version > SCHEMA_VERSION or manifest.lexical != LEXICAL_NAME:
            raise StoreCorruptError(
                f"The store has schema {manifest.schema_version} and tokenizer "
                f"{manifest.lexical!r}; this version of mnemotrace reads schema {SCHEMA_VERSION} "
                f"and {LEXICAL_NAME!r}. Upgrade mnemotrace, or reindex the store."
            )
        await self.embedder.verify(manifest.embedder)
        self._verified = manifest.embedder
        return manifest

    async def manifest_for_writing(self) -> Manifest:
        """Return the manifest, creating the store for this embedder if it is new."""
        manifest = await self.manifest_for_reading()
        if manifest is None:
            fingerprint = await self.embedder.fingerprint()
            fresh = Manifest(SCHEMA_VERSION, fingerprint, LEXICAL_NAME)
            manifest = await self.in_thread(self.store.initialise, fresh)
            if manifest.embedder is not fingerprint:
                await self.embedder.verify(manifest.embedder)
            self._verified = manifest.embedder
        return manifest

    def commit(self, batch: WriteBatch, replaced: Iterable[MemoryRecord] = ()) -> bool:
        """Commit a batch with the lexical vectors of its texts, among their neighbours if so set.

        Blocks; to be called in a worker thread, while nobody else can write.

        Args:
            batch: the changes; lexical vectors that it has already are kept for texts that are no
                turns of a conversation.
            replaced: the versions that it replaces or retires, as far as they are known.

        Returns:
            False, and nothing is written, when a record is not as the batch expects.
        """
        if self.config.conversation_context:
            batch = context.in_context(self.store, batch, replaced)
        return self.store.commit(context.encoded(batch))

    def take_out(self, selection: Selection) -> None:
        """Take the words of the selected records out of their neighbours, before they are erased.

        Blocks, like `commit`. That is done whatever the setting is now: it may have been another.
        """
        lending = self.config.conversation_context
        batch = context.without(self.store, selection, lending=lending)
        if batch.lexical:
            self.store.commit(batch)

    def saying(self, wanted: Selection, hashes: Collection[str]) -> dict[str, MemoryRecord]:
        """Return the newest selected record with each of these texts, by the hash of its text.

        Blocks. All are looked up together; a text that is not stored is not in the result.

        Args:
            wanted: the records to look among.
            hashes: as `text_hash` makes them.
        """
        found: dict[str, MemoryRecord] = {}
        missing = set(hashes)
        while missing:  # the rest again: one text may be stored many times, under ids of their own
            same = replace(wanted, text_hashes=tuple(sorted(missing)))
            for record in self.store.list_records(same, len(missing)):
                found.setdefault(text_hash(record.content), record)
            if not missing & found.keys():
                break
            missing -= found.keys()
        return found

    def lexical_vectors(self, records: Sequence[MemoryRecord]) -> list[SparseVector]:
        """Return the lexical vectors of stored records, among their neighbours if so set; blocks."""
        return context.vectors(self.store, records, lending=self.config.conversation_context)

    async def scope_counts(self, selection: Selection) -> dict[str, int]:
        """Return visible scopes with the records of their subtrees, by path."""
        counts = await self.in_thread(self.store.facet, selection, Facet.SCOPES)
        return dict(sorted(counts.items()))

    async def scope_tree(self, counts: Mapping[str, int]) -> str:
        """Return the scopes as text for a prompt; counted in tokens in a worker thread."""
        return await self.in_thread(scope_tree, counts)
