"""`mnemotrace browse` as a person starts it: in a terminal, or where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.cli import main

pytest.importorskip("termios")  # a pseudo-terminal is a thing of Unix

from .terminal import Terminal

MNEMOTRACE = (sys.executable, "-m", "mnemotrace")
EVIL = "\x1b]0;evil\x07\x1b[2J"


def browse(*words: str, columns: int = 100, rows: int = 30, **environment: str) -> Terminal:
    command = (*MNEMOTRACE, "browse", "--no-llm", *words)
    return Terminal(command, columns=columns, rows=rows, environment=environment)


def fill(folder: Path) -> None:
    with Memory(llm=None, storage=folder, embedder="bundled") as memory:
        for text, scope in (
            ("The kiln is fired on Mondays.", "/studio/kiln"),
            ("유약은 선반 위에 있습니다. 🏺", "/studio/glazes"),
            ("窑炉在周一点火。", "/studio/kiln"),
            (f"Evil {EVIL}[red]text[/red]", "/other"),
        ):
            memory.remember(text, scope=scope, categories=[], importance=0.5)


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the command in this process; return the one line it fails with."""
    with pytest.raises(SystemExit) as left:
        main(["browse", *words])
    captured = capsys.readouterr()
    assert (left.value.code, captured.out) == (1, "")
    assert captured.err.startswith("mnemotrace: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_without_a_terminal_it_says_so_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "needs a terminal, but stdin is not one" in failure(capsys)
    assert list(tmp_path.iterdir()) == []


def test_without_textual_it_gives_the_line_that_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "mnemotrace.tui", raising=False)
    assert 'pip install "mnemotrace[tui]"' in failure(capsys)


@pytest.mark.slow
def test_a_person_looks_around_in_a_terminal_while_others_are_kept_out(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    fill(folder)
    with browse("--storage", str(folder)) as terminal:
        terminal.wait_for("1 of 4")
        shown = terminal.wait_for("scope       /other")
        assert "\\x1b]0;evil\\x07" in shown
        assert "studio 3" in shown

        others = subprocess.run(
            [*MNEMOTRACE, "list", "--storage", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert others.returncode == 1
        assert str(terminal.process.pid) in others.stderr
        with browse("--storage", str(folder)) as second:
            assert second.wait() == 1
            told = second.text.replace("\n", "")  # it wraps where it will
            assert f"process {terminal.process.pid}" in told
            assert "Close the memory there first" in told

        terminal.type("jj")
        terminal.wait_for("1 of 3")
        terminal.type("\r")
        terminal.type("/유약\r")
        terminal.wait_for("1 of 1 found")
        terminal.wait_for("scope       /studio/glazes")

        terminal.type("a")
        terminal.wait_for("What do you want to know?")
        terminal.type("When is the kiln fired?\r")
        for part in ("confidence", "The kiln is fired on Mondays.", "score 0.", "analyze_query"):
            terminal.wait_for(part)
        terminal.type("\x1b")
        terminal.wait_for("1 of 1 found")
        terminal.type("?")
        terminal.wait_for("these keys")
        terminal.type("\x1b")
        terminal.wait_for(lambda screen: "these keys" not in screen)
        terminal.resize(60, 15)
        terminal.wait_for(lambda screen: "2 records" in screen and "1 scopes" not in screen)
        assert max(map(len, terminal.text.splitlines())) <= 60
        terminal.type("q")
        assert terminal.wait() == 0
        assert b"\x1b]0;evil" not in terminal.raw
        assert b"\x1b[?1049l" in terminal.raw  # the screen that was there before is back
        assert b"\x1b[?1000h" not in terminal.raw  # the mouse stays the terminal's

    with Memory(llm=None, storage=folder) as memory:
        assert memory.info().record_count == 4


@pytest.mark.slow
def test_ctrl_c_leaves_and_without_colour_it_is_grey(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    with browse("--storage", str(tmp_path / "store"), "--read-only", NO_COLOR="1") as terminal:
        terminal.wait_for("read-only")
        terminal.wait_for("scope       /other")
        used = {cell.fg for line in terminal.screen.buffer.values() for cell in line.values()} - {
            "default",
            "white",
            "black",
        }
        assert all(colour[:2] == colour[2:4] == colour[4:] for colour in used)
        terminal.type("\x03")
        assert terminal.wait() == 0


@pytest.mark.slow
def test_what_cannot_be_browsed_ends_with_one_message_and_code_1(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    with browse("--storage", str(tmp_path / "store"), TERM="dumb") as terminal:
        assert terminal.wait() == 1
        assert "TERM=dumb" in terminal.text
    (tmp_path / "store" / "manifest.json").write_text("{", encoding="utf-8")
    with browse("--storage", str(tmp_path / "store")) as terminal:
        assert terminal.wait() == 1
        assert "mnemotrace: " in terminal.text
        assert "Traceback" not in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw  # no screen was ever drawn
    with browse("--storage", str(tmp_path / "none")) as terminal:
        terminal.wait_for("There is no memory at")
        terminal.type("q")
        assert terminal.wait() == 0
    assert not (tmp_path / "none").exists()
    piped = subprocess.run(
        [*MNEMOTRACE, "browse", "--storage", str(tmp_path / "store")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TERM": "xterm"},
    )
    assert (piped.returncode, piped.stdout) == (1, "")
    assert "needs a terminal" in piped.stderr
