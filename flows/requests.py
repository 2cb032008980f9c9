"""What a caller asks for, checked before anything is changed."""

from __future__ import annotations

import threading
import time
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from mnemotrace import scopes
from mnemotrace.checks import checked_flag, shortened
from mnemotrace.errors import InvalidInputError, RecordError, ScopeError
from mnemotrace.records import ANALYSED_FIELDS, as_utc, utc_now

_TIMES = ("created_at", "valid_from", "expires_at")
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """One text to be saved.

    Attributes:
        content: the text; never blank.
        record_id: the id it will have, fixed when the save is accepted, so that a save that is
            tried again after a crash is the same save.
        scope: where it goes; None when it is to be inferred.
        reach: the subtrees the writer may see; inferred scopes lie within the first.
        explicit_id: the caller chose `record_id`.
    """

    content: str
    record_id: str
    scope: str | None = None
    reach: tuple[str, ...] = (scopes.ROOT,)
    categories: tuple[str, ...] | None = None
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    importance: float | None = None
    source: str | None = None
    private: bool = False
    created_at: datetime | None = None
    valid_from: datetime | None = None
    expires_at: datetime | None = None
    pinned: bool = False
    session: str | None = None
    position: int | None = None
    explicit_id: bool = False

    @property
    def top(self) -> str:
        """The writer's own scope; inferred ones lie within it."""
        return self.reach[0] if self.reach else scopes.ROOT

    @property
    def home(self) -> str:
        """The scope it goes to where no model infers one."""
        return self.top if self.scope is None else self.scope

    def begins(self, now: datetime) -> datetime:
        """Return from when on it is valid: as was said, else since it was said, at the latest now.

        Args:
            now: the time of the save.
        """
        if self.valid_from is not None:
            return self.valid_from
        return now if self.created_at is None else min(self.created_at, now)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left for a language model to fill in."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """What is left for a language model to fill in."""
        return tuple(name for name in ANALYSED_FIELDS if getattr(self, name) is None)

    def options(self) -> dict[str, Any]:
        """Return everything but content, id and position, for the outbox."""
        # Not asdict(), which copies every value deeply: a third of what accepting a text costs.
        options = {name: getattr(self, name) for name in _OPTIONS}
        if self.metadata:  # the caller may go on with what is in it
            options["metadata"] = deepcopy(self.metadata)
        return options

    @classmethod
    def restore(
        cls, content: str, record_id: str, position: int | None, options: Mapping[str, Any]
    ) -> SaveRequest:
        """Build the request again from what the outbox kept."""
        data = dict(options)
        for name in _TIMES:
            if isinstance(data.get(name), str):
                data[name] = datetime.fromisoformat(data[name])
        data["reach"] = tuple(data.get("reach", (scopes.ROOT,)))
        if data.get("categories") is not None:
            data["categories"] = tuple(data["categories"])
        return cls(content=content, record_id=record_id, position=position, **data)


_OPTIONS = tuple(
    option.name
    for option in fields(SaveRequest)
    if option.name not in ("content", "record_id", "position")
)


def checked_text(content: Any, what: str = "content") -> str:
    """Return the text, or raise RecordError for what cannot be remembered.

    A text of white space and invisible characters alone is blank.
    """
    if not isinstance(content, str):
        raise RecordError(f"{what} must be a string, not {shortened(content)}.")
    if not any(_is_visible(character) for character in content):
        raise RecordError(f"{what} is blank; there is no text in it. Nothing was stored.")
    return _checked_unicode(content, what)


def checked_query(query: Any, what: str = "query") -> str:
    """Return a query, or raise InvalidInputError for one that asks nothing."""
    if not isinstance(query, str):
        raise InvalidInputError(f"The {what} must be a string, not {shortened(query)}.")
    if not any(_is_visible(character) for character in query):
        raise InvalidInputError(f"The {what} is empty; say what to recall.")
    return _checked_unicode(query, f"The {what}")


def _is_visible(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf")


def _checked_unicode(text: str, what: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(
            f"{what} holds a lone surrogate at character {error.start}, which is not text. "
            "Decode it with errors='replace' first. Nothing was changed."
        ) from error
    return text


def checked_number(value: Any, name: str) -> float:
    """Return a number from 0 to 1, or raise RecordError."""
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecordError(f"{name} must be a number from 0 to 1, not {shortened(value)}.")
    if not 0 <= value <= 1:  # nor NaN
        raise RecordError(
            f"{name} must be from 0 to 1, not {shortened(value)}. Nothing was changed."
        )
    return float(value)


def checked_count(value: Any, name: str) -> int:
    """Return a whole number from 0 to 2**31 - 1, to which larger ones are cut down."""
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInputError(
            f"{name} must be a whole number, 0 or more, not {shortened(value)}."
        )
    return min(value, 2**31 - 1)


def _plain(value: Any) -> Any:
    """Turn a numpy scalar into a plain number."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def checked_labels(value: Any, name: str) -> tuple[str, ...] | None:
    """Return distinct non-blank labels in order; None stays None; one string is one label."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [value]
    if not _is_listing(value):
        raise InvalidInputError(f"{name} must be a list of strings, not {shortened(value)}.")
    labels: dict[str, None] = {}
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise InvalidInputError(f"{name} must hold non-blank strings, not {shortened(item)}.")
        labels[_checked_unicode(item.strip(), name)] = None
    return tuple(labels)


def _is_listing(value: Any) -> bool:
    """Whether a value is several; bytes would be numbers, and a dict its keys alone."""
    return isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping))


def checked_scope(value: Any, name: str) -> str | None:
    """Return a scope path as it is, or None; what it may be is checked when it is read."""
    if value is not None and not isinstance(value, str):
        raise ScopeError(
            f"{name} must be a scope path such as '/team/alpha', not {shortened(value)}."
        )
    return value


def checked_id(value: Any) -> str:
    """Return a record id as it is, white space included; raise InvalidInputError for another."""
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"record_id must be a non-empty string, not {shortened(value)}.")
    return _checked_unicode(value, "The record id")


def checked_ids(value: Any) -> tuple[str, ...] | None:
    """Return record ids; None stays None, which is no condition; one string is one id."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [value]
    if not _is_listing(value):
        raise InvalidInputError(f"record_ids must be a list of ids, not {shortened(value)}.")
    ids: dict[str, None] = {}
    for item in value:
        if not isinstance(item, str) or not item:
            raise InvalidInputError(
                f"record_ids must hold non-empty strings, not {shortened(item)}."
            )
        ids[_checked_unicode(item, "record_ids")] = None
    return tuple(ids)


