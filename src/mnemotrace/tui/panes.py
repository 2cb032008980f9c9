"""Panes: parts of a screen side by side or, where it is narrow, one at a time."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import DescendantFocus
from textual.screen import Screen
from textual.widget import Widget


class PaneScreen(Screen[None]):
    """A screen of panes. Each pane has the class ``pane`` and one widget that takes the keys.

    Attributes:
        PANES: for each pane in order, its id and the id of the widget that gets the focus.
    """

    PANES: ClassVar[tuple[tuple[str, str], ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "next_pane(1)", "Pane", show=False),
        Binding("shift+tab", "next_pane(-1)", "Pane", show=False),
        *(Binding(str(n), f"pane({n - 1})", f"Pane {n}", show=False) for n in (1, 2, 3)),
    ]

    @property
    def active(self) -> int:
        """The number of the pane in use, from 0."""
        for number, (pane, _) in enumerate(self.PANES):
            if self.query_one(f"#{pane}").has_class("-active"):
                return number
        return 0

    def action_pane(self, number: int) -> None:
        """Go to a pane."""
        self.activate(number)
        self.take_keys(f"#{self.PANES[number][1]}")

    def take_keys(self, selector: str) -> None:
        """Let a widget have the very next key; `Widget.focus` would take effect later."""
        self.set_focus(self.query_one(selector))

    def action_next_pane(self, by: int) -> None:
        """Go to the next pane."""
        self.action_pane((self.active + by) % len(self.PANES))

    def activate(self, number: int) -> None:
        """Mark a pane as the one in use, without moving the focus."""
        panes = [self.query_one(f"#{pane}") for pane, _ in self.PANES]
        for other, pane in enumerate(panes):
            pane.set_class(other == number, "-active")
            if isinstance(pane.parent, Widget):
                pane.parent.set_class(pane.parent is panes[number].parent, "-holds-active")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Mark the pane that the focus moved to."""
        ids = [pane for pane, _ in self.PANES]
        node: Any = event.widget
        while node is not None and node is not self:
            if node.id in ids:
                self.activate(ids.index(node.id))
                return
            node = node.parent
