"""Ask: a recall whose steps are seen while they happen, then its matches and their scores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker

from mnemotrace.records import MemoryMatch, MemoryRecord, Recall
from mnemotrace.trace import Span, Trace, watching
from mnemotrace.trace_views import trace_tree

from .details import ScrolledText, WholeText, record_text
from .explaining import explanation, match_text, summary
from .keys import Keys
from .panes import PaneScreen
from .showing import one_line

if TYPE_CHECKING:
    from .app import BrowseApp

LIMITS = (1, 3, 5, 10, 20, 50, 100, 200)
FRAME = 0.05
"""Seconds between two drawings of a run that goes on."""


class LiveSteps:
    """A watcher that tells, on another loop, that the run it watches has changed.

    Args:
        loop: where `changed` is called.
        changed: is given the trace; called at most once for all changes that wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[Trace], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._told = False

    def span_started(self, trace: Trace, span: Span) -> None:
        """Tell it."""
        self._tell(trace)

    def span_ended(self, trace: Trace, span: Span) -> None:
        """Tell it."""
        self._tell(trace)

    def _tell(self, trace: Trace) -> None:
        if not self._told and not self._loop.is_closed():
            self._told = True
            self._loop.call_soon_threadsafe(self._show, trace)

    def _show(self, trace: Trace) -> None:
        self._told = False
        self._changed(trace)


