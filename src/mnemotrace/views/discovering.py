"""Discovering: what scopes, categories and records there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mnemotrace.flows.requests import checked_count, checked_scope
from mnemotrace.records import MemoryRecord, ScopeInfo
from mnemotrace.stores.selection import Selection
from mnemotrace.twins import awaitable, blocking

from .base import Handle, Time


class Discovering(Handle):
    """The methods that list and count; answered by facets and counts, never by a scan."""

    def _below(self, path: str | None, source: str | None, include_private: bool) -> Selection:
        return self._seen_by(source, include_private, checked_scope(path, "path"))

    async def _tree(
        self,
        path: str | None = None,
        max_depth: int = 3,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> str:
        """Return the scope tree with record counts.

        Args:
            path: its top; all that is in reach when left out.
            max_depth: how many levels below the top are shown.
            source: who is asking, so that its own private records count.
            include_private: everyone's private records count, too.

        Returns:
            A line for each scope. Where nothing is visible, the top alone with 0 records.
        """
        max_depth = checked_count(max_depth, "max_depth")
        selection = self._below(path, source, include_private)
        return await self._core.tree(selection, max_depth)

    tree = blocking(_tree)
    atree = awaitable(_tree)

    async def _info(
        self,
        path: str | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> ScopeInfo:
        """Summarise a subtree: count, categories, oldest and newest, child scopes.

        Args:
            path: the subtree; all that is in reach when left out.
            source: who is asking, so that its own private records count.
            include_private: everyone's private records count, too.

        Returns:
            The numbers; where nothing is visible, 0 records, empty lists and no times.
        """
        selection = self._below(path, source, include_private)
        return await self._core.info(selection, self._top(path))

    info = blocking(_info)
    ainfo = awaitable(_info)

    async def _list_scopes(
        self,
        path: str | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> list[str]:
        """Return the immediate child scopes of a path, sorted.

        Args:
            path: the scope above them; the top of what is in reach when left out.
            source: who is asking, so that its own private records count.
            include_private: everyone's private records count, too.

        Returns:
            Their absolute paths; ``[]`` when there are none.
        """
        selection = self._below(path, source, include_private)
        return await self._core.scopes_below(selection, self._top(path))

    list_scopes = blocking(_list_scopes)
    alist_scopes = awaitable(_list_scopes)

    async def _list_categories(
        self,
        path: str | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> dict[str, int]:
        """Return category names with their record counts, commonest first.

        Args:
            path: only records of this subtree; all that is in reach when left out.
            source: who is asking, so that its own private records count.
            include_private: everyone's private records count, too.

        Returns:
            The counts by name; ``{}`` when there are none.
        """
        selection = self._below(path, source, include_private)
        return await self._core.categories(selection)

    list_categories = blocking(_list_categories)
    alist_categories = awaitable(_list_categories)

    async def _list_records(
        self,
        scope: str | None = None,
        limit: int = 200,
        offset: int = 0,
        *,
        categories: Iterable[str] | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        source: str | None = None,
        viewer: str | None = None,
        include_private: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
    ) -> list[MemoryRecord]:
        """Return the records of a subtree, newest first; filters as in `recall`.

        Of records of one `created_at`, such as those of a batch, the one saved last comes first.

        Args:
            scope: only this subtree.
            limit: the most to return.
            offset: how many to leave out first.
            as_of: the records as they are at that time. A later time than now also lists those
                that become valid until then.

        Returns:
            The records; ``[]`` when none is visible.
        """
        limit, offset = checked_count(limit, "limit"), checked_count(offset, "offset")
        selection = self._selection(
            scope,
            source=source,
            viewer=viewer,
            include_private=include_private,
            categories=categories,
            metadata_filter=metadata_filter,
            since=since,
            until=until,
            as_of=as_of,
        )
        return await self._core.list_records(selection, limit, offset)

    list_records = blocking(_list_records)
    alist_records = awaitable(_list_records)
