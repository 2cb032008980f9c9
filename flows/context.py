"""The conversation around a text: which records are its neighbours, and what they lend it.

Turns of a conversation lean on each other: an answer does not repeat the words of its question.
So the lexical vector of a turn also has the words of the turns around it, at lower weight
(`mnemotrace.embedders.lexical.encode_document`). That is settled when something is written, so a
search costs no more for it, and stays exact.

Neighbours are living records of one session, in one scope, of one privacy and, where private, of
one source: a vector never holds words that whoever sees its record may not see. Without a named
session the texts of one batch are a conversation when they begin with a label, as turns do; other
batches are lists of facts that have nothing to do with each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mnemotrace.embedders.lexical import CONTEXT, encode_document, label_of
from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import Order, SparseVector, StorageBackend, WriteBatch
from mnemotrace.stores.selection import Selection

from .requests import BATCH

REACH = len(CONTEXT)
_PAGE = 500
_EVERYTHING = Selection(include_private=True, upcoming=True)


class Conversation(NamedTuple):
    """What neighbours have in common."""

    session: str
    scope: str
    private: bool
    source: str | None
    """Of private records only; public ones of all sources are neighbours."""

    @property
    def selection(self) -> Selection:
        """Its living records, some of which may have no label."""
        return Selection(
            at_scope=self.scope,
            session=self.session,
            private_only=self.private,
            public_only=not self.private,
            viewer=self.source,
            upcoming=True,
        )


def is_named(session: str | None) -> bool:
    """Tell whether a session was named by the caller, rather than made for a batch."""
    return session is not None and not session.startswith(BATCH)


def is_turn(session: str | None, text: str) -> bool:
    """Tell whether a text of a session is a turn: the session is named, or the text has a label."""
    return session is not None and (is_named(session) or bool(label_of(text)))


def conversation_of(record: MemoryRecord) -> Conversation | None:
    """Return the conversation a record is a turn of; None when it stands alone."""
    if record.session is None or record.position is None or record.retired is not None:
        return None
    if not is_turn(record.session, record.content):
        return None
    source = record.source if record.private else None
    return Conversation(record.session, record.scope, record.private, source)


def in_context(
    store: StorageBackend, batch: WriteBatch, replaced: Iterable[MemoryRecord]
) -> WriteBatch:
    """Return a batch with the lexical vectors that its texts have among their neighbours.

    Stored neighbours get new vectors in the same batch, so that all of it becomes visible at once.
    To be called while nobody else can write.

    Args:
        store: where the neighbours are.
        batch: the changes.
        replaced: the current versions that it replaces or retires, as far as they are known; the
            others are looked up.
    """
    written = {new.record.id: new for new in batch.versions if new.record.retired is None}
    gone = {item.record_id for item in batch.retire}
    gone |= {record_id for record_id, version in batch.expect.items() if version}
    before = {record.id: record for record in replaced}
    if unknown := sorted(gone - before.keys()):
        before |= {record.id: record for record in store.get(_EVERYTHING, unknown)}
    changed: dict[Conversation, dict[str, MemoryRecord | None]] = {}
    for record_id in gone & before.keys():
        old = before[record_id]
        talk = conversation_of(old)
        new = written.get(record_id)
        if talk is not None and not (new and _is_same_turn(old, new.record)):
            changed.setdefault(talk, {})[record_id] = None
    for record_id, version in written.items():
        talk, earlier = conversation_of(version.record), before.get(record_id)
        if talk is None or (earlier is not None and _is_same_turn(earlier, version.record)):
            continue
        changed.setdefault(talk, {})[record_id] = version.record
    if not changed:
        return batch
    places = {record.id: record.position for record in before.values()}
    vectors: dict[str, SparseVector] = {}
    stored: dict[tuple[str, int], SparseVector] = {}
    for talk, turns in changed.items():
        for record, vector in _around(store, talk, turns, places):
            if record.id in written:
                vectors[record.id] = vector
            else:
                stored[record.id, record.version] = vector
    versions = [
        replace(new, lexical=vectors.get(new.record.id, new.lexical)) for new in batch.versions
    ]
    return replace(batch, versions=versions, lexical={**batch.lexical, **stored})


def encoded(batch: WriteBatch) -> WriteBatch:
    """Return a batch in which every new text has a lexical vector, of its own words if of none."""
    versions = [
        new
        if new.dense is None or new.lexical is not None
        else replace(new, lexical=encode_document(new.record.content))
        for new in batch.versions
    ]
    return replace(batch, versions=versions)


def without(store: StorageBackend, selection: Selection, *, lending: bool = True) -> WriteBatch:
    """Return the batch that takes the words of the selected records out of their neighbours.

    To be committed before they are erased.

    Args:
        store: where the neighbours are.
        selection: the records.
        lending: whether the turns that stay go on lending each other words.
    """
    stored: dict[tuple[str, int], SparseVector] = {}
    for talk, turns, places in _split(store, selection):
        for record, vector in _around(store, talk, turns, places):
            stored[record.id, record.version] = (
                vector if lending else encode_document(record.content)
            )
    return WriteBatch(lexical=stored)


def vectors(
    store: StorageBackend, records: Sequence[MemoryRecord], *, lending: bool = True
) -> list[SparseVector]:
    """Return the lexical vectors of stored records, each among its neighbours if they lend."""
    found: dict[tuple[str, int], SparseVector] = {}
    talks: dict[Conversation, dict[str, MemoryRecord | None]] = {}
    for record in records if lending else ():
        talk = conversation_of(record)
        if talk is not None:
            talks.setdefault(talk, {})[record.id] = record
    for talk, turns in talks.items():
        for record, vector in _around(store, talk, turns, {}):
            found[record.id, record.version] = vector
    return [found.get((r.id, r.version)) or encode_document(r.content) for r in records]


def _is_same_turn(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Tell whether a new version has the words, place and conversation of the old one."""
    return (
        old.content == new.content
        and old.position == new.position
        and conversation_of(old) == conversation_of(new)
    )


