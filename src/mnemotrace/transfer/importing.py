"""Reading an export back: everything is checked before anything is written.

A file is read twice. The first time every line is checked, and each record is compared with what
the store holds; the second time what is new is written, a few hundred records in one commit. Only
places in the file are kept between the two, so a large file takes little memory. Importing again
what is there already changes nothing, so an import that was stopped is finished by another one.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Literal, get_args

from mnemotrace import scopes
from mnemotrace.checks import checked_path, checked_word, counted, shortened
from mnemotrace.embedders.fingerprint import require_same
from mnemotrace.embedders.lexical import encode_document, text_hash
from mnemotrace.errors import (
    EmbedderMismatchError,
    ImportConflictError,
    InvalidInputError,
    ScopePermissionError,
)
from mnemotrace.flows.services import Services
from mnemotrace.reach import Reach
from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import NewVersion, StorageBackend, Vector, WriteBatch
from mnemotrace.stores.selection import Selection

from .exporting import Progress, living
from .format import MARK, Entry, Header, parse_line, read_end, read_entry, read_header, wrong

OnConflict = Literal["error", "skip", "replace"]
Source = str | os.PathLike[str] | IO[str] | IO[bytes]

PAGE = 200
"""Records compared, embedded and written at a time."""
MOST_CONFLICTS = 1000
"""Conflicts listed in a result; all are counted."""
_NAMED = 3
_EVERYTHING = Selection(include_private=True, history=True)
_STATISTICS = {"access_count", "last_accessed", "embedding"}
"""Fields that may differ in what is one and the same version."""
_State = Literal["new", "same", "more", "changed", "taken"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A record of the file whose id the memory has already, with something else in it.

    Attributes:
        record_id: the id.
        line: where its first version is in the file, from 1.
        reason: what differs, in words.
        replaceable: whether ``on_conflict="replace"`` may put the file's in its place; not when the
            stored one is not visible to whoever imports.
    """

    record_id: str
    line: int
    reason: str
    replaceable: bool


@dataclass(slots=True)
class Imported:
    """What an import did or, on a dry run, would do. Numbers are records, not versions.

    Attributes:
        added: new records.
        completed: records that were there and got versions they lacked (history).
        unchanged: records that were there just so.
        replaced: records that took the place of one with the same id.
        skipped: records left out because of a conflict.
        versions: versions written.
        conflicts: the records whose id means something else here; at most 1,000 are listed.
        embedded: texts that had to be embedded, because the file has no vector of this memory's
            embedder for them.
        dry_run: nothing was written.
    """

    added: int = 0
    completed: int = 0
    unchanged: int = 0
    replaced: int = 0
    skipped: int = 0
    versions: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    embedded: int = 0
    dry_run: bool = False

    @property
    def records(self) -> int:
        """Records in the file."""
        return self.added + self.completed + self.unchanged + self.replaced + self.skipped


