"""export, import, reindex and the faults that were found in the older commands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.cli.examples import EXAMPLES

from .conftest import Cli

Remember = Callable[..., str]


@pytest.fixture(scope="module")
def _filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to look at: opening one is quick, making one is not."""
    folder = tmp_path_factory.mktemp("filled")
    with Memory(llm=None, storage=folder / "memory", embedder="bundled") as memory:
        for content, scope in (
            ("등대 \x1b[31m red", "/a/b (2 records)/c"),
            ("Bread is baked at four.", "/a"),
            ("The ferry is red.", "/d"),
        ):
            memory.remember(content, scope)
    return folder


@pytest.fixture
def filled(_filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make that store the default one."""
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(_filled))


@pytest.mark.slow
def test_a_memory_moves_through_a_file(cli: Cli, remember: Remember) -> None:
    remember("The harbour closes at nine.", "--scope", "/port", "--id", "h")
    remember("Ida's birthday is in May.", "--source", "ida", "--private")
    assert cli("export", "m.jsonl").out == "Exported 1 record (1 version) to m.jsonl.\n"
    done = cli("export", "m.jsonl", "--include-private", "--json").json
    assert done == {"file": "m.jsonl", "records": 2, "versions": 2}
    plan = cli("import", "m.jsonl", "--storage", "copy", "--dry-run")
    assert plan.out.startswith("Would import 2 records (2 versions): 2 new")
    assert cli("list", "--storage", "copy", code=1).out == ""
    report = cli("import", "m.jsonl", "--storage", "copy", "--json").json
    assert (report["added"], report["conflicts"], report["dry_run"]) == (2, [], False)
    again = cli("import", "m.jsonl", "--storage", "copy")
    assert "2 unchanged" in again.out
    here, there = (cli("list", "--json", "--include-private", *w) for w in ((), ("--storage", "copy")))  # fmt: skip
    assert here.json == there.json


@pytest.mark.usefixtures("filled")
def test_export_to_standard_output_is_the_file_itself(cli: Cli) -> None:
    done = cli("export", "-", "--scope", "/a/b (2 records)", "--json")
    assert done.err == ""
    header, record, end = (json.loads(line) for line in done.lines)
    assert (header["mnemotrace"], end["records"]) == ("export", 1)
    assert record["content"] == "등대 \x1b[31m red"


@pytest.mark.usefixtures("filled")
def test_import_reads_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = cli("export").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert "3 unchanged" in cli("import", "-").out


@pytest.mark.slow
def test_a_conflict_is_one_line_and_its_choice_works(cli: Cli, remember: Remember) -> None:
    remember("One thing.", "--id", "x")
    cli("export", "m.jsonl")
    remember("Another\nthing.", "--id", "x", "--storage", "copy")
    done = cli("import", "m.jsonl", "--storage", "copy", code=1)
    assert done.err.count("\n") == 1
    assert "line 2, 'x'" in done.err
    report = json.loads(cli("import", "m.jsonl", "--storage", "copy", "--json", code=1).out)
    assert (report["records"], report["added"], report["skipped"]) == (1, 0, 1)
    assert [conflict["id"] for conflict in report["conflicts"]] == ["x"]
    skipped = cli("import", "m.jsonl", "--storage", "copy", "--on-conflict", "skip")
    assert "1 skipped" in skipped.out
    assert skipped.err.startswith("Line 2, x: version 1 differs in content")
    cli("import", "m.jsonl", "--storage", "copy", "--on-conflict", "replace")
    assert "One thing." in cli("show", "x", "--storage", "copy").out
    cli("import", "m.jsonl", "--on-conflict", "merge", code=2)


def test_a_wrong_file_is_one_line_and_makes_no_memory(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("{}\n", "utf-8")
    done = cli("import", "m.jsonl", code=1)
    assert "Line 1 cannot be imported" in done.err
    assert done.err.count("\n") == 1
    assert "cannot be read" in cli("import", "nowhere.jsonl", code=1).err
    assert [path.name for path in tmp_path.iterdir()] == ["m.jsonl"]


@pytest.mark.slow
def test_reindex_changes_the_embedder(cli: Cli, remember: Remember) -> None:
    remember("The harbour closes at nine.")
    assert cli("reindex", "wordllama").out == "Embedded 1 version with wordllama.\n"
    assert "harbour" in cli("recall", "harbour", "--no-llm").out
    assert "did you mean" in cli("reindex", "bundle", code=1).err
    assert "There is no memory" in cli("reindex", "bundled", "--storage", "new", code=1).err


def test_a_turn_is_remembered_with_its_session(cli: Cli, remember: Remember) -> None:
    for turn in ("Ana: Where did you grow up?", "Ben: In Oslo."):
        remember(turn, "--session", "monday", "--scope", "/talk")
    records = cli("list", "--json").json
    assert {record["session"] for record in records} == {"monday"}
    # found by the words of the question before it
    matches = cli("recall", "grow up", "--no-llm", "--json").json["matches"]
    assert {m["record"]["content"]: m["components"]["lexical"] > 0 for m in matches}[
        "Ben: In Oslo."
    ]


@pytest.mark.usefixtures("filled")
def test_a_limit_of_nothing_lists_nothing_and_sends_nobody_in_circles(cli: Cli) -> None:
    done = cli("list", "--limit", "0")
    assert (done.out, done.err) == ("", "")
    assert cli("list", "--limit", "0", "--json").json == []


@pytest.mark.usefixtures("filled")
def test_a_dash_asks_what_is_piped_in(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bread\n")))
    assert cli("recall", "-", "--no-llm", "--json").json["query"] == "bread"


@pytest.mark.usefixtures("filled")
def test_tree_as_json_is_nested(cli: Cli) -> None:
    c = {"path": "/a/b (2 records)/c", "records": 1, "scopes": []}
    b = {"path": "/a/b (2 records)", "records": 1, "scopes": [c]}
    a = {"path": "/a", "records": 2, "scopes": [b]}
    d = {"path": "/d", "records": 1, "scopes": []}
    assert cli("tree", "--json").json == [{"path": "/", "records": 3, "scopes": [a, d]}]
    assert cli("tree", "/a", "--max-depth", "1", "--json").json == [a | {"scopes": [b | {"scopes": []}]}]  # fmt: skip


def test_reset_as_json_counts(cli: Cli, remember: Remember) -> None:
    remember("One")
    gone = cli("reset", "--yes", "--json").json
    assert (gone["forgotten"], gone["erased"]) == (1, True)


@pytest.mark.slow
def test_the_demo_as_json_has_its_answers_and_its_trace(cli: Cli) -> None:
    data = cli("demo", "--json").json
    assert len(data["answers"]) == 6
    assert data["records"] > 50
    assert data["trace"]["kind"] == "recall"
    assert "3 November" in data["answers"][0]["matches"][0]["content"]


@pytest.mark.slow
def test_every_example_in_the_help_works_in_the_order_they_are_listed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shlex

    (tmp_path / "note.txt").write_text("The ferry is red.", "utf-8")
    (tmp_path / "my_embedder.py").write_text(
        "def embed(texts):\n    return [[1.0, float(len(text))] for text in texts]\n", "utf-8"
    )
    monkeypatch.delitem(sys.modules, "my_embedder", raising=False)
    (tmp_path / "question.txt").write_text("Where does Ana live?", "utf-8")
    for command, examples in EXAMPLES.items():
        shown = cli(command, "--help").out
        for example in examples:
            assert f"\n    {example}\n" in shown
            if command == "demo":
                continue  # it has a test of its own
            words = shlex.split(example)
            assert words[:2] == ["mnemotrace", command]
            out = into = None
            if words[-2] in "<>":
                (*words, arrow, name) = words
                out, into = (name, None) if arrow == ">" else (None, name)
            if into is not None:
                data = io.BytesIO((tmp_path / into).read_bytes())
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
            if command == "recall":
                words.append("--no-llm")
            done = cli(*words[1:])
            assert done.out
            if out is not None:
                (tmp_path / out).write_text(done.out, "utf-8")
