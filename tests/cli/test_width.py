"""Whatever a command prints on a terminal fits its width, and nothing of it is lost."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from mnemotrace import Memory
from mnemotrace.cli.fitting import fitted, flowed, row

from .conftest import Cli

WIDTHS = (40, 80)
ID = "3b3640a7-74b9-4d93-b8da-cc722b5e214c"
LONG_ID = "customer-0-" * 12
TEXT = "The kiln is fired on Tuesdays, and 가마는 화요일에 굽습니다, 窑炉星期二点火。 " + "x" * 120
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it that is long."""
    folder = tmp_path_factory.mktemp("width") / "memory"
    with Memory(llm=None, storage=folder, embedder="wordllama") as memory:
        deep = "/workshop/" + "/".join(f"a-rather-long-name-{n}" for n in range(4))
        memory.remember(
            TEXT,
            scope=deep,
            record_id=ID,
            categories=["a category of many words", "工艺"],
            source="a source with a name",
            metadata={"note": "y" * 90, "words": "many words " * 9},
        )
        memory.remember("The kiln is new.", scope=f"{deep}/{'z' * 70}", record_id=LONG_ID)
        for number in range(12):
            memory.remember(f"Kiln note {number}: {TEXT}", scope="/notes")
        memory.update(ID, importance=0.9)
    return folder


COMMANDS = [
    ("remember", TEXT, "--scope", "/workshop/a-rather-long-name/of-a-scope", "--no-llm"),
    ("list",),
    ("list", "--limit", "1"),
    ("recall", "When is the kiln fired?", "--no-llm", "--trace"),
    ("explain", ID, "When is the kiln fired?", "--no-llm"),
    ("explain", LONG_ID, "glaze", "--limit", "1", "--no-llm"),
    ("show", ID, "--history"),
    ("show", LONG_ID),
    ("tree", "--max-depth", "9"),
    ("info",),
    ("doctor", "--offline"),
    ("export", "a-file-with-a-rather-long-name-for-an-export.jsonl"),
    ("import", "a-file-with-a-rather-long-name-for-an-export.jsonl"),
    ("reindex", "wordllama"),
    ("forget", ID, "--yes"),
    ("reset", "--yes"),
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what makes standard output and error a terminal of so many columns."""

    def use(width: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")

    return use


@pytest.fixture
def at_hand(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of that store, which a test may change, the default one."""
    shutil.copytree(filled, tmp_path / "memory")
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(tmp_path))


def too_wide(text: str, width: int) -> list[str]:
    lines = _STYLE.sub("", text).splitlines()
    return [line for line in lines if cell_len(line) > width]


@pytest.mark.usefixtures("at_hand")
@pytest.mark.parametrize("width", WIDTHS)
def test_every_command_fits_the_terminal(
    cli: Cli, terminal: Callable[[int], None], width: int
) -> None:
    terminal(width)
    for words in COMMANDS:
        done = cli(*words)
        assert done.out, words
        assert not too_wide(done.out, width), words
        progress = words[0] in ("export", "import", "reindex")  # rich draws it over and over
        assert progress or not too_wide(done.err, width), words


@pytest.mark.usefixtures("at_hand")
@pytest.mark.parametrize("width", WIDTHS)
def test_an_id_that_is_shown_is_one_that_commands_take(
    cli: Cli, terminal: Callable[[int], None], width: int
) -> None:
    terminal(width)
    listed = cli("list", "--scope", "/notes", "--limit", "3").out
    recalled = cli("recall", "kiln note", "--scope", "/notes", "--limit", "3", "--no-llm").out
    for shown in (listed, recalled):
        ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", shown)
        assert len(ids) == 3
        assert ids[0] in cli("show", ids[0]).out


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_demo_fits_the_terminal(cli: Cli, terminal: Callable[[int], None], width: int) -> None:
    terminal(width)
    assert not too_wide(cli("demo").out, width)


@pytest.mark.parametrize("width", [30, 33, 40, 77])
@pytest.mark.parametrize(
    "text",
    [
        "word " * 50,
        "    indented " + "word " * 50,
        " " * 70 + "far to the right",
        "x" * 500,
        "a " + "창" * 200 + " b",
        "混合 text 한국어 " * 20,
        "short\n\n  " + "line " * 30,
        "e\u0301" * 200,
    ],
)
def test_a_broken_line_fits_and_says_the_same(text: str, width: int) -> None:
    broken = fitted(text, width)
    assert all(cell_len(line) <= width for line in broken.split("\n"))
    assert "".join(broken.split()) == "".join(text.split())
    assert fitted(text, None) == text


def test_a_megabyte_without_a_space_is_broken_at_once() -> None:
    assert len(fitted("x" * 1_000_000, 40).split("\n")) >= 25_000


def test_parts_stand_side_by_side_as_far_as_they_fit() -> None:
    assert flowed(["one", "", "two"], None) == "one  two"
    assert (
        flowed(["a" * 20, "b" * 10, "c" * 10], 36, "   ")
        == f"{'a' * 20}  {'b' * 10}\n   {'c' * 10}"
    )


def test_a_value_keeps_to_its_column_where_there_is_room() -> None:
    words = "word " * 20
    assert row("name", words, None, 8) == f"name    {words.rstrip()}"
    wide, narrow = row("name", words, 80, 8), row("name", words, 40, 8)
    assert wide.split("\n")[1].startswith("        word")
    assert narrow.split("\n")[1].startswith("  word")
