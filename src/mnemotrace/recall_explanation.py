"""RecallExplanation: why a recall returned a record, or why it did not, and what would change that.

It is made by `Memory.explain`. Everything shown may come from a memory: it is data, nothing in it
is markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .explanation import Explanation, excerpt
from .trace import plain
from .trace_views import visible

if TYPE_CHECKING:
    from .records import MemoryRecord
    from .trace import Trace

_BOX = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.5;text-align:left"
_DIM = "opacity:.65"
_LONGEST = 300
"""Characters of one argument shown; `Change.arguments` has all of it."""


class Verdict(StrEnum):
    """Why a record was returned, or what kept it from being returned."""

    RETURNED = "returned"
    UNKNOWN = "unknown"
    """No record with this id may be seen: there is none, or it is out of reach, or private."""
    UNREADABLE = "unreadable"
    """The stored row is damaged."""
    PENDING = "pending"
    """Accepted, but not saved yet."""
    SUPERSEDED = "superseded"
    """Another record, or a newer version, took its place."""
    FORGOTTEN = "forgotten"
    """Forgotten with ``erase=False``, so that only history has it."""
    EXPIRED = "expired"
    NOT_YET = "not yet valid"
    """It did not exist at the time of ``as_of``, or is to be valid from a later time on."""
    PRIVATE = "private"
    """Private to another source; only the memory itself is told."""
    SCOPE = "scope"
    """Outside the ``scope`` of the recall."""
    SOURCE = "source"
    CATEGORY = "category"
    METADATA = "metadata"
    TIME = "time"
    """Outside ``since`` and ``until``."""
    DUPLICATE = "duplicate"
    """A record with the same text was returned in its place."""
    OUTRANKED = "outranked"
    NOT_SEARCHED = "not searched"
    """The query was read so that no search reached it, or a search failed."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something else to ask, with which the record comes back. It was tried.

    Attributes:
        arguments: of `recall`, in place of those of the call that is explained.
        settings: of `Memory`, in place of those it has; most changes have none.
        rank: where the record then was among the matches, from 1.
    """

    arguments: dict[str, Any] = field(default_factory=dict, hash=False)
    settings: dict[str, float] = field(default_factory=dict, hash=False)
    rank: int = 0

    @property
    def size(self) -> int:
        """How many arguments and settings change."""
        return len(self.arguments) + len(self.settings)

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain JSON data."""
        return {
            "arguments": plain(self.arguments),
            "settings": dict(self.settings),
            "rank": self.rank,
        }

    def __str__(self) -> str:
        parts = [f"{name}={_shown(value)}" for name, value in self.arguments.items()]
        if self.settings:
            named = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
            parts.append(f"Memory({named})")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a record was returned, or was not.

    Attributes:
        kind: what kind of reason.
        text: one sentence for a person.
        facts: the same for a program: numbers, names, times.
        changes: those of `RecallExplanation.changes` that do away with this reason.
    """

    kind: Verdict
    text: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False)
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the reason as plain JSON data."""
        return {
            "kind": self.kind.value,
            "text": self.text,
            "facts": plain(self.facts),
            "changes": [change.to_json() for change in self.changes],
        }

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class RecallExplanation:
    """Why a recall returned a record or did not.

    Attributes:
        query, record_id: what was asked.
        verdict: the kind of the first reason.
        reasons: all reasons, the decisive one first; never empty.
        changes: what would return the record, smallest first; each was tried in full, and each
            alone is enough. Empty when it was returned, and when nothing helps.
        rank: of the record among all that were found, from 1; None when it is not among them.
        limit: the most matches the recall may return.
        found: how many records may be seen with the arguments of the recall; None where that
            plays no part.
        record: the version that is explained; None when none may be seen.
        score: the numbers of the record's score, words one by one; None when it has none.
        cut: the numbers of the last match that was returned, when the record came behind it.
        confidence: of the recall, 0..1.
        errors: what failed in it, one line each.
        trace: of the recall; what was tried afterwards is not in it. None when tracing was off.
    """

    query: str
    record_id: str
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()
    rank: int | None = None
    limit: int = 0
    found: int | None = None
    record: MemoryRecord | None = None
    score: Explanation | None = None
    cut: Explanation | None = None
    confidence: float = 0.0
    errors: list[str] = field(default_factory=list)
    trace: Trace | None = None

    @property
    def verdict(self) -> Verdict:
        """The kind of the first reason."""
        return self.reasons[0].kind

    @property
    def returned(self) -> bool:
        """Whether the recall returned the record."""
        return self.verdict is Verdict.RETURNED

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the trace as plain JSON data."""
        return {
            "query": self.query,
            "record_id": self.record_id,
            "verdict": self.verdict.value,
            "returned": self.returned,
            "reasons": [reason.to_json() for reason in self.reasons],
            "changes": [change.to_json() for change in self.changes],
            "rank": self.rank,
            "limit": self.limit,
            "found": self.found,
            "score": None if self.score is None else self.score.to_json(),
            "cut": None if self.cut is None else self.cut.to_json(),
            "confidence": self.confidence,
            "errors": list(self.errors),
        }

    def __str__(self) -> str:
        lines = [self._headline()]
        if self.record is not None:
            lines.append(f'  "{excerpt(self.record.content)}" ({visible(self.record.scope)})')
        lines += [f"  - {_line(reason.text)}" for reason in self.reasons]
        if self.score is not None and self.cut is not None:
            lines += [f"    {row}" for row in _table(self.score, self.cut)]
        if self.changes:
            lines.append("  It comes back with any of these (each was tried):")
            lines += [f"    {change}  -> rank {change.rank}" for change in self.changes]
        elif not self.returned and self.record is not None:
            lines.append("  Nothing that was tried brings it back.")
        if self.score is not None and self.returned:
            lines += [f"  {line}" for line in str(self.score).splitlines()]
        lines += [f"  failed: {_line(error)}" for error in self.errors]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [
            f'<div class="mnemotrace-explanation" style="{_BOX}">',
            f"<div><b>{_escaped(self._headline())}</b></div>",
        ]
        if self.record is not None:
            text, scope = _escaped(excerpt(self.record.content)), _escaped(self.record.scope)
            parts.append(f'<div>{text} <span style="{_DIM}">{scope}</span></div>')
        parts.append(_list(reason.text for reason in self.reasons))
        if self.score is not None and self.cut is not None:
            parts.append(f"<pre>{_escaped(chr(10).join(_table(self.score, self.cut)))}</pre>")
        if self.changes:
            lines = (f"{change} → rank {change.rank}" for change in self.changes)
            parts.append(
                f"<div>It comes back with any of these (each was tried):{_list(lines)}</div>"
            )
        elif not self.returned and self.record is not None:
            parts.append("<div>Nothing that was tried brings it back.</div>")
        for title, score in (("Its score", self.score), ("The last one returned", self.cut)):
            if score is not None:
                inner = score._repr_html_()
                parts.append(f"<details><summary>{title}</summary>{inner}</details>")
        if self.errors:
            parts.append(f"<div>Part of the search failed:{_list(self.errors)}</div>")
        parts.append("</div>")
        return "".join(parts)

    def _headline(self) -> str:
        record_id = excerpt(self.record_id, 60)
        if self.returned:
            return f"Record {record_id} was returned at rank {self.rank}."
        rank = f" (rank {self.rank} of {self.found}, limit {self.limit})" if self.rank else ""
        return f"Record {record_id} was not returned: {self.verdict.value}{rank}."


def _table(mine: Explanation, cut: Explanation) -> Iterable[str]:
    """Yield the products of two scores beside each other."""
    yield f"{'':<12}{'this':>10}{'cut':>10}{'short by':>10}"
    for name in ("semantic", "recency", "importance"):
        yield _row(name, mine["products"][name], cut["products"][name])
    yield _row("score", mine.score, cut.score)


def _row(name: str, here: float, there: float) -> str:
    short = round(there - here, 4) + 0.0  # not -0.0
    return f"{name:<12}{here:>10.4f}{there:>10.4f}{short:>+10.4f}"


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shown(item)}" for key, item in value.items()) + "}"
    return excerpt(repr(value), _LONGEST)


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _escaped(text: str) -> str:
    return html.escape(visible(text, keep="\n\t"))


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escaped(line)}</li>' for line in lines)}</ul>"
