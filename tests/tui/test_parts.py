"""The pure parts: filter, widths, bars, changes; and what the reads leave out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from mnemotrace import Memory
from mnemotrace.errors import InvalidInputError, ScopePermissionError
from mnemotrace.records import MemoryRecord
from mnemotrace.tui.changes import MAX_WORDS, changes
from mnemotrace.tui.details import MAX_VERSIONS, history_text
from mnemotrace.tui.filters import Filter, parse_filter
from mnemotrace.tui.reading import Browsing
from mnemotrace.tui.showing import bar, block, fit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Filter()),
        ("  \t ", Filter()),
        ("Kiln ｗｉｄｅ", Filter(("kiln", "wide"))),
        ('"two Words" one', Filter(("two words", "one"))),
        ("category:a category:b", Filter((), ("a", "b"))),
        ('source:"Ana Lima" x', Filter(("x",), None, ("Ana Lima",))),
        ("http://x category:é", Filter(("http://x",), ("é",))),
        ('""', Filter()),
        ("Category:a", Filter(("category:a",))),
    ],
)
def test_a_filter_is_read(text: str, expected: Filter) -> None:
    assert parse_filter(text) == expected
    assert bool(parse_filter(text)) is (expected != Filter())


@pytest.mark.parametrize("text", ['"open', 'a"b"', "category:", 'source:""', '"a"b', "x source: y"])
def test_a_filter_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_filter(text)


@pytest.mark.parametrize("width", [0, 1, 2, 7, 40])
@pytest.mark.parametrize(
    "text", ["", "short", "漢字かな交じり文" * 9, "한 글 🏺 " * 9, "a\x1b[1m\nb" * 9]
)
def test_a_line_is_exactly_as_wide_as_asked(text: str, width: int) -> None:
    line = fit(text, width)
    assert cell_len(line) == width
    assert line.isprintable()
    assert ("…" in line) is (width > 0 and cell_len(fit(text, 400).rstrip()) > width)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "    "), (1, "████"), (2.5, "████"), (-1, "    "), (0.5, "██  "), (0.53125, "██▏ ")],
)
def test_a_bar_shows_a_share(value: float, shown: str) -> None:
    assert bar(value, 4) == shown


def test_a_long_text_says_how_long_it_is() -> None:
    assert block("a\x07\nb") == "a\\x07\nb"
    assert block("x" * 5000, 10).startswith("xxxxxxxxxx…\n(5,000 characters")


def version(number: int, content: str, **fields: object) -> MemoryRecord:
    return MemoryRecord.model_validate(
        {"id": "r", "content": content, "version": number, "created_at": "2025-01-01"} | fields
    )


def test_changes_name_every_field_that_differs_and_no_other() -> None:
    old = version(1, "the red door", metadata={"a": 1, "b": True, "gone": 0}, source="x")
    new = version(2, "the blue door", metadata={"a": 1, "b": 1, "new": None}, private=True,
                  source="x", pinned=True, expires_at=datetime(2026, 1, 1, tzinfo=UTC))  # fmt: skip
    assert changes(old, new).plain.splitlines() == [
        "  content the [-red-][+blue+] door",
        "  private no → yes",
        "  pinned no → yes",
        "  expires_at - → 2026-01-01 00:00:00 UTC",
        "  metadata b yes → 1",
        "  metadata gone 0 → -",
        "  metadata new - → -",
    ]
    assert "nothing" in changes(old, old).plain


def test_changes_in_chinese_are_by_letter_and_in_long_texts_only_counted() -> None:
    assert "成本[-二-][+三+]千" in changes(version(1, "成本二千"), version(2, "成本三千")).plain
    long = "word " * MAX_WORDS
    assert "another text" in changes(version(1, long), version(2, long + "end")).plain


def test_a_long_history_is_cut_and_says_so() -> None:
    versions = [version(n, f"text {n}") for n in range(1, MAX_VERSIONS + 11)]
    text = history_text(versions[-1], versions).plain
    assert f"history: {MAX_VERSIONS + 10} versions" in text
    assert "and 10 older ones" in text
    assert "version 11," in text
    assert "version 10," not in text


async def test_what_took_over_from_another_record_shows_both() -> None:
    old = version(1, "works at A", retired="superseded").model_copy(update={"id": "old"})
    new = version(1, "works at B", supersedes=["old"])
    text = history_text(new, [old, new]).plain
    assert "works at [-A-][+B+]" in text
    assert "version 1 of old" in text
    assert "  works at A" in text


async def test_the_two_actions_are_refused_when_read_only(studio: Memory) -> None:
    memory = Browsing(studio, read_only=True)
    record = studio.list_records()[0]
    with pytest.raises(ScopePermissionError):
        await memory.aforget(record.id)
    with pytest.raises(ScopePermissionError):
        await memory.aretry_dead_letters()
    assert studio.get(record.id) is not None


async def test_private_records_are_not_read_or_forgotten_by_id(own_studio: Memory) -> None:
    (secret,) = [r for r in own_studio.list_records(include_private=True) if r.private]
    for memory in (Browsing(own_studio), Browsing(own_studio, source="ben")):
        assert await memory.arecord(secret.id) == (None, [])
        assert await memory.aforget(secret.id) == 0
    assert own_studio.get(secret.id, include_private=True) is not None
    record, versions = await Browsing(own_studio, source="ana").arecord(secret.id)
    assert record == versions[0] == secret
