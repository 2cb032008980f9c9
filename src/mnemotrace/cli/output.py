"""How things are printed. A memory's text is data: it cannot steer the terminal.

Results go to stdout; notes, warnings and progress to stderr, where they are in no script's way.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import typer

from mnemotrace.errors import InvalidInputError
from mnemotrace.records import MemoryMatch, MemoryRecord, Recall
from mnemotrace.trace_views import visible

from .fitting import HANG, LEAST_WIDTH, columns_of, fitted, flowed, row, terminal_width
from .wording import worded

LIST_WIDTH = 100
"""Characters of a text in a listing; `show` prints all of it."""
INDENT = "   "
MATCH_LINES = 3
"""Lines of a terminal that the text of a match may take; a pipe gets all of it in one."""


class OutputClosedError(Exception):
    """Nobody reads the output any more, as when it is piped into ``head``."""


def echo(text: str) -> None:
    """Print a line of the result.

    Raises:
        OutputClosedError: nobody reads it any more.
    """
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise OutputClosedError from None


def say(text: str, hang: str = HANG) -> None:
    """Print text as `echo` does, its long lines broken to fit the terminal."""
    echo(fitted(text, terminal_width(), hang))


def print_json(value: Any) -> None:
    """Print JSON with every script readable."""
    echo(json.dumps(value, ensure_ascii=False, indent=2))


def note(text: str) -> None:
    """Say something to the person on stderr; in one line, but on a terminal that has no room."""
    typer.echo(fitted(text, columns_of(sys.stderr.isatty())), err=True)


class TextOutput(io.TextIOBase):
    """Standard output as a file of text, for those who print to a file."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of standard output."""
        return sys.stdout.encoding

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return sys.stdout.isatty()

    def fileno(self) -> int:
        """The file below it."""
        return sys.stdout.fileno()

    def write(self, text: str) -> int:
        """Write.

        Raises:
            OutputClosedError: nobody reads it any more.
        """
        return self._reaching(lambda: sys.stdout.write(text)) or 0

    def flush(self) -> None:
        """Hand on what was written; errors as for `write`."""
        self._reaching(sys.stdout.flush)

    def _reaching(self, work: Callable[[], int | None]) -> int | None:
        try:
            return work()
        except BrokenPipeError:
            raise OutputClosedError from None


class BinaryOutput:
    """Standard output as a file of bytes: UTF-8 whatever the terminal's own encoding is."""

    def write(self, data: bytes) -> None:
        """Write and, as far as that is a pipe, hand it on.

        Raises:
            OutputClosedError: nobody reads it any more.
        """
        try:
            sys.stdout.buffer.write(data)
        except BrokenPipeError:
            raise OutputClosedError from None


class _Notes(logging.Handler):
    """Prints warnings as one line each, with nothing in it that could steer the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        text = worded(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        note(f"mnemotrace: {record.levelname.lower()}: {one_line(text)}")


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Print what mnemotrace logs, from warnings on, to stderr while a command runs."""
    handler = _Notes(logging.WARNING)
    logger = logging.getLogger("mnemotrace")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function to report progress to; it is shown on stderr, on a terminal only.

    Yields:
        A function of how many are done and how many there are; None where nothing is shown.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report


