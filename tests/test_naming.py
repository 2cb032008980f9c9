"""What an unknown name was meant to be."""

from __future__ import annotations

import pytest

from mnemotrace.embedders.resolve import NAMES
from mnemotrace.naming import meant, nearest


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("opnai", "openai"),
        ("OpenAI", "openai"),
        ("bundle", "bundled"),
        ("voyage", "voyageai"),
        ("sentence_transformers", "sentence-transformer"),
        ("nope", None),  # three of its letters are in "openai"
        ("google", None),  # two begin so
        ("local", None),
        ("e", None),
        ("", None),
    ],
)
def test_only_a_name_that_is_near_is_offered(word: str, near: str | None) -> None:
    assert nearest(word, NAMES) == near


def test_the_word_of_another_library_goes_before_a_name_that_looks_like_it() -> None:
    known = ("limit", "max_depth", "scope")
    assert meant("max_results", known, "It takes") == "Here that is 'limit'."
    assert meant("max_dept", known, "It takes") == "Did you mean 'max_depth'?"
    assert meant("zzz", known, "It takes") == "It takes: limit, max_depth, scope."
    assert meant("top_k", ("scope",), "It takes") == "It takes: scope."
    assert "scope='/users/ana'" in meant("user_id", known, "It takes")
