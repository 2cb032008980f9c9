"""The command as a process: pipes that close, Ctrl-C, logs, terminals without colour."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from mnemotrace import Memory
from mnemotrace.cli.fitting import terminal_width
from mnemotrace.cli.output import MATCH_LINES, folded, match_lines, record_line
from mnemotrace.testing import FakeEmbedder

from .conftest import Cli

COMMAND = [sys.executable, "-m", "mnemotrace"]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")


def test_progress_is_shown_on_a_terminal(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(store.parent))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = cli("export", "m.jsonl")
    assert "Exporting" in shown.err
    assert "Exporting" not in shown.out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no process has open."""
    folder = tmp_path_factory.mktemp("terminal") / "memory"
    with Memory(llm=None, storage=folder, embedder="bundled") as memory:
        memory.remember("The harbour closes at nine.", scope="/port")
    return folder


def test_a_warning_is_one_line_on_stderr_and_steers_nothing(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(store.parent))

    def warns(*args: object) -> None:
        logging.getLogger("mnemotrace.x").warning("red \x1b[31m\nline %s", "two")

    monkeypatch.setattr("mnemotrace.memory.Memory.drain_writes", warns)
    done = cli("list", "--json")
    assert done.err == "mnemotrace: warning: red \\x1b[31m line two\n"
    assert len(done.json) == 1
    cli("list")
    assert logging.getLogger("mnemotrace").handlers == []


def test_no_progress_is_shown_where_nobody_watches(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(store.parent))
    assert cli("export", "m.jsonl").err == ""
    assert cli("import", "m.jsonl").err == ""


def test_a_terminal_gets_the_beginning_of_a_long_text_and_a_pipe_all_of_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The harbour closes at nine. 항구는 아홉 시에 닫습니다. " * 2000
    with Memory(llm=None, storage=tmp_path / "m", embedder=FakeEmbedder()) as memory:
        memory.remember(text, scope="/a/rather/long/path/of/the/port", record_id="h" * 36)
        match = memory.recall("harbour")[0]
    assert text.strip() in match_lines(1, match)
    for width in (120, 60, 40, 30):
        lines = match_lines(1, match, width).splitlines()
        assert all(cell_len(line) <= width for line in lines)
        assert lines[0].startswith("1. [0.") and lines[MATCH_LINES - 1].endswith("…")
        assert lines[-1].strip().endswith(")")
        lines = record_line(match.record, width).splitlines()
        assert lines[-1].endswith("…") and all(cell_len(line) <= width for line in lines)
        assert (len(lines) == 1) == (width == 120)
        assert width < 40 or lines[0].startswith("h" * 36)  # an id that fits is never cut
    monkeypatch.setenv("COLUMNS", "60")
    assert terminal_width() is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert terminal_width() == 60


def test_a_text_that_fits_is_not_cut() -> None:
    assert folded("short\ntext", 30, 3) == ["short text"]
    assert folded("aaaa bbbb cccc", 9, 2) == ["aaaa bbbb", "cccc"]
    assert folded("aaaa bbbb cccc dddd", 9, 1) == ["aaaa bbb…"]
    assert folded("\x1b[31mred", 30, 1) == ["\\x1b[31mred"]
    assert folded("", 30, 3) == [""]


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("words", [["list"], ["export"], ["demo"], ["--help"]], ids=lambda w: w[0])
def test_a_reader_that_has_left_is_no_crash(store: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            env=os.environ | {"MNEMOTRACE_STORAGE_DIR": str(store.parent)},
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@POSIX
@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "remember", "-", "--storage", str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONFAULTHANDLER": "0"},
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        # It reads standard input by then, or will have ended by the signal all the same.
        time.sleep(0.5)
        if _waits_for_input(process.pid):
            process.send_signal(signal.SIGINT)
            break
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert (out, errors) == (b"", b"")


def _waits_for_input(pid: int) -> bool:
    status = Path(f"/proc/{pid}/wchan")
    try:
        return "pipe" in status.read_text("utf-8") or not status.exists()
    except OSError:
        return True


@pytest.mark.slow
def test_a_narrow_terminal_without_colour_gets_plain_text(store: Path) -> None:
    words = ["recall", "harbour", "--trace", "--no-llm", "--storage", str(store)]
    done = subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        check=False,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "30", "TERM": "dumb"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    trace = done.stdout.decode().split("\n\n")[1]
    assert max(map(len, trace.splitlines())) <= 30
