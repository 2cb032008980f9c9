"""Progress: what runs at the moment, in a terminal or a notebook.

Nothing is shown unless asked for, with ``with progress():``. In a terminal it goes to the standard
error, and what is not a terminal that can redraw (a file, a pipe, ``TERM=dumb``) gets nothing.
"""

from __future__ import annotations

import contextvars
import html
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from mnemotrace.checks import shortened
from mnemotrace.errors import InvalidInputError
from mnemotrace.trace import Span, Trace, watch

from .values import duration_text, name_of, plural, short

if TYPE_CHECKING:
    from rich.text import Text

REFRESH_SECONDS = 0.12
MAX_RUNS = 5
"""Runs shown at once; the others are counted."""
MAX_OPEN = 4
"""Open spans shown below one run."""
MAX_DONE = 12
"""Finished steps shown for one run, the latest."""


@dataclass(slots=True)
class _Run:
    """One run that goes on."""

    kind: str
    began: float
    done: list[str] = field(default_factory=list)
    open: dict[int, tuple[Span, float]] = field(default_factory=dict)


class Board:
    """Knows which runs go on, and sums up those that ended; a `Watcher`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ended: Counter[str] = Counter()
        self._failed = 0
        self._calls = 0
        self._began = time.perf_counter()
        self.changes = 0
        """Grows with everything that happens."""

    def span_started(self, trace: Trace, span: Span) -> None:
        """Show a run or a span."""
        now = time.perf_counter()
        with self._lock:
            self.changes += 1
            if span is trace.root:
                self._runs[trace.trace_id] = _Run(name_of(span), now)
            elif (run := self._runs.get(trace.trace_id)) is not None:
                run.open[span.id] = (span, now)

    def span_ended(self, trace: Trace, span: Span) -> None:
        """Take a span or a run from the board, and count it."""
        with self._lock:
            self.changes += 1
            if span is trace.root:
                if (run := self._runs.pop(trace.trace_id, None)) is not None:
                    self._ended[run.kind] += 1
                    self._failed += span.status == "error"
                return
            if (run := self._runs.get(trace.trace_id)) is None:
                return
            run.open.pop(span.id, None)
            self._calls += span.kind == "llm"
            if span.kind == "step" and not span.parent:
                took = duration_text(span.duration_ms)
                failed = "" if span.status == "ok" else f" {span.status}"
                run.done = [*run.done[1 - MAX_DONE :], f"{name_of(span)} {took}{failed}"]

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._runs

    def lines(self) -> list[str]:
        """Return what goes on: for each run a line, and one for each span that is open in it."""
        now = time.perf_counter()
        with self._lock:
            lines: list[str] = []
            for run in list(self._runs.values())[:MAX_RUNS]:
                took = duration_text((now - run.began) * 1000)
                lines.append(" · ".join([f"{run.kind} {took}", *run.done]))
                for span, began in list(run.open.values())[:MAX_OPEN]:
                    model = span.attrs.get("model")
                    asked = f" {short(str(model), 40)}" if model else ""
                    took = duration_text((now - began) * 1000)
                    lines.append(f"  {name_of(span)}{asked} {took} ...")
                if len(run.open) > MAX_OPEN:
                    lines.append(f"  {len(run.open) - MAX_OPEN} more ...")
            if len(self._runs) > MAX_RUNS:
                lines.append(f"{plural(len(self._runs) - MAX_RUNS, 'more run')} ...")
        return lines

    def summary(self) -> str:
        """Return one line about all runs that ended; empty when there was none."""
        with self._lock:
            if not self._ended:
                return ""
            parts = [
                kind if count == 1 else f"{count} x {kind}" for kind, count in self._ended.items()
            ]
            total = (time.perf_counter() - self._began) * 1000
            line = f"{', '.join(parts)} in {duration_text(total)}"
            if self._calls:
                line += f", {plural(self._calls, 'LLM call')}"
            return f"{line}, {self._failed} failed" if self._failed else line


@contextmanager
def progress(file: TextIO | None = None) -> Iterator[None]:
    """Show live what every memory of this process does while the block runs.

    In a terminal the steps stand on the standard error while they run, and one line that sums up
    stays. In a notebook they stand below the cell. Where neither can be redrawn, nothing is shown.

    Args:
        file: the terminal to write to; the standard error by default.

    Raises:
        InvalidInputError: `file` is not a file.
    """
    if file is not None and not callable(getattr(file, "write", None)):
        raise InvalidInputError(
            f"progress() writes to a file such as sys.stderr, not to {shortened(file)}."
        )
    board = Board()
    with ExitStack() as stack:
        if file is None and (shell := _notebook()) is not None:
            stack.enter_context(_in_notebook(board, shell))
        elif _can_redraw(file := file or sys.stderr):
            stack.enter_context(_in_terminal(board, file))
        else:
            yield
            return
        end = watch(board)
        try:
            yield
        finally:
            end()


def _can_redraw(file: TextIO) -> bool:
    try:
        return (
            not file.closed and file.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        )
    except (AttributeError, ValueError):  # replaced by something less, or closed
        return False


@contextmanager
def _in_terminal(board: Board, file: TextIO) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=file, highlight=False, markup=False, emoji=False)

    def shown() -> Text:
        return Text("\n".join(board.lines()), no_wrap=True, overflow="ellipsis")

    # Text that the program prints meanwhile goes above the display, unless it goes elsewhere.
    together = sys.stdout.isatty() and file is sys.stderr
    live = Live(
        get_renderable=shown,
        console=console,
        transient=True,
        refresh_per_second=1 / REFRESH_SECONDS,
        redirect_stdout=together,
        redirect_stderr=together,
    )
    with live:
        yield
    if line := board.summary():
        console.print(line, style="dim", soft_wrap=True)


def _notebook() -> Any:
    """Return IPython's `display` function when this is a notebook kernel, else None."""
    shell = sys.modules.get("IPython")
    if shell is None:
        return None
    running = shell.get_ipython()
    if running is None or getattr(running, "kernel", None) is None:
        return None
    from IPython.display import display

    return display


@contextmanager
def _in_notebook(board: Board, display: Any) -> Iterator[None]:
    handle = display(_as_html([]), raw=True, display_id=True)
    stop = threading.Event()

    def show() -> None:
        seen = -1
        while not stop.wait(REFRESH_SECONDS):
            if board.changes != seen or not board.idle:
                seen = board.changes
                handle.update(_as_html(board.lines()), raw=True)

    context = contextvars.copy_context()  # the kernel finds the cell by it
    thread = threading.Thread(target=context.run, args=(show,), name="mnemotrace-progress")
    thread.daemon = True
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        line = board.summary()
        handle.update(_as_html([line] if line else []), raw=True)


def _as_html(lines: list[str]) -> dict[str, str]:
    """Return lines as a notebook's output: HTML, and plain text for what shows no HTML."""
    text = "\n".join(lines)
    page = (
        '<pre class="mnemotrace-progress" role="status" aria-label="Progress of the memory" '
        f'style="margin:0;white-space:pre-wrap;opacity:.8">{html.escape(text)}</pre>'
    )
    return {"text/html": page, "text/plain": text}
