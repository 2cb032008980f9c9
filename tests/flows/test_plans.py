"""Whatever a model plans for a batch, no text and no record is lost by carrying it out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemotrace import MemoryRecord, facts
from mnemotrace.embedders.lexical import text_hash
from mnemotrace.flows.answers import ConsolidationAction, ConsolidationPlan
from mnemotrace.flows.batch import Draft, EncodingRun, Item
from mnemotrace.flows.plans import checked_plan
from mnemotrace.flows.requests import save_request
from mnemotrace.records import utc_now


def stored(name: str, text: str) -> MemoryRecord:
    return MemoryRecord(id=name, content=text, version=3, valid_from=utc_now())


def action(name: str, what: str, content: str | None = None) -> ConsolidationAction:
    return ConsolidationAction.model_validate({"id": name, "action": what, "content": content})


OLD, NEW, BOTH = "Ann has 2 cats", "Ann has 3 dogs", "Ann has 2 cats and 3 dogs"


@pytest.mark.parametrize(
    ("actions", "insert", "heir", "merged", "gone", "refused"),
    [
        ([], True, None, None, [], 0),
        ([], False, None, None, [], 0),
        ([action("a", "keep")], True, None, None, [], 0),
        ([action("a", "keep")], False, None, None, [], 1),
        ([action("b", "keep")], False, "b", None, [], 0),
        ([action("a", "update", BOTH)], False, "a", BOTH, [], 0),
        ([action("a", "update", f" {BOTH}\n")], True, "a", BOTH, [], 0),
        ([action("a", "update", NEW)], False, None, None, [], 1),
        ([action("fewer", "update", NEW)], False, "fewer", NEW, [], 0),
        ([action("a", "update", OLD)], False, None, None, [], 1),
        ([action("a", "update", f"{BOTH} and 4 birds")], False, None, None, [], 1),
        ([action("a", "update", BOTH), action("b", "delete")], False, "a", BOTH, [], 1),
        ([action("a", "update", BOTH), action("fewer", "delete")], False, "a", BOTH, ["fewer"], 0),
        ([action("cat", "delete"), action("a", "update", BOTH)], False, "a", BOTH, ["cat"], 0),
        ([action("cat", "delete"), action("b", "keep")], False, "b", None, [], 1),
        ([action("a", "update"), action("b", "keep")], False, "b", None, [], 1),
        ([action("a", "delete"), action("b", "delete")], False, None, None, [], 2),
        (
            [action("same", "delete"), action("fewer", "delete")],
            True,
            None,
            None,
            ["same", "fewer"],
            0,
        ),
        ([action("same", "delete"), action("same", "delete")], False, None, None, ["same"], 0),
        ([action("a", "delete"), action("a", "keep")], False, None, None, [], 1),
        ([action("c", "delete"), action("c", "delete")], True, None, None, [], 1),
    ],
)
def test_a_plan_is_followed_as_far_as_it_may(
    actions: list[ConsolidationAction],
    insert: bool,
    heir: str | None,
    merged: str | None,
    gone: list[str],
    refused: int,
) -> None:
    texts = {"a": OLD, "b": f"{NEW}, all of them black", "same": "ANN has 3 dogs.",
             "fewer": "Ann has 2 dogs", "cat": "Ann has 2 cats!"}  # fmt: skip
    records = [stored(name, text) for name, text in texts.items()]
    plan = ConsolidationPlan(actions=actions, insert_new=insert)
    checked = checked_plan(plan, records, NEW)
    assert (checked.heir.id if checked.heir else None) == heir
    assert checked.merged == merged
    assert [record.id for record in (*checked.deleted, *checked.absorbed)] == gone
    assert len(checked.refused) == refused
    assert checked.insert_new == (insert or heir is None)
    apart = checked_plan(plan, records, NEW, merging=False)
    assert apart.heir is None
    assert apart.insert_new


PARTS = ("Ann has 2 cats", "Ben owes Ann 7", "the door is open", "the door is not open",
         "it closed", "tea likes nobody", "Zoe", "14 hours", "the end")  # fmt: skip
NAMES = ("r0", "r1", "r2")
several = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique=True).map(". ".join)
kinds = st.sampled_from(("keep", "delete", "joined", "joined", "delete", "halved", "nonsense"))
# Mostly about one record, so that the texts of a batch meet in it.
names = st.sampled_from(("r0", "r0", "r0", "r1", "r2", "elsewhere"))
plans = st.tuples(st.lists(st.tuples(names, kinds), min_size=1, max_size=2), st.booleans())
texts = st.sampled_from((0, 0, 1, *PARTS))
"""A text of its own, or that of a record by its number."""
incoming = st.tuples(texts, plans, st.integers(0, 7), st.none() | st.integers(0, 3))
Plan = tuple[list[tuple[str, str]], bool]


def plan_of(plan: Plan, have: list[str], text: str) -> ConsolidationPlan:
    actions = []
    for name, kind in plan[0]:
        old = dict(zip(NAMES, have, strict=True)).get(name, "")
        content = {"joined": f"{old}. {text}", "halved": text, "nonsense": "x 99"}.get(kind)
        actions.append(action(name, "update" if content else kind, content))
    return ConsolidationPlan(actions=actions, insert_new=plan[1])


@settings(max_examples=250, deadline=None)
@given(
    have=st.lists(several, min_size=3, max_size=3, unique=True),
    batch=st.lists(incoming, min_size=2, max_size=4),
)
def test_no_batch_of_plans_loses_a_text_or_a_record(
    have: list[str], batch: list[tuple[int | str, Plan, int, int | None]]
) -> None:
    records = [stored(name, text) for name, text in zip(NAMES, have, strict=True)]
    by_text = {record.content: record for record in records}
    run = EncodingRun.of([], utc_now())
    for i, (place, plan, dice, twin) in enumerate(batch):
        text = have[place] if isinstance(place, int) else place
        own = dice == 0  # the caller chose the id
        item = Item(
            save_request(
                text, scope="/", reach=("/",), record_id=f"mine{i}" if own else None, source=f"s{i}"
            ),
            text_hash(text),
        )
        earlier = run.items[twin] if twin is not None and twin < i else None
        if earlier is not None and earlier.twin is None and not own:
            same = facts.may_be_duplicates(earlier.request.content, text)
            item.twin = earlier if same else None
        item.existing = None if own else by_text.get(text)
        item.plan = checked_plan(plan_of(plan, have, text), records, text, merging=not own)
        if item.plan.merged:
            run.merged[item.plan.merged] = np.ones(2, dtype=np.float32)
        run.items.append(item)
    draft = Draft(run, 0.5)
    for item in run.open_items:
        draft.settle(item)
    draft.fold_twins()
    changes = draft.batch()
    draft.publish()

    assert len(run.outcomes) == len(run.items), "every text became a record"
    for item, record in zip(run.items, run.outcomes, strict=True):
        text = item.request.content
        assert record.id not in draft.retired, "a text ended in a retired record"
        before = draft.base.get(record.id)
        versions = [record.content] + ([before.content] if before else [])
        assert any(facts.covers(version, text) for version in versions)
        assert item.request.source in record.sources
        if item.request.explicit_id:
            assert record.id == item.request.record_id
    for name, heir in draft.retired.items():
        assert name not in draft.now, "a record is both changed and retired"
        assert heir in draft.now
        assert heir not in draft.retired
        assert name in draft.now[heir].supersedes
    retired = [(r.record_id, r.version) for r in changes.retire]
    assert len(set(retired)) == len(retired)
    written = {(v.record.id, v.record.version) for v in changes.versions}
    assert len(written) == len(changes.versions)
    for record in records:
        if record.id not in changes.expect:  # left alone
            assert (record.id, 3) not in retired
        else:
            assert changes.expect[record.id] == 3
            assert (record.id, 3) in retired
    for new in changes.versions:
        if new.record.id in NAMES:
            assert new.record.version == 4
            assert new.record.created_at == records[NAMES.index(new.record.id)].created_at


def test_an_action_in_capitals_is_understood() -> None:
    action = ConsolidationAction.model_validate({"id": "a", "action": " UPDATE ", "content": "x"})
    assert action.action == "update"
