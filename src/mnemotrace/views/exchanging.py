"""Exchanging: records out to a file, and in from one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mnemotrace.checks import checked_flag, checked_function
from mnemotrace.flows.requests import checked_filter, checked_labels, checked_window
from mnemotrace.twins import awaitable, blocking

from .base import Handle, Time

if TYPE_CHECKING:
    from mnemotrace.transfer.exporting import Exported, Progress, Target
    from mnemotrace.transfer.importing import Imported, OnConflict, Source


class Exchanging(Handle):
    """The methods that write and read export files."""

    async def _export_records(
        self,
        target: Target,
        scope: str | None = None,
        *,
        categories: Iterable[str] | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        source: str | None = None,
        include_private: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        history: bool = False,
        embeddings: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write the visible records to a file of JSON Lines, for `import_records`.

        The file holds the texts as they are. A path gets it whole, at the end, and readable by
        its owner only; a file that is there is replaced. Records that are saved meanwhile may
        be in it or not.

        Args:
            target: a path, or a file open for writing text or bytes.
            scope: only this subtree.
            categories: only records with at least one of these.
            metadata_filter: conditions on metadata, as in `recall`.
            source: who is asking, so that its own private records are in it, too.
            include_private: everyone's private records, too.
            since, until: only records created in ``[since, until)``.
            history: the retired versions, too. The conditions above choose records by their
                current version, or by any where none is left.
            embeddings: the vectors of the current versions, too, so that a memory with the same
                embedder need not make them again.
            progress: called with how many records are written and how many there are; quick,
                from a worker thread.

        Returns:
            How many records were written; it is an int that also has `versions`.

        Raises:
            InvalidInputError: the target is not a path or a file.
            ScopePermissionError: the scope lies outside this view.
            StoreNotWritableError: the file cannot be written.
        """
        checked_flag(history, "history")
        checked_flag(embeddings, "embeddings")
        checked_function(progress, "progress")
        begins, ends = checked_window(since, until)
        selection = self._seen_by(source, include_private, scope, upcoming=True).narrow(
            categories=checked_labels(categories, "categories"),
            metadata=checked_filter(metadata_filter),
            since=begins,
            until=ends,
        )
        return await self._core.export_records(
            selection, target, history=history, embeddings=embeddings, progress=progress
        )

    export_records = blocking(_export_records)
    aexport_records = awaitable(_export_records)

    async def _import_records(
        self,
        file: Source,
        *,
        on_conflict: OnConflict = "error",
        dry_run: bool = False,
        source: str | None = None,
        include_private: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        """Read the records of an export into this memory, as they were.

        Ids, versions, times, metadata and privacy stay. The whole file is checked before anything
        is written. Records that are there just so are left alone, so importing twice, or again
        after an interruption, gives the same records. Texts are embedded by this memory's
        embedder, unless the file has its vectors.

        Args:
            file: a path, or a file open for reading.
            on_conflict: what to do when an id of the file means something else here: ``error``
                imports nothing, ``skip`` keeps what is stored, ``replace`` erases it, with its
                history, and takes the file's.
            dry_run: only check, compare and count.
            source: who is asking, so that its own private records may be replaced.
            include_private: everyone's private records may be replaced.
            progress: called with how many records are done and how many there are; quick.

        Returns:
            What was done, in numbers, with the conflicts.

        Raises:
            InvalidInputError: a line is wrong (the message says which and why), or the file was
                cut off; nothing was imported.
            ImportConflictError: there are conflicts, which it lists; nothing was imported.
            ScopePermissionError: a read-only view, or a record outside of it; nothing was
                imported.
            EmbedderError, StoreError: what was written by then stays; importing again goes on.
        """
        self._reach.require_writable()
        checked_flag(dry_run, "dry_run")
        checked_function(progress, "progress")
        visible = self._seen_by(source, include_private)
        return await self._core.import_records(
            file,
            self._reach,
            visible,
            on_conflict=on_conflict,
            dry_run=dry_run,
            progress=progress,
        )

    import_records = blocking(_import_records)
    aimport_records = awaitable(_import_records)
