"""What the outbox holds: accepted saves, their batches, dead letters; and their form on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from mnemotrace.checks import kind_of, shortened
from mnemotrace.errors import RecordError

_MARK = "$"
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class PendingSave:
    """One accepted text that is not yet encoded.

    Attributes:
        record_id: the id its record will have, fixed at acceptance, so that encoding it again
            after a crash writes the same record.
        content: the text.
        position: its place in the session or batch, rising; None when it has none.
        options: how it is to be saved (scope, categories, metadata, ...). The outbox reads only
            ``scope`` and ``reach``, when purging by subtree. Plain JSON values, and besides them
            datetimes, dates, tuples and non-string keys, which all come back as they were.
    """

    record_id: str
    content: str
    position: int | None = None
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that waits to be encoded.

    Attributes:
        id: as returned by `Outbox.accept`.
        size: how many of its texts still wait.
        accepted_at: when it was accepted.
        attempts: how often encoding it has failed.
        next_attempt_at: not to be tried before this time; None for at once.
        error: what the last attempt failed with; None before the first failure.
    """

    id: str
    size: int
    accepted_at: datetime
    attempts: int = 0
    next_attempt_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A batch that was given up. Its texts are kept until retried, discarded or forgotten.

    Attributes:
        batch_id: as returned by `Outbox.accept`; what `retry_dead` and `discard_dead` take.
        items: the saves in it, in the order they were accepted.
        error: what the last attempt failed with.
        attempts: how many attempts failed.
        accepted_at: when it was accepted.
        failed_at: when it was given up.
    """

    batch_id: str
    items: tuple[PendingSave, ...]
    error: str
    attempts: int
    accepted_at: datetime
    failed_at: datetime

    @property
    def record_ids(self) -> tuple[str, ...]:
        """The ids the records will have, in order."""
        return tuple(item.record_id for item in self.items)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, in order."""
        return tuple(item.content for item in self.items)


def encode_options(options: Mapping[str, Any]) -> str:
    """Return save options as JSON text that `decode_options` turns back into equal values.

    Raises:
        RecordError: for a value of a kind that cannot be stored; shows the value.
    """
    try:
        return _ENCODER.encode(_to_json(dict(options)))
    except RecursionError:
        raise RecordError(
            "The save options are nested too deeply to be stored, or contain themselves. "
            "Nothing was accepted; flatten the metadata."
        ) from None


def decode_options(text: str) -> dict[str, Any]:
    """Return the options that `encode_options` was given.

    Raises:
        ValueError, TypeError: `text` is not what `encode_options` wrote.
    """
    options = _DECODER.decode(text)
    if not isinstance(options, dict):
        raise TypeError("save options are not a mapping")
    return options


def require_text(text: str, what: str) -> None:
    """Refuse text that is not valid Unicode and so has no form on disk.

    Raises:
        RecordError: for a lone surrogate; says where it is.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(
            f"{what} holds a lone surrogate (U+{ord(text[error.start]):04X} at character "
            f"{error.start}), which is not valid Unicode text. Nothing was accepted; clean the "
            "text first, for example with text.encode('utf-8', 'replace').decode()."
        ) from None


def _to_json(value: Any) -> Any:
    """Tag what JSON has no form for; a mapping whose keys could be taken for tags becomes pairs."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        if all(isinstance(key, str) and key[:1] != _MARK for key in value):
            return {
                key: item if item.__class__ in _PLAIN else _to_json(item)
                for key, item in value.items()
            }
        return {_MARK + "mapping": [[_to_json(key), _to_json(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, tuple):
        return {_MARK + "tuple": [_to_json(item) for item in value]}
    if isinstance(value, datetime):
        return {_MARK + "datetime": value.isoformat()}
    if isinstance(value, date):
        return {_MARK + "date": value.isoformat()}
    raise RecordError(
        f"A save option or a metadata value is {kind_of(value)} ({shortened(value, 80)}), which "
        "cannot be stored. Nothing was accepted; use text, numbers, booleans, None, dates, "
        "datetimes, lists or mappings."
    )


def _from_json(pairs: list[tuple[str, Any]]) -> Any:
    if len(pairs) == 1:
        tag, value = pairs[0]
        if tag == _MARK + "datetime":
            return datetime.fromisoformat(value)
        if tag == _MARK + "date":
            return date.fromisoformat(value)
        if tag == _MARK + "tuple":
            return tuple(value)
        if tag == _MARK + "mapping":
            return {key: item for key, item in value}
    return dict(pairs)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(object_pairs_hook=_from_json)
