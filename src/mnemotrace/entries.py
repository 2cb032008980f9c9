"""Records as lines of a prompt, all of them or as many as a number of tokens has room for."""

from __future__ import annotations

from collections.abc import Iterable

from .quoting import inert
from .records import MemoryRecord
from .tokens import LONGEST_TOKEN, has_at_most

CUT = "… [cut]"
"""What stands for the rest of a text that is too long."""
_BACK = 40
"""Characters that a cut may go back to end at a word."""


def entry(record: MemoryRecord) -> str:
    """Return a record as one line for a prompt, attributed; nothing in it is markup."""
    return _line(record, inert(record.content))


def within(records: Iterable[MemoryRecord], most: int) -> str:
    """Return as many records, the first ones first, as lines of together at most `most` tokens.

    A record that has no room is left out, and a shorter one may follow. When none has room, the
    beginning of the first is given, with `CUT` where it ends; ``""`` when not even that has, or
    there are no records.
    """
    kept: list[str] = []
    text = ""
    first: MemoryRecord | None = None
    for record in records:
        first = first or record
        if len(record.content) > most * LONGEST_TOKEN:  # nor need it be written
            continue
        line = entry(record)
        longer = f"{text}\n{line}" if kept else line
        if has_at_most(longer, most):
            kept.append(line)
            text = longer
    return text if kept or first is None else _cut(first, most)


def _cut(record: MemoryRecord, most: int) -> str:
    """Return the longest beginning of a record that has room; ``""`` when there is none."""

    def line(length: int) -> str:
        return _line(record, inert(text[:length].rstrip()) + CUT)

    text = record.content[: most * LONGEST_TOKEN]
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if has_at_most(line(middle), most):
            low = middle
        else:
            high = middle - 1
    if not low:
        return ""
    space = max(text.rfind(mark, max(1, low - _BACK), low) for mark in " \n\t\u3000")
    at_a_word = line(space) if space > 0 else ""
    return at_a_word if at_a_word and has_at_most(at_a_word, most) else line(low)


def _line(record: MemoryRecord, content: str) -> str:
    said_by = record.sources or ([record.source] if record.source else [])
    origin = ", ".join(inert(name) for name in (*said_by, record.scope))
    return f"- {content} ({origin})"