@dataclass(slots=True)
class _Group:
    """One record of the file: where its versions are, and in which state the store has it."""

    record_id: str
    line: int
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offset and line number of each version."""
    state: _State = "new"


@dataclass(slots=True)
class Plan:
    """A file that was checked, line by line."""

    file: IO[bytes]
    header: Header
    groups: list[_Group]

    def entries(self, group: _Group) -> list[Entry]:
        """Return the versions of one record, the oldest first."""
        found = []
        for offset, number in group.places:
            self.file.seek(offset)
            found.append(read_entry(parse_line(self.file.readline(), number), number, self.header))
        return sorted(found, key=lambda entry: entry.record.version)


@contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """Give a file of bytes that can be read twice.

    Raises:
        InvalidInputError: it cannot be read, or is no file.
    """
    if isinstance(source, (str, os.PathLike)):
        path = checked_path(source, "The export")
        try:
            file = open(path, "rb")  # noqa: SIM115  closed below
        except OSError as error:
            raise InvalidInputError(
                f"The export {os.fspath(source)} cannot be read ({error.strerror or error}). "
                "Nothing was imported."
            ) from error
        with file:
            yield file
        return
    read = getattr(source, "read", None)
    if not callable(read):
        raise InvalidInputError(
            f"The file to import must be a path or an open file, not {shortened(source)}."
        )
    with tempfile.TemporaryFile() as copy:  # it may be a pipe
        piece = read(1 << 20)
        while piece:
            copy.write(piece.encode() if isinstance(piece, str) else piece)
            piece = read(1 << 20)
        copy.seek(0)
        yield copy


def check(file: IO[bytes], reach: Reach) -> Plan:
    """Read a whole file and check it; nothing is written.

    Raises:
        InvalidInputError: a line is wrong, or the file was cut off; names the line.
        ScopePermissionError: a record lies outside of what may be written to; names the line.
    """
    reach.require_writable()
    first = file.readline().removeprefix(BOM_UTF8)  # as some editors on Windows save it
    if not first.strip():
        raise wrong(1, "the file is empty")
    header = read_header(parse_line(first, 1))
    groups: dict[str, _Group] = {}
    seen: set[tuple[str, int]] = set()
    current: set[str] = set()
    number, end = 1, None
    while True:
        offset = file.tell()
        text = file.readline()
        if not text:
            break
        number += 1
        if not text.strip():
            continue
        data = parse_line(text, number)
        if end is not None:
            raise wrong(number, "there is more after the end of the export")
        if MARK in data:
            end = read_end(data, number)
            continue
        record = read_entry(data, number, header).record
        if not any(scopes.contains(root, record.scope) for root in reach.roots):
            raise ScopePermissionError(
                f"Line {number} cannot be imported: its scope {record.scope!r} is outside this "
                f"view, which may write to {', '.join(reach.roots)}. Nothing was imported."
            )
        if (record.id, record.version) in seen:
            raise wrong(number, f"version {record.version} of {record.id!r} is there twice")
        seen.add((record.id, record.version))
        if record.is_current:
            if record.id in current:
                raise wrong(number, f"the record {record.id!r} has two current versions")
            current.add(record.id)
        group = groups.setdefault(record.id, _Group(record.id, number))
        group.places.append((offset, number))
    if end is None:
        raise wrong(number + 1, "the last line is missing: the file was cut off")
    if (end.records, end.versions) != (len(groups), len(seen)):
        raise wrong(
            number,
            f"it says that the file has {end.versions} versions of {end.records} records, but "
            f"there are {len(seen)} of {len(groups)}; if you took lines out on purpose, correct "
            "its numbers",
        )
    return Plan(file, header, list(groups.values()))


def compare(
    store: StorageBackend, plan: Plan, groups: Sequence[_Group], visible: Selection
) -> list[Conflict]:
    """Set the state of each record by what the store holds; returns the conflicts.

    Args:
        store: where the records are to go.
        plan: the file.
        groups: the records of it to look at.
        visible: what the caller may see, and so replace.
    """
    ids = [group.record_id for group in groups]
    stored: dict[str, dict[int, MemoryRecord]] = {}
    for record in store.get(_EVERYTHING, ids):
        stored.setdefault(record.id, {})[record.version] = record
    conflicts = []
    for group in groups:
        there = stored.get(group.record_id)
        if there is None:
            group.state = "new"
            continue
        records = [entry.record for entry in plan.entries(group)]
        reason = _difference(records, there)
        if reason is None:
            missing = any(record.version not in there for record in records)
            group.state = "more" if missing else "same"
            continue
        seen = store.get(visible, [group.record_id])
        free = len({record.version for record in seen}) == len(there)
        group.state = "changed" if free else "taken"
        if not free:
            reason = "the id is taken by a record that is not visible here"
        conflicts.append(Conflict(group.record_id, group.line, reason, free))
    return conflicts


def _difference(records: Sequence[MemoryRecord], there: Mapping[int, MemoryRecord]) -> str | None:
    """Say what a record of the file has different from the stored one; None when nothing."""
    ours, theirs = living(records), living(list(there.values()))
    if ours is not None and theirs is None and ours.version not in there:
        latest = there[max(there)]
        if latest.superseded_by != latest.id or latest.version > ours.version:
            return "the stored record was retired"
    if ours is not None and theirs is not None and ours.version != theirs.version:
        return f"its version is {ours.version}, and {theirs.version} is the stored one"
    for record in records:
        old = there.get(record.version)
        if old is None:
            continue
        names = [
            name
            for name in MemoryRecord.model_fields
            if name not in _STATISTICS and getattr(record, name) != getattr(old, name)
        ]
        if names:
            return f"version {record.version} differs in {', '.join(names)}"
    return None


def checked_choice(on_conflict: Any) -> OnConflict:
    """Return what to do about conflicts, or raise InvalidInputError for another word."""
    choice: OnConflict = checked_word(on_conflict, "on_conflict", get_args(OnConflict))
    return choice


async def import_plan(
    services: Services,
    plan: Plan,
    visible: Selection,
    *,
    on_conflict: OnConflict,
    dry_run: bool,
    progress: Progress | None,
) -> Imported:
    """Write what a checked file has and the store has not.

    Raises:
        ImportConflictError: there are conflicts and they are errors, or replacing one is refused;
            nothing was written.
        EmbedderError, StoreError: what was written by then stays; importing again goes on.
    """
    result = Imported(dry_run=dry_run)
    store = services.store
    conflicts: list[Conflict] = []
    for page in _pages(plan.groups):
        conflicts += await services.in_thread(compare, store, plan, page, visible)
    result.conflicts = conflicts[:MOST_CONFLICTS]
    if not dry_run:
        _settle(conflicts, on_conflict, plan.groups, result)
    _count(plan.groups, result, on_conflict)
    if dry_run:
        result.versions = sum(
            len(group.places) for group in plan.groups if _is_due(group, on_conflict)
        )
        return result
    if not any(_is_due(group, on_conflict) for group in plan.groups):
        return result
    writer = _Writer(services, plan, visible, on_conflict, await _usable(services, plan.header))
    # What is erased to be replaced may take with it, as its history, what another line brings.
    # So the replacements come first, and whatever is missing then is written.
    changed = [group for group in plan.groups if group.state == "changed"]
    if on_conflict == "replace":
        for page in _pages(changed):
            await writer.write(page)
    done = 0
    for page in _pages(plan.groups):
        await writer.write(page)
        done += len(page)
        if progress is not None:
            progress(done, len(plan.groups))
    result.versions, result.embedded = writer.versions, writer.embedded
    return result


def _settle(
    conflicts: Sequence[Conflict],
    on_conflict: OnConflict,
    groups: Sequence[_Group],
    result: Imported,
) -> None:
    """Refuse to go on when a conflict is an error."""
    if on_conflict == "skip":
        return
    stopping = [c for c in conflicts if on_conflict == "error" or not c.replaceable]
    if not stopping:
        return
    named = "; ".join(f"line {c.line}, {c.record_id!r}: {c.reason}" for c in stopping[:_NAMED])
    more = f"; and {len(stopping) - _NAMED} more" if len(stopping) > _NAMED else ""
    remedy = (
        "Choose on_conflict='skip' to keep what is stored, or on_conflict='replace' to take the "
        "file's."
        if on_conflict == "error"
        else "Import with the source= that sees them or with include_private=True, or choose "
        "on_conflict='skip'."
    )
    result.unchanged = sum(group.state == "same" for group in groups)
    result.skipped = len(groups) - result.unchanged
    raise ImportConflictError(
        f"{counted(len(stopping), 'record')} of the file cannot be imported, because this memory has "
        f"something else under their id ({named}{more}). Nothing was imported. {remedy}",
        result,
    )


def _is_due(group: _Group, on_conflict: OnConflict) -> bool:
    return group.state in ("new", "more") or (group.state == "changed" and on_conflict == "replace")


def _count(groups: Sequence[_Group], result: Imported, on_conflict: OnConflict) -> None:
    for group in groups:
        if group.state == "new":
            result.added += 1
        elif group.state == "more":
            result.completed += 1
        elif group.state == "same":
            result.unchanged += 1
        elif _is_due(group, on_conflict):
            result.replaced += 1
        else:
            result.skipped += 1


async def _usable(services: Services, header: Header) -> bool:
    """Make the store if it is new; tell whether the file's vectors are of its embedder."""
    manifest = await services.manifest_for_writing()
    if not header.embeddings:
        return False
    try:
        require_same(manifest.embedder, header.embedder)
    except EmbedderMismatchError:
        return False
    return header.embedder.get("canary") is not None


