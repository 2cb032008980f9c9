"""Selection: what an operation may see. Isolation by construction.

Every store operation takes one. It becomes one Qdrant filter, judged by the engine alone; nothing
is filtered afterwards in Python. `within` and `narrow` only ever make it smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mnemotrace import scopes
from mnemotrace.records import as_utc


@dataclass(frozen=True, slots=True)
class Selection:
    """The records an operation may see.

    Attributes:
        roots: the subtrees in reach; ``()`` selects nothing.
        at_scope: only records exactly at this scope (still within `roots`).
        viewer: whose private records are visible besides the public ones.
        include_private: everyone's private records are visible.
        private_only: only private records of `viewer` (what a private save may merge with).
        public_only: only public records (what a public save may merge with).
        sources: only records with one of these sources; ``()`` selects nothing.
        categories: only records with at least one of these; ``()`` selects nothing.
        record_ids: only these records; ``()`` selects nothing.
        metadata: conditions on user metadata, all of which must hold: a plain value (equal),
            a list (any of), or a mapping of ``gt/gte/lt/lte`` to a number or time.
        since, until: half-open window ``[since, until)`` on ``created_at``.
        as_of: see what is valid at that time: versions with ``valid_from <= as_of < valid_to``.
        history: retired versions are visible too, and whatever its times say (ignored with
            `as_of`).
        upcoming: current versions that are not valid yet are visible too.
        now: the time at which ``expires_at`` is judged; the store's clock when None. What is valid
            by the store's clock is so at every `now`; a later one lets in what begins until then.
        text_hashes: only records whose normalised text has one of these; ``()`` selects nothing.
        analysis: only records in this state of analysis (``pending``).
        session: only records of this conversation or batch.
        positions: only records whose place in it lies between these two, neither included; None
            for no bound.
    """

    roots: tuple[str, ...] = (scopes.ROOT,)
    at_scope: str | None = None
    viewer: str | None = None
    include_private: bool = False
    private_only: bool = False
    public_only: bool = False
    sources: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    record_ids: tuple[str, ...] | None = None
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    history: bool = False
    upcoming: bool = False
    now: datetime | None = None
    text_hashes: tuple[str, ...] | None = None
    analysis: str | None = None
    session: str | None = None
    positions: tuple[int | None, int | None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "roots", scopes.cover(self.roots))
        for name in ("since", "until", "as_of", "now"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_utc(value))

    @property
    def is_empty(self) -> bool:
        """Whether nothing can match, so that no engine need be asked."""
        return (
            not self.roots
            or self.sources == ()
            or self.categories == ()
            or self.record_ids == ()
            or self.text_hashes == ()
            or (self.since is not None and self.until is not None and self.since >= self.until)
            or (
                self.at_scope is not None
                and not any(scopes.contains(root, self.at_scope) for root in self.roots)
            )
        )

    def within(self, *roots: str) -> Selection:
        """Return this selection cut down to the given subtrees; never wider."""
        return replace(self, roots=scopes.intersect(self.roots, scopes.cover(roots)))

    def narrow(
        self,
        *,
        sources: tuple[str, ...] | None = None,
        categories: tuple[str, ...] | None = None,
        record_ids: tuple[str, ...] | None = None,
        metadata: dict[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Selection:
        """Return this selection cut down by further conditions; each intersects what is there."""

        def both(have: tuple[str, ...] | None, want: tuple[str, ...] | None) -> Any:
            if want is None or have is None:
                return want if have is None else have
            return tuple(item for item in have if item in want)

        if since is not None and self.since is not None:
            since = max(as_utc(since), self.since)
        if until is not None and self.until is not None:
            until = min(as_utc(until), self.until)
        extra = dict(self.metadata)
        for key, condition in (metadata or {}).items():
            if key in extra and extra[key] != condition:
                extra[f"{key}"] = {"all": [extra[key], condition]}
            else:
                extra[key] = condition
        return replace(
            self,
            sources=both(self.sources, sources),
            categories=both(self.categories, categories),
            record_ids=both(self.record_ids, record_ids),
            metadata=extra,
            since=since if since is not None else self.since,
            until=until if until is not None else self.until,
        )
