"""docs/api.md is current, leaves nothing public out, and what it says of every call is true."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mnemotrace
from mnemotrace import Flow, Memory, MemoryScope, MemorySlice
from mnemotrace.errors import RecordNotFoundError, ScopePermissionError
from mnemotrace.recall_explanation import Verdict
from mnemotrace.testing import FakeEmbedder

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
CODE = "\n".join(re.findall(r"```\w+\n.*?```|`[^`]+`", PAGE, re.DOTALL))
WORDS = set(re.findall(r"\w+", CODE))


def test_the_page_is_current() -> None:
    """Run ``python docs/make_api.py`` when this fails."""
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    assert spec is not None and spec.loader is not None
    script = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == PAGE


def test_every_public_name_and_every_argument_is_on_the_page() -> None:
    assert set(mnemotrace.__all__) <= WORDS
    for kind in (Memory, MemoryScope, MemorySlice, Flow):
        ours = [part for part in kind.__mro__ if part.__module__.startswith("mnemotrace")]
        for name in {name for part in ours for name in vars(part) if not name.startswith("_")}:
            assert name in WORDS or name[1:] in WORDS, name
            member = getattr(kind, name)
            if inspect.isfunction(member):
                arguments = set(inspect.signature(member).parameters)
                assert arguments - {"self", "args", "kwargs"} <= WORDS, name


# What the introduction says.


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as opened:
        opened.remember("a note", scope="/a/b", record_id="note")
        opened.remember("a second note", scope="/b")
        yield opened


def test_what_calls_give_when_nothing_is_found(memory: Memory) -> None:
    empty = memory.scope("/nowhere")
    assert empty.get("note") is None
    with pytest.raises(RecordNotFoundError):
        empty.update("note", importance=1.0)
    assert empty.history("note") == empty.list_records() == []
    assert (empty.list_scopes(), empty.dead_letters()) == ([], [])
    found = empty.recall("note")
    assert (found, found.confidence, found.format()) == ([], 0.0, "")
    assert found.trace is not None
    assert empty.retrieve_for("note") == ""
    assert empty.explain("note", "note").verdict is Verdict.UNKNOWN
    assert empty.list_categories() == {}
    assert empty.info().record_count == 0
    assert empty.tree() == "/nowhere (0 records)"
    for count in (empty.forget(record_ids=["note"]), empty.reset(), empty.reanalyze()):
        assert count == 0
    assert empty.retry_dead_letters() == 0
    assert empty.extract_memories("a text") == ["a text"]


@pytest.mark.parametrize("path", ["/b", "b", "/a/b"])
def test_paths_in_a_scope_view_are_relative_to_it(memory: Memory, path: str) -> None:
    view = memory.scope("/a")
    assert [match.record.scope for match in view.recall("note", scope=path)] == ["/a/b"]
    assert view.scope(path).path == "/a/b"


def test_paths_in_a_slice_are_absolute(memory: Memory) -> None:
    view = memory.slice(["/a"])
    assert [record.scope for record in view.list_records("/a/b")] == ["/a/b"]
    with pytest.raises(ScopePermissionError):
        view.recall("note", scope="/b")


def test_what_is_current(memory: Memory) -> None:
    now = datetime.now(UTC)
    soon, before = now + timedelta(days=1), now - timedelta(days=1)
    place = memory.scope("/times")
    coming = place.remember("coming", valid_from=soon)
    gone = place.remember("gone", valid_from=before - timedelta(days=1), expires_at=before)

    def listed(**asked: Any) -> list[str]:
        return sorted(record.content for record in place.list_records(**asked))

    assert listed() == [] and listed(as_of=soon) == ["coming"]
    assert listed(as_of=before - timedelta(hours=1)) == ["gone"]
    assert len(place.recall("gone", now=before - timedelta(hours=1))) == 1
    assert place.get(coming.id) == coming and place.get(gone.id) is None
    assert len(place.history(gone.id)) == len(place.history(coming.id)) == 1
    assert place.forget(record_ids=[gone.id], erase=False) == 0
    assert place.forget(scope="/", erase=True) == 2
