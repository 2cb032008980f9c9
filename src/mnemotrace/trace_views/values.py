"""Single values as they are shown: short, on one line, with nothing in them that is obeyed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from mnemotrace.trace import Span, plain

MAX_VALUE = 80
"""Characters of one fact."""
MAX_NAME = 80
"""Characters of one name of a span, a step or a fact."""
MAX_ERROR = 500
"""Characters of one error, as many as a trace records."""
MAX_ITEMS = 6
MAX_ITEM = 24
_JOINERS = "\u200c\u200d"  # needed inside words and emoji of several scripts


def visible(text: str, keep: str = "") -> str:
    """Return `text` with every control or invisible character written as an escape.

    Args:
        keep: characters to leave as they are, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in _JOINERS or char in keep
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def short(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters, cut with an ellipsis.

    Only the part that is shown is looked at: a line of a megabyte costs no more than a short one.
    """
    shown = visible(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def name_of(item: Span) -> str:
    """Return a span's name, ready to be shown."""
    return short(item.name, MAX_NAME)


def format_value(value: Any, limit: int = MAX_VALUE) -> str:
    """Return a fact in a short readable form: ``0.83``, ``"two words"``, ``[a, b, +3]``."""
    if not isinstance(value, (list, tuple, Mapping)):
        value = plain(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, int) and abs(value) >= 10**limit:
        return f"about 2**{value.bit_length()}"  # Python refuses to print very long integers
    if isinstance(value, (list, tuple)):
        return f"[{_items([format_value(item, MAX_ITEM) for item in value[:MAX_ITEMS]], value)}]"
    if isinstance(value, Mapping):
        pairs = [
            f"{short(str(key), MAX_ITEM)}: {format_value(item, MAX_ITEM)}"
            for key, item in itertools.islice(value.items(), MAX_ITEMS)
        ]
        return f"{{{_items(pairs, value)}}}"
    text = short(str(value), limit)
    return text if text and " " not in text and '"' not in text else f'"{text}"'


def _items(shown: list[str], whole: Sized) -> str:
    more = len(whole) - len(shown)
    return ", ".join([*shown, f"+{more}"] if more else shown)


def duration_text(milliseconds: float) -> str:
    """Return a duration for people, of 9 characters at most: ``6.1 ms``, ``12.3 s``, ``2.8 h``."""
    if milliseconds < 10_000:
        return f"{milliseconds:.1f} ms" if milliseconds > -1000 else "before"
    if milliseconds < 10_000_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds / 3_600_000:.2g} h"


def unfinished(item: Span) -> bool:
    """Tell whether a span never ended: its run was over, or still goes on."""
    return item.end_ns is None and item.kind != "run"


def error_of(item: Span) -> str:
    """Return what a failed span failed with."""
    return short(item.error or "unknown error", MAX_ERROR)


def facts(item: Span) -> Iterator[tuple[str, str]]:
    """Yield the facts of a span; the events of a step come last, as ``Received->Returned``."""
    attrs = dict(item.attrs)
    events = None
    if item.kind == "step" and "received" in attrs:
        received = format_value(attrs.pop("received"))
        events = f"{received}->{format_value(attrs.pop('returned', None))}"
    for key, value in attrs.items():
        if value is not None:
            yield short(str(key), MAX_NAME), format_value(value)
    if events is not None:
        yield "events", events


def plural(count: int, noun: str) -> str:
    """Return ``1 step``, ``2 steps``, ``2 searches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"
