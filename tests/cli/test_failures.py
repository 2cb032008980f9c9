"""What goes wrong ends with one line and the right exit code, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mnemotrace import Memory, __version__

from .conftest import Cli

READING = [
    ("list",),
    ("recall", "anything"),
    ("show", "some-id"),
    ("tree",),
    ("info",),
    ("forget", "some-id", "--yes"),
    ("reset", "--yes"),
]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_where_there_is_no_memory_a_reader_says_so_and_makes_none(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = cli(*words, code=1)
    assert done.out == ""
    assert "There is no memory" in done.err
    assert str(tmp_path / ".mnemotrace" / "memory") in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_environments_place_is_named_where_there_is_no_memory(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", "elsewhere")
    assert f"{tmp_path / 'elsewhere' / 'memory'} (" in cli("list", code=1).err


def test_an_id_that_nothing_has_is_an_error_for_explain_as_for_show(
    cli: Cli, remember: Callable[..., str]
) -> None:
    remember("The kiln is new.", "--id", "k")
    remember("The kiln's key.", "--id", "s", "--source", "ana", "--private")
    words = ("--no-llm", "--depth", "shallow")
    for unknown, who in (("nobody", ()), ("s", ("--viewer", "eve"))):
        told = cli("explain", unknown, "kiln", *words, *who, code=1)
        assert (told.out, told.err) == ("", cli("show", unknown, code=1).err)
    assert cli("explain", "nobody", "kiln", *words, "--json", code=1).json["verdict"] == "unknown"
    assert "but 'k' is one: the ID comes first" in cli("explain", "kiln", "k", *words, code=1).err
    for who, hinted in ((), True), (("--viewer", "ana"), True), (("--source", "eve"), False):
        told = cli("explain", "kiln", "s", *words, *who, code=1)
        assert ("but 's' is one: the ID comes first" in told.err) == hinted


@pytest.mark.parametrize(
    "words",
    [
        ("remember", "  "),
        ("remember", "x", "--scope", "/a/../b"),
        ("remember", "x", "--metadata", "n=NaN"),
        ("recall", " "),
        ("show", "nobody"),
        ("forget", "nobody", "--yes"),
        ("list", "--scope", "/a\x00"),
        ("list", "--storage", "chroma"),
        ("remember", "x", "--valid-from", "2030-01-01", "--expires-at", "2029-01-01"),
    ],
)
def test_an_error_is_one_line_on_stderr(
    cli: Cli, remember: Callable[..., str], words: tuple[str, ...]
) -> None:
    remember("Something is here.")
    done = cli(*words, code=1)
    assert done.out == ""
    assert done.err.startswith("mnemotrace: ")
    assert done.err.count("\n") == 1
    assert len(cli("list").lines) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("remembr", "x"),
        ("remember",),
        ("remember", "x", "--importance", "2"),
        ("remember", "x", "--metadata", "novalue"),
        ("remember", "x", "--created-at", "yesterday"),
        ("recall", "x", "--depth", "medium"),
        ("recall", "x", "--limit", "-1"),
        ("recall", "x", "--sope", "/a"),
        ("list", "--since", "2025-13-01"),
        ("forget", "--yes"),
        ("tree", "--max-depth", "-1"),
    ],
)
def test_a_wrong_command_line_is_code_2_and_makes_no_memory(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = cli(*words, code=2)
    assert done.out == ""
    assert "Error:" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "given", "accepted"),
    [
        (("remember", "x", "--importance", "nan"), "'nan'", "a number from 0 to 1"),
        (("remember", "x", "--importance", "7"), "'7'", "a number from 0 to 1"),
        (("remember", "x", "--importance", "high"), "'high'", "a number from 0 to 1"),
        (("remember", "x", "--metadata", "foo"), "'foo'", "KEY=VALUE"),
        (("remember", "x", "--metadata", "=v"), "'=v'", "KEY=VALUE"),
        (("remember", "x", "--valid-from", "soon"), "'soon'", "2025-09-30"),
        (("remember", "x", "--expires-at", "2025-13-01"), "'2025-13-01'", "2025-09-30"),
        (("list", "--limit", "-1"), "'-1'", "a whole number, 0 or more"),
        (("list", "--offset", "1.5"), "'1.5'", "a whole number, 0 or more"),
        (("tree", "--max-depth", "x"), "'x'", "a whole number, 0 or more"),
        (("recall", "x", "--depth", "medium"), "'medium'", "deep or shallow"),
        (("import", "f", "--on-conflict", "ask"), "'ask'", "error, skip or replace"),
        (("reindex", "bundled", "--batch-size", "0"), "'0'", "a whole number, 1 or more"),
    ],
)
def test_a_wrong_value_is_told_with_its_option_and_what_is_accepted(
    cli: Cli, words: tuple[str, ...], given: str, accepted: str
) -> None:
    error = cli(*words, code=2).err.splitlines()[-1]
    assert f"'{words[-2]}'" in error and given in error and accepted in error


def test_a_folder_with_something_else_in_it_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("Dear diary", encoding="utf-8")
    done = cli("remember", "x", "--no-llm", "--storage", "notes", code=1)
    assert "not a mnemotrace store" in done.err
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["diary.txt"]


def test_version_and_help_print_and_make_no_memory(cli: Cli, tmp_path: Path) -> None:
    assert cli("--version").out == f"{__version__}\n"
    commands = ("demo", "remember", "recall", "list", "show", "tree", "info", "browse", "forget",
                "reset")  # fmt: skip
    overview = cli("--help").out
    for command in commands:
        assert f"\n  {command} " in overview
        assert "--storage" in cli(command, "--help").out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_memory_in_use_elsewhere_is_named_with_its_process(tmp_path: Path) -> None:
    with Memory(llm=None, storage=tmp_path / "store") as memory:
        memory.remember("Mine", scope="/", categories=[], importance=0.5)
        done = _python("-m", "mnemotrace", "list", "--storage", str(tmp_path / "store"))
    assert done.returncode == 1
    assert str(os.getpid()) in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_letter_gets_an_escape_instead_of_a_crash(
    tmp_path: Path,
) -> None:
    with Memory(llm=None, storage=tmp_path / "store") as memory:
        memory.remember("등대", scope="/", categories=[], importance=0.5)
    done = _python(
        *("-m", "mnemotrace", "list", "--storage", str(tmp_path / "store")),
        PYTHONIOENCODING="latin-1",
    )
    assert done.returncode == 0, done.stderr
    assert "\\ub4f1\\ub300" in done.stdout


def _python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | environment,
        check=False,
    )
