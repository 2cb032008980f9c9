"""RecordList: one line a record, drawn only where it is seen, so its length costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .reading import Row
from .showing import day, fit

AHEAD = 50
"""More records are asked for when the cursor is this near to the last one."""
MAX_SCOPE = 26
_DATE = 10
_MARKS = 3
_WITH_SCOPE = 56
"""From this width on a line also has the scope."""


class RecordList(ScrollView, can_focus=True):
    """The records of one listing. Rows are added as they are read; `show` begins a new listing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "record-list--cursor",
        "record-list--dim",
        "record-list--mark",
    }

    cursor: reactive[int] = reactive(0)

    class Highlighted(Message):
        """The cursor is on another record, or on none."""

        def __init__(self, row: Row | None) -> None:
            super().__init__()
            self.row = row

    class Chosen(Message):
        """Enter was pressed on a record."""

        def __init__(self, row: Row) -> None:
            super().__init__()
            self.row = row

    class NearEnd(Message):
        """The cursor comes near the last record that was read."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.message = ""
        """What is said instead of records while there are none."""
        self._base = "/"
        self._beside = 0
        """Cells that the longest scope takes, seen from the one that is listed."""

    @property
    def current(self) -> Row | None:
        """The record under the cursor; None when there are no records."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def show(self, scope: str, message: str) -> None:
        """Begin a new listing of a scope, without records so far."""
        self.rows = []
        self._base = scope
        self._beside = 0
        self.message = message
        self.set_reactive(RecordList.cursor, 0)
        self.scroll_to(y=0, animate=False)
        self._resized()
        self.post_message(self.Highlighted(None))

    def say(self, message: str) -> None:
        """Set what is said instead of records while there are none."""
        self.message = message
        self.refresh()

    def add(self, rows: Iterable[Row]) -> None:
        """Add records at the end; those that are listed already are left out."""
        known = {row.id for row in self.rows}
        fresh = [row for row in rows if row.id not in known]
        was_empty = not self.rows
        self.rows.extend(fresh)
        widths = (cell_len(self._scope(row)) for row in fresh)
        self._beside = min(MAX_SCOPE, max([self._beside, *widths]))
        self._resized()
        if was_empty and self.rows:
            self.post_message(self.Highlighted(self.current))

    def move_to(self, record_id: str) -> bool:
        """Put the cursor on a record; False when it is not listed."""
        for number, row in enumerate(self.rows):
            if row.id == record_id:
                self.cursor = number
                return True
        return False

    def take_off(self, record_id: str) -> None:
        """Take a record off the list."""
        self.rows = [row for row in self.rows if row.id != record_id]
        self.set_reactive(RecordList.cursor, max(0, min(self.cursor, len(self.rows) - 1)))
        self._resized()
        self.post_message(self.Highlighted(self.current))

    # -- drawing ------------------------------------------------------------------------------

    def _resized(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self.rows))
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """Fit the lines to the new width."""
        self._resized()

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.scrollable_content_region.width
        number = y + self.scroll_offset.y
        base = self.rich_style
        if number >= len(self.rows):
            said = self.message if y == 0 and not self.rows else ""
            return Strip([Segment(fit(said, width), base)], width)
        row = self.rows[number]
        here = number == self.cursor
        if here:
            base = self.get_component_rich_style("record-list--cursor")
        dim = (
            base if here else base + self.get_component_rich_style("record-list--dim", partial=True)
        )
        mark = (
            base
            if here
            else base + self.get_component_rich_style("record-list--mark", partial=True)
        )
        beside = min(width // 3, self._beside) if width >= _WITH_SCOPE else 0
        room = max(0, width - _DATE - _MARKS - 1 - (beside + 2 if beside else 0))
        marks = f" {'p' if row.private else ' '}{'?' if row.pending else ' '}"
        segments = [
            Segment(day(row.created_at), dim),
            Segment(marks, mark),
            Segment(" " + fit(row.excerpt, room), base),
        ]
        if beside:
            segments.append(Segment("  " + fit(self._scope(row), beside), dim))
        return Strip(segments).adjust_cell_length(width, base)

    def _scope(self, row: Row) -> str:
        """Return the scope of a record, seen from the scope that is listed; "" for that itself."""
        return row.scope.removeprefix(self._base if self._base != "/" else "").lstrip("/")

    # -- moving -------------------------------------------------------------------------------

    def validate_cursor(self, value: int) -> int:
        """Keep the cursor on a record."""
        return max(0, min(value, len(self.rows) - 1))

    def watch_cursor(self, before: int, after: int) -> None:
        """Follow the cursor."""
        if before == after:
            return
        self.scroll_to_region(Region(0, after, 1, 1), animate=False, force=True, immediate=True)
        self.refresh()
        self.post_message(self.Highlighted(self.current))
        if after >= len(self.rows) - AHEAD:
            self.post_message(self.NearEnd())

    def action_move(self, by: int) -> None:
        """Move the cursor by so many records."""
        self.cursor += by

    def action_page(self, by: int) -> None:
        """Move the cursor by so many screens."""
        self.cursor += by * max(1, self.scrollable_content_region.height - 1)

    def action_first(self) -> None:
        """Go to the newest record."""
        self.cursor = 0

    def action_last(self) -> None:
        """Go to the last record that was read so far; the next ones are read then."""
        self.cursor = len(self.rows) - 1

    def action_choose(self) -> None:
        """Open the record under the cursor."""
        if self.current is not None:
            self.post_message(self.Chosen(self.current))
