"""The main screen: scopes, the records of the selected scope, the record under the cursor."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static, Tree

from mnemotrace.checks import counted
from mnemotrace.errors import InvalidInputError
from mnemotrace.records import MemoryRecord
from mnemotrace.scopes import ROOT

from .details import ScrolledText, WholeText, record_text
from .dialogs import Confirm
from .filters import Filter, parse_filter
from .keys import Keys
from .panes import PaneScreen
from .reading import Mark
from .records import AHEAD, RecordList
from .scopes import ScopeTree
from .showing import excerpt, one_line

if TYPE_CHECKING:
    from .app import BrowseApp

PAGE = 200
"""Records read at once."""
KEPT = 2_000
"""A reload looks for the record that the cursor was on among so many."""
PAUSE = 0.08
"""Seconds without a further key before what the cursor is on is read."""
TICK = 1.0
"""Seconds between looks at whether pending saves have been made."""


class BrowserScreen(PaneScreen):
    """Scope tree, record list with its filter, record."""

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("scopes-pane", "scopes"),
        ("records-pane", "records"),
        ("record-pane", "record"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "app.help", "Keys", key_display="?"),
        Binding("a", "ask", "Ask"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("v", "whole", "Whole text"),
        Binding("o", "saves", "Saves"),
        Binding("i", "info", "Info"),
        Binding("y", "copy(False)", "Copy id"),
        Binding("Y", "copy(True)", "Copy text", show=False),
        Binding("f", "forget", "Forget"),
        Binding("r", "reload", "Reload"),
        Binding("q", "app.quit", "Quit"),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place
        self._filter = Filter()
        self._mark: Mark | None = None
        self._more = False
        self._scope = ROOT
        self._total = 0
        self._looked_at = 0
        self._loading = asyncio.Lock()
        self._listing = 0
        """Grows with every new listing, so that what an old one reads is not added to it."""
        self._was_unsaved = 0
        self.record: MemoryRecord | None = None

    @property
    def browse(self) -> BrowseApp:
        """The application."""
        return cast("BrowseApp", self.app)

    def compose(self) -> ComposeResult:
        """The three panes between a title and the keys."""
        yield Static(id="title", markup=False)
        yield Static(id="empty", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="scopes-pane", classes="pane -active"):
                yield ScopeTree(id="scopes")
            with Vertical(id="records-pane", classes="pane"):
                yield Input(
                    placeholder='/ filter: words category:NAME source:NAME "two words"',
                    id="filter",
                    compact=True,
                    select_on_focus=False,
                )
                yield RecordList(id="records")
                yield Static(id="position", markup=False)
            with Vertical(id="record-pane", classes="pane"):
                yield ScrolledText(id="record")
        yield Keys()

    def on_mount(self) -> None:
        """Read the scopes and the first records."""
        self.query_one("#scopes-pane").border_title = "1 scopes"
        self.query_one("#records-pane").border_title = "2 records"
        self.query_one("#record-pane").border_title = "3 record"
        self.take_keys("#scopes")
        self.query_one(RecordList).show(ROOT, "Reading…")
        self._was_unsaved = self.browse.memory.unsaved
        self.set_interval(TICK, self._look_after_saves)
        self.action_reload()
        self._title()

    # -- reading ------------------------------------------------------------------------------

    def action_reload(self) -> None:
        """Read everything again; cursor, open scopes and filter stay."""
        self.browse.work(self._reload, "reload")

    async def _reload(self) -> None:
        memory = self.browse.memory
        counts = await memory.ascopes()
        empty = not counts[ROOT]
        self.set_class(empty, "-empty")
        if empty:
            new = await memory.amanifest() is None
            self.query_one("#empty", Static).update(self._greeting(new))
        self.query_one(ScopeTree).show(counts)
        self._title()
        here = self.query_one(RecordList).current
        await self._list(self._scope if self._scope in counts else ROOT, here.id if here else None)

    def _greeting(self, new: bool) -> str:
        place = one_line(self._place)
        lines = [
            f"There is no memory at {place} yet."
            if new
            else f"Nothing that you may see is remembered at {place}.",
            "",
            "Remember something, then press r here, or start again:",
            '  mnemotrace remember "The kiln is on." --scope /studio',
            "  mnemotrace demo --storage FOLDER",
        ]
        if not (new or self.browse.memory.include_private):
            lines += ["", "Private records show with --source NAME or --include-private."]
        if self.browse.memory.unsaved:
            lines += ["", "Some accepted texts are not saved yet: press o."]
        return "\n".join([*lines, "", "q leaves."])

    def _title(self) -> None:
        memory = self.browse.memory
        parts = ["mnemotrace"]
        if memory.include_private:
            parts.append("private records of everybody")
        elif memory.source is not None:
            parts.append(f"as {one_line(memory.source)}")
        if memory.read_only:
            parts.append("read-only")
        if memory.unsaved:
            parts.append(f"{memory.unsaved} saves pending (o)")
        parts.append(one_line(self._place))  # last: a long path is cut
        self.query_one("#title", Static).update(Text("   ".join(parts)))

    def _look_after_saves(self) -> None:
        unsaved = self.browse.memory.unsaved
        if unsaved == self._was_unsaved:
            return
        fewer = unsaved < self._was_unsaved
        self._was_unsaved = unsaved
        self._title()
        if fewer:
            self.action_reload()

    @on(Tree.NodeHighlighted)
    def _scope_changed(self, event: Tree.NodeHighlighted[str]) -> None:
        if event.node.data is not None and event.node.data != self._scope:
            self.browse.work(partial(self._list, event.node.data, pause=PAUSE), "list")

    async def _list(self, scope: str, keep: str | None = None, pause: float = 0.0) -> None:
        """Begin a new listing, with the cursor on the record `keep` if it is among the first."""
        await asyncio.sleep(pause)
        self._listing += 1
        self._scope = scope
        self._mark, self._more = None, True
        self._looked_at = self._total = 0
        records = self.query_one(RecordList)
        records.show(scope, "Reading…")
        await self._read_more()
        self._total = await self.browse.memory.acount(scope, self._filter)
        if keep is not None:
            while not records.move_to(keep) and self._more and len(records.rows) < KEPT:
                await self._read_more()
        self._position()

    async def _read_more(self) -> None:
        """Read the next page; with words in the filter, until a page of records is found."""
        async with self._loading:
            listing = self._listing
            records = self.query_one(RecordList)
            wanted = len(records.rows) + PAGE
            while self._more and len(records.rows) < wanted:
                room = wanted - len(records.rows)
                page = await self.browse.memory.apage(self._scope, self._filter, self._mark, room)
                if listing != self._listing:
                    return
                self._mark, self._more = page.mark, page.mark is not None
                self._looked_at += page.looked_at
                records.add(page.rows)
                self._position()
                if not self._filter.words:
                    break
            records.say("No records here." if not self._filter else "No record fits the filter.")

    @on(RecordList.NearEnd)
    def _near_end(self) -> None:
        if self._more and not self._loading.locked():
            self.browse.work(self._read_more, "more", exclusive=False)

    def _position(self) -> None:
        records = self.query_one(RecordList)
        if not records.rows:
            text = ""
        elif self._filter.words:
            count = f"{len(records.rows):,}{'+' if self._more else ''} found"
            text = f"{records.cursor + 1:,} of {count}"
        else:
            total = max(self._total, len(records.rows))
            text = f"{records.cursor + 1:,} of {total:,}"
        if self._filter.words and self._more:
            text += f"   {self._looked_at:,} of {self._total or '?'} read"
        self.query_one("#position", Static).update(text)

    @on(RecordList.Highlighted)
    def _record_changed(self, event: RecordList.Highlighted) -> None:
        self._position()
        if event.row is None:
            self.record = None
            self.query_one("#record", ScrolledText).show("")
        elif self.record is None or self.record.id != event.row.id:
            self.browse.work(partial(self._show, event.row.id), "record")

    async def _show(self, record_id: str) -> None:
        await asyncio.sleep(PAUSE if self.record is not None else 0)
        record, versions = await self.browse.memory.arecord(record_id)
        self.record = record
        pane = self.query_one("#record", ScrolledText)
        if record is None:
            pane.show("This record is not there any more. r reads everything again.")
        else:
            pane.show(record_text(record, versions))

    # -- keys ---------------------------------------------------------------------------------

    @on(Tree.NodeSelected)
    def _scope_chosen(self) -> None:
        self.action_pane(1)

    @on(RecordList.Chosen)
    def _record_chosen(self) -> None:
        self.action_pane(2)

    def action_back(self) -> None:
        """Leave the filter box; else drop the filter; else go one pane to the left."""
        box = self.query_one("#filter", Input)
        if box.has_focus:
            self.take_keys("#records")
        elif self.active == 1 and self._filter:
            box.value = ""
            self._apply("")
        else:
            self.action_pane(max(0, self.active - 1))

    def action_filter(self) -> None:
        """Go to the filter box."""
        self.activate(1)
        self.take_keys("#filter")

    @on(Input.Submitted, "#filter")
    def _filter_given(self, event: Input.Submitted) -> None:
        if self._apply(event.value):
            self.take_keys("#records")

    def _apply(self, text: str) -> bool:
        try:
            chosen = parse_filter(text)
        except InvalidInputError as error:
            self.browse.tell(error)
            return False
        if chosen != self._filter:
            self._filter = chosen
            self.browse.work(partial(self._list, self._scope), "list")
        return True

    def action_ask(self) -> None:
        """Recall in the selected scope."""
        from .recalling import RecallScreen

        self.app.push_screen(RecallScreen(self._scope))

    def action_saves(self) -> None:
        """Show pending and given-up saves."""
        from .saves import SavesScreen

        self.app.push_screen(SavesScreen(), lambda _: self._title())

    def action_info(self) -> None:
        """Show what is known of the selected scope and of the store."""
        from .saves import InfoScreen

        self.app.push_screen(InfoScreen(self._scope, self._place))

    def action_whole(self) -> None:
        """Show the whole text of the record."""
        if self.record is not None:
            self.app.push_screen(WholeText(self.record))

    def action_copy(self, content: bool) -> None:
        """Copy the id or the text of the record to the clipboard of the terminal."""
        if self.record is not None:
            self.browse.copy(self.record, content=content)

    def action_forget(self) -> None:
        """Forget the record, after a question."""
        record = self.record
        if record is None:
            return
        if self.browse.memory.read_only:
            self.browse.refuse()
            return
        question = Text().append("Forget this record?\n\n", "bold")
        question.append(excerpt(record.content, 160)).append(
            f"\n{one_line(record.scope)}\n\n", "dim"
        )
        question.append("Every version of it is erased for good.")

        def answered(yes: bool | None) -> None:
            if yes:
                self.browse.work(partial(self._forget, record.id), "forget")

        self.app.push_screen(Confirm(question, "forget it"), answered)

    async def _forget(self, record_id: str) -> None:
        gone = await self.browse.memory.aforget(record_id)
        if gone:
            self.notify(f"Forgotten, with {counted(gone.versions, 'version')}.")
        else:
            self.notify("This record was not there any more.", severity="warning")
        self.query_one(RecordList).take_off(record_id)
        await self._reload()


__all__ = ["AHEAD", "PAGE", "BrowserScreen"]