def _split(
    store: StorageBackend, selection: Selection
) -> Iterator[tuple[Conversation, dict[str, MemoryRecord | None], dict[str, int | None]]]:
    """Yield the conversations of which a selection may take a part, and the turns it takes."""
    s = selection
    by_turn = (s.record_ids, s.sources, s.categories, s.since, s.until, s.text_hashes, s.analysis)
    if not s.metadata and all(condition is None for condition in by_turn):
        return  # whole scopes, and so whole conversations
    talks: dict[Conversation, dict[str, MemoryRecord | None]] = {}
    places: dict[str, int | None] = {}
    offset = 0
    while page := store.list_records(selection, _PAGE, offset):
        offset += len(page)
        for record in page:
            talk = conversation_of(record)
            if talk is not None:
                talks.setdefault(talk, {})[record.id] = None
                places[record.id] = record.position
    for talk, turns in talks.items():
        yield talk, turns, places


def _around(
    store: StorageBackend,
    talk: Conversation,
    changed: Mapping[str, MemoryRecord | None],
    places: Mapping[str, int | None],
) -> Iterator[tuple[MemoryRecord, SparseVector]]:
    """Yield the turns whose vectors change, with the new vectors.

    Args:
        store: where the other turns are.
        talk: the conversation.
        changed: turns by id as they will be; None for one that will be gone.
        places: positions of turns that will be gone.
    """
    positions = sorted(
        place
        for key, record in changed.items()
        if (place := places.get(key) if record is None else record.position) is not None
    )
    turns = [record for record in changed.values() if record is not None]
    turns += (r for r in _stored(store, talk, positions) if r.id not in changed)
    turns.sort(key=lambda record: (record.position or 0, record.id))
    order = [record.position or 0 for record in turns]
    due: set[int] = set()
    for position in positions:
        low, high = bisect_left(order, position), bisect_right(order, position)
        due.update(range(max(low - REACH, 0), min(high + REACH, len(turns))))
    texts = [record.content for record in turns]
    for row in sorted(due):
        before = texts[max(row - REACH, 0) : row][::-1]
        yield turns[row], encode_document(texts[row], before, texts[row + 1 : row + 1 + REACH])


def _stored(
    store: StorageBackend, talk: Conversation, positions: Sequence[int]
) -> Iterable[MemoryRecord]:
    """Return the stored turns around these positions: two reaches on each side, and all between."""
    found: dict[str, MemoryRecord] = {}
    first, last = positions[0], positions[-1]

    def keep(records: Iterable[MemoryRecord]) -> None:
        found.update((r.id, r) for r in records if conversation_of(r) == talk)

    def between(low: int | None, high: int | None) -> Selection:
        return replace(talk.selection, positions=(low, high))

    keep(store.list_records(between(None, first), 2 * REACH, 0, Order.LAST))
    keep(store.list_records(between(last, None), 2 * REACH, 0, Order.FIRST))
    offset = 0
    while page := store.list_records(between(first - 1, last + 1), _PAGE, offset, Order.FIRST):
        keep(page)
        offset += len(page)
    return found.values()
