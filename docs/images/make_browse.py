"""Takes the pictures of `mnemotrace browse` that docs/browse.md shows, from a real terminal.

``python docs/images/make_browse.py FOLDER`` writes the demo's memory, changes one record of it, drives
the browser, and writes each screen as a page; FOLDER must be empty. It needs a development
installation and a Unix. A browser turns the pages into pictures, for instance
``chromium --headless --screenshot=browse-ask.png --window-size=1044,646 browse-ask.html``. The others
are 1296,646 (browse-record) and 540,285 (browse-small).
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import time
from pathlib import Path

from wcwidth import wcwidth

from mnemotrace import Memory

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "tui"))
from terminal import Terminal  # lies among the tests

COMMAND = str(Path(sys.executable).with_name("mnemotrace"))
WIDE, HIGH = 9, 19
"""Pixels of one character."""
FONTS = '"DejaVu Sans Mono","NanumGothicCoding","WenQuanYi Zen Hei Mono",monospace'
NAMES = {
    "black": "#000", "red": "#d04040", "green": "#40b040", "brown": "#c0a030",
    "blue": "#4080d0", "magenta": "#b050b0", "cyan": "#30b0b0", "white": "#ddd",
}  # fmt: skip


def write_memory(folder: Path) -> None:
    """Write the demo's memory and change one record: a date and its importance."""
    words = [COMMAND, "demo", "--storage", str(folder)]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    with Memory(llm=None, storage=folder) as memory:
        records = memory.list_records("/project/tidewatch/planning", 200)
        start = next(record for record in records if "It starts on 3 November" in record.content)
        text = start.content.replace("3 November", "10 November")
        memory.update(start.id, content=text, importance=0.9)


def settle(terminal: Terminal, seconds: float = 1.0) -> None:
    """Read what the browser still draws."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        terminal.read(0.1)


def colour(name: str, default: str) -> str:
    """Return a colour of the terminal as one of CSS."""
    if name == "default":
        return default
    return NAMES.get(name, f"#{name}")


def write_page(terminal: Terminal, path: Path) -> None:
    """Write what is on the screen as a page with one box for each character."""
    screen, boxes = terminal.screen, []
    for row in range(screen.lines):
        column = 0
        while column < screen.columns:
            char = screen.buffer[row][column]
            cells = 2 if char.data and wcwidth(char.data[0]) == 2 else 1
            ink, paper = colour(char.fg, "#e0e0e0"), colour(char.bg, "#121212")
            if char.reverse:
                ink, paper = paper, ink
            style = f"left:{column * WIDE}px;top:{row * HIGH}px;width:{cells * WIDE}px;"
            style += f"background:{paper};color:{ink};"
            style += "font-weight:bold;" if char.bold else ""
            style += "text-decoration:underline;" if char.underscore else ""
            boxes.append(f'<i style="{style}">{html.escape(char.data.strip())}</i>')
            column += cells
    css = (
        "body{margin:0;background:#121212}"
        f"i{{position:absolute;display:block;height:{HIGH}px;overflow:hidden;white-space:pre;"
        f"font:normal 15px/{HIGH}px {FONTS};text-align:center}}"
    )
    page = f'<!doctype html><meta charset="utf-8"><style>{css}</style>{"".join(boxes)}'
    path.write_text(page, encoding="utf-8")


def main() -> None:
    """Write the memory and the pages into the current folder."""
    store = Path("tidewatch")  # as the browser's title shows it
    write_memory(store)
    words = [COMMAND, "browse", "--no-llm", "--storage", str(store)]
    with Terminal(words, columns=144, rows=34) as terminal:
        terminal.wait_for("1 of 113")
        for keys in ("jj", "2", "/", "november\r"):
            terminal.type(keys)
            settle(terminal)
        terminal.wait_for("found")
        for _ in range(3):  # records of one day come in any order
            if "2 versions" in terminal.text:
                break
            terminal.type("j")
            settle(terminal)
        write_page(terminal, Path("browse-record.html"))

        terminal.type("\x1b")
        settle(terminal)
        terminal.resize(116, 34)
        terminal.type("1j")
        settle(terminal)
        terminal.type("a")
        settle(terminal)
        terminal.type("Is the light on the buoy bright enough at night?\r")
        terminal.wait_for("confidence")
        settle(terminal)
        for keys in ("/", "\r"):  # once more: the first recall loads the embedder
            terminal.type(keys)
            settle(terminal)
        terminal.wait_for("confidence")
        write_page(terminal, Path("browse-ask.html"))

        terminal.type("\x1b")
        settle(terminal)
        terminal.resize(60, 15)
        settle(terminal)
        terminal.type("2")
        settle(terminal)
        write_page(terminal, Path("browse-small.html"))
        terminal.type("q")
        terminal.wait()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    main()
