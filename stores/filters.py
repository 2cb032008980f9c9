"""Selection to filter: what an operation may see, as one condition the engine judges."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from qdrant_client import models

from mnemotrace import scopes
from mnemotrace.errors import InvalidInputError
from mnemotrace.records import as_utc

from .engine import Condition, Where
from .points import hidden_by, metadata_term
from .selection import Selection

STATE_FIELDS = frozenset({"expires_at", "hidden_by", "retired", "valid_from"})
"""Fields that only rows have which are out of the ordinary, and often none at all; every row has
``valid_from``, but hardly any has one that is still to come."""
CLOCKS_DIFFER = timedelta(seconds=1)
"""A version whose time comes this soon is there already: another machine's clock, or this one's
before it was set back, may have said that it is now."""
_LATEST = datetime.max.replace(tzinfo=UTC)
_RANGE_OPERATORS = frozenset({"gt", "gte", "lt", "lte"})


def visible(
    selection: Selection, *, now: datetime, held: frozenset[str] = STATE_FIELDS
) -> Where | None:
    """Return what a selection may see; None when nothing can match.

    Args:
        selection: the selection.
        now: the time by the store's clock.
        held: which of `STATE_FIELDS` the store may hold in any row; conditions on others are left
            out, for an unfiltered search takes two thirds of the time of a filtered one.

    Raises:
        InvalidInputError: for a metadata condition that has no meaning.
    """
    if selection.is_empty or (selection.private_only and selection.public_only):
        return None
    what = _key(selection, held)
    base = _cached(what) if not selection.metadata else _base(what)
    where = Where(base if base.must or base.must_not else None)
    if selection.metadata:
        conditions: list[Condition] = []
        for key, condition in selection.metadata.items():
            conditions.extend(_metadata(key, condition))
        where = where.also(must=conditions)
    if selection.as_of is not None:
        moment = selection.as_of
        where = where.also(
            must=[time_range("valid_from", lte=moment)],
            must_not=[time_range("valid_to", lte=moment), time_range("expires_at", lte=moment)],
        )
    elif not selection.history:
        out_of_time: list[Condition] = []
        if "expires_at" in held:
            out_of_time.append(time_range("expires_at", lte=selection.now or now))
        if "valid_from" in held and not selection.upcoming:
            out_of_time.append(to_come(max(selection.now or now, now)))
        where = where.also(must_not=out_of_time)
    return where


def to_come(now: datetime) -> models.FieldCondition:
    """Return the condition that a version is not valid yet."""
    return time_range("valid_from", gt=now + min(CLOCKS_DIFFER, _LATEST - now))


def time_range(
    key: str,
    *,
    gt: datetime | None = None,
    gte: datetime | None = None,
    lt: datetime | None = None,
    lte: datetime | None = None,
) -> models.FieldCondition:
    """Return a condition on a time field."""
    return models.FieldCondition(
        key=key, range=models.DatetimeRange(gt=gt, gte=gte, lt=lt, lte=lte)
    )


def equals(key: str, value: str) -> models.FieldCondition:
    """Return the condition that a keyword field is (or holds) this value."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def any_of(key: str, values: tuple[str, ...] | list[str]) -> models.FieldCondition:
    """Return the condition that a keyword field is (or holds) one of these values."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def present(key: str, but: str = "") -> models.FieldCondition:
    """Return the condition that a keyword field exists with a value other than `but`."""
    return models.FieldCondition(key=key, match=models.MatchExcept(**{"except": [but]}))


def privacy(selection: Selection) -> tuple[list[Condition], list[Condition]]:
    """Return the conditions that must and must not hold for the privacy part of a selection."""
    if selection.private_only:
        if selection.include_private:
            return [present("hidden_by")], []
        # Without a viewer these are the private rows that have no source.
        return [equals("hidden_by", hidden_by(selection.viewer))], []
    if selection.public_only:
        return [], [present("hidden_by")]
    if selection.include_private:
        return [], []
    if selection.viewer is None:
        return [], [present("hidden_by")]
    return [], [present("hidden_by", but=hidden_by(selection.viewer))]


# The parts of a selection that do not depend on the clock or on metadata.
_Key = tuple[Any, ...]
_NAMES = (
    "roots", "at_scope", "viewer", "include_private", "private_only", "public_only", "sources",
    "categories", "record_ids", "since", "until", "text_hashes", "analysis", "session",
    "positions",
)  # fmt: skip


def _key(selection: Selection, held: frozenset[str]) -> _Key:
    s = selection
    return (
        s.roots, s.at_scope, s.viewer, s.include_private, s.private_only, s.public_only, s.sources,
        s.categories, s.record_ids, s.since, s.until, s.text_hashes, s.analysis, s.session,
        s.positions, s.history or s.as_of is not None, "hidden_by" in held, "retired" in held,
    )  # fmt: skip


def _base(key: _Key) -> models.Filter:
    s = Selection(**dict(zip(_NAMES, key, strict=False)))
    history, holds_hidden, holds_retired = key[-3:]
    must, must_not = privacy(s)
    if not holds_hidden:
        must_not = []
    if scopes.ROOT not in s.roots:
        must.append(
            equals("scopes", s.roots[0]) if len(s.roots) == 1 else any_of("scopes", s.roots)
        )
    if s.at_scope is not None:
        must.append(equals("scope", scopes.normalise(s.at_scope)))
    for name, values in (
        ("sources", s.sources),
        ("categories", s.categories),
        ("record_id", s.record_ids),
        ("text_hash", s.text_hashes),
    ):
        if values is not None:
            must.append(any_of(name, values))
    if s.since is not None or s.until is not None:
        must.append(time_range("created_at", gte=s.since, lt=s.until))
    if s.analysis is not None:
        must.append(equals("analysis", s.analysis))
    if s.session is not None:
        must.append(equals("session", s.session))
    if s.positions is not None:
        after, before = s.positions
        must.append(models.FieldCondition(key="position", range=models.Range(gt=after, lt=before)))
    if holds_retired and not history:
        must_not.append(present("retired"))
    return models.Filter(must=must or None, must_not=must_not or None)


_cached = lru_cache(maxsize=512)(_base)


def _metadata(key: str, condition: Any) -> list[Condition]:
    """Return the conditions, all of which must hold, for one metadata key."""
    if isinstance(condition, Mapping):
        if set(condition) == {"all"}:
            parts: list[Condition] = []
            for part in condition["all"]:
                parts.extend(_metadata(key, part))
            return parts
        return [_metadata_range(key, condition)]
    values = (
        list(condition) if isinstance(condition, (list, tuple, set, frozenset)) else [condition]
    )
    for value in values:
        if value is not None and not isinstance(value, (str, int, float, date)):
            raise InvalidInputError(
                f"The metadata condition {key!r}: {value!r} cannot be compared. Use text, a "
                "number, a boolean, None, a date or time, a list of these, or a range."
            )
    return [any_of("metadata_terms", [metadata_term(key, value) for value in values])]


def _metadata_range(key: str, condition: Mapping[str, Any]) -> Condition:
    unknown = set(condition) - _RANGE_OPERATORS
    if unknown or not condition:
        raise InvalidInputError(
            f"The metadata condition {key!r}: {dict(condition)!r} is not known. Use a value, a "
            "list of values, or a mapping of gt, gte, lt, lte to a number or time."
        )
    if '"' in key:
        raise InvalidInputError(
            f"A range on the metadata key {key!r} is not possible: it has a quote."
        )
    path = f'metadata."{key}"'
    bounds = {name: _bound(key, value) for name, value in condition.items()}
    if all(isinstance(bound, datetime) for bound in bounds.values()):
        return models.FieldCondition(key=path, range=models.DatetimeRange(**bounds))
    if any(isinstance(bound, datetime) for bound in bounds.values()):
        raise InvalidInputError(f"The metadata range {key!r} mixes numbers and times.")
    return models.FieldCondition(key=path, range=models.Range(**bounds))


def _bound(key: str, value: Any) -> Any:
    with contextlib.suppress(ValueError):
        if isinstance(value, datetime):
            return as_utc(value)
        if isinstance(value, str):
            return as_utc(datetime.fromisoformat(value))
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise InvalidInputError(
        f"The metadata range {key!r} has the bound {value!r}. Use a number, a date or a time."
    )
