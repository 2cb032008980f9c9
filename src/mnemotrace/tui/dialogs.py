"""Small screens over the others: a question, the keys."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from .details import ScrolledText


class Confirm(ModalScreen[bool]):
    """A question that only ``y`` answers with yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,q,enter", "dismiss(False)", "No"),
    ]

    def __init__(self, question: Text, yes: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        """The question and its two answers."""
        with Vertical(classes="dialog"):
            yield Static(self._question, id="question", markup=False)
            answers = Text.assemble(
                ("y", "bold"), f"  {self._yes}      ", ("n", "bold"), "  leave it as it is"
            )
            yield Static(answers, id="answers", markup=False)


HELP: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Everywhere",
        (
            ("? F1", "these keys"),
            ("Esc q", "one step back; Esc stops a recall that runs"),
            ("Tab, 1 2 3", "the next pane; a certain one"),
            ("↑ ↓ PgUp PgDn", "move (also k j g G)"),
            ("q Ctrl+C", "leave: q from the main screen, Ctrl+C from anywhere"),
        ),
    ),
    (
        "Memory",
        (
            ("→ ← Enter", "open or close a scope; go to its records"),
            ("/", 'filter: words, category:NAME, source:NAME, "two words"'),
            ("Enter", "go to the record"),
            ("v", "the whole text of the record"),
            ("y Y", "copy the id, the text"),
            ("a", "ask: a recall in the selected scope"),
            ("o i", "pending and given-up saves; information"),
            ("f", "forget the record (asks first)"),
            ("r", "read everything again"),
            ("p ? in the list", "private; waits for analysis by a model"),
        ),
    ),
    (
        "Ask",
        (
            ("Enter", "run the query; in the list: open the record"),
            ("/", "back to the query"),
            ("d", "depth: deep or shallow (in the query: F2)"),
            ("+ -", "limit (in the query: F4 F3)"),
            ("1 2 3", "matches, explanation of the score, steps"),
        ),
    ),
    (
        "Saves",
        (("R", "try given-up saves again (asks first)"),),
    ),
)


class Help(ModalScreen[None]):
    """Every key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "dismiss", "Back"),
    ]

    def compose(self) -> ComposeResult:
        """The keys, by where they work."""
        with Vertical(classes="dialog wide"):
            yield ScrolledText(id="keys")

    def on_mount(self) -> None:
        """Show the keys."""
        text = Text()
        for place, keys in HELP:
            text.append(f"{place}\n", "bold underline")
            for key, what in keys:
                text.append(f"  {key:<16}", "bold").append(f"{what}\n")
            text.append("\n")
        text.append("Esc closes this.")
        pane = self.query_one(ScrolledText)
        pane.show(text)
        pane.focus()
