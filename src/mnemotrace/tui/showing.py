"""Texts of records as the screens show them: data, never markup, within a known width and length.

Every function returns plain text or a rich `Text`; neither is read as markup by textual. Control
characters are made visible.
"""

from __future__ import annotations

import json
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mnemotrace.cli.output import day, instant, one_line, printable
from mnemotrace.records import MemoryRecord, pending_fields
from mnemotrace.trace import plain

PREVIEW = 1_500
"""Characters of one text in a pane; more of it would make the screen slow. `v` shows the rest."""
_EIGHTHS = " ▏▎▍▌▋▊▉"

__all__ = ["bar", "block", "day", "excerpt", "fit", "instant", "metadata_lines", "one_line",
           "origin", "printable", "rows_text", "waits_for"]  # fmt: skip


def fit(text: str, width: int) -> str:
    """Return one line of exactly `width` terminal cells; what is cut ends in an ellipsis."""
    line = one_line(text[: 4 * width + 40])
    if cell_len(line) <= width:
        return set_cell_size(line, width)
    return "" if width <= 0 else set_cell_size(set_cell_size(line, width - 1).rstrip() + "…", width)


def excerpt(text: str, width: int) -> str:
    """Return one line of at most `width` terminal cells."""
    return fit(text, width).rstrip()


def block(text: str, limit: int = PREVIEW) -> str:
    """Return a text with its lines; past `limit` characters it ends in how much there is."""
    if len(text) <= limit:
        return printable(text)
    return f"{printable(text[:limit])}…\n({len(text):,} characters in all; v shows the rest)"


def bar(value: float, width: int) -> str:
    """Return a value from 0 to 1 as a bar of `width` cells; values outside are cut."""
    eighths = round(min(1.0, max(0.0, value)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def origin(record: MemoryRecord) -> str:
    """Return who said it, and whether it is private."""
    who = ", ".join(record.sources or ([record.source] if record.source else [])) or "-"
    return f"{who} (private)" if record.private else who


def waits_for(record: MemoryRecord) -> str | None:
    """Return what a model still has to fill in; None when nothing waits."""
    if not record.analysis:
        return None
    fields = pending_fields(record.analysis)
    return f"a model is to fill in {', '.join(fields)}" if fields else record.analysis


def metadata_lines(metadata: dict[str, Any], limit: int = PREVIEW) -> str:
    """Return metadata as JSON with one key a line, at most about `limit` characters."""
    return block(json.dumps(plain(metadata), ensure_ascii=False, indent=2), limit)


def rows_text(rows: list[tuple[str, str]], width: int = 12) -> Text:
    """Return names and values as two columns; the values are data."""
    text = Text()
    for name, value in rows:
        text.append(f"{name:<{width}}", "bold")
        text.append(f"{value}\n")
    return text
