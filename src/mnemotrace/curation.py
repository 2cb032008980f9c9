"""Changing and removing what is stored: updates, history, retirement, purges of queued saves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from .embedders.lexical import text_hash
from .errors import RecordNotFoundError, StoreError
from .flows.batch import next_version, succession
from .flows.services import Services
from .records import MemoryRecord, as_utc, pending_analysis, pending_fields
from .scopes import ROOT, contains
from .stores.backend import NewVersion, Retirement, StorageBackend, WriteBatch
from .stores.outbox import DeadLetter, Outbox, PendingSave
from .stores.selection import Selection

ATTEMPTS = 5
_PAGE = 500


async def update(
    services: Services, selection: Selection, record_id: str, changes: dict[str, Any]
) -> MemoryRecord:
    """Write a new version of a visible record and retire the old one, in one commit.

    Returns:
        The new version; the record as it is when the changes change nothing.

    Raises:
        RecordNotFoundError: no such record is visible.
        StoreError: other writers kept changing it; nothing was changed.
    """
    store = services.store
    dense = None
    if "content" in changes and await services.manifest_for_reading() is not None:
        dense = (await services.embedder.embed_documents([changes["content"]]))[0]
    for _ in range(ATTEMPTS):
        async with services.write_lock:
            found = await services.in_thread(store.get, selection, [record_id])
            if not found:
                raise RecordNotFoundError(
                    f"No record {record_id!r} is visible here; nothing was changed. "
                    "list_records() shows the ids in reach."
                )
            old = found[0]
            waiting = pending_fields(old.analysis)
            analysis = pending_analysis(set(waiting) - changes.keys()) if waiting else old.analysis
            same = all(getattr(old, name) == value for name, value in changes.items())
            if same and analysis == old.analysis:
                return old
            now = services.clock()
            following = next_version(old, now, **changes, analysis=analysis)
            record = MemoryRecord.model_validate(following.model_dump())
            vectors = (
                {record.id: dense} if dense is not None and record.content != old.content else {}
            )
            batch = succession([(old, record)], vectors)
            if record.private != old.private:
                batch = await services.in_thread(_with_history, store, batch, record, now)
            if await services.in_thread(services.commit, batch, [old]):
                return record
    raise StoreError(
        f"Record {record_id!r} kept changing while it was updated; nothing was changed. Try again."
    )


def _with_history(
    store: StorageBackend, batch: WriteBatch, record: MemoryRecord, now: datetime
) -> WriteBatch:
    """Return the batch with all earlier versions as private, or as public, as the new one.

    A text that became private must not stay readable in the history, and one that became public
    must be forgotten whole by whoever may see it.
    """
    everything = Selection(include_private=True, history=True)
    versions = list(batch.versions)
    for earlier in store.get(everything, [record.id]):
        changes: dict[str, Any] = {"private": record.private}
        if earlier.retired is None:
            changes |= {"retired": "superseded", "valid_to": now, "superseded_by": record.id}
        changed = earlier.model_copy(update=changes)
        versions.append(NewVersion(changed, text_hash(changed.content)))
    return replace(batch, versions=versions, retire=())


def history(store: StorageBackend, selection: Selection, record_id: str) -> list[MemoryRecord]:
    """Return every visible version of a record and of those it took over from, oldest first."""
    everything = replace(selection, history=True)
    seen: set[str] = set()
    versions: list[MemoryRecord] = []
    wanted = [record_id]
    while wanted:
        seen.update(wanted)
        found = store.get(everything, wanted)
        versions += found
        wanted = sorted({older for record in found for older in record.supersedes} - seen)
    return sorted(versions, key=_beginning)


def _beginning(version: MemoryRecord) -> tuple[datetime, int, str]:
    """Return when a version took effect; one replaced before it would have, when that happened."""
    begins = version.valid_from or version.created_at
    if version.valid_to is not None:
        begins = min(begins, version.valid_to)
    return begins, version.version, version.id


def leave_sources(services: Services, selection: Selection) -> None:
    """Take the selected sources off records that others said too, so that those records stay.

    Does nothing unless the selection names sources.
    """
    if not selection.sources:
        return
    gone = set(selection.sources)
    now = services.clock()
    offset = 0
    while page := services.store.list_records(selection, _PAGE, offset):
        shared = [r for r in page if r.source is None or set(r.sources) - gone]
        offset += len(page) - len(shared)
        pairs = []
        for old in shared:
            left = [source for source in old.sources if source not in gone]
            kept = old.source if old.source not in gone else (left[0] if left else None)
            pairs.append((old, next_version(old, now, sources=left, source=kept)))
        if shared:
            services.commit(succession(pairs), shared)


def erase(services: Services, selection: Selection) -> tuple[list[str], int]:
    """Erase the selected records, and their words from the turns around them.

    Returns:
        The ids of the records, and the number of versions that went.
    """
    services.take_out(selection)
    return services.store.erase(selection)


def retire_all(services: Services, selection: Selection) -> tuple[list[str], int]:
    """Retire every selected record, page by page; history keeps them.

    Returns:
        The ids, and their number.
    """
    now = services.clock()
    ids: list[str] = []
    while page := services.store.list_records(selection, _PAGE):
        retire = [Retirement(r.id, r.version, now, "forgotten") for r in page]
        services.commit(WriteBatch(retire=retire), page)
        ids += [record.id for record in page]
    return ids, len(ids)


def empty(store: StorageBackend) -> tuple[int, int]:
    """Drop the whole store; returns how many records and how many versions it held."""
    records = store.count(Selection(include_private=True, upcoming=True))
    versions = store.count(Selection(include_private=True, history=True))
    store.drop()
    return records, versions


def purge(outbox: Outbox, selection: Selection) -> None:
    """Forget accepted saves that are not yet encoded, or were given up."""
    if not selection.is_empty:
        outbox.purge(
            record_ids=selection.record_ids, roots=selection.roots, where=_selects(selection)
        )


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
        if selection.until is not None and not _is_before(options, selection.until):
            return False
        metadata = options.get("metadata") or {}
        if not all(_holds(metadata, key, want) for key, want in selection.metadata.items()):
            return False
        labels = options.get("categories") or ()
        return selection.categories is None or not set(selection.categories).isdisjoint(labels)

    return test


def _is_before(options: Mapping[str, Any], until: datetime) -> bool:
    """Tell whether a queued save says that it is older; without a time it will be new."""
    created = options.get("created_at")
    if isinstance(created, str):
        created = datetime.fromisoformat(created)
    return isinstance(created, datetime) and as_utc(created) < until


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _holds(metadata: Mapping[str, Any], key: str, want: Any) -> bool:
    """Tell whether one condition of a metadata filter holds for a save not yet in the store."""
    have = metadata.get(key)
    if isinstance(want, Mapping) and set(want) == {"all"}:
        return all(_holds(metadata, key, part) for part in want["all"])
    if isinstance(want, Mapping):
        try:
            return have is not None and all(
                _COMPARISONS[name](have, bound) for name, bound in want.items()
            )
        except (KeyError, TypeError):
            return False
    if isinstance(want, (list, tuple, set, frozenset)):
        return any(_holds(metadata, key, one) for one in want)
    if isinstance(have, (list, tuple)):
        return want in have
    return type(have) is type(want) and bool(have == want)


def visible_part(letter: DeadLetter, selection: Selection) -> DeadLetter | None:
    """Return a dead letter with the saves in it that may be seen; None when there are none."""
    items = tuple(save for save in letter.items if may_see(save, selection))
    return replace(letter, items=items) if items else None


def may_see(save: PendingSave, selection: Selection) -> bool:
    """Tell whether a queued save may be seen."""
    return _selects(selection)(save) and _lies_in(save, selection.roots)


def _lies_in(save: PendingSave, roots: Iterable[str]) -> bool:
    place = save.options.get("scope") or next(iter(save.options.get("reach") or ()), ROOT)
    return any(contains(root, place) for root in roots)
