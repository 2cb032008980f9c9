"""A record that is to be valid from a later time on: until then nothing takes it for current."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory
from mnemotrace.doctor.inspect import count_records
from mnemotrace.recall_explanation import Verdict
from mnemotrace.testing import ScriptedLLM

from .test_consolidation import Alike

OpenMemory = Callable[..., Memory]

TEXT = "The office is in Rome."
NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=30)
COMPLETE: dict[str, Any] = {"scope": "/office", "categories": ["place"], "importance": 0.5}


def found(memory: Memory, **asked: Any) -> set[str]:
    """Return what a recall gives, which must be the same at both depths and for a list."""
    deep = {match.record.content for match in memory.recall("Where is the office?", **asked)}
    shallow = memory.recall("Where is the office?", depth="shallow", **asked)
    assert {match.record.content for match in shallow} == deep
    if "now" not in asked:
        assert {record.content for record in memory.list_records(**asked)} == deep
    return deep


def test_a_record_is_current_from_its_time_on(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.remember("The office is in Oslo.", **COMPLETE)
    memory.remember(TEXT, scope="/rome", categories=["plan"], valid_from=LATER)
    assert found(memory) == {"The office is in Oslo."}
    assert found(memory, as_of=LATER - timedelta(seconds=1)) == {"The office is in Oslo."}
    assert found(memory, as_of=LATER) == {"The office is in Oslo.", TEXT}
    assert found(memory, now=LATER) == {"The office is in Oslo.", TEXT}
    assert memory.info().record_count == 1
    assert memory.list_categories() == {"place": 1}
    assert memory.list_scopes() == ["/office"]
    assert "rome" not in memory.tree()


def test_a_present_in_the_past_hides_nothing_that_is_valid_now(open_memory: OpenMemory) -> None:
    """`now=` fixes recency; what was remembered since is there all the same."""
    memory = open_memory()
    memory.remember(TEXT, created_at=NOW - timedelta(days=400), **COMPLETE)
    memory.remember("The office moves to Bonn.", valid_from=LATER, **COMPLETE)
    assert found(memory, now=NOW - timedelta(days=399)) == {TEXT}


def test_it_can_be_looked_after_before_its_time(open_memory: OpenMemory) -> None:
    """Whoever has the id gets, changes and forgets it; a change does not make it valid."""
    memory = open_memory()
    record = memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    assert memory.get(record.id) == record
    changed = memory.update(record.id, importance=0.9)
    assert changed.valid_from == LATER
    assert [version.version for version in memory.history(record.id)] == [1, 2]
    assert found(memory) == set()
    assert [m.record.importance for m in memory.recall("office", as_of=LATER)] == [0.9]
    assert memory.forget(record_ids=[record.id]) == 1
    assert memory.history(record.id) == []


@pytest.mark.parametrize("erase", [True, False])
def test_what_is_forgotten_before_its_time_never_comes(
    open_memory: OpenMemory, erase: bool
) -> None:
    memory = open_memory()
    memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    assert memory.forget(scope="/office", erase=erase) == 1
    assert found(memory, as_of=LATER + timedelta(days=1)) == set()


def test_a_reset_counts_and_removes_it(open_memory: OpenMemory) -> None:
    memory = open_memory("new")
    memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    assert memory.reset() == 1
    assert found(memory, as_of=LATER) == set()


@pytest.mark.parametrize(
    ("first", "second", "begins"),
    [
        (LATER, None, None),
        (None, LATER, None),
        (LATER, LATER - timedelta(days=9), LATER - timedelta(days=9)),
        (LATER, LATER + timedelta(days=9), LATER),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_the_same_text_is_one_record_valid_from_the_earlier_time(
    open_memory: OpenMemory,
    together: bool,
    first: datetime | None,
    second: datetime | None,
    begins: datetime | None,
) -> None:
    memory = open_memory()
    texts = [{"content": TEXT, "valid_from": when} for when in (first, second)]
    for batch in [texts] if together else [[text] for text in texts]:
        memory.remember_many(batch, **COMPLETE).wait(20)
    assert found(memory) == (set() if begins else {TEXT})
    if begins:
        assert found(memory, as_of=begins) == {TEXT}
        assert found(memory, as_of=begins - timedelta(seconds=1)) == set()
    assert found(memory, as_of=LATER + timedelta(days=10)) == {TEXT}


def test_until_its_time_it_takes_nobodys_place_and_nobody_takes_its(
    open_memory: OpenMemory,
) -> None:
    """A model that would let the new text replace what it is like is not even asked."""
    llm = ScriptedLLM({"consolidation": {"actions": [], "insert_new": True}})
    memory = open_memory(llm=llm, consolidation_threshold=0.0)
    memory.remember("The office is in Oslo.", **COMPLETE)
    memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    assert llm.requests == []
    memory.remember("The office has a garden.", **COMPLETE)
    (request,) = llm.asked("consolidation")
    assert "Oslo" in request.prompt and "Rome" not in request.prompt


def test_it_stays_so_when_the_memory_is_opened_again(open_memory: OpenMemory) -> None:
    memory = open_memory("new")
    memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    memory.close()
    memory = open_memory("new")
    assert found(memory) == set()
    assert found(memory, as_of=LATER) == {TEXT}


def test_an_export_has_it(open_memory: OpenMemory, tmp_path: Path) -> None:
    memory = open_memory()
    record = memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    assert memory.export_records(tmp_path / "out.jsonl", embeddings=True) == 1
    memory.forget(record_ids=[record.id])
    memory.import_records(tmp_path / "out.jsonl")
    assert found(memory) == set()
    assert memory.get(record.id) == record


def test_explain_says_when_it_will_be_valid(open_memory: OpenMemory) -> None:
    memory = open_memory()
    record = memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    why = memory.explain("Where is the office?", record.id)
    assert why.verdict is Verdict.NOT_YET
    assert LATER.isoformat() in str(why)
    assert {"as_of": LATER} in [change.arguments for change in why.changes]


def test_the_doctor_counts_what_is_out_of_its_time(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.remember(TEXT, valid_from=LATER, **COMPLETE)
    over: dict[str, Any] = {
        "valid_from": NOW - timedelta(days=9),
        "expires_at": NOW - timedelta(days=1),
    }
    memory.remember("The office was in Bern.", **over, **COMPLETE)
    counted = count_records(memory.store)
    assert counted["records"] == 2
    assert counted["without_vector"] == []


@pytest.mark.parametrize(
    "given",
    [
        datetime(2031, 5, 4, 12),
        "2031-05-04T12:00:00",
        "2031-05-04T12:00:00Z",
        "2031-05-04T21:00:00+09:00",
    ],
)
def test_a_time_without_a_zone_is_utc(open_memory: OpenMemory, given: Any) -> None:
    memory = open_memory()
    record = memory.remember(TEXT, valid_from=given, **COMPLETE)
    assert record.valid_from == datetime(2031, 5, 4, 12, tzinfo=UTC)
    assert found(memory, as_of="2031-05-04T12:00:00") == {TEXT}
    assert found(memory, as_of="2031-05-04T11:59:59") == set()


LONG_AGO = NOW - timedelta(days=700)
BETWEEN = NOW - timedelta(days=300)


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "alone"])
def test_what_was_said_in_the_past_is_valid_since_then(
    open_memory: OpenMemory, together: bool
) -> None:
    memory = open_memory()
    if together:
        memory.remember_many([TEXT], created_at=LONG_AGO, **COMPLETE).wait(20)
    else:
        memory.remember(TEXT, created_at=LONG_AGO, **COMPLETE)
    (record,) = memory.list_records()
    assert record.valid_from == record.created_at == LONG_AGO
    assert found(memory) == found(memory, as_of=BETWEEN) == {TEXT}
    assert found(memory, as_of=LONG_AGO) == {TEXT}
    assert found(memory, as_of=LONG_AGO - timedelta(seconds=1)) == set()
    assert memory.explain("Where is the office?", record.id, as_of=BETWEEN).returned


def test_a_given_beginning_wins_and_a_later_saying_hides_nothing(open_memory: OpenMemory) -> None:
    memory = open_memory()
    given = memory.remember(TEXT, created_at=LONG_AGO, valid_from=BETWEEN, **COMPLETE)
    assert given.valid_from == BETWEEN
    later = memory.remember("It will be said.", created_at=LATER, **COMPLETE)
    assert later.valid_from is not None and later.valid_from < LATER
    assert "It will be said." in found(memory)


def test_a_change_of_something_old_counts_from_the_change_on(open_memory: OpenMemory) -> None:
    memory = open_memory()
    record = memory.remember(TEXT, created_at=LONG_AGO, **COMPLETE)
    memory.update(record.id, "The office is in Bonn.")
    assert [v.content for v in memory.history(record.id)] == [TEXT, "The office is in Bonn."]
    assert found(memory) == {"The office is in Bonn."}
    assert found(memory, as_of=BETWEEN) == {TEXT}


@pytest.mark.parametrize("in_order", [True, False])
def test_what_takes_the_place_of_another_does_so_from_its_own_time_on(
    open_memory: OpenMemory, in_order: bool
) -> None:
    """Facts of the past that are saved today, each with its date; in any order none is lost."""
    old, new = (LONG_AGO, BETWEEN) if in_order else (BETWEEN, LONG_AGO)
    told = {"subject": "the team", "attribute": "lead", "old_value": "Sarah", "new_value": "Tom"}
    action = {"id": "old", "action": "delete", "both_hold": False, "reason": "Tom leads", **told}
    llm = ScriptedLLM({"consolidation": {"actions": [action], "insert_new": True}})
    memory = open_memory(llm=llm, embedder=Alike())
    memory.remember("Sarah leads the team", record_id="old", created_at=old, **COMPLETE)
    memory.remember("Tom leads the team", record_id="new", created_at=new, **COMPLETE)
    assert [r.id for r in memory.list_records()] == ["new"]

    def at(moment: datetime) -> list[str]:
        return sorted(record.id for record in memory.list_records(as_of=moment))

    day = timedelta(days=1)
    assert [r.id for r in memory.history("new")] == (["old", "new"] if in_order else ["new", "old"])
    assert at(LONG_AGO + day) == (["old"] if in_order else ["new"])
    assert at(BETWEEN + day) == (["new"] if in_order else ["new", "old"])
