"""What a command complains of is told in words of the command line, not of the library."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.cli.app import app
from mnemotrace.cli.wording import as_typed, options_of, speaking, worded
from mnemotrace.testing import FakeEmbedder
from mnemotrace.views import MemoryView

from .conftest import Cli


@pytest.mark.parametrize(
    ("command", "message", "told"),
    [
        ("import", "Choose on_conflict='skip'.", "Choose --on-conflict skip."),
        ("import", "Ask with source= or include_private=True", "Ask with --source or --include-private"),
        ("list", "pass another folder as storage=.", "pass another folder as --storage."),
        ("list", "storage='a b' is none", "--storage 'a b' is none"),
        ("reset", "scope='  ' is blank", "--scope '  ' is blank"),
        ("remember", "expires_at=2029-01-01T00:00:00+00:00 is", "--expires-at 2029-01-01T00:00:00+00:00 is"),
        ("remember", "Choose another record_id.", "Choose another --id."),
        ("forget", "Use record_ids=[...] for it.", "Use ID for it."),
        ("explain", "scope=None, limit=3, depth='deep'", "no --scope, --limit 3, --depth deep"),
        ("explain", "include_private=False", "no --include-private"),
        ("explain", "categories=['a b', 'c']", "--category 'a b' --category c"),
        ("explain", "metadata_filter={'n': 1, 'w': 'x'}", "--metadata n=1 --metadata w=x"),
        ("list", "list_records() shows them", "`mnemotrace list` shows them"),
        ("list", "call mnemotrace.reindex(storage, embedder)", "call `mnemotrace reindex EMBEDDER`"),
        ("list", "pass it, Memory(embedder=...), again", "pass it, --embedder MODULE:NAME, again"),
        ("remember", "Choose another record_id, change the record with update(), or erase it with forget(record_ids=[...]) first.",
         "Choose another --id, or erase it with `mnemotrace forget ID` first."),
        ("list", "Call memory.reanalyze() once a model can be asked.",
         "In Python, `memory.reanalyze()` makes it up once a model can be asked."),
        ("recall", "raise llm_timeout", "raise llm_timeout"),
        ("recall", "recall_timeout=3 s", "recall_timeout=3 s"),
        # what somebody wrote stays as it is, and so do the fields of a record
        ("import", "the id 'on_conflict=1' and \"dry_run\"", "the id 'on_conflict=1' and \"dry_run\""),
        ("import", "it differs in created_at, valid_from", "it differs in created_at, valid_from"),
        ("list", "/tmp/storage=1/x and x.storage=2", "/tmp/storage=1/x and x.storage=2"),
        (None, "Choose on_conflict='skip' or include_private", "Choose --on-conflict skip or include_private"),
    ],
)  # fmt: skip
def test_arguments_become_options_and_methods_commands(
    command: str | None, message: str, told: str
) -> None:
    assert as_typed(message, options_of(app, command)) == told


def test_only_a_running_command_changes_messages() -> None:
    assert worded("on_conflict='skip'") == "on_conflict='skip'"
    with speaking(app, "import"):
        assert worded("on_conflict='skip'") == "--on-conflict skip"
    assert worded("on_conflict='skip'") == "on_conflict='skip'"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two stores, one of an embedder of its own, and files to import."""
    folder = tmp_path_factory.mktemp("wording")
    with Memory(llm=None, storage=folder / "here", embedder="wordllama") as memory:
        memory.remember("Kiln", scope="/a", record_id="k")
        memory.remember("Hidden", scope="/a", record_id="h", source="ana", private=True)
        memory.export_records(folder / "all.jsonl", include_private=True)
    text = (folder / "all.jsonl").read_text("utf-8").replace("Kiln", "Oven")
    (folder / "other.jsonl").write_text(text, "utf-8")
    (folder / "hidden.jsonl").write_text(text.replace("Hidden", "Seen"), "utf-8")
    with Memory(llm=None, storage=folder / "own", embedder=FakeEmbedder()) as memory:
        memory.remember("Kiln")
    (folder / "diary").mkdir()
    (folder / "diary" / "monday.txt").write_text("Dear diary", "utf-8")
    return folder


FAILING: list[tuple[str, ...]] = [
    ("import", "other.jsonl"),
    ("import", "hidden.jsonl", "--on-conflict", "replace"),
    ("import", "nowhere.jsonl"),
    ("export", "diary"),
    ("export", "nowhere/file"),
    ("remember", "x", "--id", "k"),
    ("remember", "x", "--valid-from", "2030-01-01", "--expires-at", "2029-01-01"),
    ("remember", "x", "--scope", "/a/../b"),
    ("remember", "x", "--source", " "),
    ("remember", "x", "--category", " "),
    ("remember", "x", "--metadata", "n=NaN"),
    ("remember", " "),
    ("recall", " "),
    ("recall", "x", "--category", " "),
    ("recall", "x", "--metadata", 'n={"most": 3}'),
    ("explain", "nobody", "kiln"),
    ("explain", "kiln", "k"),
    ("show", "nobody"),
    ("forget", "nobody", "--yes"),
    ("forget", "--scope", "k", "--yes"),
    ("forget", "--scope", " ", "--yes"),
    ("reset", "--scope", " ", "--yes"),
    ("reset", "--scope", "k", "--yes"),
    ("reindex", "nope"),
    ("list", "--storage", "own"),
    ("list", "--storage", "diary"),
    ("list", "--storage", "all.jsonl"),
    ("list", "--storage", "chroma"),
    ("list", "--storage", "localhost:6333"),
    ("list", "--storage", "ftp://x"),
    ("list", "--storage", "nowhere"),
    ("list", "--embedder", "nope"),
    ("recall", "x", "--embedder", "bundled"),
    ("list", "--embedder", "os:sep"),
]
ARGUMENTS = {
    name
    for _, method in inspect.getmembers(MemoryView, inspect.isfunction)
    for name in inspect.signature(method).parameters
}
PYTHON = re.compile(
    rf"\b(?:{'|'.join(sorted(ARGUMENTS | {'storage', 'embedder'}))})="
    rf"|\b(?:{'|'.join(sorted(name for name in ARGUMENTS if '_' in name))})\b"
    r"|\b(?:list_records|forget|reset|reindex|recall|remember|explain)\("
)


@pytest.mark.parametrize("words", FAILING, ids=" ".join)
def test_no_error_of_a_command_names_what_only_python_has(
    cli: Cli, places: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(places)
    monkeypatch.setenv("COLUMNS", "1000")
    store = () if "--storage" in words else ("--storage", "here")
    told = cli(*words, *store, code=1).err
    assert told.startswith("mnemotrace: ") and told.count("\n") == 1
    assert not PYTHON.search(told), told


def test_warnings_are_told_in_the_same_words(
    cli: Cli,
) -> None:
    told = cli("remember", "The harbour closes at nine.").err
    assert "OPENAI_API_KEY" in told and "--no-llm" in told and "llm=" not in told


def test_what_would_bring_a_record_back_is_told_as_options(
    cli: Cli, remember: Callable[..., str]
) -> None:
    remember("Ida's key hangs by the door, include_private=True.", *("--source", "ida"),
             *("--private", "--id", "key", "--scope", "/a"))  # fmt: skip
    told = cli("explain", "key", "key", "--no-llm", "--depth", "shallow").out
    assert "    --include-private  -> rank 1\n" in told
    assert "    --source ida  -> rank 1" in told
    assert "by the door, include_private=True." in told
