"""What the fields of a line may hold: what `remember` and the library itself would write.

Checked before the line becomes a record, because a record's model also takes what can be turned
into the right kind: ``"private": "no"`` would be False, and a number a time.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from mnemotrace.checks import shortened
from mnemotrace.records import ANALYSED_FIELDS, as_utc, pending_analysis, pending_fields

REASONS = ("superseded", "forgotten")
"""Why a version may be retired."""
_MOST = 2**53
"""From here on, a float does not hold every whole number."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no file can hold."""

_Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _SURROGATE.search(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _labels(value: Any) -> bool:
    return _texts(value) and all(label == label.strip() for label in value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # nor NaN


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _from_one(value: Any) -> bool:
    return _whole(value) and value >= 1


def _time(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        as_utc(datetime.fromisoformat(value))
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
    "importance": (_share, "a number from 0 to 1"),
    "usefulness": (_number, "a number"),
    **dict.fromkeys(("private", "pinned"), (_flag, "true or false")),
    "version": (_from_one, f"a whole number from 1 to {_MOST}"),
    "access_count": (_whole, f"a whole number from 0 to {_MOST}"),
    "position": (_nothing_or(_whole), f"a whole number from 0 to {_MOST}, or null"),
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
_HEADER_RULES: dict[str, tuple[_Check, str]] = {
    "schema_version": (_from_one, "a whole number, 1 or more"),
    "embedder": (_object, "an object"),
    "scopes": (_texts, "a list of texts that are not blank"),
    **dict.fromkeys(("history", "embeddings"), (_flag, "true or false")),
}
_END_RULES: dict[str, tuple[_Check, str]] = dict.fromkeys(
    ("records", "versions"), (_whole, f"a whole number from 0 to {_MOST}")
)


def unfit(name: str, value: Any, wanted: str) -> str:
    """Say that a field has another value than it may have.

    Args:
        name: of the field.
        value: what is in it.
        wanted: what may be in it, in words.
    """
    return f"the field {name!r} must be {wanted}, not {shown(value)}"


def shown(value: Any) -> str:
    """Return a value of a line for a message; JSON's three words as they are in the file."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shortened(value)


def unfit_here(name: str, value: Any) -> str | None:
    """Say so of a field that has a rule; None for others."""
    return unfit(name, value, _RULES[name][1]) if name in _RULES else None


def header_fault(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the fields of a header; None when nothing is."""
    if "schema_version" not in line:
        return "the field 'schema_version' is missing"
    return _first_fault(line, _HEADER_RULES)


def end_fault(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the fields of an end; None when nothing is."""
    missing = next((name for name in _END_RULES if name not in line), None)
    if missing is not None:
        return f"the field {missing!r} is missing"
    return _first_fault(line, _END_RULES)


def _first_fault(line: Mapping[str, Any], rules: Mapping[str, tuple[_Check, str]]) -> str | None:
    for name, (fits, wanted) in rules.items():
        if name in line and not fits(line[name]):
            return unfit(name, line[name], wanted)
    return None


def fault(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the fields of a line, one by one and together; None when nothing is.

    Ids, texts, embeddings and the contents of metadata are not looked at.
    """
    problem = _first_fault(line, _RULES)
    if problem is not None:
        return problem
    if (line.get("retired") is None) != (line.get("valid_to") is None):
        return (
            "'retired' (why a version is no longer current) and 'valid_to' (since when) must both "
            "be there or neither"
        )
    if line.get("superseded_by") is not None and line.get("retired") != "superseded":
        return "'superseded_by' names an heir, but 'retired' is not 'superseded'"
    return None
