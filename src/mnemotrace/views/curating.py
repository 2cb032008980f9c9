"""Curating: read, change and remove single records or whole scopes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from mnemotrace import scopes
from mnemotrace.checks import checked_flag, shortened
from mnemotrace.errors import InvalidInputError
from mnemotrace.flows.requests import (
    checked_age,
    checked_count,
    checked_id,
    checked_labels,
    checked_metadata,
    checked_number,
    checked_text,
    checked_time,
    checked_whole,
)
from mnemotrace.records import Forgotten, MemoryRecord, Reanalyzed, utc_now
from mnemotrace.stores.selection import Selection
from mnemotrace.twins import awaitable, blocking

from .base import Handle, Time


class Unset:
    """The type of `UNSET`, which stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()

_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""What ids look like that nobody chose."""


class Curating(Handle):
    """The methods that work on records by id or by criteria."""

    async def _get(
        self, record_id: str, source: str | None = None, include_private: bool = False
    ) -> MemoryRecord | None:
        """Return the record with this id; None when none is visible here.

        One that is not valid yet (``remember(valid_from=...)``) is there, too.

        Args:
            record_id: as `remember`, `recall` and `list_records` give it.
            source: who is asking, so that its own private records are in reach.
            include_private: reach everyone's private records.
        """
        selection = self._seen_by(source, include_private, upcoming=True)
        return await self._core.get(selection, checked_id(record_id))

    get = blocking(_get)
    aget = awaitable(_get)

    async def _history(
        self, record_id: str, source: str | None = None, include_private: bool = False
    ) -> list[MemoryRecord]:
        """Return every version of a record and of those it took over from, oldest first.

        Args:
            record_id: of any of them.
            source: who is asking, so that its own private records are in reach.
            include_private: reach everyone's private records.

        Returns:
            The versions; ``[]`` when none is visible here.
        """
        selection = self._seen_by(source, include_private)
        return await self._core.history(selection, checked_id(record_id))

    history = blocking(_history)
    ahistory = awaitable(_history)

    async def _update(
        self,
        record_id: str,
        content: str | None = None,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        *,
        private: bool | None = None,
        pinned: bool | None = None,
        expires_at: Time | Unset | None = UNSET,
        source: str | None = None,
        include_private: bool = False,
    ) -> MemoryRecord:
        """Change a record: a new version becomes current, the old one stays in history.

        What is left out stays as it is; `metadata` and `categories` replace the whole field.

        Args:
            record_id: the record to change; its id stays.
            content: the new text; it is embedded anew.
            scope: where it goes.
            categories: its labels, all of them.
            metadata: your own values, all of them.
            importance: 0..1.
            private: whether only its `source` sees it, in its history, too.
            pinned: kept first when memories are packed into a budget.
            expires_at: a time to come (without a time zone: UTC), or None so that it no longer
                expires.
            source: who is asking, so that its own private records are in reach.
            include_private: reach everyone's private records.

        Returns:
            The new version; the record as it is when nothing was given.

        Raises:
            RecordNotFoundError: no such record is visible here.
            RecordError, InvalidInputError, ScopePermissionError: nothing was changed.
        """
        self._reach.require_writable()
        changes: dict[str, Any] = {}
        if content is not None:
            changes["content"] = checked_text(content)
        if scope is not None:
            changes["scope"] = self._reach.writing(scope)
        if categories is not None:
            changes["categories"] = list(checked_labels(categories, "categories") or ())
        if metadata is not None:
            changes["metadata"] = checked_metadata(metadata)
        if importance is not None:
            changes["importance"] = checked_number(importance, "importance")
        for name, value in (("private", private), ("pinned", pinned)):
            if value is not None:
                changes[name] = checked_flag(value, name)
        if not isinstance(expires_at, Unset):
            ends = checked_time(expires_at, "expires_at")
            if ends is not None and ends <= utc_now():
                raise InvalidInputError(
                    f"expires_at={ends.isoformat()} is past; nothing was changed. To end a record "
                    "now and keep its history, call forget(record_ids=[...], erase=False)."
                )
            changes["expires_at"] = ends
        selection = self._seen_by(source, include_private, upcoming=True)
        return await self._core.update(selection, checked_id(record_id), changes)

    update = blocking(_update)
    aupdate = awaitable(_update)

    async def _reanalyze(
        self,
        scope: str | None = None,
        *,
        limit: int | None = None,
        source: str | None = None,
        include_private: bool = False,
    ) -> Reanalyzed:
        """Let the language model fill in what it could not when it failed or had no key.

        Records that were saved without a scope, categories or importance while no model could be
        asked wait for that: their `analysis` is ``pending``. What you gave yourself is kept, then
        or since: fields, metadata, id. A record gets a new version, so history shows the change,
        and stays within the scope it was saved to. Requests run at the same time, up to
        `llm_concurrency`.

        Args:
            scope: only this subtree.
            limit: the most records to try; None for all.
            source: who is asking, so that its own private records are in reach.
            include_private: reach everyone's private records.

        Returns:
            How many records were filled in; it is an int that also has `record_ids`, `failed`
            (why, for each record that still waits) and `trace`. 0 when none waits: calling again
            changes nothing.

        Raises:
            ScopePermissionError: a read-only view, or a scope outside of it.
        """
        self._reach.require_writable()
        most = None if limit is None else checked_count(limit, "limit")
        selection = self._seen_by(source, include_private, scope, upcoming=True)
        return await self._core.reanalyze(selection, most)

    reanalyze = blocking(_reanalyze)
    areanalyze = awaitable(_reanalyze)

    async def _forget(
        self,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        older_than: Time | timedelta | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        record_ids: Iterable[str] | None = None,
        *,
        source: str | None = None,
        viewer: str | None = None,
        include_private: bool = False,
        erase: bool = True,
    ) -> Forgotten:
        """Forget the records that meet all the criteria given.

        Args:
            scope: this subtree.
            categories: records with at least one of these.
            older_than: records created before this time (naive is taken as UTC), or longer ago
                than this ``timedelta``.
            metadata_filter: as in `recall`.
            record_ids: these records; an empty list forgets nothing.
            source: records of this source, its private ones included.
            viewer: whose private records are in reach beside the public ones; no criterion.
            include_private: forget everyone's private records too; else they stay.
            erase: remove every version for good; False only retires them, so that history and
                ``recall(as_of=...)`` still have them.

        Returns:
            How many records went, 0 when none met the criteria; it is an int that also has
            `record_ids` and `versions`.

        Raises:
            InvalidInputError: no criterion was given, a blank scope, or the id of a record as the
                scope; `reset` empties a whole scope.
            ScopePermissionError: a read-only view, or a scope outside of it.
        """
        self._reach.require_writable()
        checked_flag(erase, "erase")
        checked_whole(scope)
        criteria = (scope, categories, older_than, metadata_filter or None, record_ids, source)
        if all(value is None for value in criteria):
            raise InvalidInputError(
                "forget() needs a criterion: scope, categories, older_than, metadata_filter, "
                "record_ids or source. To empty everything in reach, call reset()."
            )
        selection = self._selection(
            scope,
            source=source,
            viewer=viewer,
            include_private=include_private,
            categories=categories,
            metadata_filter=metadata_filter,
            until=checked_age(older_than, "older_than"),
            record_ids=record_ids,
            upcoming=True,
        )
        gone = await self._core.forget(selection, erase=erase)
        if not gone and scope is not None:
            await self._refuse_id(scope, selection)
        return gone

    forget = blocking(_forget)
    aforget = awaitable(_forget)

    async def _reset(self, scope: str | None = None) -> Forgotten:
        """Erase everything in a subtree (all in reach by default), private records included.

        Resetting the whole memory also frees it from its embedder.

        Args:
            scope: the subtree; all in reach when left out.

        Returns:
            How many records went.

        Raises:
            InvalidInputError: a blank scope, or the id of a record as the scope.
            ScopePermissionError: a read-only view, or a scope outside of it.
        """
        self._reach.require_writable()
        checked_whole(scope)
        selection = self._selection(scope, include_private=True, upcoming=True)
        everything = selection.roots == (scopes.ROOT,)
        gone = await self._core.reset(selection, everything=everything)
        if not gone and scope is not None:
            await self._refuse_id(scope, selection)
        return gone

    async def _refuse_id(self, scope: str, selection: Selection) -> None:
        """Refuse the id of a record where a scope was wanted that holds nothing.

        Only what does not begin with a slash is taken for one.

        Args:
            scope: as it was given.
            selection: what was to be removed, and found nothing.

        Raises:
            InvalidInputError: it is the id of a visible record, or looks like one.
        """
        if scope.strip().startswith("/"):
            return
        path = self._reach.path(scope)
        everywhere = Selection(
            roots=self._reach.roots,
            viewer=selection.viewer,
            include_private=selection.include_private,
            upcoming=True,
        )
        there = replace(everywhere, roots=selection.roots)
        if (await self._core.info(there, path)).record_count:
            return
        if await self._core.get(everywhere, scope) is not None:
            what = "is the id of a record"
        elif _UUID.fullmatch(scope.strip()):
            what = "looks like the id of a record"
        else:
            return
        raise InvalidInputError(
            f"There is no scope {path!r}, but {shortened(scope)} {what}. Nothing "
            f"was removed. To remove a record, call forget(record_ids=[{shortened(scope)}]); a "
            "scope that begins with a slash is taken for nothing else."
        )

    reset = blocking(_reset)
    areset = awaitable(_reset)