def one_line(text: str) -> str:
    """Return a text in one line, control characters made visible."""
    return visible(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with its lines kept and all other control characters made visible."""
    return "\n".join(visible(line) for line in text.expandtabs(4).splitlines())


def shorten(text: str, width: int = LIST_WIDTH) -> str:
    """Return one line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def day(moment: datetime | None) -> str:
    """Return the date in UTC, or a dash."""
    return "-" if moment is None else moment.date().isoformat()


def instant(moment: datetime | None) -> str:
    """Return date and time in UTC to the second, or a dash."""
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def record_json(record: MemoryRecord) -> dict[str, Any]:
    """Return every field of a record as JSON data; the embedding is left out."""
    return record.model_dump(mode="json")


def record_line(record: MemoryRecord, width: int | None = None) -> str:
    """Return a record as one line of a listing: id, date, scope, text.

    Args:
        record: it is.
        width: columns of the terminal, which the text is cut to. Where they do not leave it enough
            room, it stands below the rest; ids are never cut, for commands need the whole of one.
    """
    private = "[private]" if record.private else ""
    head = [one_line(record.id), day(record.created_at), one_line(record.scope), private]
    if width is None:
        return flowed([*head, shorten(record.content)], None)
    from rich.cells import cell_len

    first = flowed(head, None) + "  "
    room = min(width - cell_len(first), LIST_WIDTH)
    if room >= LEAST_WIDTH:
        return first + folded(record.content, room, 1)[0]
    text = folded(record.content, min(width - len(INDENT), LIST_WIDTH), 1)[0]
    return f"{flowed(head, width, INDENT)}\n{INDENT}{text}"


def folded(text: str, width: int, most: int) -> list[str]:
    """Return a text in at most so many lines of so many terminal columns, cut with an ellipsis.

    Only what is shown is looked at: a text of a megabyte costs no more than a short one.
    """
    from rich.console import Console
    from rich.text import Text

    start = text[: 4 * width * most]
    shown = Text(one_line(start))
    lines = [
        line.plain.rstrip() for line in shown.wrap(Console(width=width), width, overflow="fold")
    ]
    if len(lines) > most or len(text) > len(start):
        rest = Text(" ".join(lines[most - 1 :]) + " …" * (len(text) > len(start)))
        rest.truncate(width, overflow="ellipsis")
        lines = [*lines[: most - 1], rest.plain]
    return lines or [""]


def record_page(record: MemoryRecord, width: int | None = None) -> str:
    """Return everything a person may want to know of a record, its text last.

    Args:
        record: it is.
        width: columns of the terminal, which lines are broken to; None to leave them as they are.
    """
    rows = [
        ("id", record.id),
        ("scope", record.scope),
        ("categories", ", ".join(record.categories) or "-"),
        ("importance", f"{record.importance:.2f}"),
        ("created", instant(record.created_at)),
        ("source", ", ".join(record.sources) or record.source or "-"),
        ("private", "yes" if record.private else "no"),
        ("version", f"{record.version}, since {instant(record.valid_from or record.created_at)}"),
    ]
    if record.retired:
        rows.append(("retired", f"{record.retired}, {instant(record.valid_to)}"))
    if record.superseded_by and record.superseded_by != record.id:
        rows.append(("replaced by", record.superseded_by))
    if record.expires_at:
        rows.append(("expires", instant(record.expires_at)))
    if record.pinned:
        rows.append(("pinned", "yes"))
    if record.analysis:
        rows.append(("analysis", record.analysis))
    if record.metadata:
        data = record.model_dump(mode="json", include={"metadata"})["metadata"]
        rows.append(("metadata", json.dumps(data, ensure_ascii=False)))
    lines = [row(name, one_line(value), width, 12) for name, value in rows]
    return "\n".join([*lines, "", fitted(printable(record.content), width, "")])


def match_lines(rank: int, match: MemoryMatch, width: int | None = None) -> str:
    """Return a match as a line with its text and a line with where, when and why.

    Args:
        width: columns of the terminal: the text takes a few lines of it and ends in an ellipsis
            where there is more, and what does not fit beside the id stands below it; None for
            the whole text in one line.
    """
    record = match.record
    reasons = ", ".join(match.match_reasons) or "-"
    private = " [private]" if record.private else ""
    head = f"{rank}. [{match.score:.2f}] "
    place = f"{one_line(record.scope)}{private}"
    where = [one_line(record.id), day(record.created_at), place, f"({one_line(reasons)})"]
    if width is None:
        return f"{head}{one_line(record.content)}\n{INDENT}{flowed(where, None)}"
    text = folded(head + record.content, width - len(INDENT), MATCH_LINES)
    return f"\n{INDENT}".join([*text, flowed(where, width, INDENT, INDENT).removeprefix(INDENT)])


def match_json(match: MemoryMatch) -> dict[str, Any]:
    """Return a match as JSON data: the record, and every number in its score."""
    return {**match.explain(), "record": record_json(match.record)}


def recall_json(recall: Recall, *, trace: bool) -> dict[str, Any]:
    """Return a recall as JSON data."""
    data: dict[str, Any] = {
        "query": recall.query,
        "status": recall.status,
        "confidence": recall.confidence,
        "matches": [match_json(match) for match in recall],
        "evidence_gaps": recall.evidence_gaps,
        "errors": recall.errors,
    }
    if trace:
        data["trace"] = recall.trace.to_json() if recall.trace else None
    return data


_TREE_LINE = re.compile(r"( *)(/.*) \((\d+) records?\)", re.DOTALL)


def tree_json(tree: str) -> list[dict[str, Any]]:
    """Return the text of `Memory.tree` as nested JSON data: path, records, and the scopes below."""
    top: list[dict[str, Any]] = []
    levels = [top]
    for line in tree.split("\n"):
        found = _TREE_LINE.fullmatch(line)
        if found is None:
            raise InvalidInputError(f"The tree has a line that is no scope: {line!r}.")
        below: list[dict[str, Any]] = []
        depth = len(found[1]) // 2
        levels[depth].append({"path": found[2], "records": int(found[3]), "scopes": below})
        levels[depth + 1 :] = [below]
    return top
