"""What the fields of a line may hold: what `remember` and the library itself would write.

Checked before the line becomes a record, because a record's model also takes what can be turned
into the right kind: ``"private": "no"`` would be False, and a number a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from mnemotrace.records import ANALYSED_FIELDS, pending_analysis, pending_fields

REASONS = ("superseded", "forgotten")
"""Why a version may be retired."""
_MOST = 2**53
"""From here on, a float does not hold every whole number."""

_Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _labels(value: Any) -> bool:
    return _texts(value) and all(label == label.strip() for label in value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _time(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _reason(value: Any) -> bool:
    return value in REASONS


def _analysis(value: Any) -> bool:
    return isinstance(value, str) and pending_analysis(pending_fields(value)) == value


def _nothing_or(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


_PENDING = f"'pending', alone or with some of {', '.join(ANALYSED_FIELDS)}"
_RULES: dict[str, tuple[_Check, str]] = {
    "scope": (_text, "a path such as '/a/b'"),
    "categories": (_labels, "a list of texts, neither blank nor with white space around them"),
    **dict.fromkeys(("sources", "supersedes"), (_texts, "a list of texts that are not blank")),
    **dict.fromkeys(("metadata", "metadata_types"), (_object, "an object")),
    **dict.fromkeys(("importance", "usefulness"), (_number, "a number")),
    **dict.fromkeys(("private", "pinned"), (_flag, "true or false")),
    **dict.fromkeys(("version", "access_count"), (_whole, "a whole number")),
    "position": (_nothing_or(_whole), "a whole number or null"),
    **dict.fromkeys(("created_at", "last_accessed"), (_time, "a time in ISO 8601")),
    **dict.fromkeys(
        ("updated_at", "valid_from", "valid_to", "expires_at"),
        (_nothing_or(_time), "a time in ISO 8601, or null"),
    ),
    **dict.fromkeys(
        ("source", "session", "superseded_by"),
        (_nothing_or(_text), "a text that is not blank, or null"),
    ),
    "retired": (_nothing_or(_reason), f"{' or '.join(map(repr, REASONS))}, or null"),
    "analysis": (_nothing_or(_analysis), f"{_PENDING}, or null"),
}


def fault(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the fields of a line, one by one and together; None when nothing is.

    Ids, texts, embeddings and the contents of metadata are not looked at.
    """
    for name, (fits, wanted) in _RULES.items():
        if name in line and not fits(line[name]):
            return f"the field {name!r} must be {wanted}, not {_shown(line[name])}"
    if (line.get("retired") is None) != (line.get("valid_to") is None):
        return (
            "'retired' (why a version is no longer current) and 'valid_to' (since when) must both "
            "be there or neither"
        )
    if line.get("superseded_by") is not None and line.get("retired") != "superseded":
        return "'superseded_by' names an heir, but 'retired' is not 'superseded'"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
