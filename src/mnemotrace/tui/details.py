"""One record in full: its fields, its text, its metadata, and how it came to be what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from mnemotrace.flows.requests import BATCH
from mnemotrace.records import MemoryRecord
from mnemotrace.trace_views.values import plural

from .changes import changes
from .keys import Keys
from .showing import (
    block,
    instant,
    metadata_lines,
    one_line,
    origin,
    printable,
    rows_text,
    waits_for,
)

PART = 10_000
"""Characters of a text on one leaf of `WholeText`."""
MAX_VERSIONS = 50
SCROLL_KEYS: list[BindingType] = [
    Binding("j", "scroll_down", "Down", show=False),
    Binding("k", "scroll_up", "Up", show=False),
    Binding("g", "scroll_home", "Top", show=False),
    Binding("G", "scroll_end", "End", show=False),
]


class ScrolledText(VerticalScroll, can_focus=True):
    """A text that can be scrolled with the keyboard; markup in it is not read."""

    BINDINGS: ClassVar[list[BindingType]] = SCROLL_KEYS

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._static = Static(markup=False)

    def compose(self) -> ComposeResult:
        """Hold the text."""
        yield self._static

    @property
    def static(self) -> Static:
        """The widget that shows the text."""
        return self._static

    def show(self, content: Text | str, *, stay: bool = False) -> None:
        """Show another text, from its beginning unless it is to `stay` where it is."""
        self._static.update(content if isinstance(content, Text) else Text(content))
        if not stay:
            self.scroll_home(animate=False)


def record_text(record: MemoryRecord, versions: Sequence[MemoryRecord]) -> Text:
    """Return everything about a record; long texts are cut and say so.

    Args:
        versions: all versions of it and of the records it took over from, oldest first.
    """
    text = Text(block(record.content)).append("\n\n")
    text.append_text(rows_text(_rows(record)))
    if record.metadata:
        text.append("metadata\n", "bold").append(f"{metadata_lines(record.metadata)}\n")
    return text.append("\n").append_text(history_text(record, versions))


def _rows(record: MemoryRecord) -> list[tuple[str, str]]:
    rows = [
        ("scope", record.scope),
        ("categories", ", ".join(record.categories) or "-"),
        ("importance", f"{record.importance:.2f}"),
        ("created", instant(record.created_at)),
        ("changed", instant(record.updated_at)),
        (
            "recalled",
            f"{plural(record.access_count, 'time')}, last {instant(record.last_accessed)}",
        ),
        ("source", origin(record)),
        ("id", record.id),
    ]
    if not record.access_count:
        rows[5] = ("recalled", "never")
    if (waiting := waits_for(record)) is not None:
        rows.append(("analysis", f"pending: {waiting}"))
    if record.session is not None and not record.session.startswith(BATCH):
        place = "" if record.position is None else f", place {record.position}"
        rows.append(("session", f"{record.session}{place}"))
    if record.pinned:
        rows.append(("pinned", "yes"))
    if record.expires_at is not None:
        rows.append(("expires", instant(record.expires_at)))
    if record.retired:
        rows.append(("retired", f"{record.retired}, {instant(record.valid_to)}"))
    return [(name, one_line(value)) for name, value in rows]


def history_text(record: MemoryRecord, versions: Sequence[MemoryRecord]) -> Text:
    """Return the versions of a record, newest first, each with what it changed."""
    text = Text()
    count = len(versions)
    text.append(f"history: {count} version{'' if count == 1 else 's'}\n", "bold")
    latest: dict[str, MemoryRecord] = {}
    parts: list[Text] = []
    for version in versions:
        part = Text()
        other = "" if version.id == record.id else f" of {one_line(version.id)}"
        since = instant(version.valid_from or version.created_at)
        part.append(f"version {version.version}{other}", "underline").append(f", since {since}")
        if version.retired:
            part.append(f", {version.retired} {instant(version.valid_to)}", "dim")
        part.append("\n")
        before = latest.get(version.id)
        if before is None and version.supersedes:
            before = next((latest[key] for key in version.supersedes if key in latest), None)
        if before is not None:
            part.append_text(changes(before, version))
        elif other:
            part.append(f"  {block(version.content, 300)}\n")
        latest[version.id] = version
        parts.append(part)
    for part in reversed(parts[-MAX_VERSIONS:]):
        text.append_text(part)
    if count > MAX_VERSIONS:
        text.append(f"and {count - MAX_VERSIONS} older ones: mnemotrace show ID --history\n", "dim")
    return text


class WholeText(Screen[None]):
    """The whole text of a record, leaf by leaf, so that no length of it stops the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,v", "app.pop_screen", "Back"),
        Binding("n,right", "turn(1)", "Next part"),
        Binding("p,left", "turn(-1)", "Previous part"),
        Binding("question_mark", "app.help", "Help"),
    ]

    def __init__(self, record: MemoryRecord) -> None:
        super().__init__()
        parts = record.content
        self._leaves = [parts[at : at + PART] for at in range(0, len(parts), PART)] or [""]
        if record.metadata:
            shown = metadata_lines(record.metadata, 50 * PART)
            self._leaves += [
                f"metadata\n{shown[at : at + PART]}" for at in range(0, len(shown), PART)
            ]
        self._scope = record.scope
        self.leaf = 0

    def compose(self) -> ComposeResult:
        """Title, text, keys."""
        yield Static(id="title", markup=False)
        yield ScrolledText(id="whole")
        yield Keys()

    def on_mount(self) -> None:
        """Show the first part."""
        self.query_one(ScrolledText).focus()
        self.action_turn(0)

    def action_turn(self, by: int) -> None:
        """Show another part."""
        self.leaf = max(0, min(self.leaf + by, len(self._leaves) - 1))
        title = f"{one_line(self._scope)}   part {self.leaf + 1} of {len(self._leaves)}"
        self.query_one("#title", Static).update(title)
        self.query_one(ScrolledText).show(printable(self._leaves[self.leaf]))
