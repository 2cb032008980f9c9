"""Progress: shown where it can be redrawn, silent elsewhere, and gone when the block ends."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import mnemotrace
from mnemotrace import Memory
from mnemotrace.trace import Span, Trace, note, span, start_trace
from mnemotrace.trace_views.live import MAX_OPEN, MAX_RUNS, Board


class Terminal(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self) -> bool:
        return True


def words(terminal: io.StringIO) -> str:
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", terminal.getvalue())


def test_a_terminal_shows_what_runs_and_keeps_one_line(
    plain: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with mnemotrace.progress(terminal):
        plain.recall("the kiln")
        plain.recall("the glaze", depth="shallow")
    shown = words(terminal)
    assert re.search(r"2 x recall in \d+\.\d ms$", shown.rstrip())
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_the_steps_of_a_run_that_goes_on_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("mnemotrace.trace_views.live.REFRESH_SECONDS", 0.01)
    terminal = Terminal()
    seen = threading.Event()

    class Waiting(Terminal):
        def write(self, text: str, /) -> int:
            if "llm.exploration" in text:
                seen.set()
            return terminal.write(text)

    with mnemotrace.progress(Waiting()), start_trace("recall"):
        with span("search", kind="step"):
            pass
        with span("explore", kind="step"), span("llm.exploration", kind="llm", model="gpt-x"):
            assert seen.wait(10)
    shown = words(terminal)
    assert re.search(r"recall \d+\.\d ms · search \d+\.\d ms", shown)
    assert re.search(r"  llm.exploration gpt-x \d+\.\d ms \.\.\.", shown)
    assert re.search(r"recall in .*, 1 LLM call", shown)


@pytest.mark.parametrize("kind", ["pipe", "dumb", "closed"])
def test_where_nothing_can_be_redrawn_nothing_is_written(
    kind: str, plain: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb" if kind == "dumb" else "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO() if kind == "pipe" else Terminal()
    if kind == "closed":
        broken = Terminal()
        broken.close()
        with mnemotrace.progress(broken):
            plain.recall("the kiln")
        return
    with mnemotrace.progress(out):
        plain.recall("the kiln")
    assert out.getvalue() == ""


def test_a_library_call_writes_nothing_by_itself(
    plain: Memory, capfd: pytest.CaptureFixture[str]
) -> None:
    plain.recall("the kiln")
    with mnemotrace.progress():
        plain.recall("the kiln")
    assert capfd.readouterr() == ("", "")


def test_after_the_block_and_after_an_error_nothing_is_shown_any_more(
    plain: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with pytest.raises(KeyError), mnemotrace.progress(terminal):
        raise KeyError("x")
    before = terminal.getvalue()
    plain.recall("the kiln")
    assert terminal.getvalue() == before
    assert not [t for t in threading.enumerate() if "progress" in t.name]


def test_the_standard_output_of_a_program_stays_its_own(tmp_path: Path) -> None:
    code = (
        "import mnemotrace\n"
        "from mnemotrace.trace import start_trace\n"
        "with mnemotrace.progress():\n"
        "    with start_trace('recall'): print('data')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("data\n", "")


def test_the_board_counts_what_does_not_fit() -> None:
    board = Board()
    runs = [Trace(f"run{number}") for number in range(MAX_RUNS + 2)]
    for run in runs:
        board.span_started(run, run.root)
    for number in range(1, MAX_OPEN + 3):
        board.span_started(runs[0], Span(number, 0, f"s{number}", "search", 0))
    lines = board.lines()
    assert "  2 more ..." in lines
    assert lines[-1] == "2 more runs ..."
    assert sum(line.startswith("run") for line in lines) == MAX_RUNS
    assert board.summary() == ""


def test_the_board_sums_up_what_failed() -> None:
    board = Board()
    trace = Trace("recall")
    board.span_started(trace, trace.root)
    trace.root.status = "error"
    board.span_ended(trace, trace.root)
    assert board.idle
    assert board.summary().endswith(", 1 failed")


NOTEBOOK = """
import time, mnemotrace
from mnemotrace.trace import start_trace, span
with mnemotrace.progress():
    with start_trace("<recall>"), span("search", kind="step"):
        time.sleep(0.3)
"""


@pytest.mark.slow
def test_a_notebook_shows_it_below_the_cell_and_keeps_one_line(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])  # type: ignore[no-untyped-call]
    updates: list[str] = []

    class Client(NotebookClient):
        def process_message(self, msg, cell, cell_index):  # type: ignore[no-untyped-def]
            data = msg["content"].get("data", {})
            if msg["msg_type"] == "update_display_data":
                updates.append(data["text/html"])
            return super().process_message(msg, cell, cell_index)

    client = Client(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    [output] = notebook.cells[0].outputs
    assert "&lt;recall&gt; in" in output.data["text/html"]
    assert output.data["text/plain"].startswith("<recall> in")
    assert any("search" in update and "..." in update for update in updates)


def test_facts_that_come_later_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    with start_trace("recall") as trace, span("llm.x", kind="llm", model="a\x1b[31m") as item:
        assert trace is not None
        assert item is not None
        board.span_started(trace, trace.root)
        board.span_started(trace, item)
        note(model="b")
        assert "llm.x b " in board.lines()[1]
