"""What changed from one version of a record to the next, in words and marks."""

from __future__ import annotations

import difflib
import re
from typing import Any

from rich.text import Text

from mnemotrace.records import MemoryRecord

from .showing import excerpt, instant, one_line

MAX_WORDS = 400
"""Longer texts are compared by their length only: a comparison takes time by the square of it."""
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|\w+|\s+|[^\w\s]")
_FIELDS = ("scope", "categories", "importance", "source", "sources", "private", "pinned",
           "expires_at", "session", "analysis")  # fmt: skip
_WIDTH = 200


def changes(before: MemoryRecord, after: MemoryRecord) -> Text:
    """Return what differs, one line a field: ``-`` was taken away, ``+`` was put in."""
    text = Text()
    if before.content != after.content:
        text.append("  content ", "bold")
        text.append_text(_words(before.content, after.content)).append("\n")
    for name in _FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new and not (name == "sources" and before.source != after.source):
            _line(text, name, old, new)
    for key in sorted({*before.metadata, *after.metadata}):
        missing = object()
        old, new = before.metadata.get(key, missing), after.metadata.get(key, missing)
        if old is missing or new is missing or old != new or type(old) is not type(new):
            shown = ("-" if value is missing else value for value in (old, new))
            _line(text, f"metadata {one_line(key)}", *shown)
    return text or Text("  nothing that is shown here\n", "dim")


def _line(text: Text, name: str, old: Any, new: Any) -> None:
    text.append(f"  {name} ", "bold")
    text.append(_value(old), "red").append(" → ").append(_value(new), "green").append("\n")


def _value(value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return excerpt(", ".join(map(str, value)), _WIDTH)
    if hasattr(value, "strftime") and hasattr(value, "tzinfo"):
        return instant(value)
    return excerpt(str(value), _WIDTH)


def _words(before: str, after: str) -> Text:
    old, new = _WORDS.findall(before[:20_000]), _WORDS.findall(after[:20_000])
    if max(len(old), len(new)) > MAX_WORDS:
        return Text(f"another text ({len(before):,} → {len(after):,} characters)")
    text = Text()
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            text.append(_shown(old[a:b]))
            continue
        if a < b:
            text.append(f"[-{_shown(old[a:b])}-]", "red")
        if c < d:
            text.append(f"[+{_shown(new[c:d])}+]", "green")
    return text


def _shown(words: list[str]) -> str:
    # Spaces at the ends belong to the text; one_line would take them off.
    return "".join(" " if word.isspace() else one_line(word) for word in words)
