"""Views of a trace: a tree for the terminal, nested HTML for notebooks.

Everything shown may come from a memory, a prompt or a model. It is data: control characters are
made visible, markup and escape sequences are never interpreted.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .trace import Span, Trace, plain

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from .records import MemoryMatch, Recall

DEFAULT_WIDTH = 120
MIN_WIDTH = 20
MAX_VALUE = 80
"""Characters of one fact in the terminal tree."""
MAX_CONTENT = 300
"""Characters of one kept text in the terminal tree; HTML shows it whole."""
MAX_ITEMS = 6
_JOINERS = "\u200c\u200d"  # needed inside words and emoji of several scripts


def visible(text: str) -> str:
    """Return `text` in one line, with every control or invisible character written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in _JOINERS
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def format_value(value: Any, limit: int = MAX_VALUE) -> str:
    """Return a fact in a short readable form: ``0.83``, ``"two words"``, ``[a, b, +3]``."""
    value = plain(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list):
        shown = [format_value(item, 24) for item in value[:MAX_ITEMS]]
        if len(value) > MAX_ITEMS:
            shown.append(f"+{len(value) - MAX_ITEMS}")
        return f"[{', '.join(shown)}]"
    if isinstance(value, Mapping):
        pairs = [f"{visible(key)}: {format_value(item, 24)}" for key, item in value.items()]
        shown = pairs[:MAX_ITEMS] + (
            [f"+{len(pairs) - MAX_ITEMS}"] if len(pairs) > MAX_ITEMS else []
        )
        return f"{{{', '.join(shown)}}}"
    text = visible(str(value))
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return text if text and " " not in text and '"' not in text else f'"{text}"'


def trace_text(trace: Trace, width: int | None = None) -> str:
    """Return the trace as a plain text tree, without colour or a trailing newline.

    Args:
        width: columns to wrap at, 20 or more; None for the terminal's, or 120 where there is none.
    """
    import io

    from rich.console import Console

    columns = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    out = io.StringIO()
    console = Console(
        file=out, width=max(MIN_WIDTH, columns), color_system=None, force_terminal=False,
        legacy_windows=False, markup=False, emoji=False, highlight=False,
    )  # fmt: skip
    console.print(trace_tree(trace))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def trace_tree(trace: Trace) -> Tree:
    """Return the trace as a rich tree, for `rich.print` and consoles of your own."""
    from rich.tree import Tree

    below = trace.children()
    tree = Tree(_label(trace.root, trace.duration_ms), guide_style="dim")
    pending = [(tree, child) for child in reversed(below.get(0, []))]
    while pending:
        branch, item = pending.pop()
        node = branch.add(_label(item, item.duration_ms))
        pending.extend((node, child) for child in reversed(below.get(item.id, [])))
    if trace.dropped:
        tree.add(f"{trace.dropped} more spans were not kept")
    return tree


def _label(item: Span, duration_ms: float) -> Text:
    from rich.text import Text

    label = Text(visible(item.name), style="bold" if item.kind in ("run", "step") else "")
    label.append(f" {_duration(item, duration_ms)}", style="cyan")
    if item.attempt > 1:
        label.append(f" attempt {item.attempt}", style="yellow")
    for name, value in _facts(item):
        label.append(f" {name}=", style="dim")
        label.append(value)
    if item.status == "cancelled":
        label.append(" cancelled", style="yellow")
    elif item.status == "error":
        label.append(f" failed: {visible(item.error or 'unknown error')}", style="red")
    for key, value in (item.content or {}).items():
        label.append(f"\n  {visible(key)}: {format_value(value, MAX_CONTENT)}", style="italic")
    return label


def _duration(item: Span, duration_ms: float) -> str:
    if item.end_ns is None and item.kind != "run":
        return "not finished"
    return f"{duration_ms:.1f} ms"


def _facts(item: Span) -> Iterable[tuple[str, str]]:
    """Yield the facts to show; the events of a step come as one ``Received->Returned``."""
    attrs = dict(item.attrs)
    if item.kind == "step" and "received" in attrs:
        received = format_value(attrs.pop("received"))
        returned = format_value(attrs.pop("returned", None))
        yield "events", f"{received}->{returned}"
    for key, value in attrs.items():
        if value is not None:
            yield visible(key), format_value(value)
