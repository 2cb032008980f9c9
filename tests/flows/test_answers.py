"""What counts as an answer: the many forms in which models write lists of words and facts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from mnemotrace.errors import LLMError
from mnemotrace.flows.answers import Exploration, ExtractedMemories, QueryAnalysis, SaveAnalysis
from mnemotrace.llm.parsing import parse_json

JUNE = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["a", "b", "a"], ["a", "b"]),
        (None, []),
        ("one", ["one"]),
        ([], []),
        (["  x \n y ", "", " "], ["x y"]),
        ([{"name": "Sarah", "type": "person"}, {"value": "Bo"}], ["Sarah", "Bo"]),
        ([2026, 1.5], ["2026", "1.5"]),
        ([True, None, ["nested"], {"type": "person"}], []),
        ({"name": "Sarah"}, ["Sarah"]),
        (7, ["7"]),
    ],
)
def test_lists_of_words_are_read_as_models_write_them(written: Any, read: list[str]) -> None:
    answer = SaveAnalysis.model_validate(
        {"scope": "/x", "importance": 0.5, "categories": written, "entities": written}
    )
    assert answer.categories == answer.entities == read
    assert Exploration.model_validate({"gaps": written}).gaps == read
    assert QueryAnalysis.model_validate({"sub_queries": written}).sub_queries == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"memories": ["a", "b"]}', ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('{"memories": [{"fact": "a"}, {"memory": "b", "source": "x"}, "c"]}', ["a", "b", "c"]),
        ('{"memories": []}', []),
        ('Sure!\n```json\n{"memories": ["a"]}\n```', ["a"]),
    ],
)
def test_extracted_memories_are_understood_in_several_forms(written: str, read: list[str]) -> None:
    assert parse_json(written, ExtractedMemories).memories == read


@pytest.mark.parametrize(
    "written",
    [
        '{"memories": null}',
        '{"memories": "one text"}',
        '{"memories": ["a", 7]}',
        '{"memories": ["a", {"who": "b"}]}',
        '{"memories": ["a", null]}',
        '{"facts": ["a"]}',
        '{"memories": ["a", "b',
        "I found no facts.",
        "",
    ],
)
def test_half_an_answer_is_none(written: str) -> None:
    """An item that cannot be read may be a fact: the text is then kept instead."""
    with pytest.raises(LLMError):
        parse_json(written, ExtractedMemories)


@pytest.mark.parametrize(
    ("written", "since", "until", "unread"),
    [
        ({"since": "2026-06-01T00:00:00Z", "until": "soon"}, JUNE, None, ("until",)),
        ({"since": "last week", "until": "2026-06-01T00:00:00Z"}, None, JUNE, ("since",)),
        ({"since": "", "until": None}, None, None, ()),
        ({"since": "2026", "until": 2027}, None, None, ("since", "until")),
        ({"since": True, "until": []}, None, None, ("since", "until")),
        ({"since": JUNE.timestamp(), "until": {}}, JUNE, None, ("until",)),
        ({"since": "2026-13-45", "until": "null"}, None, None, ("since", "until")),
        ({"since": 10**40, "until": "9" * 40}, None, None, ("since", "until")),
    ],
)
def test_a_time_that_cannot_be_read_is_left_out_and_named(
    written: dict[str, Any],
    since: datetime | None,
    until: datetime | None,
    unread: tuple[str, ...],
) -> None:
    text = json.dumps({"sub_queries": ["ink"], "complexity": "complex", **written})
    answer = parse_json(text, QueryAnalysis)
    assert (answer.since, answer.until, answer.unread) == (since, until, unread)
    assert (answer.sub_queries, answer.complexity) == (["ink"], "complex")


@pytest.mark.parametrize(
    ("written", "read", "unread"),
    [
        ("complex", "complex", ()),
        (" Complex. ", "complex", ()),
        ("moderate", "simple", ("complexity",)),
        (3, "simple", ("complexity",)),
        (["complex"], "simple", ("complexity",)),
        (None, "simple", ()),
    ],
)
def test_an_unknown_complexity_is_simple(written: Any, read: str, unread: tuple[str, ...]) -> None:
    answer = QueryAnalysis.model_validate({"keywords": ["ink"], "complexity": written})
    assert (answer.complexity, answer.unread, answer.keywords) == (read, unread, ["ink"])


@pytest.mark.parametrize("importance", [7, -0.1, "high", None])
def test_an_importance_outside_of_its_range_is_no_answer(importance: Any) -> None:
    with pytest.raises(ValidationError):
        SaveAnalysis.model_validate({"scope": "/x", "importance": importance})


def test_the_schema_asks_for_plain_lists_of_text() -> None:
    properties = SaveAnalysis.model_json_schema()["properties"]
    for name in ("categories", "entities", "dates", "topics"):
        assert properties[name]["type"] == "array"
        assert properties[name]["items"] == {"type": "string"}
    schema = ExtractedMemories.model_json_schema()
    assert schema["properties"]["memories"]["items"] == {"type": "string"}
    assert schema["required"] == ["memories"]
