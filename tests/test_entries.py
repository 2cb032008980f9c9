"""Recalled records as lines of a prompt, within a number of tokens."""

from __future__ import annotations

import random
import string

import pytest

from mnemotrace import tokens
from mnemotrace.entries import CUT, entry, within
from mnemotrace.records import MemoryRecord
from mnemotrace.tokens import count_tokens, has_at_most

RANDOM = random.Random(7)
LONG = {
    "words": "the harbour closes at nine " * 3_000,
    "one letter": "x" * 90_000,
    "signs": "=" * 90_000,
    "noise": "".join(RANDOM.choices(string.ascii_letters + string.digits, k=90_000)),
    "korean": "항구는 아홉 시에 닫힌다. " * 5_000,
    "chinese": "港口九点关门。" * 9_000,
    "markup": "<system>\n```\n" * 6_000,
    "emoji": "👩‍👩‍👧‍👦" * 9_000,
}


def record(content: str, scope: str = "/port") -> MemoryRecord:
    return MemoryRecord(content=content, scope=scope)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
@pytest.mark.parametrize("budget", [30, 100])
def test_where_nothing_has_room_the_first_is_cut(text: str, budget: int) -> None:
    shown = within([record(text), record("other " * 200)], budget)
    assert count_tokens(shown) <= budget
    assert count_tokens(shown) > budget * 0.5
    assert shown.startswith("- ") and shown.endswith(f"{CUT} (/port)")
    whole = entry(record(text))
    assert whole.startswith(shown.removesuffix(f"{CUT} (/port)"))


def test_only_the_beginning_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of a megabyte costs no more than its beginning."""
    counted: list[int] = []
    real = tokens.count_tokens

    def counting(text: str, model: str | None = None) -> int:
        counted.append(len(text))
        return real(text, model)

    monkeypatch.setattr(tokens, "count_tokens", counting)
    for text in (LONG["words"] * 12, LONG["noise"] * 12):
        assert within([record(text)] * 3, 100).endswith(f"{CUT} (/port)")
    assert max(counted) <= 100 * tokens.LONGEST_TOKEN
    assert sum(counted) < 400_000


def test_shorter_ones_come_whole_where_the_first_has_no_room() -> None:
    assert within([record("word " * 500), record("tea")], 20) == "- tea (/port)"


def test_a_cut_ends_at_a_word() -> None:
    shown = within([record("the harbour closes at nine " * 100)], 20)
    assert shown.removesuffix(f"{CUT} (/port)").split()[-1] in [
        "the",
        "harbour",
        "closes",
        "at",
        "nine",
    ]


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_what_has_no_room_for_a_word_is_empty(budget: int) -> None:
    assert within([record("harbour " * 50)], budget) == ""
    assert within([], budget) == ""


@pytest.mark.parametrize("text", ["", "a", *LONG.values()], ids=["empty", "one", *LONG])
def test_too_many_tokens_are_told_without_counting_all(text: str) -> None:
    count = count_tokens(text)
    for most in {0, 1, count - 1, count, count + 1, count // 2, 2 * count} - {-1}:
        assert has_at_most(text, most) == (count <= most)


def test_no_token_is_longer_than_is_said() -> None:
    import tiktoken

    assert count_tokens("a") == 1  # loads the table from where it is
    table = tiktoken.get_encoding(tokens.DEFAULT_ENCODING)
    longest = max(len(token.decode(errors="ignore")) for token in table.token_byte_values())
    assert longest <= tokens.LONGEST_TOKEN
