"""The line of keys at the bottom: as many lines as it takes to show all of them."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from textual.events import Resize
from textual.widgets import Footer


class Keys(Footer):
    """A footer that wraps where the screen is too narrow for one line, so that no key is lost."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)

    async def recompose(self) -> None:
        """Make the keys anew, as other ones can be pressed, and lay them out."""
        await super().recompose()
        self._lay_out(self.app.size.width)

    def on_resize(self, event: Resize) -> None:
        """Lay the keys out for another width."""
        self._lay_out(event.size.width)

    def _lay_out(self, room: int) -> None:
        keys: list[Any] = list(self.query("FooterKey"))
        columns = columns_for(
            [cell_len(key.key_display) + cell_len(key.description) + 2 for key in keys], room
        )
        rows = -(-len(keys) // len(columns)) if columns else 1
        self.styles.layout = "grid" if rows > 1 else "horizontal"
        self.styles.height = rows
        if rows > 1:
            self.styles.grid_size_columns = len(columns)
            self.styles.grid_columns = list(map(float, columns))


def columns_for(widths: list[int], room: int) -> list[int]:
    """Return the widths of as many columns as there is room for, filled row by row.

    Args:
        widths: of the items, in their order, with the space behind each.
        room: columns of the screen; one item is shown in each row at least.
    """
    for count in range(len(widths), 1, -1):
        columns = [max(widths[start::count]) for start in range(count)]
        if sum(columns) - 1 <= room:  # nothing need follow on the last one
            return columns
    return [max(widths)] if widths else []