class MatchList(OptionList):
    """The matches, with the keys that all lists of the browser have."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "cursor_up", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
    ]


class RecallScreen(PaneScreen):
    """A query, how it is asked, and what came of it.

    Args:
        scope: where to recall.
    """

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("matches-pane", "matches"),
        ("score-pane", "score"),
        ("steps-pane", "steps"),
    )
    AUTO_FOCUS = "#query"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "app.help", "Keys", key_display="?"),
        Binding("slash", "query", "Query", key_display="/"),
        Binding("d,f2", "depth", "Depth"),
        Binding("plus,f4", "limit(1)", "More", key_display="+"),
        Binding("minus,f3", "limit(-1)", "Fewer", key_display="-"),
        Binding("v", "whole", "Whole text"),
        Binding("y", "copy(False)", "Copy id"),
        Binding("Y", "copy(True)", "Copy text", show=False),
        Binding("escape,q", "back", "Back"),
        Binding("down", "results", "Matches", show=False),
    ]

    def __init__(self, scope: str) -> None:
        super().__init__()
        self._scope = scope
        self._depth: Literal["deep", "shallow"] = "deep"
        self._limit = LIMITS.index(10)
        self._run: Worker[None] | None = None
        self._drawn = 0.0
        self._trace: Trace | None = None
        self.found: Recall | None = None

    @property
    def browse(self) -> BrowseApp:
        """The application."""
        return cast("BrowseApp", self.app)

    @property
    def match(self) -> MemoryMatch | None:
        """The match under the cursor; None when there is none."""
        number = self.query_one(OptionList).highlighted
        if self.found is None or number is None or number >= len(self.found):
            return None
        return self.found[number]

    def compose(self) -> ComposeResult:
        """Query and settings over matches, explanation and steps."""
        yield Static(id="title", markup=False)
        yield Input(placeholder="What do you want to know?", id="query", compact=True)
        yield Static("Enter asks.", id="summary", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="matches-pane", classes="pane -active"):
                yield MatchList(id="matches", markup=False, compact=True)
            with Vertical(id="right"):
                with Vertical(id="score-pane", classes="pane"):
                    yield ScrolledText(id="score")
                with Vertical(id="steps-pane", classes="pane"):
                    yield ScrolledText(id="steps")
        yield Keys()

    def on_mount(self) -> None:
        """Wait for a query."""
        self.query_one("#matches-pane").border_title = "1 matches"
        self.query_one("#score-pane").border_title = "2 why this score"
        self.query_one("#steps-pane").border_title = "3 steps"
        self.take_keys("#query")
        self.set_interval(0.25, self._tick)
        self._title()

    def _title(self) -> None:
        title = Text("ask in ").append(one_line(self._scope), "bold")
        title.append("   depth ").append(self._depth, "bold")
        title.append("   limit ").append(str(LIMITS[self._limit]), "bold")
        self.query_one("#title", Static).update(title)

    # -- asking -------------------------------------------------------------------------------

    @on(Input.Submitted, "#query")
    def _asked(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._start(event.value)
        else:
            self.notify("Write what you want to know first.", severity="warning")

    def _start(self, query: str) -> None:
        self.found = None
        self._trace = None
        self.query_one(OptionList).clear_options()
        self.query_one("#score", ScrolledText).show("")
        self.query_one("#steps", ScrolledText).show("Starting…")
        self.query_one("#summary", Static).update("Recalling… Esc stops it.")
        if self.has_class("-narrow"):
            self.action_pane(2)
        self._run = self.browse.work(partial(self._ask, query), "recall")

    async def _ask(self, query: str) -> None:
        ended = "Stopped."
        try:
            with watching(LiveSteps(asyncio.get_running_loop(), self._step)):
                self.found = await self.browse.memory.arecall(
                    query, self._scope, LIMITS[self._limit], self._depth
                )
            ended = ""
        except Exception:
            ended = "The recall failed."
            raise  # whoever runs this shows the error in full
        finally:
            self._run = None
            if ended and self.is_attached:
                self.query_one("#summary", Static).update(ended)
                self._draw()
        self._show(self.found)

    def _step(self, trace: Trace) -> None:
        """Draw the run, as far as it has come."""
        if trace.kind != "recall" or self._run is None:
            return
        self._trace = trace
        if time.monotonic() - self._drawn >= FRAME:
            self._draw()

    def _tick(self) -> None:
        if self._run is not None:
            self._draw()

    def _draw(self) -> None:
        if self._trace is not None:
            self._drawn = time.monotonic()
            self.query_one("#steps", ScrolledText).static.update(trace_tree(self._trace))

    def _show(self, found: Recall) -> None:
        self.query_one("#summary", Static).update(summary(found))
        matches = self.query_one(OptionList)
        matches.add_options(Option(match_text(n, match)) for n, match in enumerate(found, 1))
        if found.trace is not None:
            self._trace = found.trace
            self._draw()
        if found:
            matches.highlighted = 0
            self.action_pane(0)
        else:
            self.query_one("#score", ScrolledText).show(
                "Nothing was found. The steps say where was searched."
            )

    @on(OptionList.OptionHighlighted)
    def _other_match(self) -> None:
        if (match := self.match) is not None:
            self.query_one("#score", ScrolledText).show(explanation(match))

    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        if (match := self.match) is not None:
            self.app.push_screen(RecordScreen(match.record))

    # -- keys ---------------------------------------------------------------------------------

    def action_query(self) -> None:
        """Go to the query."""
        self.take_keys("#query")

    def action_results(self) -> None:
        """Go from the query to the matches."""
        if self.query_one("#query", Input).has_focus and self.found:
            self.action_pane(0)

    def action_depth(self) -> None:
        """Change between deep and shallow."""
        self._depth = "shallow" if self._depth == "deep" else "deep"
        self._title()

    def action_limit(self, by: int) -> None:
        """Allow more or fewer matches."""
        self._limit = max(0, min(self._limit + by, len(LIMITS) - 1))
        self._title()

    def action_whole(self) -> None:
        """Show the whole text of the match."""
        if (match := self.match) is not None:
            self.app.push_screen(WholeText(match.record))

    def action_copy(self, content: bool) -> None:
        """Copy the id or the text of the match."""
        if (match := self.match) is not None:
            self.browse.copy(match.record, content=content)

    def action_back(self) -> None:
        """Stop the recall that runs; else leave."""
        if self._run is not None:
            self._run.cancel()
        else:
            self.app.pop_screen()


class RecordScreen(Screen[None]):
    """A recalled record in full, with its history."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("v", "whole", "Whole text"),
        Binding("y", "copy(False)", "Copy id"),
        Binding("Y", "copy(True)", "Copy text"),
        Binding("question_mark", "app.help", "Keys", key_display="?"),
    ]

    def __init__(self, record: MemoryRecord) -> None:
        super().__init__()
        self._record = record

    @property
    def browse(self) -> BrowseApp:
        """The application."""
        return cast("BrowseApp", self.app)

    def compose(self) -> ComposeResult:
        """Title, record, keys."""
        yield Static("record", id="title", markup=False)
        yield ScrolledText(id="record")
        yield Keys()

    def on_mount(self) -> None:
        """Read the record as it is now."""
        self.query_one(ScrolledText).focus()
        self.browse.work(self._read, "screen")

    async def _read(self) -> None:
        record, versions = await self.browse.memory.arecord(self._record.id)
        if record is None:
            self.query_one(ScrolledText).show("This record is not there any more.")
        else:
            self._record = record
            self.query_one(ScrolledText).show(record_text(record, versions))

    def action_whole(self) -> None:
        """Show the whole text."""
        self.app.push_screen(WholeText(self._record))

    def action_copy(self, content: bool) -> None:
        """Copy the id or the text."""
        self.browse.copy(self._record, content=content)
