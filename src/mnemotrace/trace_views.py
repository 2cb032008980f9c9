"""Views of a trace: a tree for the terminal, nested HTML for notebooks.

Everything shown may come from a memory, a prompt or a model. It is data: control characters are
made visible, markup and escape sequences are never interpreted.
"""

from __future__ import annotations

import html
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
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
MAX_SIBLINGS = 20
"""Spans of one name shown below one span; the others are summed up in a line."""
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
    if isinstance(value, (list, tuple)):
        return f"[{_items([format_value(item, MAX_ITEM) for item in value[:MAX_ITEMS]], value)}]"
    if isinstance(value, Mapping):
        pairs = [
            f"{visible(str(key))}: {format_value(item, MAX_ITEM)}"
            for key, item in itertools.islice(value.items(), MAX_ITEMS)
        ]
        return f"{{{_items(pairs, value)}}}"
    text = visible(str(value))
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return text if text and " " not in text and '"' not in text else f'"{text}"'


def _items(shown: list[str], whole: Sized) -> str:
    more = len(whole) - len(shown)
    return ", ".join([*shown, f"+{more}"] if more else shown)


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
    from rich.text import Text
    from rich.tree import Tree

    below = trace.children()
    tree = Tree(_label(trace.root, trace.duration_ms), guide_style="dim")
    pending: list[tuple[Tree, Span | str]]
    pending = [(tree, child) for child in reversed(_shown(below.get(0, [])))]
    while pending:
        branch, item = pending.pop()
        if isinstance(item, str):
            branch.add(Text(item, style="dim"))
            continue
        node = branch.add(_label(item, item.duration_ms))
        pending.extend((node, child) for child in reversed(_shown(below.get(item.id, []))))
    if trace.dropped:
        tree.add(f"{trace.dropped} more spans were not kept")
    return tree


def _shown(siblings: list[Span]) -> list[Span | str]:
    """Return siblings, with all but the first 20 of each name summed up in a line at the end."""
    shown: list[Span | str] = []
    rest: dict[str, list[Span]] = {}
    seen: Counter[str] = Counter()
    for item in siblings:
        seen[item.name] += 1
        if seen[item.name] <= MAX_SIBLINGS:
            shown.append(item)
        else:
            rest.setdefault(item.name, []).append(item)
    for name, items in rest.items():
        line = f"{len(items)} more {visible(name)}, {sum(i.duration_ms for i in items):.1f} ms"
        failed = sum(item.status != "ok" for item in items)
        shown.append(f"{line}, {failed} failed" if failed else line)
    return shown


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


def _facts(item: Span) -> Iterator[tuple[str, str]]:
    """Yield the facts to show; the events of a step come as one ``Received->Returned``."""
    attrs = dict(item.attrs)
    if item.kind == "step" and "received" in attrs:
        received = format_value(attrs.pop("received"))
        returned = format_value(attrs.pop("returned", None))
        yield "events", f"{received}->{returned}"
    for key, value in attrs.items():
        if value is not None:
            yield visible(key), format_value(value)


_BOX = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.5;text-align:left"
_INDENT = "margin-left:1.4em"
_DIM = "opacity:.65"
_RED = "color:#c0392b"
_CELL = "text-align:left;vertical-align:top;padding:2px 8px"


def trace_html(trace: Trace) -> str:
    """Return the trace as nested, foldable HTML with a timing bar for each span.

    It stands alone: no script, no style sheet, nothing loaded from anywhere. All texts are
    escaped.
    """
    below = trace.children()
    total_ns = max([1, trace.root.end_ns or 0, *(item.end_ns or 0 for item in trace.spans)])
    parts = [f'<div class="mnemotrace-trace" style="{_BOX}">']
    pending: list[Span | str] = [trace.root]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        is_root = item is trace.root
        line = _span_html(item, trace.duration_ms if is_root else item.duration_ms, total_ns)
        children = _shown(below.get(item.id, []))
        indent = "" if is_root else f' style="{_INDENT}"'
        if children:
            parts.append(f"<details open{indent}><summary>{line}</summary>{_content_html(item)}")
            pending.append("</details>")
            pending.extend(
                f'<div style="{_INDENT};{_DIM}">{_text(child)}</div>'
                if isinstance(child, str)
                else child
                for child in reversed(children)
            )
        else:
            parts.append(f"<div{indent}>{line}{_content_html(item)}</div>")
    if trace.dropped:
        parts.append(f"<div>{trace.dropped} more spans were not kept</div>")
    parts.append("</div>")
    return "".join(parts)


