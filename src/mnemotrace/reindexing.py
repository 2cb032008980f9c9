"""Re-embedding a store for another embedder, so that it can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .checks import checked_function
from .embedders.lexical import text_hash
from .embedders.resolve import resolve_embedder
from .errors import InvalidInputError
from .flows.requests import checked_count
from .flows.runtime import get_runtime
from .flows.services import Services
from .records import MemoryRecord
from .stores.backend import NewVersion, StorageBackend, WriteBatch
from .stores.open import open_store
from .stores.selection import Selection

_EVERYTHING = Selection(include_private=True, history=True)


async def reindex_store(
    services: Services, batch_size: int, progress: Callable[[int, int], object] | None = None
) -> int:
    """Fill the next generation of a store with this embedder's vectors and put it in force.

    Writers of this process wait meanwhile. Returns the number of versions re-embedded.
    """
    batch_size = checked_count(batch_size, "batch_size")
    if batch_size < 1:
        raise InvalidInputError("batch_size must be 1 or more, not 0.")
    checked_function(progress, "progress")
    store = services.store
    if store.manifest() is None:
        return 0
    fingerprint = await services.embedder.fingerprint()
    written = seen = 0
    async with services.write_lock:
        total = await services.in_thread(store.count, _EVERYTHING) if progress else 0
        target = await services.in_thread(store.begin_reindex, fingerprint)
        await services.in_thread(_drop_stale, store, target, batch_size)
        cursor: str | None = None
        while True:
            page, cursor = await services.in_thread(store.dump, batch_size, cursor)
            there = await services.in_thread(_versions, target, page)
            missing = [record for record in page if (record.id, record.version) not in there]
            if missing:
                vectors = await services.embedder.embed_documents([r.content for r in missing])
                words = await services.in_thread(services.lexical_vectors, missing)
                versions = [
                    NewVersion(r, text_hash(r.content), vector, lexical)
                    for r, vector, lexical in zip(missing, vectors, words, strict=True)
                ]
                await services.in_thread(target.commit, WriteBatch(versions))
                written += len(missing)
            seen += len(page)
            if progress is not None:
                progress(seen, total)
            if cursor is None:
                break
        await services.in_thread(store.finish_reindex)
    return written


def _versions(
    store: StorageBackend, records: Iterable[MemoryRecord]
) -> dict[tuple[str, int], MemoryRecord]:
    """Return every stored version of these records."""
    ids = list(dict.fromkeys(record.id for record in records))
    found = store.get(_EVERYTHING, ids) if ids else []
    return {(record.id, record.version): record for record in found}


def _is_same(copy: MemoryRecord, stored: MemoryRecord | None) -> bool:
    """Tell whether a copy still says what is stored; access statistics are no reason to redo it."""
    if stored is None:
        return False
    statistics = {"access_count": stored.access_count, "last_accessed": stored.last_accessed}
    return copy.model_copy(update=statistics) == stored


def _drop_stale(store: StorageBackend, target: StorageBackend, batch_size: int) -> None:
    """Remove from a generation begun earlier what was changed or forgotten since."""
    cursor: str | None = None
    stale: set[str] = set()
    while True:
        page, cursor = target.dump(batch_size, cursor)
        source = _versions(store, page)
        stale |= {r.id for r in page if not _is_same(r, source.get((r.id, r.version)))}
        if cursor is None:
            break
    ids = sorted(stale)
    for start in range(0, len(ids), batch_size):
        target.erase(replace(_EVERYTHING, record_ids=tuple(ids[start : start + batch_size])))


def reindex(
    storage: Any,
    embedder: Any,
    *,
    batch_size: int = 256,
    api_key: str | None = None,
    prefer_grpc: bool = False,
    progress: Callable[[int, int], object] | None = None,
    conversation_context: bool = True,
) -> int:
    """Re-embed a store with another embedder; needs neither the old embedder nor its model.

    Until the last step the store stays as it was. Killed in the middle, it goes on where it was
    when called again with the same embedder.

    Args:
        storage: as for `mnemotrace.Memory`.
        embedder: the new one, as for `mnemotrace.Memory`.
        batch_size: versions per embedder call.
        api_key: of the Qdrant server.
        prefer_grpc: talk gRPC to the Qdrant server.
        progress: called with how many versions are done and how many there are; quick.
        conversation_context: the setting of the memories that use this store.

    Returns:
        How many stored versions were re-embedded; 0 for a new store.
    """
    from .config import MemoryConfig
    from .llm.resolve import resolve_llm
    from .llm.service import LLMService

    config = MemoryConfig.build(conversation_context=conversation_context)
    runtime = get_runtime()
    store = open_store(storage, api_key=api_key, prefer_grpc=prefer_grpc)
    try:
        service = resolve_embedder(embedder, None)
        llm = LLMService(resolve_llm(None), config.llm_concurrency, config.llm_timeout)
        services = Services(store, service, llm, config, runtime)
        return runtime.run(reindex_store(services, batch_size, progress))
    finally:
        store.close()
