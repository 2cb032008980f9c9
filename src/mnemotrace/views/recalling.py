"""Recalling: get memories out by what they are about."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal

from mnemotrace.checks import checked_budget
from mnemotrace.events import (
    MemoryRetrievalCompletedEvent,
    MemoryRetrievalStartedEvent,
    event_bus,
)
from mnemotrace.flows.requests import checked_name, checked_query
from mnemotrace.live import astreaming, streaming
from mnemotrace.records import Recall
from mnemotrace.twins import awaitable, blocking

from .base import Depth, Handle, Time


class Recalling(Handle):
    """The methods that answer a query, or gather what a task needs."""

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
        viewer: str | None = None,
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
            viewer: who is asking: this source's private records are visible beside the public
                ones of all. Unlike `source` it leaves out nothing; by default it is `source`.
            include_private: see everyone's private records.
            since, until: only records created in ``[since, until)``. All times are datetimes or
                ISO 8601 text; without a time zone they are UTC.
            as_of: recall what is valid at that time: the versions that are so then, also of
                records that are superseded by now, or not valid yet. What was saved with an
                earlier `created_at` is valid since then, whenever it was saved.
            metadata_filter: conditions on metadata, all of which must hold: a value (equal), a
                list (any of), or a dict of ``gt/gte/lt/lte``.
            now: the time from which recency is judged, and by which records have expired; fixes
                the result. A later one than the clock's also lets in what becomes valid until
                then; an earlier one hides nothing, see `as_of`. Its time zone is the one
                in which a long query's "yesterday" is meant; without it, this machine's.
            wait_for_writes: wait for pending background saves first.
            trace: how much the trace keeps; ``full`` keeps texts too. The memory's setting by
                default.

        Returns:
            A list of matches that also has `trace`, `confidence`, `evidence_gaps`, `status`;
            empty when nothing is visible or the limit is 0.

        Raises:
            InvalidInputError: an empty query, a negative limit, an unknown depth, `since` after
                `until`.
            ScopePermissionError: the scope lies outside this view.
            EmbedderError, StoreError: the search could not be made at all.
            TimeoutError: it took longer than `recall_timeout`.
        """
        asked = self._question(
            query,
            scope,
            categories,
            limit,
            depth,
            source,
            include_private,
            viewer=viewer,
            since=since,
            until=until,
            as_of=as_of,
            metadata_filter=metadata_filter,
            now=now,
            wait_for_writes=wait_for_writes,
            trace=trace,
        )
        return await self._core.recall(
            asked.query,
            asked.selection,
            limit=asked.limit,
            depth=asked.depth,
            now=asked.now,
            zone=asked.zone,
            wait=asked.wait,
            level=asked.level,
        )

    def _straight(
        self, *args: Any, depth: Any = "deep", **others: Any
    ) -> Callable[[Coroutine[Any, Any, Any]], Any] | None:
        """Return how to run a recall that needs no loop; None when it does."""
        if "shallow" not in (depth, *args[4:5]):  # the fifth argument, or by name
            return None
        return self._core.straight_recall()

    recall = blocking(_recall, shortcut=_straight)
    arecall = awaitable(_recall)

    recall_stream = streaming(_recall)
    arecall_stream = astreaming(_recall)

    async def _retrieve_for(
        self,
        task: str,
        *,
        task_id: str | None = None,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        limit: int = 10,
        depth: Depth = "deep",
        budget_tokens: int | None = None,
        source: str | None = None,
        include_private: bool = False,
        viewer: str | None = None,
        now: Time | None = None,
    ) -> str:
        """Return what is remembered for an agent's task, as text for its prompt.

        It is a `recall` whose result is formatted (see `Recall.format`): one line for each memory,
        best first, in which nothing is markup. Between `MemoryRetrievalStartedEvent` and
        `MemoryRetrievalCompletedEvent`, which carry the task's id, listeners also get the events
        of the recall. When it fails, `MemoryQueryFailedEvent` is the last of them.

        Args:
            task: what is to be done, in words.
            task_id: your own name for the task, for listeners.
            scope: only this subtree.
            categories: only records with at least one of these.
            limit: the most memories.
            depth: as in `recall`.
            budget_tokens: the most tokens the text may have, as in `Recall.format`; None for no
                bound.
            source: only records of this source; its private ones are visible.
            viewer: whose private records are visible beside the public ones of all.
            include_private: everyone's private records, too.
            now: as in `recall`.

        Returns:
            The text; ``""`` when nothing is remembered that may be seen, or nothing has room.

        Raises:
            As `recall`.
        """
        name = checked_name(task_id, "task_id")
        task = checked_query(task, "task")
        budget_tokens = checked_budget(budget_tokens, "budget_tokens")
        begun = time.perf_counter()
        event_bus.emit(self._core.owner, MemoryRetrievalStartedEvent(task_id=name))
        found = await self._recall(
            task,
            scope,
            categories,
            limit,
            depth,
            source,
            include_private,
            viewer=viewer,
            now=now,
        )
        text = await self._runtime.in_thread(found.format, budget_tokens)
        elapsed = (time.perf_counter() - begun) * 1000
        done = MemoryRetrievalCompletedEvent(
            task_id=name, memory_content=text, retrieval_time_ms=elapsed
        )
        event_bus.emit(self._core.owner, done)
        return text

    retrieve_for = blocking(_retrieve_for)
    aretrieve_for = awaitable(_retrieve_for)
