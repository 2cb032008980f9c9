"""Obstacles: the conditions of a recall that a record does not fulfil, one by one.

The engine judges each condition by itself, over the versions that the caller may know of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import scopes
from .explanation import excerpt
from .recall_explanation import Verdict
from .records import MemoryRecord
from .stores.selection import Selection

if TYPE_CHECKING:
    from .views.base import Handle, Question

_INSTANT = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A condition that a record does not fulfil, and arguments with which it would."""

    kind: Verdict
    text: str
    facts: Mapping[str, Any]
    options: tuple[dict[str, Any], ...] = ()
    """What to change, the least first; empty when no argument helps."""


class Conditions:
    """Judges the conditions of one recall for one record.

    Args:
        handle: the memory or view that is asked.
        question: the recall.
        record_id: the record.
        may_know: what the caller may know of.
        moment: the time of the recall where it names none.
    """

    def __init__(
        self,
        handle: Handle,
        question: Question,
        record_id: str,
        may_know: Selection,
        moment: datetime,
    ) -> None:
        self._reach = handle._reach
        self._services = handle._core.services
        self._question = question
        self._id = record_id
        self._may_know = may_know
        self._moment = moment

    async def versions(self) -> list[MemoryRecord]:
        """Return the versions that the caller may know of, by what `history` may see."""
        return await self._get(replace(self._may_know, history=True))

    async def _get(self, selection: Selection) -> list[MemoryRecord]:
        services = self._services
        return await services.in_thread(services.store.get, selection, [self._id])

    def relevant(self, versions: list[MemoryRecord]) -> MemoryRecord:
        """Return the version to explain: the one at the time asked for, the living, the latest."""
        moment = self._question.selection.as_of
        if moment is not None:
            then = [v for v in versions if _begins(v) <= moment < (v.valid_to or _END)]
            if then:
                return max(then, key=lambda version: version.version)
        living = [version for version in versions if version.retired is None]
        return max(living or versions, key=lambda version: version.version)

    async def passes(self, selection: Selection, record: MemoryRecord) -> bool:
        """Let the engine judge whether this version is in a selection."""
        found = await self._get(selection)
        return any(version.version == record.version for version in found)

    async def unmet(self, record: MemoryRecord, versions: list[MemoryRecord]) -> list[Obstacle]:
        """Return the conditions of the recall that the record does not fulfil."""
        asked = self._question.selection
        now = asked.now or self._moment
        if await self.passes(replace(asked, now=now), record):
            return []
        seen = replace(self._may_know, history=True)
        found = await self._in_time(record, versions, replace(asked, now=now))
        checks = (
            (replace(seen, include_private=asked.include_private), self._private),
            (replace(seen, roots=asked.roots), self._outside),
            (replace(seen, sources=asked.sources), self._other_source),
            (replace(seen, categories=asked.categories), self._other_category),
            (replace(seen, since=asked.since), self._too_old),
            (replace(seen, until=asked.until), self._too_new),
        )
        for selection, obstacle in checks:
            if not await self.passes(selection, record):
                found.append(obstacle(record))
        for key, condition in asked.metadata.items():
            if not await self.passes(replace(seen, metadata={key: condition}), record):
                found.append(self._other_metadata(record, key, condition))
        return found

    async def _in_time(
        self, record: MemoryRecord, versions: list[MemoryRecord], asked: Selection
    ) -> list[Obstacle]:
        """Return why the record was not there at the time that is asked for."""
        seen = replace(self._may_know, as_of=asked.as_of, now=asked.now)
        if await self.passes(seen, record):
            return []
        moment = asked.as_of or asked.now or self._moment
        last = _last_moment(record)
        back: tuple[dict[str, Any], ...] = ({"as_of": last},) if last is not None else ()
        facts: dict[str, Any]
        first = min(versions, key=_begins)
        if asked.as_of is not None and asked.as_of < _begins(first):
            text = (
                f"It did not exist at {moment.isoformat()}: it is valid from "
                f"{_begins(first).isoformat()}."
            )
            facts = {"as_of": moment, "valid_from": _begins(first)}
            options = ({"as_of": _begins(first)}, {"as_of": None})
            return [Obstacle(Verdict.NOT_YET, text, facts, options)]
        begins = _begins(record)
        if asked.as_of is None and record.retired is None and begins > max(moment, self._moment):
            text = f"It is not valid before {begins.isoformat()}."
            facts = {"valid_from": begins, "now": max(moment, self._moment)}
            return [Obstacle(Verdict.NOT_YET, text, facts, ({"as_of": begins}, {"now": begins}))]
        if (
            record.expires_at is not None
            and record.expires_at <= moment
            and (record.valid_to is None or record.expires_at <= record.valid_to)
        ):
            text = f"It expired at {record.expires_at.isoformat()}."
            facts = {"expires_at": record.expires_at, "now": moment}
            if asked.as_of is None and record.retired is None:
                back = (*back, {"now": record.expires_at - _INSTANT})
            return [Obstacle(Verdict.EXPIRED, text, facts, back)]
        facts = {"version": record.version, "valid_to": record.valid_to}
        at = f" at {record.valid_to.isoformat()}" if record.valid_to else ""
        if record.retired == "forgotten":
            text = f"It was forgotten{at} and is kept in its history only."
            return [Obstacle(Verdict.FORGOTTEN, text, facts, back)]
        heir = await self._heir(record)
        if heir is None:
            text = f"The version that may be seen from here stopped being current{at}."
        elif heir == self._id:
            text = f"Version {record.version} of it stopped being current{at}."
        else:
            text = f"Another record took its place{at}: {excerpt(heir)}."
            facts["superseded_by"] = heir
        return [Obstacle(Verdict.SUPERSEDED, text, facts, back)]

    async def _heir(self, record: MemoryRecord) -> str | None:
        """Return which record took over, if that one may be seen."""
        heir = record.superseded_by
        if heir is None or heir == self._id:
            return heir
        services = self._services
        selection = replace(self._may_know, history=True)
        found = await services.in_thread(services.store.get, selection, [heir])
        return heir if found else None

    def _private(self, record: MemoryRecord) -> Obstacle:
        whose = f"private to {record.source!r}" if record.source else "private, and of no source"
        options: list[dict[str, Any]] = [{"include_private": True}]
        if record.source:
            options.append({"source": record.source})
        text = f"It is {whose}; the recall asks for public memories only."
        facts = {"private": True, "source": record.source}
        return Obstacle(Verdict.PRIVATE, text, facts, tuple(options))

    def _outside(self, record: MemoryRecord) -> Obstacle:
        asked = self._question.selection.roots
        reach = self._reach
        wider = _common(asked[0], record.scope) if len(asked) == 1 else scopes.ROOT
        inside = any(scopes.contains(root, wider) for root in reach.roots)
        is_all = wider in reach.roots or not inside
        text = f"It is at {record.scope}, outside of the scope {', '.join(asked)}."
        options = ({"scope": None if is_all else wider}, {"scope": record.scope})
        facts = {"scope": record.scope, "asked": list(asked)}
        return Obstacle(Verdict.SCOPE, text, facts, options)

    def _other_source(self, record: MemoryRecord) -> Obstacle:
        said_by = record.sources or ([record.source] if record.source else [])
        asked = self._question.selection.sources or ()
        text = f"It comes from {several(said_by)}, not from {several(asked)}."
        return Obstacle(
            Verdict.SOURCE, text, {"sources": said_by, "asked": list(asked)}, ({"source": None},)
        )

    def _other_category(self, record: MemoryRecord) -> Obstacle:
        asked = list(self._question.selection.categories or ())
        has = several(record.categories) if record.categories else "no category"
        text = f"It has {has}, none of {several(asked)}."
        options: list[dict[str, Any]] = [{"categories": None}]
        if record.categories:
            options.insert(0, {"categories": [*asked, record.categories[0]]})
        facts = {"categories": list(record.categories), "asked": asked}
        return Obstacle(Verdict.CATEGORY, text, facts, tuple(options))

    def _too_old(self, record: MemoryRecord) -> Obstacle:
        since = self._question.selection.since
        text = f"It was created at {record.created_at.isoformat()}, before since={when(since)}."
        facts = {"created_at": record.created_at, "since": since}
        options = ({"since": record.created_at}, {"since": None})
        return Obstacle(Verdict.TIME, text, facts, options)

    def _too_new(self, record: MemoryRecord) -> Obstacle:
        until = self._question.selection.until
        text = f"It was created at {record.created_at.isoformat()}, not before until={when(until)}."
        facts = {"created_at": record.created_at, "until": until}
        after = record.created_at + _INSTANT if record.created_at < _END else None
        return Obstacle(Verdict.TIME, text, facts, ({"until": after}, {"until": None}))

    def _other_metadata(self, record: MemoryRecord, key: str, condition: Any) -> Obstacle:
        has, value = "is not set", record.metadata.get(key)
        if key in record.metadata:
            has = f"is {excerpt(repr(value))}"
        text = f"Its metadata {excerpt(key)!r} {has}; asked is {excerpt(repr(condition))}."
        facts = {"key": key, "value": value, "asked": condition}
        return Obstacle(Verdict.METADATA, text, facts, ({"metadata_filter": key},))


def _begins(record: MemoryRecord) -> datetime:
    return record.valid_from or record.created_at


def _last_moment(record: MemoryRecord) -> datetime | None:
    """Return the last time at which this version could be recalled; None when there is none."""
    ends = [time for time in (record.valid_to, record.expires_at) if time is not None]
    last = min(ends) - _INSTANT if ends else None
    return last if last is not None and last >= _begins(record) else None


def _common(left: str, right: str) -> str:
    """Return the innermost scope that holds both."""
    shared = [
        a for a, b in zip(scopes.ancestors(left), scopes.ancestors(right), strict=False) if a == b
    ]
    return shared[-1] if shared else scopes.ROOT


def several(names: Iterable[str]) -> str:
    """Return names as a list in a sentence; ``nobody`` for none."""
    shown = [repr(excerpt(name)) for name in names]
    if len(shown) < 2:
        return "".join(shown) or "nobody"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def when(moment: datetime | None) -> str:
    """Return a time for a sentence."""
    return "any time" if moment is None else moment.isoformat()
