from __future__ import annotations

import json
import time

import pytest
from pydantic import BaseModel, RootModel

from mnemotrace.errors import LLMError
from mnemotrace.llm.parsing import parse_json


class Plan(BaseModel):
    action: str
    reasons: list[str] = []


class Lenient(BaseModel):
    gaps: list[str] = []


class Names(RootModel[list[str]]):
    pass


PLAN = Plan(action="keep", reasons=["same"])
JSON = '{"action": "keep", "reasons": ["same"]}'


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        f"  \n{JSON}\n",
        f"\ufeff{JSON}",
        f"```json\n{JSON}\n```",
        f"```\n{JSON}\n```",
        f"Sure! Here is the plan:\n```json\n{JSON}\n```\nAnything else?",
        f"The answer is {JSON}, as asked.",
        f'<think>maybe {{}} or {{"action": "delete"}}?</think>{JSON}',
        f"In set notation {{x | x > 0}}, so: {JSON}",
        f"<Thinking>\nhm</Thinking>\n\n{JSON}",
        f"I looked at [the list] and [1, 2]. {JSON}",
        f'{{"other": "object"}} {JSON}',
        f'{JSON} or else {{"action": "delete"}}',
        '{"action": "keep", "reasons": ["same",],}',
        '{\n  "action": "keep",\n  "reasons": [\n    "same",\n  ],\n}',
        f"An open bracket [ and then {JSON}",
        f"```json\n```json\n{JSON}\n```\n```",
        f"[{JSON}]",
        json.dumps(JSON),
        f"```json\n{json.dumps(JSON)[1:-1]}\n``` {JSON}",
    ],
)
def test_json_is_found_in_what_models_write(text: str) -> None:
    assert parse_json(text, Plan) == PLAN


@pytest.mark.parametrize(
    "content",
    ["a } b", 'say "x"', "a, ]", "```json", "line\nbreak", "{[", "\\", "<think>x</think>"],
)
def test_content_that_looks_like_json_survives(content: str) -> None:
    text = Plan(action=content, reasons=[content]).model_dump_json()

    assert parse_json(f"Here: ```json\n{text}\n``` done", Plan).reasons == [content]


def test_a_raw_line_break_in_a_string_is_forgiven() -> None:
    assert parse_json('{"action": "two\nlines"}', Plan).action == "two\nlines"


def test_an_array_is_found_where_one_is_wanted() -> None:
    assert parse_json('The names: ["Ann", "Bob"].', Names).root == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("  \n ", "is empty"),
        ("<think>hm</think>", "is empty"),
        ("I cannot help with that.", "no JSON"),
        ("{action: keep}", "no JSON"),
        ('{"action": ', "cut off"),
        ('{"action": "keep", "reasons": ["same"', "cut off"),
        ('```json\n{"action": "ke', "cut off"),
        ('{"reasons": []}', "does not fit Plan: action: Field required"),
        ('{"action": 3}', "does not fit Plan: action: Input should be a valid string"),
        ("[]", "does not fit Plan"),
        ('"keep"', "does not fit Plan"),
        ("null", "does not fit Plan"),
        (f"[{JSON}, {JSON}]", "does not fit Plan"),
        ('{"action": "\\ud800"}', "lone surrogates"),
        ('{"\\udc00": 1, "action": "keep"}', "lone surrogates"),
        ('{"행동": "유지"}', "none of its fields"),
        ("NaN", "no JSON"),
        ("[" * 100_000, "no JSON|cut off"),
        ("[" * 5_000 + "]" * 5_000, "no JSON|does not fit"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_says_why(text: str, message: str) -> None:
    with pytest.raises(LLMError, match=message):
        parse_json(text, Plan)


def test_an_answer_to_another_question_is_no_answer() -> None:
    """Where nothing is required, something must still be said, or nothing at all."""
    assert parse_json("{}", Lenient) == Lenient()
    assert parse_json('{"other": 1} {"gaps": ["a"]}', Lenient) == Lenient(gaps=["a"])
    with pytest.raises(LLMError, match="none of its fields"):
        parse_json('{"lacks": ["a"]}', Lenient)


def test_half_an_answer_is_never_taken_for_a_whole_one() -> None:
    with pytest.raises(LLMError, match="cut off"):
        parse_json('{"plans": [{"action": "delete"}, {"action": "ke', Plan)
    with pytest.raises(LLMError, match="does not fit"):
        parse_json('{"plans": [{"action": "delete"}]}', Plan)
    with pytest.raises(LLMError, match="cut off"):
        parse_json('{"gaps": ["a", {"gaps": []}', Lenient)


def test_the_message_never_quotes_the_answer() -> None:
    with pytest.raises(LLMError) as raised:
        parse_json('{"action": ["my secret"], "reasons": "another secret"}', Plan)

    assert "secret" not in str(raised.value)
    assert "action" in str(raised.value)
    assert "reasons" in str(raised.value)


@pytest.mark.parametrize(
    "part", ["{", "[", '{"a', '{"', "{}", "[1],", '"', "\\", ",]", '{"a":1,}', "<think>"]
)
def test_a_long_odd_answer_takes_no_time(part: str) -> None:
    start = time.perf_counter()
    with pytest.raises(LLMError):
        parse_json(part * (200_000 // len(part)), Plan)

    assert time.perf_counter() - start < 2.0
