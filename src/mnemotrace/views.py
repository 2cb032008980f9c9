"""MemoryView and its kinds: the methods that Memory, MemoryScope and MemorySlice share."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from . import scopes
from .errors import InvalidInputError
from .flows.requests import (
    SaveRequest,
    checked_labels,
    checked_metadata,
    checked_name,
    checked_number,
    checked_text,
    checked_time,
    save_request,
)
from .reach import Reach
from .records import Forgotten, MemoryRecord, Recall, ScopeInfo
from .stores.selection import Selection
from .twins import awaitable, blocking

if TYPE_CHECKING:
    from .core import MemoryCore
    from .flows.runtime import Runtime
    from .receipts import SaveReceipt
    from .stores.outbox import DeadLetter

Time = datetime | str
Depth = Literal["deep", "shallow"]


class Unset:
    """The type of `UNSET`, which stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


class MemoryView:
    """What can be done with the part of a memory that is in reach.

    Every method has an async twin with the prefix ``a`` (`aremember`, `arecall`, ...); both run
    on mnemotrace's own loop, so neither blocks the caller's event loop.
    """

    _core: MemoryCore
    _reach: Reach

    @property
    def _runtime(self) -> Runtime:
        return self._core.runtime

    # -- what may be seen ---------------------------------------------------------------------

    def _selection(
        self,
        scope: str | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
        categories: Any = None,
        metadata_filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        as_of: Any = None,
        record_ids: Any = None,
        now: datetime | None = None,
        only_source: bool = True,
    ) -> Selection:
        if not isinstance(include_private, bool):
            raise InvalidInputError("include_private must be True or False.")
        who = checked_name(source, "source")
        if metadata_filter is not None and not isinstance(metadata_filter, Mapping):
            raise InvalidInputError(f"metadata_filter must be a dict, not {metadata_filter!r}.")
        labels = checked_labels(categories, "categories")
        return Selection(
            roots=self._reach.reading(scope),
            viewer=who,
            include_private=include_private,
            sources=(who,) if who is not None and only_source else None,
            categories=labels,
            record_ids=checked_labels(record_ids, "record_ids"),
            metadata=dict(metadata_filter or {}),
            since=checked_time(since, "since"),
            until=checked_time(until, "until"),
            as_of=checked_time(as_of, "as_of"),
            now=now,
        )

    def _request(
        self,
        content: Any,
        scope: str | None,
        session: str | None = None,
        position: int | None = None,
        **fields: Any,
    ) -> SaveRequest:
        return save_request(
            content,
            scope=self._reach.writing(scope),
            reach=self._reach.roots,
            session=session,
            position=position,
            **fields,
        )

    # -- saving -------------------------------------------------------------------------------

    async def _remember(
        self,
        content: str,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        *,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        expires_at: Time | None = None,
        pinned: bool = False,
        record_id: str | None = None,
    ) -> MemoryRecord:
        """Save one text; it is durable and visible when this returns.

        Args:
            content: the text; blank text is refused.
            scope: where it goes, such as ``/project/alpha``. Left out, the language model infers
                it from the content and the scopes there are; without a model it is the view's
                own scope.
            categories: labels; inferred when left out.
            metadata: your own JSON-like values; dates and times come back as such.
            importance: 0..1; inferred when left out, else `default_importance`.
            source: who or what this comes from.
            private: only visible to recalls with the same `source`, or with `include_private`.
            created_at: when it was said; now by default. Recency is judged by it.
            valid_from: when it became true for `recall(as_of=...)`; now by default.
            expires_at: from when on it is no longer recalled.
            pinned: kept first when memories are packed into a budget.
            record_id: your own id, any text.

        Returns:
            The record the text became, or the one it was merged into.

        Raises:
            RecordError: blank content, importance outside 0..1, metadata that cannot be stored,
                or a `record_id` that already says something else.
            ScopePermissionError: a read-only view, or a scope outside of it.
            EmbedderError, StoreError: nothing was stored.
        """
        return await self._core.remember(
            self._request(
                content,
                scope,
                categories=categories,
                metadata=metadata,
                importance=importance,
                source=source,
                private=private,
                created_at=created_at,
                valid_from=valid_from,
                expires_at=expires_at,
                pinned=pinned,
                record_id=record_id,
            )
        )

    remember = blocking(_remember)
    aremember = awaitable(_remember)

    async def _remember_many(
        self,
        contents: Iterable[str | Mapping[str, Any]],
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        *,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        expires_at: Time | None = None,
        pinned: bool = False,
    ) -> SaveReceipt:
        """Accept many texts and return at once; they are encoded in the background.

        Accepted means on disk: a killed process goes on with them when the store is next opened.
        `recall` and the other reads wait for them.

        Args:
            contents: texts, or dicts with ``content`` and any argument of `remember`, which then
                win over the ones given here for all.

        Returns:
            A receipt: ``receipt.wait()`` (or ``await receipt``) gives the records or raises
            SaveError.

        Raises:
            As `remember`, before anything is accepted: the whole batch or nothing.
        """
        shared: dict[str, Any] = {
            "categories": categories,
            "metadata": metadata,
            "importance": importance,
            "source": source,
            "private": private,
            "created_at": created_at,
            "valid_from": valid_from,
            "expires_at": expires_at,
            "pinned": pinned,
        }
        if isinstance(contents, (str, bytes, Mapping)):
            raise InvalidInputError(
                "remember_many takes a list of texts; use remember() for a single one."
            )
        session = uuid.uuid4().hex
        requests: list[SaveRequest] = []
        for position, entry in enumerate(contents):
            own = dict(entry) if isinstance(entry, Mapping) else {"content": entry}
            unknown = own.keys() - shared.keys() - {"content", "scope", "record_id"}
            if unknown or "content" not in own:
                raise InvalidInputError(
                    f"Item {position} of remember_many must be a text or a dict with 'content' "
                    f"and arguments of remember(); got keys {sorted(map(str, own))}."
                )
            place = own.pop("scope", scope)
            text = own.pop("content")
            fields = {**shared, **own}
            requests.append(self._request(text, place, session, position, **fields))
        return await self._core.remember_many(requests)

    remember_many = blocking(_remember_many)
    aremember_many = awaitable(_remember_many)

    async def _extract_memories(self, content: str) -> list[str]:
        """Split a text into atomic statements, with the language model; stores nothing.

        Returns:
            The statements; the whole text as the only one when no model can be reached.

        Raises:
            RecordError: blank content.
        """
        return await self._core.extract(content)

    extract_memories = blocking(_extract_memories)
    aextract_memories = awaitable(_extract_memories)

    # -- recall -------------------------------------------------------------------------------

    async def _recall(
        self,
        query: str,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        limit: int = 10,
        depth: Depth = "deep",
        source: str | None = None,
        include_private: bool = False,
        *,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        now: Time | None = None,
        wait_for_writes: bool = True,
        trace: Literal["off", "on", "full"] | None = None,
    ) -> Recall:
        """Return the records that answer a query, best first.

        Args:
            query: what is wanted; blank queries are refused.
            scope: only this subtree.
            categories: only records with at least one of these.
            limit: the most matches to return; 0 gives none.
            depth: ``deep`` runs the RecallFlow (query analysis, scope selection, parallel
                search, confidence router, exploration); ``shallow`` searches once and never
                asks a language model.
            source: only records of this source; its private ones are visible.
            include_private: see everyone's private records.
            since, until: only records created in ``[since, until)``.
            as_of: recall as the memory stood then.
            metadata_filter: conditions on metadata, all of which must hold: a value (equal), a
                list (any of), or a dict of ``gt/gte/lt/lte``.
            now: the time from which recency is judged; fixes the result.
            wait_for_writes: wait for pending background saves first.
            trace: how much the trace keeps; ``full`` keeps texts too. The memory's setting by
                default.

        Returns:
            A list of matches that also has `trace`, `confidence`, `evidence_gaps`, `status`;
            empty when nothing is visible or the limit is 0.

        Raises:
            InvalidInputError: an empty query, a negative limit, an unknown depth.
            ScopePermissionError: the scope lies outside this view.
            EmbedderError, StoreError: the search could not be made at all.
        """
        if not isinstance(query, str) or not query.strip():
            raise InvalidInputError("The query is empty; say what to recall.")
        checked_text(query, "query")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidInputError(f"limit must be 0 or more, not {limit!r}.")
        if depth not in ("deep", "shallow"):
            raise InvalidInputError(f"depth must be 'deep' or 'shallow', not {depth!r}.")
        if trace not in (None, "off", "on", "full"):
            raise InvalidInputError(f"trace must be 'off', 'on' or 'full', not {trace!r}.")
        moment = checked_time(now, "now")
        selection = self._selection(
            scope,
            source=source,
            include_private=include_private,
            categories=categories,
            metadata_filter=metadata_filter,
            since=since,
            until=until,
            as_of=as_of,
            now=moment,
        )
        return await self._core.recall(
            query,
            selection,
            limit=limit,
            depth=depth,
            now=moment,
            wait=wait_for_writes,
            level=trace or self._core.config.trace,
        )

    recall = blocking(_recall)
    arecall = awaitable(_recall)

    # -- by id --------------------------------------------------------------------------------

    async def _get(
        self, record_id: str, source: str | None = None, include_private: bool = False
    ) -> MemoryRecord | None:
        """Return the record with this id; None when none is visible here."""
        selection = self._selection(
            source=source, include_private=include_private, only_source=False
        )
        return await self._core.get(selection, _checked_id(record_id))

    get = blocking(_get)
    aget = awaitable(_get)

    async def _history(
        self, record_id: str, source: str | None = None, include_private: bool = False
    ) -> list[MemoryRecord]:
        """Return every version of a record and of those it took over from, oldest first.

        Empty when none is visible here.
        """
        selection = self._selection(
            source=source, include_private=include_private, only_source=False
        )
        return await self._core.history(selection, _checked_id(record_id))

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
            expires_at: a time, or None so that it no longer expires.
            source: who is asking, so that its own private records are in reach.
            include_private: reach everyone's private records.

        Returns:
            The new version; the record as it is when nothing was given.

        Raises:
            RecordNotFoundError: no such record is visible here.
            RecordError, ScopePermissionError: nothing was changed.
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
                if not isinstance(value, bool):
                    raise InvalidInputError(f"{name} must be True or False.")
                changes[name] = value
        if not isinstance(expires_at, Unset):
            changes["expires_at"] = checked_time(expires_at, "expires_at")
        selection = self._selection(
            source=source, include_private=include_private, only_source=False
        )
        return await self._core.update(selection, _checked_id(record_id), changes)

    update = blocking(_update)
    aupdate = awaitable(_update)

    async def _forget(
        self,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        older_than: Time | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        record_ids: Iterable[str] | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
        erase: bool = True,
    ) -> Forgotten:
        """Forget the records that meet all the criteria given.

        Args:
            scope: this subtree.
            categories: records with at least one of these.
            older_than: records created before this time; naive is taken as UTC.
            metadata_filter: as in `recall`.
            record_ids: these records; an empty list forgets nothing.
            source: records of this source, its private ones included.
            include_private: forget everyone's private records too; else they stay.
            erase: remove every version for good; False only retires them, so that history and
                ``recall(as_of=...)`` still have them.

        Returns:
            How many records went; it is an int that also has `record_ids` and `versions`.

        Raises:
            InvalidInputError: no criterion was given; `reset` empties a whole scope.
            ScopePermissionError: a read-only view, or a scope outside of it.
        """
        self._reach.require_writable()
        criteria = (scope, categories, older_than, metadata_filter, record_ids, source)
        if all(value is None for value in criteria):
            raise InvalidInputError(
                "forget() needs a criterion: scope, categories, older_than, metadata_filter, "
                "record_ids or source. To empty everything in reach, call reset()."
            )
        selection = self._selection(
            scope,
            source=source,
            include_private=include_private,
            categories=categories,
            metadata_filter=metadata_filter,
            until=older_than,
            record_ids=record_ids,
        )
        return await self._core.forget(selection, erase=erase)

    forget = blocking(_forget)
    aforget = awaitable(_forget)

    async def _reset(self, scope: str | None = None) -> Forgotten:
        """Erase everything in a subtree (all in reach by default), private records included.

        Resetting the whole memory also frees it from its embedder.

        Returns:
            How many records went.
        """
        self._reach.require_writable()
        selection = self._selection(scope, include_private=True)
        everything = selection.roots == (scopes.ROOT,)
        return await self._core.reset(selection, everything=everything)

    reset = blocking(_reset)
    areset = awaitable(_reset)

    # -- discovery ----------------------------------------------------------------------------

    async def _tree(
        self,
        path: str | None = None,
        max_depth: int = 3,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> str:
        """Return the scope tree with record counts, `max_depth` levels below `path`."""
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0:
            raise InvalidInputError(f"max_depth must be 0 or more, not {max_depth!r}.")
        selection = self._selection(
            path, source=source, include_private=include_private, only_source=False
        )
        return await self._core.tree(selection, selection.roots, max_depth)

    tree = blocking(_tree)
    atree = awaitable(_tree)

    async def _info(
        self,
        path: str | None = None,
        *,
        source: str | None = None,
        include_private: bool = False,
    ) -> ScopeInfo:
        """Summarise a subtree: count, categories, oldest and newest, child scopes."""
        selection = self._selection(
            path, source=source, include_private=include_private, only_source=False
        )
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
        """Return the immediate child scopes of a path, sorted; empty when there are none."""
        selection = self._selection(
            path, source=source, include_private=include_private, only_source=False
        )
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
        """Return category names with their record counts, commonest first."""
        selection = self._selection(
            path, source=source, include_private=include_private, only_source=False
        )
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
        include_private: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
    ) -> list[MemoryRecord]:
        """Return the records of a subtree, newest first; filters as in `recall`."""
        for name, value in (("limit", limit), ("offset", offset)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidInputError(f"{name} must be 0 or more, not {value!r}.")
        selection = self._selection(
            scope,
            source=source,
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

    def _top(self, path: str | None) -> str:
        if path is not None:
            return self._reach.path(path)
        return self._reach.base or scopes.ROOT

    # -- pending saves ------------------------------------------------------------------------

    async def _drain_writes(self, timeout: float | None = None) -> int:
        """Wait until every accepted save was tried.

        Returns:
            How many texts are still not saved; 0 when all are. They are kept and retried.

        Raises:
            TimeoutError: after `timeout` seconds; the saves go on.
        """
        return await self._core.drain(timeout)

    drain_writes = blocking(_drain_writes)
    adrain_writes = awaitable(_drain_writes)

    async def _dead_letters(self) -> list[DeadLetter]:
        """Return the background saves that were given up, with their texts and errors."""
        return await self._core.dead_letters(Selection(roots=self._reach.roots))

    dead_letters = blocking(_dead_letters)
    adead_letters = awaitable(_dead_letters)

    async def _retry_dead_letters(self) -> int:
        """Try given-up saves again in the background; returns how many batches."""
        self._reach.require_writable()
        return await self._core.retry_dead_letters(Selection(roots=self._reach.roots))

    retry_dead_letters = blocking(_retry_dead_letters)
    aretry_dead_letters = awaitable(_retry_dead_letters)

    # -- narrower views -----------------------------------------------------------------------

    def scope(self, path: str) -> MemoryScope:
        """Return a view of one subtree; everything in it is relative to `path`."""
        absolute = self._reach.path(path)
        self._reach.reading(path)
        return MemoryScope(self._core, absolute, read_only=self._reach.read_only)

    def slice(self, scopes: Iterable[str], read_only: bool = True) -> MemorySlice:
        """Return a view of several subtrees at once.

        Args:
            scopes: at least one path in reach.
            read_only: refuse writing. A writable slice must be told where to write.
        """
        if isinstance(scopes, str):
            scopes = [scopes]
        paths = list(scopes)
        if not paths:
            raise InvalidInputError("A slice needs at least one scope.")
        inside = [root for path in paths for root in self._reach.reading(path)]
        return MemorySlice(self._core, inside, read_only=read_only or self._reach.read_only)


class MemoryScope(MemoryView):
    """A view of one subtree. It sees and writes nothing outside."""

    def __init__(self, core: MemoryCore, path: str, *, read_only: bool = False) -> None:
        self._core = core
        self.path = scopes.normalise(path)
        self._reach = Reach((self.path,), self.path, read_only)

    def subscope(self, path: str) -> MemoryScope:
        """Return a view of a subtree below this one."""
        return self.scope(path)

    def __repr__(self) -> str:
        return f"MemoryScope({self.path!r})"


class MemorySlice(MemoryView):
    """A view of several subtrees at once. Paths in it are absolute."""

    def __init__(self, core: MemoryCore, roots: Iterable[str], *, read_only: bool = True) -> None:
        self._core = core
        self.scopes = scopes.cover(roots)
        self.read_only = read_only
        self._reach = Reach(self.scopes, None, read_only)

    def __repr__(self) -> str:
        return f"MemorySlice({list(self.scopes)!r}, read_only={self.read_only})"


def _checked_id(record_id: Any) -> str:
    if not isinstance(record_id, str) or not record_id:
        raise InvalidInputError(f"A record id is a non-empty string, not {record_id!r}.")
    return record_id