def checked_filter(value: Any) -> dict[str, Any]:
    """Return conditions on metadata; None is none. The store checks what they compare with."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"metadata_filter must be a dict, not {shortened(value)}.")
    for key, condition in value.items():
        if not isinstance(key, str):
            raise InvalidInputError(f"metadata_filter must have text keys, not {shortened(key)}.")
        several = isinstance(condition, (list, tuple, set, frozenset))
        for text in (key, *(condition if several else (condition,))):
            if isinstance(text, str):
                _checked_unicode(text, "metadata_filter")
    return dict(value)


def checked_time(value: Any, name: str) -> datetime | None:
    """Return a time in UTC; naive is taken as UTC, ISO 8601 text (``Z`` too) is parsed."""
    moment = checked_moment(value, name)
    return None if moment is None else as_utc(moment)  # which `checked_moment` has tried


def checked_moment(value: Any, name: str) -> datetime | None:
    """Return a time in its own time zone, which is UTC where it has none; else as `checked_time`.

    For what is told to a language model: there, "yesterday" depends on the time zone.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInputError(
                f"{name}={shortened(value)} is not a time. Pass a datetime, a date or ISO 8601 text "
                "such as '2026-03-01T09:00:00+09:00'."
            ) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise InvalidInputError(
            f"{name} must be a time, not {shortened(value)}: a datetime, a date or ISO 8601 text "
            "such as '2026-03-01T09:00:00+09:00'."
        )
    moment: datetime = value if value.utcoffset() is not None else value.replace(tzinfo=UTC)
    try:
        as_utc(moment)
    except ValueError as error:
        raise InvalidInputError(f"{name}: {error}.") from None
    return moment


def checked_window(since: Any, until: Any) -> tuple[datetime | None, datetime | None]:
    """Return both ends of a window of time, in UTC; None for an end that is open.

    Raises:
        InvalidInputError: one is no time, or the window ends before it begins.
    """
    begins, ends = checked_time(since, "since"), checked_time(until, "until")
    if begins is not None and ends is not None and begins > ends:
        raise InvalidInputError(
            f"since={begins.isoformat()} is after until={ends.isoformat()}: no time is in that "
            "window. Swap them?"
        )
    return begins, ends


