"""When one text may stand for others: the rules themselves, on pairs of texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemotrace.flows.clauses import sentences
from mnemotrace.flows.merging import may_replace, outdates, says_all


@pytest.mark.parametrize(
    ("merged", "old", "new", "allowed"),
    [
        # both kept
        ("Anna likes tea and Ben likes ink", "Anna likes tea", "Ben likes ink", True),
        # a value is replaced by the one the new text brings
        ("We run PostgreSQL 16", "We run PostgreSQL 14", "We now run PostgreSQL 16", True),
        ("Velocity is 45", "Velocity is 42", "Velocity is 45", True),
        ("Ann has 3 cats", "Ann has 2 cats", "Ann has 3 cats", True),
        ("Bob is not allergic", "Bob is allergic", "Bob is not allergic", True),
        ("Bob is allergic", "Bob is not allergic", "Bob is allergic", True),
        # the new fact is missing
        ("Anna likes tea", "Anna likes tea", "Ben likes ink", False),
        ("We run PostgreSQL 14", "We run PostgreSQL 14", "We now run PostgreSQL 16", False),
        ("Ann leads a team of 16", "Ann leads a team of 14", "The team has 16 people", False),
        # something of the old one is gone and nothing took its place
        ("Ben likes ink", "Anna likes tea on Mondays in Rome", "Ben likes ink", False),
        ("The key is gone", "The key is gone, says Anna. The code is 7413", "The key is gone",
         False),
        ("Ask Rembrandt", "The code is 7413", "Ask Rembrandt", False),
        ("Anna reads", "Anna swims", "Anna reads", False),
        ("Ann's sister is 30", "Ann's brother is 30", "Ann's sister is 30", False),
        ("", "Anna likes tea", "Ben likes ink", False),
        # one may be and do several things
        ("Ann is smart", "Ann is tall", "Ann is smart", False),
        ("Ann works in Paris", "Ann lives in Paris", "Ann works in Paris", False),
        ("안나는 파리에 간다", "안나는 파리에 산다", "안나는 파리에 간다", False),
        ("安娜很聪明", "安娜很高", "安娜很聪明", False),
        ("彼はパリに行く", "彼はパリに住んでいる", "彼はパリに行く", False),
        ("Ann's email is ann@b.org", "Ann's phone is 555-1234", "Ann's email is ann@b.org", False),
        # but is one person, in one place, at one time
        ("The lead is Ben", "The lead is Ann", "The lead is Ben", True),
        ("The ink is black", "The ink is blue", "The ink is black", True),
        ("The ink is cheap", "The ink is blue", "The ink is cheap", False),
        ("My favourite drink is tea", "My favourite drink is coffee", "My favourite drink is tea",
         True),
        ("Ann lives in Munich", "Ann lives in Berlin with Bob", "Ann lives in Munich", False),
        ("Ann lives in Munich with Bob", "Ann lives in Berlin with Bob", "Ann lives in Munich",
         True),
        ("会議は午後です", "会議は午前です", "会議は午後です", True),
        # less certain than it was said
        ("If it rains the match is cancelled. Ann swims.", "The match is cancelled", "Ann swims.",
         False),
        # who owes whom
        ("Ben owes Anna 7 and likes ink", "Anna owes Ben 7", "Ben likes ink", False),
        # turned round without the new text saying so
        ("Bob never eats nuts and likes ink", "Bob eats nuts", "Bob likes ink", False),
        # much longer than both
        ("tea and ink, " * 10, "tea", "ink", False),
        ("tea and ink", "tea", "ink", True),
    ],
)  # fmt: skip
def test_a_merged_text_may_replace_values_but_drop_none(
    merged: str, old: str, new: str, allowed: bool
) -> None:
    assert may_replace(merged, old, new) is allowed


@pytest.mark.parametrize(
    ("survivor", "text", "expected"),
    [
        ("If it rains, the match is cancelled", "the match is cancelled", False),
        ("If it rains, the match is cancelled", "if it rains the match is cancelled!", True),
        ("Bob said that Ann left", "Ann left", False),
        ("Ann wants to buy a boat", "Ann buys a boat", False),
        ("Ann lived in Paris", "Ann lives in Paris", False),
        ("Ann may come", "Ann comes", False),
        ("Bob used to smoke", "Bob smokes", False),
        ("Either Bob or Ann drives", "Ann drives", False),
        ("I love cats and dogs", "I love dogs", True),
        ("I love dogs", "I love cats and dogs", False),
        ("비가 오면 경기는 취소된다", "경기는 취소된다", False),
        ("如果下雨，比赛取消", "比赛取消", False),
        ("...", "...", True),
        ("...", "!!!", False),
    ],
)
def test_a_text_says_all_of_another_only_as_it_was_said(
    survivor: str, text: str, expected: bool
) -> None:
    assert says_all(survivor, text) is expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("Ann works at Beta", "Ann works at Alpha", True),
        ("The archive moved to Rome", "The archive is in Paris. " * 9 + "Ask for the code.", False),
        ("the archive is empty", "the archive is full " * 9, True),
        ("Ann left Alpha", "Ann works at Alpha", True),
        ("Ann left Alpha", "Ann likes tea", False),
        ("회의가 취소되었다", "회의는 3시에 시작한다", True),
        ("anything", "", True),
    ],
)
def test_a_text_outdates_what_it_speaks_of(new: str, old: str, expected: bool) -> None:
    assert outdates(new, old) is expected


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Anna likes tea and owns a small boat", ["Anna likes tea", "owns a small boat"]),
        ("Bob and Anna live in Paris", ["Bob and Anna live in Paris"]),
        ("tea, milk and sugar", ["tea, milk and sugar"]),
        ("안나는 파리에 살고 차를 좋아한다", ["안나는 파리에 살고", "차를 좋아한다"]),
        ("他住在巴黎，喜欢喝茶！他有船", ["他住在巴黎", "喜欢喝茶", "他有船"]),
        ("at 14:00 in room 1,000", ["at 14:00 in room 1,000"]),
        ("...", []),
    ],
)
def test_a_text_falls_into_clauses(text: str, clauses: list[str]) -> None:
    found = [clause.text for sentence in sentences(text) for clause in sentence.clauses]
    assert found == clauses


words = st.sampled_from(
    ("Ann", "Ben", "has", "2", "3", "cats", "likes", "tea", "and", "owns", "a", "boat.", "not",
     "안나는", "차를", "살고", "좋아한다.", "他喜欢", "狗，")
)  # fmt: skip
texts = st.lists(words, min_size=1, max_size=12).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(old=texts, new=texts)
def test_nothing_is_lost_by_joining_and_something_by_halving(old: str, new: str) -> None:
    """A text says all of itself; both in a row say both; one that lacks a word does not say it."""
    assert says_all(old, old)
    assert may_replace(f"{old}. {new}", old, new)
    lacking = {key for s in sentences(new) for c in s.clauses for t in c.terms for key in t.keys}
    there = {key for s in sentences(old) for c in s.clauses for t in c.terms for key in t.keys}
    alone = [t for s in sentences(new) for c in s.clauses for t in c.terms if not t.keys & there]
    if alone and lacking:
        assert not says_all(old, new)
        assert not may_replace(old, old, new)


def test_long_texts_are_compared_in_a_moment() -> None:
    """Not each sentence with each: that would take minutes."""
    old = " ".join(f"Item {i} is kept in box {i * 7} of room {i % 9}." for i in range(1000))
    new = " ".join(f"Part {i} is kept in bag {i * 3} of hall {i % 7}." for i in range(1000))
    begun = time.perf_counter()
    assert may_replace(f"{old} {new}", old, new)
    assert not may_replace(f"{old} {new}", old, f"{new} Item 5 is not kept in box 35.")
    assert says_all(f"{old} {new}", old)
    assert not outdates("Item 5 is kept in box 36 of room 5.", old)
    assert time.perf_counter() - begun < 5.0


def test_a_sentence_without_end_is_compared_in_a_moment() -> None:
    old = ", ".join(f"box {i} holds {i * 7} blue stones" for i in range(2000))
    begun = time.perf_counter()
    assert says_all(old, "box 5 holds 35 blue stones")
    assert not says_all(old, "box 5 holds 36 blue stones")
    assert not may_replace("box 5 holds 36 blue stones", old, "box 5 holds 36 blue stones")
    assert time.perf_counter() - begun < 5.0
