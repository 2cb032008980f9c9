"""A Selection becomes one filter; here its shape and its cost, in the contract suite its meaning."""

from __future__ import annotations

from datetime import timedelta

import pytest
from qdrant_client import models

from mnemotrace.stores.filters import STATE_FIELDS, visible
from mnemotrace.stores.points import hidden_by
from mnemotrace.stores.selection import Selection

from .building import NOW

ORDINARY = frozenset({"hidden_by", "retired"})


def conditions(selection: Selection, held: frozenset[str] = ORDINARY) -> tuple[set[str], set[str]]:
    """Return the fields that must and must not match."""
    where = visible(selection, now=NOW, held=held)
    assert where is not None
    merged = where.merged()
    if merged is None:
        return set(), set()

    def keys(found: object) -> set[str]:
        assert found is None or isinstance(found, list)
        names = set()
        for item in found or []:
            assert isinstance(item, models.FieldCondition)
            names.add(item.key)
        return names

    return keys(merged.must), keys(merged.must_not)


@pytest.mark.parametrize(
    ("selection", "must", "must_not"),
    [
        (Selection(), set(), {"hidden_by", "retired"}),
        (Selection(include_private=True), set(), {"retired"}),
        (Selection(include_private=True, history=True), set(), set()),
        (Selection(roots=("/", "/a")), set(), {"hidden_by", "retired"}),
        (Selection(roots=("/a",)), {"scopes"}, {"hidden_by", "retired"}),
        (Selection(at_scope="/"), {"scope"}, {"hidden_by", "retired"}),
        (Selection(viewer="a", private_only=True), {"hidden_by"}, {"retired"}),
        (Selection(record_ids=("x",)), {"record_id"}, {"hidden_by", "retired"}),
        (Selection(since=NOW), {"created_at"}, {"hidden_by", "retired"}),
        (Selection(as_of=NOW), {"valid_from"}, {"hidden_by", "valid_to", "expires_at"}),
        (Selection(metadata={"k": 1}), {"metadata_terms"}, {"hidden_by", "retired"}),
        (Selection(metadata={"k": {"gt": 1}}), {'metadata."k"'}, {"hidden_by", "retired"}),
    ],
)
def test_state_is_an_exception_and_the_root_needs_no_condition(
    selection: Selection, must: set[str], must_not: set[str]
) -> None:
    assert conditions(selection) == (must, must_not)


def test_only_fields_are_asked_for_that_some_row_may_have() -> None:
    assert conditions(Selection(), STATE_FIELDS)[1] == STATE_FIELDS
    assert conditions(Selection(history=True), STATE_FIELDS)[1] == {"hidden_by"}
    assert conditions(Selection(), frozenset()) == (set(), set())
    assert conditions(Selection(viewer="a"), frozenset({"retired"})) == (set(), {"retired"})
    mine = Selection(viewer="a", private_only=True)
    assert conditions(mine, frozenset()) == ({"hidden_by"}, set())


@pytest.mark.parametrize(
    "selection",
    [
        Selection(roots=()),
        Selection(sources=()),
        Selection(categories=()),
        Selection(record_ids=()),
        Selection(since=NOW, until=NOW),
        Selection(roots=("/a",), at_scope="/b"),
        Selection(private_only=True, public_only=True),
    ],
    ids=str,
)
def test_a_selection_of_nothing_asks_no_engine(selection: Selection) -> None:
    assert visible(selection, now=NOW) is None


def test_the_same_selection_is_the_same_filter_at_any_time() -> None:
    """Building a filter costs more than a small search; equal selections share one."""
    first = visible(Selection(viewer="a", now=NOW), now=NOW, held=ORDINARY)
    second = visible(
        Selection(viewer="a", now=NOW + timedelta(1)), now=NOW + timedelta(2), held=ORDINARY
    )
    assert first is not None and second is not None
    assert first.filter is second.filter
    assert not first.must and not first.must_not


def test_no_source_can_pass_for_a_private_row_without_one() -> None:
    marks = {hidden_by(source) for source in (None, "", "anonymous", "source:", "None")}
    assert len(marks) == 5