def checked_age(value: Any, name: str) -> datetime | None:
    """Return the time before which something is older than a value: a time, or an age until now.

    Raises:
        InvalidInputError: it is neither, or an age below 0.
    """
    if not isinstance(value, timedelta):
        if value is not None and not isinstance(value, (str, date)):
            raise InvalidInputError(
                f"{name} must be a time or an age, not {shortened(value)}: a datetime, a date, ISO "
                "8601 text such as '2026-03-01T09:00:00+09:00', or a timedelta such as "
                "timedelta(days=30)."
            )
        return checked_time(value, name)
    if value < timedelta(0):
        raise InvalidInputError(
            f"{name}={value!r} is an age below 0, which would mean everything. Nothing was changed."
        )
    now = utc_now()
    return now - value if value < now - _FIRST else _FIRST  # nothing can be that old


def time_zone_of(*values: Any) -> tzinfo | None:
    """Return the time zone of the first time that was given, as it was given.

    A naive time, and a date, are UTC, as everywhere. None when no time was given: the zone is then
    this machine's. The times themselves are checked by `checked_time`.
    """
    for value in values:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.tzinfo
        if value is not None:
            return UTC
    return None


def checked_name(value: Any, name: str) -> str | None:
    """Return a non-blank string or None."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{name} must be a non-blank string, not {shortened(value)}.")
    return _checked_unicode(value, name)


def checked_whole(scope: Any) -> None:
    """Refuse a blank scope where it would mean everything: a variable that was never set."""
    if isinstance(scope, str) and not scope.strip():
        raise InvalidInputError(
            f"scope={scope!r} is blank. To mean everything in reach, say '/'; nothing was removed."
        )


def checked_metadata(value: Any) -> dict[str, Any]:
    """Return a copy of the user's metadata, or raise RecordError for what cannot be stored."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RecordError(f"metadata must be a dict, not {shortened(value)}.")
    from mnemotrace.stores.points import validate_metadata  # loads the engine's client

    copy = dict(value)
    validate_metadata(copy)
    return copy


BATCH = "batch:"
"""Begins the session of a batch that was given no name."""
_placing = threading.Lock()
_last_position = 0


def next_position() -> int:
    """Return a place after every one given so far, here or in earlier processes.

    Microseconds since the epoch, or one more than the last: whole numbers that a float holds.
    """
    global _last_position
    with _placing:
        _last_position = max(time.time_ns() // 1000, _last_position + 1)
        return _last_position


def save_request(
    content: Any,
    *,
    scope: str | None,
    reach: tuple[str, ...],
    categories: Any = None,
    metadata: Any = None,
    importance: Any = None,
    source: Any = None,
    private: Any = False,
    created_at: Any = None,
    valid_from: Any = None,
    expires_at: Any = None,
    pinned: Any = False,
    record_id: Any = None,
    session: Any = None,
    position: int | None = None,
) -> SaveRequest:
    """Check one save and return it as a request.

    Raises:
        RecordError, InvalidInputError: naming the argument that is wrong; nothing was changed.
    """
    checked_flag(private, "private", RecordError)
    checked_flag(pinned, "pinned", RecordError)
    chosen = checked_name(record_id, "record_id")
    if chosen is not None:
        checked_text(chosen, "record_id")
    request = SaveRequest(
        content=checked_text(content),
        record_id=chosen or str(uuid.uuid4()),
        scope=scope,
        reach=reach,
        categories=checked_labels(categories, "categories"),
        metadata=checked_metadata(metadata),
        importance=None if importance is None else checked_number(importance, "importance"),
        source=checked_name(source, "source"),
        private=private,
        created_at=checked_time(created_at, "created_at"),
        valid_from=checked_time(valid_from, "valid_from"),
        expires_at=checked_time(expires_at, "expires_at"),
        pinned=pinned,
        session=checked_name(session, "session"),
        position=next_position() if position is None else position,
        explicit_id=chosen is not None,
    )
    _check_span(request)
    return request


def _check_span(request: SaveRequest) -> None:
    """Refuse a save that nobody could ever recall, since it ends before it begins."""
    ends, begins = request.expires_at, request.begins(utc_now())
    if ends is None or ends > begins:
        return
    if request.valid_from is not None:
        begin = f"valid_from={begins.isoformat()}"
    elif request.created_at is not None and request.created_at == begins:
        begin = f"created_at={begins.isoformat()}, from when on it is valid"
    else:
        begin = "the present"
    raise InvalidInputError(
        f"expires_at={ends.isoformat()} is not after {begin}: nobody could ever recall it. Nothing "
        "was stored. "
        + (
            "For what was valid in the past, say from when on: valid_from=."
            if request.valid_from is None
            else "Swap them?"
        )
    )
