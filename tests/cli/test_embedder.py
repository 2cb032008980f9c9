"""A memory that was written with an embedder of one's own, on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnemotrace.cli.app import COMMANDS

from .conftest import Cli

MODULE = """
import ran

from hidden_words import WORDS  # a neighbour of this module

def embed(texts):
    return [[1.0 + text.count(word) for word in WORDS] for text in texts]

def other(texts):
    return [[1.0, -1.0, float(len(text) % 7), 0.5] for text in texts]

class Model:
    def embed(self, texts):
        return embed(texts)

class Shelf:
    small = Model()

shelf = Shelf()
number = 7
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an embedder in the current directory, and a memory written with it."""
    before, path = set(sys.modules), list(sys.path)
    (tmp_path / "own_words.py").write_text(MODULE, "utf-8")
    (tmp_path / "hidden_words.py").write_text("WORDS = ['kiln', 'ferry', 'a', 'e']\n", "utf-8")
    (tmp_path / "ran.py").write_text("open('ran.txt', 'a').close()\n", "utf-8")
    yield "own_words:embed"
    assert sys.path == path
    for name in set(sys.modules) - before:
        if name in ("own_words", "hidden_words", "ran", "broken", "leaves"):
            del sys.modules[name]


@pytest.fixture
def record_id(cli: Cli, own: str) -> str:
    done = cli("remember", "The kiln is hot.", "--no-llm", "--json", "--embedder", own)
    return str(done.json["id"])


@pytest.mark.slow
def test_every_command_works_with_the_embedder_it_is_told(
    cli: Cli, own: str, record_id: str, tmp_path: Path
) -> None:
    with_it = ("--embedder", own)
    commands: dict[str, tuple[str, ...]] = {
        "recall": ("kiln", "--no-llm"),
        "explain": (record_id, "kiln", "--no-llm"),
        "list": (),
        "show": (record_id,),
        "tree": (),
        "info": (),
        "doctor": ("--offline",),
        "export": ("m.jsonl",),
        "import": ("m.jsonl",),
        "forget": (record_id, "--yes"),
        "reset": ("--yes",),
    }
    assert commands.keys() | {"demo", "remember", "browse", "reindex"} == COMMANDS.keys()
    for command, words in commands.items():
        told = cli(command, *words, code=3 if command == "doctor" else 1)
        assert "--embedder MODULE:NAME" in told.err + told.out, command
        done = cli(command, *words, *with_it)
        assert done.out, command


def test_objects_inside_of_others_are_found(cli: Cli, own: str, record_id: str) -> None:
    assert "hot" in cli("recall", "kiln", "--no-llm", "--embedder", "own_words:shelf.small").out


def test_another_embedder_is_refused_and_reindexing_frees_from_it(
    cli: Cli, own: str, record_id: str
) -> None:
    asked = ("recall", "kiln", "--no-llm", "--embedder", "own_words:other")
    assert "different vectors" in cli(*asked, code=1).err
    assert cli("reindex", "own_words:other").out == "Embedded 1 version with own_words:other.\n"
    assert record_id in cli("list", "--embedder", "own_words:other").out
    assert cli("reindex", "wordllama").out == "Embedded 1 version with wordllama.\n"
    assert record_id in cli("list").out


def test_a_providers_key_is_an_embedder_too(cli: Cli) -> None:
    cli("remember", "x", "--no-llm", "--embedder", "wordllama")
    assert len(cli("list").lines) == 1
    assert "unknown embedder provider" in cli("list", "--embedder", "nobody", code=1).err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere_at_all:embed", "No module named 'nowhere_at_all'"),
        ("own_words:nothing", "has no attribute 'nothing'"),
        ("own_words:Model", "names a class"),
        ("own_words:number", "an int without an `embed` method"),
        ("broken:embed", "ZeroDivisionError"),
        ("leaves:embed", "SystemExit"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    cli: Cli, own: str, tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", "utf-8")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n", "utf-8")
    done = cli("remember", "x", "--no-llm", "--embedder", name, code=1)
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / ".mnemotrace" / "memory" / "manifest.json").exists()


@pytest.mark.parametrize("name", [":embed", "own_words:", "own words:embed", "../own_words:embed"])
def test_what_names_no_module_is_a_wrong_command_line(cli: Cli, own: str, name: str) -> None:
    done = cli("list", "--embedder", name, code=2)
    assert "'--embedder'" in done.err and "MODULE:NAME" in done.err


@pytest.mark.slow
def test_a_memory_names_no_code(cli: Cli, own: str, record_id: str, tmp_path: Path) -> None:
    """Its manifest says what the function is called; only the command line imports it."""
    for name in ("own_words", "hidden_words", "ran"):
        del sys.modules[name]
    (tmp_path / "ran.txt").unlink()
    cli("list", code=1)
    cli("recall", "kiln", "--no-llm", code=1)
    cli("doctor", "--offline", code=3)
    cli("reindex", "wordllama")
    cli("list")
    assert not (tmp_path / "ran.txt").exists()
    assert "own_words" not in sys.modules
