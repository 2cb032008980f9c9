"""Lines that fit the terminal: results are cut or broken there, and left whole in a pipe."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator

LEAST_WIDTH = 30
"""Columns that lines are broken to at least, however narrow the terminal is."""
NARROW = 72
"""Below so many columns what follows a heading is not set in a column of its own."""
HANG = "  "
"""Before every further line of a broken one."""
_GAPS = re.compile(r"(?<=\S) {3,}")


def terminal_width() -> int | None:
    """Return the columns of the terminal that results are printed to; None when it is none."""
    return columns_of(sys.stdout.isatty())


def columns_of(is_terminal: bool) -> int | None:
    """Return the columns of the terminal; None where there is none."""
    return max(shutil.get_terminal_size().columns, LEAST_WIDTH) if is_terminal else None


def fitted(text: str, width: int | None, hang: str = HANG) -> str:
    """Return a text with its long lines broken at spaces, words that are too long anywhere.

    Args:
        text: its lines may be indented; what they are broken into is indented likewise.
        width: columns of the terminal; None to leave the text as it is.
        hang: what further lines of a broken line begin with, after its indentation.
    """
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _broken(line, width, hang))


def _broken(line: str, width: int, hang: str) -> Iterator[str]:
    from rich.cells import cell_len

    if cell_len(line) > width:
        line = _GAPS.sub("  ", line)  # columns of a table move together before they are broken
    if cell_len(line) <= width:
        yield line
        return
    body = line.lstrip(" ")
    indent = " " * min(len(line) - len(body), width // 3)
    later = indent + hang
    if len(later) > width // 2:
        later = indent
    current, is_empty = indent, True
    for word in body.split(" "):
        joined = current + word if is_empty else f"{current} {word}"
        if len(joined) <= 4 * width and cell_len(joined) <= width:
            current, is_empty = joined, False
            continue
        pieces = _Pieces(word)
        if not is_empty:
            # A word that needs several lines begins on this one, if much of it fits.
            room = width - cell_len(current) - 1
            if room >= width // 3 and not pieces.fit(width - cell_len(later)):
                current = f"{current} {pieces.next(room)}"
            yield current.rstrip()
            current = later
        while not pieces.fit(width - cell_len(current)):
            yield current + pieces.next(width - cell_len(current))
            current = later
        current, is_empty = current + pieces.rest, False
    yield current.rstrip()


class _Pieces:
    """A word that is cut from its beginning; one of a megabyte takes no longer for each piece."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._start = 0

    @property
    def rest(self) -> str:
        """What is left of the word."""
        return self._word[self._start :]

    def fit(self, room: int) -> bool:
        """Tell whether what is left takes no more than so many columns."""
        from rich.cells import cell_len

        return len(self._word) - self._start <= 4 * room and cell_len(self.rest) <= room

    def next(self, room: int) -> str:
        """Cut off as much as so many columns have room for."""
        from rich.cells import chop_cells

        piece = chop_cells(self._word[self._start : self._start + 4 * room], room)[0]
        self._start += len(piece)
        return piece


def flowed(parts: Iterable[str], width: int | None, indent: str = "", first: str = "") -> str:
    """Return parts side by side, two spaces between them, on as many lines as they need.

    Args:
        parts: each is broken only where it does not fit a line of its own; empty ones are left out.
        width: columns of the terminal; None for one line.
        indent: what every line but the first begins with.
        first: what the first begins with.
    """
    shown = [part for part in parts if part]
    if width is None:
        return first + "  ".join(shown)
    from rich.cells import cell_len

    lines, is_empty = [first], True
    for part in shown:
        joined = lines[-1] + part if is_empty else f"{lines[-1]}  {part}"
        if cell_len(joined) <= width or is_empty:
            lines[-1] = joined
        else:
            lines.append(indent + part)
        is_empty = False
    return "\n".join(fitted(line, width, "" if indent else HANG) for line in lines)


def is_narrow(width: int | None) -> bool:
    """Tell whether a terminal has no room for a column of headings beside long values."""
    return width is not None and width < NARROW


def row(heading: str, value: str, width: int | None, column: int) -> str:
    """Return a heading with its value in a column, which long values stay in on a wide terminal.

    Args:
        heading: fills the columns before the value's.
        value: in one line.
        width: columns of the terminal; None for one line.
        column: where the value begins.
    """
    hang = HANG if is_narrow(width) else " " * column
    return fitted(f"{heading:<{column}}{value}".rstrip(), width, hang)
