"""Writing an export: the visible records of a store to a file, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

from mnemotrace import __version__
from mnemotrace.checks import checked_path, shortened
from mnemotrace.errors import InvalidInputError, StoreNotWritableError
from mnemotrace.records import MemoryRecord, utc_now
from mnemotrace.stores.backend import Facet, StorageBackend
from mnemotrace.stores.selection import Selection

from .format import End, Header, record_line

Target = str | os.PathLike[str] | IO[str] | IO[bytes]
Progress = Callable[[int, int], object]
"""Called with how many are done, and of how many."""

PAGE = 500
"""Records read at a time."""
_SHOWN = ("provider", "model", "dimension")


class Exported(int):
    """How many records an export holds; an int that also counts their versions."""

    versions: int
    """Lines of records in the file: with history, a record has several."""

    def __new__(cls, records: int, versions: int) -> Self:  # noqa: D102
        self = super().__new__(cls, records)
        self.versions = versions
        return self


def export(
    store: StorageBackend,
    selection: Selection,
    target: Target,
    *,
    embeddings: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write what a selection sees as an export file.

    A path gets the whole file at once, when it is done: a file that is there stays as it is until
    then, and when something fails. It can be read by its owner only. An open file is written to as
    the records come.

    Raises:
        InvalidInputError: the target is neither a path nor a file open for writing.
        StoreNotWritableError: the file cannot be written.
        StoreError: the store cannot be read.
    """
    lines = _lines(store, selection, embeddings, progress)
    if isinstance(target, (str, os.PathLike)):
        path = checked_path(target, "The export")
        _check_place(path)
        with _replacing(path) as file:
            return _write(lines, lambda text: file.write(text.encode()))
    write = getattr(target, "write", None)
    if not callable(write):
        raise InvalidInputError(
            f"The target of an export must be a path or an open file, not {shortened(target)}."
        )
    if isinstance(target, io.TextIOBase) or hasattr(target, "encoding"):
        return _write(lines, write)
    return _write(lines, lambda text: write(text.encode()))


def _write(lines: Iterator[tuple[str, int, int]], write: Callable[[str], Any]) -> Exported:
    records = versions = 0
    for text, records, versions in lines:  # noqa: B007  the last counts are those of the whole
        write(text + "\n")
    return Exported(records, versions)


def _lines(
    store: StorageBackend, selection: Selection, embeddings: bool, progress: Progress | None
) -> Iterator[tuple[str, int, int]]:
    """Yield the lines of the file, each with the records and versions there are so far."""
    manifest = store.manifest()
    embedder = dict(manifest.embedder) if manifest else {}
    kept = (*_SHOWN, "canary") if embeddings else _SHOWN
    header = Header(
        embedder={name: embedder[name] for name in kept if name in embedder},
        embeddings=embeddings,
        history=selection.history,
        scopes=selection.roots,
        written_at=utc_now().isoformat(timespec="seconds"),
        written_by=__version__,
    )
    yield header.line(), 0, 0
    records = versions = 0
    # Conditions choose records by their current version; a chosen one comes with its history.
    whole = Selection(
        roots=selection.roots,
        viewer=selection.viewer,
        include_private=selection.include_private,
        history=selection.history,
        upcoming=selection.upcoming,
    )
    ids = sorted(store.facet(selection, Facet.RECORD_IDS))
    chosen = store.facet(replace(selection, history=False), Facet.RECORD_IDS)
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        found = store.get(whole, page)
        found.sort(key=lambda record: (record.id, record.version))
        vectors = store.vectors(replace(selection, history=False), page) if embeddings else {}
        for record_id, versions_of in itertools.groupby(found, key=lambda record: record.id):
            group = list(versions_of)
            if record_id not in chosen and living(group) is not None:
                continue  # only an old version meets the conditions
            records += 1
            for record in group:
                versions += 1
                vector = vectors.get(record.id) if record.is_current else None
                yield record_line(record, vector), records, versions
        if progress is not None:
            progress(min(start + PAGE, len(ids)), len(ids))
    yield End(records, versions).line(), records, versions


_FULL = "Free some space, or name a file on another disk"
_FORBIDDEN = "Name a file in a folder that you may write to"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENAMETOOLONG: "Name a file with a shorter name",
}


def _check_place(path: Path) -> None:
    """Refuse what can never be a file, before the store is read."""
    if path.is_dir():
        raise StoreNotWritableError(
            f"The export cannot be written to {path}, which is a folder. Name a file in it, such "
            f"as {path / 'memory.jsonl'}. Nothing was written."
        )
    if not path.parent.is_dir():
        what = (
            f"{path.parent} is a file. Name a file in a folder"
            if path.parent.exists()
            else f"there is no folder {path.parent}. Make it first, or name a file in another one"
        )
        raise StoreNotWritableError(
            f"The export cannot be written to {path}: {what}. Nothing was written."
        )


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of `path` when the block ends well."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Name another file")
        raise StoreNotWritableError(
            f"The export could not be written to {path}: {error.strerror or error}. What was "
            f"there before is unchanged. {remedy}."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def living(records: Sequence[MemoryRecord]) -> MemoryRecord | None:
    """Return the current version among the versions of one record; None when all are retired."""
    return next((record for record in records if record.is_current), None)
