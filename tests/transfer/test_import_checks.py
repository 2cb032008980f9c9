"""A wrong file is refused by line before anything is written; conflicts are told and settled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory
from mnemotrace.errors import EmbedderError, ImportConflictError, InvalidInputError

Edit = Callable[[list[dict[str, Any]]], None]


@pytest.fixture
def exported(here: Memory, file: Path) -> Path:
    """An export of two records; lines 2 and 3."""
    for name in "ab":
        here.remember(f"Record {name} is here.", scope="/s", record_id=name, importance=0.5)
    here.export_records(file)
    return file


def edited(path: Path, edit: Edit) -> Path:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    edit(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def put(line: int, **fields: Any) -> Edit:
    return lambda lines: lines[line - 1].update(fields)


def drop(line: int) -> Edit:
    return lambda lines: lines.__delitem__(line - 1)


def take(line: int, name: str) -> Edit:
    return lambda lines: lines[line - 1].__delitem__(name)


def without_dimension(dimension: Any) -> Edit:
    def edit(lines: list[dict[str, Any]]) -> None:
        lines[0]["embedder"] = {"dimension": dimension}
        lines[1]["embedding"] = [1.0]

    return edit


WRONG: list[tuple[Edit, str]] = [
    (drop(1), "Line 1 .* not the header"),
    (put(1, schema_version=2), "Line 1 .*schema version 2, and this mnemotrace reads 1"),
    (put(1, schema_version="x"), "Line 1 .*'schema_version' must be a whole number.* not 'x'"),
    (
        put(1, schema_version=0),
        "Line 1 .*'schema_version' must be a whole number, 1 or more, not 0",
    ),
    (put(1, scopes="x"), "Line 1 .*'scopes' must be a list of texts .* not 'x'"),
    (put(1, embedder=None), "Line 1 .*'embedder' must be an object, not null"),
    (put(1, embeddings="yes"), "Line 1 .*'embeddings' must be true or false, not 'yes'"),
    (take(1, "schema_version"), "Line 1 .*'schema_version' is missing"),
    (put(3, importance=2), "Line 3 .*'importance' must be a number from 0 to 1, not 2"),
    (put(3, importance=10**400), "Line 3 .*'importance' must be a number from 0 to 1, not 1000"),
    (put(3, version=0), "Line 3 .*'version' must be a whole number from 1 to .* not 0"),
    (put(3, access_count=-1), "Line 3 .*'access_count' must be a whole number from 0 .* not -1"),
    (put(3, importance="high"), "Line 3 .*importance"),
    (put(2, content="  "), "Line 2 .*the field 'content' is blank"),
    (put(2, content=None), "Line 2 .*'content' must be a text that is not empty, not null"),
    (put(2, id=""), "Line 2 .*'id' must be a text that is not empty, not ''"),
    (take(2, "id"), "Line 2 .*'id' is missing"),
    (put(2, source="a\ud800"), "Line 2 .*'source' must be a text"),
    (put(2, categories=["\ud800"]), "Line 2 .*'categories' must be a list of texts"),
    (put(2, content="\ud800"), "Line 2 .*surrogate"),
    (put(2, created_at="yesterday"), "Line 2 .*created_at"),
    (put(2, created_at="2026-W01-1"), "Line 2 .*'created_at' must be a time .* not '2026-W01-1'"),
    (put(2, created_at="0001-01-01T00:00+10:00"), "Line 2 .*'created_at' must be a time"),
    (put(2, scope="/a/../b"), "Line 2 .*the field 'scope' cannot be used: .*holds '..'"),
    (put(2, metadata=[1]), "Line 2 .*metadata"),
    (put(2, metadata={"n": 2**70}), "Line 2 .*more than 64 bits"),
    (put(2, metadata={"t": "x"}, metadata_types={"/t": ["datetime"]}), "Line 2 .*metadata"),
    (put(2, private="no"), "Line 2 .*'private' must be true or false, not 'no'"),
    (put(2, created_at="2026-01-01T00:00:00", content="a\ud800"), "Line 2 .*surrogate"),
    (put(2, embedding=[1.0]), r"Line 2 .*list of 16 finite numbers.* not \[1.0\] \(1 number\)"),
    (put(2, embedding="x"), "Line 2 .*list of 16 finite numbers.* not 'x'"),
    (without_dimension(None), "Line 2 .*'embedding' cannot be read.*'dimension' .* is null"),
    (without_dimension("x"), "Line 2 .*'embedding' cannot be read.*'dimension' .* is 'x'"),
    (put(2, embedding=[0] * 16), "Line 2 .*not all of them 0"),
    (put(2, colour="red"), "Line 2 .*unknown field 'colour'"),
    (put(2, contnt="red"), r"Line 2 .*unknown field 'contnt' \(did you mean 'content'\?\)"),
    (put(3, id="a"), "Line 3 .*is there twice"),
    (put(3, id="a", version=2), "Line 3 .*two current versions"),
    (put(4, records=7), "Line 4 .*7 records, but there are 2 of 2"),
    (put(4, records="7"), "Line 4 .*'records' must be a whole number from 0 .* not '7'"),
    (take(4, "versions"), "Line 4 .*'versions' is missing"),
    (
        put(4, mnemotrace="fin"),
        "Line 4 .*neither a record nor the end .* must be 'end'.* not 'fin'",
    ),
    (drop(4), "Line 4 .*cut off"),
    (drop(2), "Line 3 .*there are 1 of 1"),
    (lambda lines: lines.append(lines[1]), "Line 5 .*after the end"),
]


@pytest.mark.parametrize(("edit", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_line_is_named_and_nothing_is_imported(
    exported: Path, there: Memory, edit: Edit, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as told:
        there.import_records(edited(exported, edit))
    assert str(told.value).endswith("Nothing was imported.")
    assert str(told.value).lower().count("nothing was") == 1
    assert there.list_records() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Line 1 .*empty"),
        (b"\n", "Line 1 .*empty"),
        (b"[1]\n", "Line 1 .*not a JSON object"),
        (b"{\n", "Line 1 .*not JSON"),
        (b"\xff\xfe\n", r"Line 1 .*not UTF-8 \(byte 0\)"),
        (b"[" * 100_000, "Line 1 .*not JSON"),
    ],
)
def test_what_is_no_export_at_all(there: Memory, file: Path, text: bytes, message: str) -> None:
    file.write_bytes(text)
    with pytest.raises(InvalidInputError, match=message):
        there.import_records(file)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_byte_order_mark_before_the_header_is_no_fault(
    exported: Path, there: Memory, as_text: bool
) -> None:
    exported.write_bytes(b"\xef\xbb\xbf" + exported.read_bytes())
    encoding = "utf-8" if as_text else None
    with exported.open("r" if as_text else "rb", encoding=encoding) as file:
        assert there.import_records(file).added == 2
    assert there.import_records(exported).unchanged == 2


def test_a_file_cut_off_in_a_line_is_noticed(exported: Path, there: Memory) -> None:
    exported.write_bytes(exported.read_bytes()[:-40])
    with pytest.raises(InvalidInputError, match="Line"):
        there.import_records(exported)
    assert there.list_records() == []


def test_lines_in_another_order_and_blank_lines_are_no_fault(exported: Path, there: Memory) -> None:
    lines = exported.read_text("utf-8").splitlines()
    exported.write_text("\n".join([lines[0], lines[2], "", lines[1], lines[3]]), "utf-8")
    assert there.import_records(exported).added == 2


@pytest.fixture
def conflicting(exported: Path, there: Memory) -> Path:
    """An export whose record "a" means something else in the other memory."""
    there.remember("Quite another thing.", scope="/s", record_id="a", importance=0.5)
    return exported


def test_a_conflict_stops_the_import_by_default(conflicting: Path, there: Memory) -> None:
    with pytest.raises(InvalidInputError, match="line 2, 'a': version 1 differs in content") as e:
        there.import_records(conflicting)
    assert "on_conflict='skip'" in str(e.value)
    assert isinstance(e.value, ImportConflictError) and e.value.result is not None
    assert [c.record_id for c in e.value.result.conflicts] == ["a"]
    assert (e.value.result.records, e.value.result.added, e.value.result.skipped) == (2, 0, 2)
    assert [r.content for r in there.list_records()] == ["Quite another thing."]


def test_a_dry_run_tells_what_would_happen_and_writes_nothing(
    conflicting: Path, there: Memory
) -> None:
    sequence = there.store.sequence()
    result = there.import_records(conflicting, dry_run=True)
    assert (result.added, result.skipped, result.versions, result.dry_run) == (1, 1, 1, True)
    [conflict] = result.conflicts
    assert (conflict.record_id, conflict.line, conflict.replaceable) == ("a", 2, True)
    replaced = there.import_records(conflicting, dry_run=True, on_conflict="replace")
    assert (replaced.added, replaced.replaced, replaced.versions) == (1, 1, 2)
    assert there.store.sequence() == sequence


def test_skip_keeps_what_is_stored(conflicting: Path, there: Memory) -> None:
    result = there.import_records(conflicting, on_conflict="skip")
    assert (result.added, result.skipped) == (1, 1)
    record = there.get("a")
    assert record is not None
    assert record.content == "Quite another thing."


def test_replace_takes_the_files_and_again_changes_nothing(
    conflicting: Path, there: Memory
) -> None:
    there.update("a", content="Quite another thing, said again.")
    result = there.import_records(conflicting, on_conflict="replace")
    assert (result.added, result.replaced) == (1, 1)
    assert [r.content for r in there.history("a")] == ["Record a is here."]
    again = there.import_records(conflicting, on_conflict="replace")
    assert (again.unchanged, again.versions) == (2, 0)


def test_replacing_never_takes_along_what_another_line_brings(
    here: Memory, there: Memory, file: Path
) -> None:
    """Erasing a record erases what it took over from, which the file may hold too."""
    here.remember("The old fact.", scope="/s", record_id="b", importance=0.5)
    here.remember("The new fact.", scope="/s", record_id="z", importance=0.5)
    here.export_records(file)

    def took_over(lines: list[dict[str, Any]]) -> None:
        lines[1] |= {"retired": "superseded", "superseded_by": "z", "valid_to": "2030-01-01"}
        lines[2]["supersedes"] = ["b"]

    edited(file, took_over)
    there.import_records(file)
    edited(file, put(3, importance=0.9))
    result = there.import_records(file, on_conflict="replace")
    assert (result.unchanged, result.replaced) == (1, 1)
    assert [r.content for r in there.history("z")] == ["The old fact.", "The new fact."]


def test_what_is_hidden_is_never_replaced(exported: Path, there: Memory) -> None:
    there.remember("A secret.", scope="/s", record_id="a", source="bob", private=True)
    with pytest.raises(InvalidInputError, match="taken by a record that is not visible here"):
        there.import_records(exported, on_conflict="replace")
    with pytest.raises(InvalidInputError, match="not visible"):
        there.import_records(exported, on_conflict="replace", source="eve")
    assert there.import_records(exported, on_conflict="skip").skipped == 1
    record = there.get("a", source="bob")
    assert record is not None and record.content == "A secret."
    assert there.import_records(exported, on_conflict="replace", source="bob").replaced == 1


def test_what_lies_outside_a_view_is_never_replaced(exported: Path, there: Memory) -> None:
    there.remember("Elsewhere.", scope="/other", record_id="a")
    with pytest.raises(InvalidInputError, match="not visible here"):
        there.scope("/s").import_records(exported, on_conflict="replace")
    record = there.get("a")
    assert record is not None and record.content == "Elsewhere."


def test_a_newer_version_and_a_retired_one_are_conflicts(exported: Path, there: Memory) -> None:
    there.import_records(exported)
    there.update("a", content="Record a, later.")
    there.forget(record_ids=["b"], erase=False)
    result = there.import_records(exported, dry_run=True)
    assert [c.reason for c in result.conflicts] == [
        "its version is 1, and 2 is the stored one",
        "version 1 differs in valid_to, retired",
    ]


def test_an_embedder_that_fails_leaves_the_old_record(conflicting: Path, there: Memory) -> None:
    fake = there._core.services.embedder.embedder
    fake.fail = True
    try:
        with pytest.raises(EmbedderError):
            there.import_records(conflicting, on_conflict="replace")
    finally:
        fake.fail = False
    record = there.get("a")
    assert record is not None and record.content == "Quite another thing."
