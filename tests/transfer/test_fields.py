"""What the fields of an export's line may hold is no wider than what `remember` would write."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mnemotrace import MemoryRecord
from mnemotrace.transfer.fields import fault
from mnemotrace.transfer.format import record_line

WRONG: dict[str, list[Any]] = {
    "private": ["no", 1, None],
    "pinned": ["true"],
    "importance": ["0.5", True, math.nan, 1.01, -0.1, 10**400],
    "usefulness": [None, math.inf],
    "version": ["1", True, -1, 0],
    "access_count": [1.0],
    "created_at": [5, "1700000000", None],
    "last_accessed": [""],
    "valid_to": ["soon"],
    "valid_from": [0],
    "expires_at": ["never"],
    "updated_at": [False],
    "retired": ["yes", True, []],
    "superseded_by": [7, ""],
    "supersedes": ["b", [1]],
    "sources": [[" "], None],
    "source": [" ", 3, "\ud800"],
    "session": [""],
    "position": ["1", 1.5, 2**60],
    "categories": ["c", [""], [" c"]],
    "scope": [" ", 1],
    "analysis": ["done", "pending:colour", ""],
    "metadata": [None, []],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_another_kind_is_refused(name: str) -> None:
    for value in WRONG[name]:
        message = fault({name: value})
        assert message is not None and message.startswith(f"the field {name!r} must be ")


@pytest.mark.parametrize(
    "fields",
    [
        {"retired": "forgotten"},
        {"valid_to": "2026-01-01"},
        {"superseded_by": "b"},
        {"retired": "forgotten", "valid_to": "2026-01-01", "superseded_by": "b"},
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any]) -> None:
    assert fault(fields) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"source": "a", "private": True, "session": "s", "position": 3, "categories": ["c d"]},
        {"retired": "superseded", "valid_to": "2026-01-01T00:00:00Z", "superseded_by": "b"},
        {"retired": "forgotten", "valid_to": "2026-01-01T00:00:00+09:00"},
        {"analysis": "pending:categories,importance", "expires_at": "2026-01-01", "pinned": True},
    ],
)
def test_what_an_export_writes_is_right(fields: dict[str, Any]) -> None:
    record = MemoryRecord(content="a text", **fields)
    assert fault(json.loads(record_line(record))) is None
