"""BrowseApp: the application around the screens, and how its errors are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import Worker

from mnemotrace.errors import MnemotraceError
from mnemotrace.memory import Memory
from mnemotrace.records import MemoryRecord

from .browser import BrowserScreen
from .dialogs import Help
from .reading import Browsing
from .showing import printable

ERROR_SECONDS = 15.0
COPIED = 75_000
"""Bytes that are copied at most: terminals drop longer ones without a word."""


class BrowseApp(App[None]):
    """Look around in a memory.

    Args:
        memory: open; it stays the caller's to close.
        place: where it is, for the title.
        source: whose private records are visible besides the public ones.
        include_private: everybody's private records are visible.
        read_only: neither forget nor retry.
    """

    TITLE = "mnemotrace browse"
    CSS_PATH = "browse.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  App declares it so
        (0, "-narrow"),
        (80, "-medium"),
        (140, "-wide"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "Leave", show=False, priority=True),
        Binding("f1", "help", "Keys", show=False),
    ]

    def __init__(
        self,
        memory: Memory,
        place: str,
        *,
        source: str | None = None,
        include_private: bool = False,
        read_only: bool = False,
    ) -> None:
        super().__init__()
        self.animation_level = "none"  # what moves costs time, over a slow line above all
        self.memory = Browsing(
            memory, source=source, include_private=include_private, read_only=read_only
        )
        self._place = place
        self._log_handler = _Notifier(self)

    def on_mount(self) -> None:
        """Show the main screen; warnings of the library become notifications."""
        self._log_handler.loop = asyncio.get_running_loop()
        logging.getLogger("mnemotrace").addHandler(self._log_handler)
        self.push_screen(BrowserScreen(self._place))

    def on_unmount(self) -> None:
        """Let the log go where it went before."""
        logging.getLogger("mnemotrace").removeHandler(self._log_handler)

    def work(
        self, job: Callable[[], Coroutine[Any, Any, None]], group: str, *, exclusive: bool = True
    ) -> Worker[None]:
        """Do something beside the screen; what goes wrong is told.

        Args:
            group: names the kind of work.
            exclusive: stop what is going on in this group.
        """
        return self.run_worker(partial(self._told, job), group=group, exclusive=exclusive)

    async def _told(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001  the person at the screen must read it
            self.tell(error)

    def tell(self, error: BaseException) -> None:
        """Show an error in full."""
        message = str(error) or type(error).__name__
        if not isinstance(error, (MnemotraceError, TimeoutError)):
            message = f"{type(error).__name__}: {message}"
        self.notify(
            printable(message[:4000]), severity="error", timeout=ERROR_SECONDS, markup=False
        )

    def refuse(self) -> None:
        """Say that nothing is changed here."""
        self.notify(
            "This browser was started with --read-only; nothing was changed.", severity="warning"
        )

    def copy(self, record: MemoryRecord, *, content: bool) -> None:
        """Copy the text of a record, or its id, by way of the terminal (OSC 52)."""
        text = record.content if content else record.id
        size = len(text.encode())
        if size > COPIED:
            self.notify(
                f"The text has {size:,} bytes; terminals copy no more than {COPIED:,}. "
                f"`mnemotrace show {printable(record.id)}` prints it.",
                severity="warning",
                markup=False,
            )
            return
        self.copy_to_clipboard(text)
        self.notify(f"Copied the {'text' if content else 'id'}, if your terminal allows it.")

    def action_help(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, Help):
            self.push_screen(Help())


class _Notifier(logging.Handler):
    """Shows warnings of the library on the screen, which they would else be written across."""

    def __init__(self, app: BrowseApp) -> None:
        super().__init__(logging.WARNING)
        self._app = app
        self.loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Notify, from whatever thread the record comes."""
        if self.loop is None or self.loop.is_closed():
            return
        text = printable(record.getMessage()[:4000])
        severity = "error" if record.levelno >= logging.ERROR else "warning"
        self.loop.call_soon_threadsafe(self._show, text, severity)

    def _show(self, text: str, severity: Any) -> None:
        self._app.notify(text, severity=severity, timeout=ERROR_SECONDS, markup=False)
