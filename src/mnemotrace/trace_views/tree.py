"""The trace in a terminal: totals and route, then a tree with a column of times and bars.

The same lines serve plain text and `rich`. Nothing is cut but single long values: what does not
fit is wrapped, in the narrowest terminal too. Without colour no information is lost, and where
the output cannot show other characters the lines are ASCII.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mnemotrace.trace import Span, Trace

from .summary import Rest, end_of, route_of, shown_of, totals_of
from .values import (
    duration_text,
    error_of,
    facts,
    format_value,
    name_of,
    short,
    unfinished,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.style import Style

DEFAULT_WIDTH = 120
MIN_WIDTH = 20
WITH_TIMES = 60
"""Columns from which times and bars have a column of their own."""
WITH_WIDE_BARS = 90
MAX_CONTENT = 300
"""Characters of one kept text in the terminal tree; HTML shows it whole."""
_TIME = 9
_LEAST_LABEL = 16

Piece = tuple[str, str]
"""A text without spaces at its borders, and the rich style it has."""
Line = list[Piece]


class _Signs:
    """The characters that lines are drawn with."""

    def __init__(self, ascii_only: bool, narrow: bool) -> None:
        branch, last, through = ("+-", "`-", "| ") if ascii_only else ("├─", "└─", "│ ")
        fill = "-" if ascii_only else "─"
        if narrow:
            branch, last = branch[0], last[0]
            self.branch, self.last, self.through = f"{branch} ", f"{last} ", through
        else:
            self.branch, self.last = f"{branch}{fill} ", f"{last}{fill} "
            self.through = f"{through}  "
        self.blank = " " * len(self.through)
        self.deeper = ("> " if ascii_only else "› ").ljust(len(self.through))
        self.bar, self.brief = ("=", "-") if ascii_only else ("━", "╸")
        self.arrow = "->" if ascii_only else "→"
        self.dot = "-" if ascii_only else "·"
        self.ascii_only = ascii_only

    def text(self, text: str) -> str:
        """Return a text as these signs can show it."""
        if not self.ascii_only or text.isascii():
            return text
        text = text.replace("…", "...")
        return text.encode("ascii", "backslashreplace").decode("ascii")


class TraceTree:
    """A trace, to be printed by `rich` or as plain text."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        ascii_only = options.ascii_only or console.is_dumb_terminal
        new_line = Segment.line()
        styles: dict[str, Style | None] = {"": None}
        for line in self.lines(options.max_width, ascii_only=ascii_only):
            for text, style in _joined(line):
                if style not in styles:
                    styles[style] = console.get_style(style)
                yield Segment(text, styles[style])
            yield new_line

    def lines(self, width: int, *, ascii_only: bool = False) -> Iterator[Line]:
        """Yield the lines, none wider than `width` columns (20 at least)."""
        width = max(width, MIN_WIDTH)
        signs = _Signs(ascii_only, narrow=width < WITH_TIMES)
        trace = self.trace
        yield from _head(trace, width, signs)
        bar = 0 if width < WITH_TIMES else 18 if width >= WITH_WIDE_BARS else 10
        gutter = _Gutter(end_of(trace), bar, signs)
        room = width - gutter.width
        below = trace.children()
        pending: list[tuple[Span | Rest, str, bool]]
        pending = _stacked(shown_of(below.get(0, [])), "")
        while pending:
            item, before, is_last = pending.pop()
            children = [] if isinstance(item, Rest) else shown_of(below.get(item.id, []))
            if len(before) + len(signs.branch) + _LEAST_LABEL > room:
                before = signs.deeper
            own = before + (signs.last if is_last else signs.branch)
            after = before + (signs.blank if is_last else signs.through)
            label_room = room - len(own)
            words = _rest_words(item) if isinstance(item, Rest) else _words(item, signs, not bar)
            first = True
            for line in wrapped(words, label_room):
                yield [
                    *gutter.line(item if first else None),
                    (own if first else after, "dim"),
                    *line,
                ]
                first = False
            if not isinstance(item, Rest):
                for text in _content(item, signs):
                    for line in wrapped(text, label_room - 2):
                        yield [*gutter.line(None), (f"{after}  ", "dim"), *line]
            pending.extend(_stacked(children, after))
        if trace.dropped:
            more = f"{trace.dropped} more spans were not kept"
            for line in wrapped([[(word, "dim")] for word in more.split()], room):
                yield [*gutter.line(None), *line]


def _stacked(items: list[Span | Rest], before: str) -> list[tuple[Span | Rest, str, bool]]:
    """Return siblings so that the first is popped first, each with whether it is the last."""
    count = len(items)
    return [(item, before, number == count - 1) for number, item in enumerate(items)][::-1]


def _head(trace: Trace, width: int, signs: _Signs) -> Iterator[Line]:
    root = trace.root
    style = {"error": "red", "cancelled": "yellow"}.get(root.status, "cyan")
    words: list[Line] = [[(signs.text(name_of(root)), "bold")]]
    for number, part in enumerate(totals_of(trace)):
        if number:
            words.append([(signs.dot, "dim")])
        words += [[(word, style)] for word in part.split(" ")]
    if root.status == "error":
        words += _plain_words(signs.text(error_of(root)), "red")
    yield from wrapped(words, width, hanging=2)
    if route := route_of(trace):
        steps: list[Line] = []
        for number, name in enumerate(route):
            if number:
                steps.append([(signs.arrow, "dim")])
            steps += _plain_words(signs.text(name), "red" if " (" in name else "")
        yield from wrapped(steps, width, hanging=2)
    known = [word for name, value in facts(root) for word in _fact_words(name, value, signs)]
    if known:
        yield from wrapped(known, width, hanging=2)
    for text in _content(root, signs):
        for line in wrapped(text, width - 2):
            yield [("  ", ""), *line]


