"""How messages name what was given."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mnemotrace.checks import counted, kind_of, shortened


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