class _Writer:
    """Writes records of the file that the store lacks, a page in one commit."""

    def __init__(
        self,
        services: Services,
        plan: Plan,
        visible: Selection,
        on_conflict: OnConflict,
        with_vectors: bool,
    ) -> None:
        self._services = services
        self._plan = plan
        self._visible = visible
        self._on_conflict = on_conflict
        self._with_vectors = with_vectors
        self.versions = 0
        self.embedded = 0

    async def write(self, page: Sequence[_Group]) -> None:
        """Write what is due of a page, as the store is now."""
        services = self._services
        await services.in_thread(self._look, page)
        due = [group for group in page if _is_due(group, self._on_conflict)]
        if not due:
            return
        entries = [e for g in await services.in_thread(self._read, due) for e in g]
        vectors = await self._vectors(entries)
        async with services.write_lock:
            work = asyncio.ensure_future(services.in_thread(self._commit, page, vectors))
            try:
                self.versions += await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])  # the thread cannot be stopped half-way
                raise

    def _look(self, page: Sequence[_Group]) -> list[Conflict]:
        return compare(self._services.store, self._plan, page, self._visible)

    def _read(self, groups: Sequence[_Group]) -> list[list[Entry]]:
        return [self._plan.entries(group) for group in groups]

    async def _vectors(self, entries: Sequence[Entry]) -> dict[str, Any]:
        """Return a vector for each text: the file's own, where it fits, else a new one."""
        vectors: dict[str, Vector | list[float]] = {}
        if self._with_vectors:
            vectors = {e.record.content: e.embedding for e in entries if e.embedding is not None}
        texts = list(dict.fromkeys(e.record.content for e in entries))
        missing = [text for text in texts if text not in vectors]
        if missing:
            made = await self._services.embedder.embed_documents(missing)
            vectors.update(zip(missing, made, strict=True))
            self.embedded += len(missing)
        return vectors

    def _commit(self, page: Sequence[_Group], vectors: Mapping[str, Any]) -> int:
        """Look once more, now that nobody else writes, and commit what is still due."""
        store = self._services.store
        self._look(page)
        due = [group for group in page if _is_due(group, self._on_conflict)]
        due = [group for group in due if self._is_embedded(group, vectors)]
        changed = tuple(group.record_id for group in due if group.state == "changed")
        stored = {
            (record.id, record.version): record
            for record in store.get(_EVERYTHING, [group.record_id for group in due])
        }
        versions: list[NewVersion] = []
        expect: dict[str, int] = {}
        for group in due:
            there = [record for key, record in stored.items() if key[0] == group.record_id]
            if group.state == "changed":
                there = []
            now = living(there)
            expect[group.record_id] = now.version if now else (-1 if there else 0)
            known = {record.version for record in there}
            versions += [
                NewVersion(
                    entry.record,
                    text_hash(entry.record.content),
                    vectors[entry.record.content],
                    encode_document(entry.record.content),
                )
                for entry in self._plan.entries(group)
                if entry.record.version not in known
            ]
        if not versions:
            return 0
        if changed:
            store.erase(Selection(include_private=True, record_ids=changed))
        batch = WriteBatch(versions, expect=expect)
        return len(versions) if self._services.commit(batch) else 0

    def _is_embedded(self, group: _Group, vectors: Mapping[str, Any]) -> bool:
        return all(entry.record.content in vectors for entry in self._plan.entries(group))


def _pages(groups: Sequence[_Group]) -> Iterator[Sequence[_Group]]:
    for start in range(0, len(groups), PAGE):
        yield groups[start : start + PAGE]
