"""How messages name what was given."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mnemotrace.checks import checked_flag, checked_word, counted, kind_of, shortened
from mnemotrace.errors import InvalidInputError, RecordError


class HTTPAnswer:
    """Its first letter is said as one."""


class UUIDLike:
    """Its first letter is said as one, too, and sounds like you."""


class _Unknown:
    """The underscore is not said."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1, "an int"),
        ("x", "a str"),
        ({}, "a dict"),
        ([], "a list"),
        (object(), "an object"),
        (None, "None"),
        (int, "the class int"),
        (io.StringIO(), "a StringIO"),
        (HTTPAnswer(), "an HTTPAnswer"),
        (UUIDLike(), "a UUIDLike"),
        (_Unknown(), "an _Unknown"),
    ],
)
def test_a_value_is_named_with_the_article_of_its_kind(value: Any, said: str) -> None:
    assert kind_of(value) == said


def test_one_is_counted_without_an_s() -> None:
    assert [counted(count, "text") for count in (0, 1, 2)] == ["0 texts", "1 text", "2 texts"]
    assert counted(2, "match", "matches") == "2 matches"


def test_a_long_value_is_shortened() -> None:
    assert shortened("x") == "'x'"
    assert shortened("x" * 100, 10) == "'" + "x" * 9 + "..."


def test_a_value_that_cannot_be_written_is_named_by_its_kind() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("not today")

    assert shortened(10**10_000) == "an int"
    assert shortened([Mute()]) == "a list"


@pytest.mark.parametrize("value", ["yes", "no", 1, 0, None, [True]])
def test_only_true_and_false_are_truth_values(value: Any) -> None:
    with pytest.raises(InvalidInputError) as told:
        checked_flag(value, "private", RecordError)
    assert type(told.value) is RecordError
    assert str(told.value) == f"private must be True or False, not {value!r}."
    assert checked_flag(False, "private") is False


@pytest.mark.parametrize("value", ["Deep", "", None, ["deep"]])
def test_a_word_is_one_of_those_that_are_known(value: Any) -> None:
    with pytest.raises(InvalidInputError) as told:
        checked_word(value, "depth", ("deep", "shallow"))
    assert str(told.value) == f"depth must be 'deep' or 'shallow', not {value!r}."
    assert checked_word("deep", "depth", ("deep", "shallow")) == "deep"