def recall_html(recall: Recall) -> str:
    """Return a recall as HTML: its matches with their scores, what is missing, and the trace.

    It stands alone like `trace_html`, and all texts are escaped.
    """
    noun = "memory" if len(recall) == 1 else "memories"
    parts = [
        f'<div class="mnemotrace-recall" style="{_BOX}">',
        f"<div><b>{len(recall)} {noun}</b> for {_text(format_value(recall.query, 500))} ",
        f'<span style="{_DIM}">confidence {recall.confidence:.2f}</span></div>',
    ]
    if recall.errors:
        parts.append(f'<div style="{_RED}">Part of the search failed:{_list(recall.errors)}</div>')
    if recall:
        parts.append('<table style="border-collapse:collapse"><thead><tr>')
        parts += [f'<th style="{_CELL}">{head}</th>' for head in ("", "score", "memory", "why")]
        parts.append("</tr></thead><tbody>")
        parts += [_match_html(number, match) for number, match in enumerate(recall, 1)]
        parts.append("</tbody></table>")
    else:
        parts.append("<div>Nothing was found.</div>")
    if recall.evidence_gaps:
        parts.append(f"<div>Not found:{_list(recall.evidence_gaps)}</div>")
    if recall.trace is not None:
        parts.append(f"<details><summary>How it was found</summary>{trace_html(recall.trace)}")
        parts.append("</details>")
    parts.append("</div>")
    return "".join(parts)


def _match_html(number: int, match: MemoryMatch) -> str:
    record, c = match.record, match.components
    numbers = (
        f"semantic {c.semantic:.2f} (cosine {c.cosine:.2f}, lexical {c.lexical:.2f}), "
        f"recency {c.recency:.2f}, importance {c.importance:.2f}"
    )
    reasons = ", ".join(match.match_reasons)
    return (
        f'<tr><td style="{_CELL}">{number}</td>'
        f'<td style="{_CELL}">{match.score:.3f}</td>'
        f'<td style="{_CELL};white-space:pre-wrap;max-width:60em">{_text(record.content)}'
        f'<div style="{_DIM}">{_text(record.scope)} &middot; {record.created_at:%Y-%m-%d}</div></td>'
        f'<td style="{_CELL}">{_text(reasons)}<div style="{_DIM}">{numbers}</div></td></tr>'
    )


def _span_html(item: Span, duration_ms: float, total_ns: int) -> str:
    end_ns = total_ns if item.end_ns is None else item.end_ns
    left = min(100.0, 100 * item.start_ns / total_ns)
    width = min(100.0 - left, max(0.5, 100 * (end_ns - item.start_ns) / total_ns))
    color = "#2e86c1" if item.status == "ok" else "#c0392b"
    bar = (
        '<span style="display:inline-block;width:90px;height:7px;margin-right:8px;'
        'background:rgba(128,128,128,.2)"><span style="display:block;height:7px;'
        f'margin-left:{left:.1f}%;width:{width:.1f}%;background:{color}"></span></span>'
    )
    parts = [bar, f"<b>{_text(item.name)}</b> {_duration(item, duration_ms)}"]
    if item.attempt > 1:
        parts.append(f" attempt {item.attempt}")
    parts += [
        f' <span style="{_DIM}">{_text(name)}=</span>{_text(value)}' for name, value in _facts(item)
    ]
    if item.status == "cancelled":
        parts.append(f' <span style="{_RED}">cancelled</span>')
    elif item.status == "error":
        error = _text(item.error or "unknown error")
        parts.append(f' <span style="{_RED}">failed: {error}</span>')
    return "".join(parts)


def _content_html(item: Span) -> str:
    return "".join(
        f'<details style="{_INDENT}"><summary style="{_DIM}">{_text(key)}</summary>'
        f'<div style="white-space:pre-wrap">{_text(_whole(value))}</div></details>'
        for key, value in (item.content or {}).items()
    )


def _whole(value: Any) -> str:
    value = plain(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>"


def _text(value: str) -> str:
    return html.escape(visible(str(value), keep="\n\t"))
