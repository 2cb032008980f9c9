"""What a model says has changed: contradictions replace, unrelated facts stay whatever it says."""

from __future__ import annotations

from typing import Any

import pytest

from mnemotrace.flows.answers import ConsolidationAction, ConsolidationPlan
from mnemotrace.flows.changes import Change
from mnemotrace.flows.merging import joined, may_replace, outdates
from mnemotrace.flows.plans import checked_plan
from mnemotrace.records import MemoryRecord

from .change_cases import REPLACED, STAYING, UNDECIDED, Case


def name(case: Case) -> str:
    return f"{case[0]} -> {case[1]}"


@pytest.mark.parametrize("case", REPLACED, ids=name)
def test_a_contradiction_that_the_model_explains_outdates_the_old_text(case: Case) -> None:
    old, new, *quotes = case
    assert outdates(new, old, Change(*quotes))


@pytest.mark.parametrize("case", STAYING, ids=name)
def test_an_unrelated_fact_stays_however_well_the_model_quotes(case: Case) -> None:
    old, new, *quotes = case
    assert not outdates(new, old, Change(*quotes))
    assert not outdates(new, old), "nor without an explanation"


@pytest.mark.parametrize("case", UNDECIDED, ids=name)
def test_in_doubt_both_stay(case: Case) -> None:
    """True contradictions that the guard does not see: the limits of it, as they are."""
    old, new, *quotes = case
    assert not outdates(new, old, Change(*quotes))


def test_without_an_explanation_the_guard_is_more_cautious() -> None:
    plain = sum(outdates(new, old) for old, new, *_ in REPLACED)
    assert len(REPLACED) // 3 <= plain <= len(REPLACED) * 2 // 3


@pytest.mark.parametrize(
    ("merged", "old", "new"),
    [
        ("X is 5, Y is 3, Z is 7", "X is 3, Y is 5", "Z is 7"),
        ("A is 5, B is 3, C is 7", "A is 3, B is 5", "C is 7"),
        ("A is 5 and B is 3", "A is 3 and B is 5", "A is 5"),
        ("Ann has 3 cats and Ben has 5 cats. Tom is 7", "Ann has 5 cats and Ben has 3 cats",
         "Tom is 7"),
        ("Ann leads support and Ben leads sales. Tom is 7",
         "Ann leads sales and Ben leads support", "Tom is 7"),
        ("the cat is white and the dog is black. Tom is 7",
         "the cat is black and the dog is white", "Tom is 7"),
        ("Port one is 8080 and port two is 9090. Tom is 7",
         "Port one is 9090 and port two is 8080", "Tom is 7"),
        ("사과는 5개이고 배는 3개이다. 귤은 7개이다", "사과는 3개이고 배는 5개이다", "귤은 7개이다"),
        ("苹果5个，梨3个，橘子7个", "苹果3个，梨5个", "橘子7个"),
    ],
)  # fmt: skip
def test_a_merged_text_must_not_swap_values(merged: str, old: str, new: str) -> None:
    assert not may_replace(merged, old, new)
    assert may_replace(f"{old}. {new}", old, new)


def test_values_that_the_new_text_swaps_are_swapped() -> None:
    old, new = "A is 3, B is 5", "A is 5, B is 3"
    assert may_replace(new, old, new)
    assert outdates(new, old)


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("The user prefers dark mode.", "User likes dark themes",
         "The user prefers dark mode. User likes dark themes"),
        ("안나는 차를 좋아한다", "안나가 제일 즐기는 음료는 차다",
         "안나는 차를 좋아한다. 안나가 제일 즐기는 음료는 차다"),
        ("安娜喜欢喝茶。", "茶是安娜最爱的饮料", "安娜喜欢喝茶。 茶是安娜最爱的饮料"),
        # not the same at all
        ("Bob eats nuts", "Bob never eats nuts", ""),
        ("The budget is 500 euros", "There are 800 euros in the budget", ""),
        ("Sarah leads the team", "Tom heads the team", ""),
        ("The meeting is on Monday", "On Tuesday there is a meeting", ""),
        ("Bob said Anna owes Ben money", "Bob said Ben owes Anna money", ""),
        ("The kiln is on", "Ravens bark", ""),
        ("Uploads are allowed", "Uploads are denied", ""),
        ("tea " * 80, "tea " * 80, ""),
    ],
)  # fmt: skip
def test_two_wordings_are_joined_only_where_no_particular_differs(
    old: str, new: str, both: str
) -> None:
    assert joined(old, new) == both
    assert not both or may_replace(both, old, new)


def action(**values: Any) -> ConsolidationAction:
    return ConsolidationAction.model_validate({"id": "old", "action": "delete", **values})


def test_a_model_that_says_both_may_hold_deletes_nothing() -> None:
    record = MemoryRecord(id="old", content="Ann works at Alpha")
    told = {"old_value": "Alpha", "new_value": "Beta", "subject": "Ann"}
    for both_hold, gone in (
        (None, ["old"]),
        (False, ["old"]),
        ("false", ["old"]),
        (True, []),
        ("Yes", []),
    ):
        plan = ConsolidationPlan(actions=[action(both_hold=both_hold, **told)], insert_new=True)
        checked = checked_plan(plan, [record], "Ann works at Beta")
        assert [r.id for r in checked.deleted] == gone
        assert [d.accepted for d in checked.decisions] == [bool(gone)]


@pytest.mark.parametrize(
    "nonsense", [None, 7, ["a", "b"], {"deep": {"er": 1}}, "x" * 100_000, "\x00\u202e", ""]
)
def test_an_explanation_that_is_nonsense_changes_nothing(nonsense: Any) -> None:
    """The old schema has none at all; its formal rules hold for both."""
    keys = ("reason", "subject", "attribute", "old_value", "new_value", "both_hold", "same_meaning")
    plan = ConsolidationPlan(actions=[action(**dict.fromkeys(keys, nonsense))], insert_new=True)
    for old, gone in (("Ann works at Alpha", 1), ("Ann likes tea", 0)):
        record = MemoryRecord(id="old", content=old)
        checked = checked_plan(plan, [record], "Ann works at Beta")
        assert len(checked.deleted) == gone
        assert all(len(text) <= 300 for d in checked.decisions for text in d.told.values())
