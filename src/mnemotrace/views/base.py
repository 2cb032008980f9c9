"""Handle: what every view is made of: a core, a reach, and how arguments become a Selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Literal, get_args

from mnemotrace import scopes
from mnemotrace.checks import checked_flag, checked_word
from mnemotrace.flows.requests import (
    checked_count,
    checked_filter,
    checked_ids,
    checked_labels,
    checked_name,
    checked_query,
    checked_time,
    checked_window,
    time_zone_of,
)
from mnemotrace.reach import Reach
from mnemotrace.stores.selection import Selection

if TYPE_CHECKING:
    from mnemotrace.core import MemoryCore
    from mnemotrace.flows.runtime import Runtime
    from mnemotrace.trace import Level

Time = datetime | str
Depth = Literal["deep", "shallow"]
DEPTHS = get_args(Depth)
LEVELS = ("off", "on", "full")
"""Of traces."""


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of a recall, checked, and what they allow to be seen."""

    query: str
    selection: Selection
    limit: int
    depth: Depth
    now: datetime | None
    zone: tzinfo | None
    wait: bool
    level: Level


class Handle:
    """A part of a memory that is in reach."""

    _core: MemoryCore
    _reach: Reach

    @property
    def _runtime(self) -> Runtime:
        return self._core.runtime

    def _selection(
        self,
        scope: str | None = None,
        *,
        source: str | None = None,
        viewer: str | None = None,
        include_private: bool = False,
        categories: Any = None,
        metadata_filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        as_of: Any = None,
        record_ids: Any = None,
        now: datetime | None = None,
        only_source: bool = True,
        upcoming: bool = False,
    ) -> Selection:
        checked_flag(include_private, "include_private")
        who = checked_name(source, "source")
        viewer = checked_name(viewer, "viewer")
        labels = checked_labels(categories, "categories")
        begins, ends = checked_window(since, until)
        return Selection(
            roots=self._reach.reading(scope),
            viewer=who if viewer is None else viewer,
            include_private=include_private,
            sources=(who,) if who is not None and only_source else None,
            categories=labels,
            record_ids=checked_ids(record_ids),
            metadata=checked_filter(metadata_filter),
            since=begins,
            until=ends,
            as_of=checked_time(as_of, "as_of"),
            upcoming=upcoming,
            now=now,
        )

    def _question(
        self,
        query: str,
        scope: str | None = None,
        categories: Any = None,
        limit: int = 10,
        depth: Depth = "deep",
        source: str | None = None,
        include_private: bool = False,
        *,
        viewer: str | None = None,
        since: Any = None,
        until: Any = None,
        as_of: Any = None,
        metadata_filter: Mapping[str, Any] | None = None,
        now: Any = None,
        wait_for_writes: bool = True,
        trace: Level | None = None,
    ) -> Question:
        """Check the arguments of a recall; see there for what is raised."""
        query = checked_query(query)
        limit = checked_count(limit, "limit")
        checked_word(depth, "depth", DEPTHS)
        if trace is not None:
            checked_word(trace, "trace", LEVELS)
        checked_flag(wait_for_writes, "wait_for_writes")
        moment = checked_time(now, "now")
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
            now=moment,
        )
        zone = time_zone_of(now, as_of)
        level = trace or self._core.config.trace
        return Question(query, selection, limit, depth, moment, zone, wait_for_writes, level)

    def _seen_by(
        self,
        source: str | None,
        include_private: bool,
        path: str | None = None,
        *,
        upcoming: bool = False,
    ) -> Selection:
        """Return what somebody may see; `source` is who asks, and narrows nothing.

        Args:
            upcoming: with what is not valid yet: for whoever looks after records, by id say,
                rather than asks what is known.
        """
        return self._selection(
            path,
            source=source,
            include_private=include_private,
            only_source=False,
            upcoming=upcoming,
        )

    def _top(self, path: str | None) -> str:
        if path is not None:
            return self._reach.path(path)
        return self._reach.base or scopes.ROOT