class _Gutter:
    """The column of times and bars at the left; empty in a narrow terminal."""

    def __init__(self, total_ns: int, bar: int, signs: _Signs) -> None:
        self._total = total_ns
        self._bar = bar
        self._signs = signs
        self.width = _TIME + bar + 3 if bar else 0
        self._blank: Line = [(" " * self.width, "")] if bar else []

    def line(self, item: Span | Rest | None) -> Line:
        """Return the gutter beside a span's first line; a blank one for other lines."""
        if item is None or isinstance(item, Rest) or not self._bar:
            return self._blank
        start, end = max(item.start_ns, 0), item.end_ns
        shown = duration_text(item.duration_ms) if end is not None else ""
        end = self._total if end is None else end
        exact = (end - start) / self._total * self._bar
        length = min(self._bar, max(1, round(exact)))
        left = min(round(start / self._total * self._bar), self._bar - length)
        bar = (self._signs.bar if exact >= 0.5 else self._signs.brief) * length
        style = {"error": "red", "cancelled": "yellow"}.get(item.status) or _BARS.get(item.kind, "")
        return [
            (shown.rjust(_TIME) + " " + " " * left, "cyan"),
            (bar, style),
            (" " * (self._bar - left - length + 2), ""),
        ]


_BARS = {"step": "blue", "search": "green", "llm": "magenta", "embed": "yellow"}


def _words(item: Span, signs: _Signs, with_time: bool) -> list[Line]:
    style = "bold" if item.kind == "step" else ""
    words = _plain_words(signs.text(name_of(item)), style)
    if unfinished(item):
        words += _plain_words("not finished", "yellow")
    elif with_time:
        words += _plain_words(duration_text(item.duration_ms), "cyan")
    if item.attempt > 1:
        words += _plain_words(f"attempt {item.attempt}", "yellow")
    if item.status == "cancelled":
        words.append([("cancelled", "yellow")])
    elif item.status == "error":
        words += _plain_words(signs.text(f"failed: {error_of(item)}"), "red")
    for name, value in facts(item):
        words += _fact_words(name, value, signs)
    return words


def _rest_words(item: Rest) -> list[Line]:
    return _plain_words(item.text, "dim")


def _content(item: Span, signs: _Signs) -> Iterator[list[Line]]:
    for key, value in (item.content or {}).items():
        text = f"{short(str(key), 80)}: {format_value(value, MAX_CONTENT)}"
        yield _plain_words(signs.text(text), "italic")


def _plain_words(text: str, style: str) -> list[Line]:
    return [[(word, style)] for word in text.split(" ")]


def _fact_words(name: str, value: str, signs: _Signs) -> list[Line]:
    first, *others = signs.text(value).split(" ")
    # A name is one word, whatever it holds: it is the caller's, and has no spaces as a rule.
    *before, last = signs.text(name).split(" ")
    words: list[Line] = [[(word, "dim")] for word in before]
    return [*words, [(f"{last}=", "dim"), (first, "")], *([(word, "")] for word in others)]


def wrapped(words: Iterable[Line], width: int, hanging: int = 0) -> Iterator[Line]:
    """Yield lines of at most `width` columns; a word longer than that is broken.

    Args:
        hanging: columns by which all lines but the first are indented.
    """
    line: Line = []
    used = 0
    for word in words:
        size = sum(_cells(text) for text, _ in word)
        if line and used + 1 + size <= width:
            line.append((" ", ""))
            used += 1
        elif line and used:
            yield line
            line, used = ([(" " * hanging, "")], hanging) if hanging else ([], 0)
        if used + size <= width:
            line += word
            used += size
            continue
        for text, style in word:
            while used + _cells(text) > width:
                cut = _fitting(text, width - used)
                if cut:
                    line.append((text[:cut], style))
                    text = text[cut:]
                yield line
                line, used = ([(" " * hanging, "")], hanging) if hanging else ([], 0)
            line.append((text, style))
            used += _cells(text)
    if line:
        yield line


def _joined(line: Line) -> Line:
    """Return a line in fewer pieces: those of one style together, spaces with what is before."""
    joined: Line = []
    for text, style in line:
        if joined and (style == joined[-1][1] or (text == " " and style == "")):
            joined[-1] = (joined[-1][0] + text, joined[-1][1])
        else:
            joined.append((text, style))
    return joined


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _fitting(text: str, room: int) -> int:
    """Return how many characters of `text` fit into so many columns."""
    if text.isascii():
        return room
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _cells(text[:middle]) <= room else (low, middle - 1)
    return low


def trace_tree(trace: Trace) -> TraceTree:
    """Return the trace as something that `rich` prints, in colour where there is any."""
    return TraceTree(trace)


def trace_text(trace: Trace, width: int | None = None, ascii_only: bool | None = None) -> str:
    """Return the trace as plain text.

    Args:
        width: columns to wrap at, 20 at least; None for the terminal's, or 120 where there is none.
        ascii_only: whether to use ASCII only; None for where the standard output has no more.
    """
    if width is None:
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    if ascii_only is None:
        ascii_only = not _unicode_output()
    lines = TraceTree(trace).lines(width, ascii_only=ascii_only)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _unicode_output() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        "━├→…".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True
