"""Screens about the store: what waits in the outbox, and what is known of scope and store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from mnemotrace.checks import counted
from mnemotrace.stores.outbox import DeadLetter

from .details import ScrolledText
from .dialogs import Confirm
from .keys import Keys
from .reading import Outbox
from .showing import block, excerpt, instant, one_line, rows_text

if TYPE_CHECKING:
    from .app import BrowseApp

MAX_BATCHES = 100
MAX_TEXTS = 5
_BACK = Binding("escape,q", "dismiss", "Back")
_HELP = Binding("question_mark", "app.help", "Keys", key_display="?")


def _batches(count: int, what: str = "") -> str:
    return counted(count, f"{what}batch", f"{what}batches")


class _TextScreen(Screen[None]):
    """A title, a text that is read when the screen opens, the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK, _HELP]
    TITLE = ""

    @property
    def browse(self) -> BrowseApp:
        """The application."""
        return cast("BrowseApp", self.app)

    def compose(self) -> ComposeResult:
        """Title, text, keys."""
        yield Static(self.TITLE, id="title", markup=False)
        yield ScrolledText(id="text")
        yield Keys()

    def on_mount(self) -> None:
        """Read what is shown."""
        self.query_one(ScrolledText).focus()
        self.action_reload()

    def action_reload(self) -> None:
        """Read it again."""
        self.browse.work(self._read, "screen")

    async def _read(self) -> None:
        raise NotImplementedError


class SavesScreen(_TextScreen):
    """Pending and given-up saves, and trying the latter again."""

    TITLE = "Saves on their way"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "retry", "Try given-up ones again"),
        Binding("r", "reload", "Reload"),
    ]

    def on_mount(self) -> None:
        """Look again from time to time: saves are made in the background."""
        super().on_mount()
        self.set_interval(2.0, self.action_reload)
        self._dead = 0

    async def _read(self) -> None:
        outbox = await self.browse.memory.aoutbox()
        self._dead = len(outbox.dead)
        self.query_one(ScrolledText).show(outbox_text(outbox), stay=True)

    def action_retry(self) -> None:
        """Try given-up saves again, after a question."""
        if self.browse.memory.read_only:
            self.browse.refuse()
            return
        if not self._dead:
            self.notify("No save was given up.")
            return
        question = Text().append(f"Try {_batches(self._dead, 'given-up ')} again?\n\n", "bold")
        question.append("They are encoded in the background, in order.")

        def answered(yes: bool | None) -> None:
            if yes:
                self.browse.work(self._retry, "retry")

        self.app.push_screen(Confirm(question, "try again"), answered)

    async def _retry(self) -> None:
        count = await self.browse.memory.aretry_dead_letters()
        self.notify(f"Tried again: {_batches(count)}.")
        await self._read()


def outbox_text(outbox: Outbox) -> Text:
    """Return the pending and the given-up saves; texts are cut."""
    text = Text()
    if not outbox.waiting and not outbox.dead:
        text.append("Every save that you may see was made; none waits, none was given up.\n")
    if outbox.dead:
        text.append(f"Given up: {len(outbox.dead)}\n\n", "bold red")
        for letter in outbox.dead[:MAX_BATCHES]:
            text.append_text(_batch(letter, f"given up {instant(letter.failed_at)}"))
    if outbox.waiting:
        text.append(f"Waiting: {len(outbox.waiting)}\n\n", "bold yellow")
        for batch in outbox.waiting[:MAX_BATCHES]:
            state = "not tried yet"
            if batch.attempts:
                state = f"next attempt {instant(batch.failed_at)}"
            text.append_text(_batch(batch, state))
    more = sum(max(0, len(part) - MAX_BATCHES) for part in (outbox.dead, outbox.waiting))
    if more:
        text.append(f"and {more} more\n", "dim")
    if outbox.hidden:
        text.append(f"{outbox.hidden} more hold nothing that you may see.\n", "dim")
    return text


def _batch(batch: DeadLetter, state: str) -> Text:
    count = len(batch.items)
    text = Text().append(f"{count} text{'' if count == 1 else 's'}", "bold")
    text.append(f", accepted {instant(batch.accepted_at)}, {state}")
    if batch.attempts:
        text.append(f", {batch.attempts} attempt{'' if batch.attempts == 1 else 's'} failed")
    text.append("\n")
    if batch.error:
        text.append(f"  {one_line(block(batch.error, 500))}\n", "red")
    for item in batch.items[:MAX_TEXTS]:
        text.append(f"  {excerpt(item.content, 200)}\n")
        text.append(f"    {one_line(str(item.options.get('scope') or '/'))}\n", "dim")
    if count > MAX_TEXTS:
        text.append(f"  and {count - MAX_TEXTS} more texts\n", "dim")
    return text.append("\n")


class InfoScreen(_TextScreen):
    """What is known of the selected scope and of the store."""

    TITLE = "Information"

    def __init__(self, scope: str, place: str) -> None:
        super().__init__()
        self._scope = scope
        self._place = place

    async def _read(self) -> None:
        memory = self.browse.memory
        info = await memory.ainfo(self._scope)
        manifest = await memory.amanifest()
        capabilities = memory.store.capabilities
        seen = "public records only"
        if memory.include_private:
            seen = "everybody's private records, too"
        elif memory.source is not None:
            seen = f"public records and the private ones of {memory.source}"
        rows = [
            ("scope", info.path),
            ("records", f"{info.record_count:,}"),
            ("oldest", instant(info.oldest_record)),
            ("newest", instant(info.newest_record)),
            ("categories", ", ".join(info.categories) or "-"),
            ("scopes below", ", ".join(info.child_scopes) or "-"),
            ("", ""),
            ("store", self._place),
            ("engine", capabilities.name),
            ("embedder", memory.embedder),
            ("dimensions", str(manifest.dimension) if manifest else "-"),
            ("schema", str(manifest.schema_version) if manifest else "-"),
            ("visible", seen),
            (
                "changes",
                "refused (--read-only)" if memory.read_only else "allowed, after a question",
            ),
            ("pending", f"{_batches(memory.unsaved)} of saves"),
        ]
        shown = [(name, one_line(block(value, 2000))) for name, value in rows]
        self.query_one(ScrolledText).show(rows_text(shown, 14))
