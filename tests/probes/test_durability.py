"""Probes 13-26: nothing accepted is lost, nothing stored is damaged, nothing is kept twice."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from mnemotrace import Memory, MemoryRecord
from mnemotrace.cli.app import app
from mnemotrace.errors import (
    EmbedderError,
    EmbedderMismatchError,
    InvalidInputError,
    LLMError,
    RecordError,
    SaveError,
    StoreError,
    StoreLockedError,
)
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.flows.requests import save_request
from mnemotrace.receipts import SaveReceipt
from mnemotrace.stores.folder import FolderLock
from mnemotrace.stores.outbox import Outbox, PendingSave
from mnemotrace.stores.points import point_id
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

OpenMemory = Callable[..., Memory]
Call = Callable[..., Any]
Read = Callable[[Memory], dict[str, MemoryRecord]]

COMPLETE: dict[str, Any] = {"scope": "/home", "categories": ["c"], "importance": 0.5}


def run_until_killed(script: str, *arguments: object) -> str:
    """Run a script in a process of its own that kills itself; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout


# -- 13 ------------------------------------------------------------------------------------------

ACCEPT_AND_DIE = """
    import os, signal, sys, time
    from mnemotrace import Memory
    from mnemotrace.testing import FakeEmbedder

    folder, pause = sys.argv[1], float(sys.argv[2])
    memory = Memory(storage=folder, llm=None, embedder=FakeEmbedder())
    memory.remember("before")
    for batch in range(4):
        memory.remember_many([f"text {batch} {i}" for i in range(25)])
    print("accepted", flush=True)
    time.sleep(pause)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_every_accepted_text_survives_sigkill(
    open_memory: OpenMemory, tmp_path: Path, everything: Read, pause: float
) -> None:
    """Probe 13: what remember_many accepted is there once after SIGKILL and reopening."""
    assert "accepted" in run_until_killed(ACCEPT_AND_DIE, tmp_path / "store", pause)
    memory = open_memory("new")
    wanted = {"before", *(f"text {batch} {i}" for batch in range(4) for i in range(25))}
    assert memory.drain_writes() == 0
    assert set(everything(memory)) == wanted
    memory.close()
    assert set(everything(open_memory("new"))) == wanted


class OtherProcess:
    """What another process does to a folder: it takes it, accepts texts, and is gone.

    The locks are those of the operating system, which do not ask who holds them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        self._lock = FolderLock(self._folder)
        self._lock.acquire()
        self._outbox = Outbox(self._folder / "outbox")
        return self

    def accept(self, *texts: str) -> None:
        requests = [save_request(text, scope="/home", reach=("/",)) for text in texts]
        self._outbox.accept(
            [PendingSave(r.record_id, r.content, None, r.options()) for r in requests]
        )

    def __exit__(self, *error: object) -> None:
        self._outbox.close()
        self._lock.release()


@pytest.mark.parametrize(
    "read",
    [
        lambda memory: [match.record.content for match in memory.recall("theirs", depth="shallow")],
        lambda memory: [match.record.content for match in memory.recall("theirs")],
        lambda memory: [record.content for record in memory.list_records()],
        lambda memory: [str(memory.info("/home").record_count)],
    ],
)
def test_texts_of_a_killed_process_are_there_for_a_memory_that_was_open_before(
    open_memory: OpenMemory, tmp_path: Path, read: Callable[[Memory], list[str]]
) -> None:
    """Probe 13: a memory that gets the folder after its owner takes up the owner's queue, too."""
    memory = open_memory("new")
    assert memory.recall("theirs") == []
    with OtherProcess(tmp_path / "store") as other:
        other.accept("theirs")
        for use in (read, lambda m: m.remember("ours"), lambda m: m.remember_many(["ours"])):
            with pytest.raises(StoreLockedError):
                use(memory)
        memory._runtime.run(memory._core.leave())  # nor does the end of the program complain
        memory.drain_writes()
    assert read(memory) in (["theirs"], ["1"])
    assert memory.recall("theirs").status == "ok"
    assert memory.drain_writes() == 0
    memory.remember_many(["ours"])
    assert {record.content for record in memory.list_records()} == {"theirs", "ours"}


def test_a_refused_background_save_leaves_nothing_behind(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    """Probe 13: while another process has the folder, nothing is accepted that it would not see."""
    memory = open_memory("new")
    in_use = pytest.raises(StoreLockedError, match="in use by process")
    with OtherProcess(tmp_path / "store"), in_use:
        memory.remember_many(["ours"])
    assert memory.list_records() == []
    assert memory.dead_letters() == []


def test_a_queue_without_its_lock_file_is_taken_up(open_memory: OpenMemory, tmp_path: Path) -> None:
    """Probe 13: a copied folder may lack the lock file, which says that it was ever in use."""
    folder = tmp_path / "store"
    with OtherProcess(folder) as other:
        other.accept("theirs")
    (folder / "mnemotrace.lock").unlink()
    memory = open_memory("new")
    assert [record.content for record in memory.list_records()] == ["theirs"]


# -- 14 ------------------------------------------------------------------------------------------


def test_a_background_save_without_embedder_is_kept_and_retried(
    open_memory: OpenMemory, everything: Read, call: Call
) -> None:
    """Probe 14: the receipt raises, nothing counts as stored, and the retry saves all of it."""
    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder)
    memory.remember("before")
    embedder.fail = True
    receipt = call(memory, "remember_many", ["one", "two"])
    with pytest.raises(SaveError) as raised:
        receipt.wait(10)
    assert isinstance(raised.value.__cause__, EmbedderError)
    assert not receipt.done
    assert receipt.records == []
    assert call(memory, "drain_writes") == 2
    assert set(everything(memory)) == {"before"}
    embedder.fail = False
    assert {record.content for record in receipt.wait(20, through_retries=True)} == {"one", "two"}
    assert receipt.done
    assert memory.drain_writes() == 0
    assert set(everything(memory)) == {"before", "one", "two"}


def test_a_save_that_was_given_up_is_listed_and_can_be_retried(
    open_memory: OpenMemory, everything: Read, call: Call
) -> None:
    """Probe 14: after the last attempt the text is a dead letter, not gone."""
    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder, save_attempts=1)
    memory.remember("before")
    embedder.fail = True
    with pytest.raises(SaveError):
        memory.remember_many(["kept"], "/home").wait(10)
    (letter,) = call(memory, "dead_letters")
    assert [save.content for save in letter.items] == ["kept"]
    assert "embedder" in letter.error
    assert call(memory.scope("/elsewhere"), "dead_letters") == []
    assert call(memory.scope("/elsewhere"), "retry_dead_letters") == 0
    embedder.fail = False
    assert call(memory, "retry_dead_letters") == 1
    assert call(memory, "drain_writes") == 0
    assert call(memory, "dead_letters") == []
    assert set(everything(memory)) == {"before", "kept"}


def test_texts_that_could_not_be_saved_survive_closing(
    open_memory: OpenMemory, everything: Read
) -> None:
    """Probe 14: closing with a failing embedder neither hangs nor loses the text."""
    embedder = FakeEmbedder(fail=True)
    memory = open_memory("new", embedder=embedder)
    receipt = memory.remember_many(["kept"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receipt.wait, 30, through_retries=True)
        assert memory.drain_writes() == 1
        memory.close()
        with pytest.raises(SaveError, match="next opened"):
            waiting.result(10)
    memory = open_memory("new")
    assert memory.drain_writes() == 0
    assert set(everything(memory)) == {"kept"}


# -- 15 ------------------------------------------------------------------------------------------

FAULTS = ("count", "length", "nan", "zeros", "down")


def spoil(embedder: FakeEmbedder, fault: str | None) -> None:
    embedder.fail = fault == "down"
    embedder.fault = fault if fault != "down" else None


@pytest.mark.parametrize("fault", FAULTS)
def test_unusable_vectors_are_an_error_and_change_nothing(
    open_memory: OpenMemory, everything: Read, call: Call, fault: str
) -> None:
    """Probe 15: n-1 vectors, another length, NaN, zeros or no answer: an error, nothing stored."""
    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder)
    kept = memory.remember("kept", **COMPLETE)
    spoil(embedder, fault)
    with pytest.raises(EmbedderError):
        call(memory, "remember", "lost", **COMPLETE)
    with pytest.raises(EmbedderError):
        call(memory, "update", kept.id, "changed")
    for depth in ("shallow", "deep"):
        with pytest.raises(EmbedderError):
            call(memory, "recall", "kept", depth=depth)
    with pytest.raises(SaveError):
        memory.remember_many(["one", "two"]).wait(10)
    spoil(embedder, None)
    assert memory.get(kept.id) == kept
    assert set(everything(memory)) <= {"kept", "one", "two"}
    assert memory.recall("kept")[0].record == kept


@pytest.mark.parametrize("fault", FAULTS)
def test_unusable_first_vectors_do_not_make_a_store(open_memory: OpenMemory, fault: str) -> None:
    """Probe 15: a failed first save leaves a store that any embedder may still begin."""
    embedder = FakeEmbedder()
    spoil(embedder, fault)
    memory = open_memory("new", embedder=embedder)
    with pytest.raises(EmbedderError):
        memory.remember("lost")
    memory.close()
    other = open_memory("new", embedder=FakeEmbedder(dimension=8))
    assert other.list_records() == []
    assert other.remember("first").version == 1


# -- 16 ------------------------------------------------------------------------------------------

BLANKS = ("", " ", "\n\t", "\u3000", "\u00a0\u2003", "\u200b", "\ufeff \u2060", "\x00", "\u00ad")


@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_blank_text_is_refused_everywhere(
    open_memory: OpenMemory, call: Call, view_of: Callable[..., Any], blank: str
) -> None:
    """Probe 16: white space and invisible characters alone are a ValueError, in every method."""
    memory = open_memory()
    record = memory.remember("kept", "/home")
    view = view_of(memory)
    refused: list[tuple[str, tuple[Any, ...]]] = [
        ("remember", (blank, "/home")),
        ("remember_many", (["fine", blank], "/home")),
        ("remember_many", ([{"content": blank}], "/home")),
        ("update", (record.id, blank)),
        ("extract_memories", (blank,)),
        ("recall", (blank,)),
    ]
    for name, args in refused:
        if name == "update" and getattr(view, "read_only", False):
            continue
        with pytest.raises(ValueError, match=r"blank|empty"):
            call(view if "remember" not in name else memory, name, *args)
    assert memory.drain_writes() == 0
    assert memory.list_records(include_private=True) == [record]


def test_blank_text_does_not_fix_the_dimension(open_memory: OpenMemory) -> None:
    """Probe 16: a refused blank text leaves a new store open to any embedder."""
    memory = open_memory("new", embedder=FakeEmbedder(dimension=8))
    for blank in BLANKS:
        with pytest.raises(ValueError):
            memory.remember(blank)
    memory.close()
    assert open_memory("new", embedder=FakeEmbedder(dimension=16)).remember("first")


@pytest.mark.parametrize(
    "contents",
    [
        None,
        5,
        "one text",
        b"bytes",
        {"content": "x"},
        [5],
        [None],
        [["nested"]],
        [{}],
        [{"text": "x"}],
    ],
    ids=str,
)
def test_remember_many_refuses_what_is_no_list_of_texts(
    open_memory: OpenMemory, call: Call, contents: Any
) -> None:
    """Probe 16, next of kin: the whole batch is checked before any of it is accepted."""
    memory = open_memory()
    with pytest.raises(InvalidInputError):
        call(memory, "remember_many", contents)
    if isinstance(contents, list):
        with pytest.raises(InvalidInputError):
            call(memory, "remember_many", ["fine", *contents])
    assert memory.drain_writes() == 0
    assert memory.list_records() == []


def test_labels_of_a_batch_may_come_from_a_generator(open_memory: OpenMemory) -> None:
    """What is given once for a whole batch reaches every text of it."""
    memory = open_memory()
    labels = (label for label in ("c", "d"))
    records = memory.remember_many((f"t{i}" for i in range(3)), categories=labels).wait(10)
    assert [record.categories for record in records] == [["c", "d"]] * 3
    positions = [record.position or 0 for record in records]
    assert positions == sorted(set(positions))
    assert len({record.session for record in records}) == 1
    assert memory.remember_many([]).wait(1) == []


@pytest.mark.parametrize("text", ["\ud800", "half \udfff"], ids=ascii)
def test_text_that_is_not_unicode_is_refused(open_memory: OpenMemory, text: str) -> None:
    """Probe 16, next of kin: a lone surrogate is refused before anything is embedded."""
    memory = open_memory()
    for attempt in (
        lambda: memory.remember(text),
        lambda: memory.remember_many([text]),
        lambda: memory.recall(text),
        lambda: memory.remember("fine", metadata={"key": text}),
        lambda: memory.remember("fine", source=text),
        lambda: memory.remember("fine", categories=[text]),
        lambda: memory.remember("fine", scope="/" + text),
        lambda: memory.remember("fine", record_id=text),
        lambda: memory.recall("fine", source=text),
        lambda: memory.recall("fine", categories=[text]),
        lambda: memory.recall("fine", scope="/" + text),
        lambda: memory.forget(record_ids=[text]),
        lambda: memory.get(text),
    ):
        with pytest.raises(ValueError):
            attempt()
    assert memory.list_records() == []


# -- 17 and 18 -----------------------------------------------------------------------------------


@pytest.fixture
def three(open_memory: OpenMemory) -> Memory:
    memory = open_memory()
    memory.remember("x", "/a", ["c"], {"n": 1}, record_id="x", source="s")
    memory.remember("y", "/a", ["d"], {"n": 2}, record_id="y")
    memory.remember("z", "/b", ["c"], {"n": 1}, record_id="z")
    return memory


@pytest.mark.parametrize("erase", [True, False])
@pytest.mark.parametrize(
    ("criteria", "gone"),
    [
        ({"record_ids": ["x"], "categories": ["d"]}, ""),
        ({"record_ids": ["x", "y"], "categories": ["c"]}, "x"),
        ({"record_ids": ["x", "z"], "scope": "/a"}, "x"),
        ({"record_ids": ["x"], "metadata_filter": {"n": 2}}, ""),
        ({"record_ids": ["y"], "source": "s"}, ""),
        ({"categories": ["c"], "metadata_filter": {"n": 1}, "scope": "/b"}, "z"),
        ({"record_ids": ["x", "y"], "older_than": "2001-01-01"}, ""),
        ({"record_ids": []}, ""),
        ({"record_ids": [], "scope": "/a"}, ""),
        ({"record_ids": ()}, ""),
        ({"record_ids": iter(())}, ""),
        ({"record_ids": ["nobody"]}, ""),
        ({"categories": []}, ""),
        ({"categories": [], "scope": "/a"}, ""),
        ({"metadata_filter": {"n": []}, "scope": "/a"}, ""),
        ({"scope": "/nowhere"}, ""),
        ({"source": "nobody"}, ""),
    ],
)
def test_criteria_of_forget_intersect(
    three: Memory, criteria: dict[str, Any], gone: str, erase: bool
) -> None:
    """Probe 17: forget removes what meets every criterion; an empty list selects nothing."""
    result = three.forget(**criteria, erase=erase)
    assert {r.id for r in three.list_records()} == set("xyz") - set(gone)
    assert result == len(gone)
    assert set(result.record_ids) == set(gone)


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"include_private": True},
        {"erase": False},
        {"metadata_filter": {}},
        {"scope": ""},
        {"scope": "  "},
        {"record_ids": None},
    ],
)
def test_forget_without_a_criterion_is_an_error(
    three: Memory, call: Call, criteria: dict[str, Any]
) -> None:
    """Probe 17: "everything" must be asked for explicitly; an empty criterion does not."""
    for view in (three, three.scope("/a"), three.slice(["/a"], read_only=False)):
        with pytest.raises(InvalidInputError):
            call(view, "forget", **criteria)
    assert len(three.list_records()) == 3


def test_reset_of_a_blank_scope_is_an_error(three: Memory) -> None:
    """Probe 17, next of kin: reset("") is an accident; reset() and reset("/") are explicit."""
    for blank in ("", " "):
        with pytest.raises(InvalidInputError):
            three.reset(blank)
        with pytest.raises(InvalidInputError):
            three.scope("/a").reset(blank)
    assert len(three.list_records()) == 3
    assert three.scope("/a").reset() == 2
    assert three.reset("/b") == 1


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "limit",
    [
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(timezone(timedelta(hours=9))),
        NOON.astimezone(timezone(timedelta(hours=-8))),
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00",
        "2026-03-01 12:00:00+00:00",
        "2026-03-01T21:00:00+09:00",
    ],
    ids=str,
)
@pytest.mark.parametrize("erase", [True, False])
def test_forget_older_than_never_removes_newer_records(
    open_memory: OpenMemory, call: Call, limit: datetime | str, erase: bool
) -> None:
    """Probe 18: naive, aware and Z-suffixed times alike; the moment itself is not older."""
    memory = open_memory()
    for hours in (-9, -1, 0, 1, 9):
        memory.remember(f"{hours}", created_at=NOON + timedelta(hours=hours))
    assert call(memory, "forget", older_than=limit, erase=erase) == 2
    assert {record.content for record in memory.list_records()} == {"0", "1", "9"}


def test_forget_older_than_a_date_means_its_first_instant(open_memory: OpenMemory) -> None:
    """Probe 18: a date is taken as midnight UTC; something that is no time is refused."""
    memory = open_memory()
    memory.remember("before", created_at="2026-02-28T23:59:59Z")
    memory.remember("after", created_at="2026-03-01T00:00:00Z")
    for nonsense in ("yesterday", "2026-13-01", 20260301, ""):
        with pytest.raises(InvalidInputError):
            memory.forget(older_than=nonsense)  # type: ignore[arg-type]
    assert memory.forget(older_than=date(2026, 3, 1)) == 1  # type: ignore[arg-type]
    assert [record.content for record in memory.list_records()] == ["after"]


# -- 19 and 20 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("importance", [2.0, -0.1, math.nan, math.inf, "0.5", True, 1 + 1e-9])
def test_importance_outside_its_range_is_refused(
    open_memory: OpenMemory, call: Call, importance: Any
) -> None:
    """Probe 19: update(importance=2.0) is refused, as in remember; nothing changes."""
    memory = open_memory()
    record = memory.remember("kept", importance=0.5)
    for name, args in (
        ("update", (record.id,)),
        ("remember", ("new",)),
        ("remember_many", (["n"],)),
    ):
        with pytest.raises(RecordError):
            call(memory, name, *args, importance=importance)
    assert memory.list_records() == [record]
    assert memory.history(record.id) == [record]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"key": object}},
        {"metadata": {1: "x"}},
        {"metadata": "text"},
        {"categories": [""]},
        {"categories": [3]},
        {"categories": 3},
        {"private": "yes"},
        {"pinned": 1},
        {"expires_at": "soon"},
        {"scope": "/a/../b"},
        {"scope": "/x" * 40},
        {"content": 5},
    ],
    ids=str,
)
def test_an_update_that_cannot_be_stored_changes_nothing(
    open_memory: OpenMemory, change: dict[str, Any]
) -> None:
    """Probe 19, next of kin: every field is checked before anything is written."""
    memory = open_memory()
    record = memory.remember("kept", "/a", ["c"], {"key": 1})
    with pytest.raises(ValueError):
        memory.update(record.id, **change)
    assert memory.history(record.id) == [record]


DAMAGE: dict[str, dict[str, Any]] = {
    "importance": {"importance": 7.5},
    "importance text": {"importance": "high"},
    "time": {"created_at": "once upon a time"},
    "access time": {"last_accessed": 5},
    "content": {"content": 5},
    "version": {"version": "first"},
    "scope": {"scope": "/a/../b"},
    "metadata": {"metadata": "text"},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_unreadable_row_is_reported_and_breaks_nothing(
    open_memory: OpenMemory, call: Call, damage: str
) -> None:
    """Probe 19: one damaged row costs only itself; recall says which one it was."""
    memory = open_memory()
    good = [memory.remember(f"note {i}", "/home") for i in range(3)]
    bad = memory.remember("note bad", "/home", record_id="the-bad-one")
    store: Any = memory.store
    collection, _ = store._open()
    collection.set_payload([point_id(bad.id, 1)], DAMAGE[damage])
    try:
        for depth in ("shallow", "deep"):
            found = call(memory, "recall", "note", depth=depth)
            assert {match.record.id for match in found} == {record.id for record in good}
            assert found.status == "partial"
            assert any("the-bad-one" in line for line in found.errors)
        listed = call(memory, "list_records", "/home")
        assert {record.id for record in listed} == {record.id for record in good}
        assert call(memory, "get", good[0].id) == good[0]
        call(memory, "info", "/home")
        call(memory, "tree")
        assert call(memory, "update", good[0].id, importance=0.9).version == 2
        assert memory.remember("note 3", "/home").content == "note 3"
    finally:
        assert memory.forget(record_ids=["the-bad-one"]) in (0, 1)
        collection.delete([point_id(bad.id, 1)])


@pytest.mark.parametrize("erase", [True, False])
def test_an_unreadable_row_does_not_stop_a_forget(open_memory: OpenMemory, erase: bool) -> None:
    """Probe 19: forgetting a scope with a damaged row in it comes to an end."""
    memory = open_memory()
    memory.remember("good", "/home")
    bad = memory.remember("bad", "/home")
    store: Any = memory.store
    collection, _ = store._open()
    collection.set_payload([point_id(bad.id, 1)], {"importance": 7.5})
    memory.forget(scope="/home", erase=erase)
    assert memory.list_records("/home") == []
    collection.delete([point_id(bad.id, 1)])


def test_a_failed_update_leaves_the_old_version(
    open_memory: OpenMemory, delegating: Any, call: Call
) -> None:
    """Probe 20: when the embedder or the store fails half-way, the old version stays readable."""

    class Failing(delegating):  # type: ignore[misc]
        broken = False

        def commit(self, batch: Any) -> Any:
            if self.broken:
                raise StoreError("the disk is gone")
            return self.inner.commit(batch)

    embedder = FakeEmbedder()
    memory = open_memory(wrap=Failing, embedder=embedder)
    store: Any = memory.store
    old = memory.remember("the old text", **COMPLETE)
    embedder.fail = True
    with pytest.raises(EmbedderError):
        call(memory, "update", old.id, "the new text")
    embedder.fail = False
    store.broken = True
    for change in ({"content": "the new text"}, {"importance": 0.9}, {"scope": "/away"}):
        with pytest.raises(StoreError):
            call(memory, "update", old.id, **change)
    assert memory.history(old.id) == [old]
    assert [match.record for match in memory.recall("old text")] == [old]
    store.broken = False
    assert call(memory, "update", old.id, "the new text").version == 2
    assert [match.record.content for match in memory.recall("old text")] == ["the new text"]


async def test_a_cancelled_save_is_whole_or_not_there(open_memory: OpenMemory) -> None:
    """Probe 20, next of kin: cancelling at any moment leaves a memory that works."""
    embedder = FakeEmbedder()
    memory = await asyncio.to_thread(open_memory, embedder=embedder)
    record = await memory.aremember("before", **COMPLETE)
    embedder.delay = 0.02
    for step in range(12):
        save = asyncio.create_task(memory.aremember(f"cancelled {step}", **COMPLETE))
        change = asyncio.create_task(memory.aupdate(record.id, f"changed {step}"))
        await asyncio.sleep(step * 0.004)
        save.cancel()
        change.cancel()
        await asyncio.gather(save, change, return_exceptions=True)
        again = await memory.aremember(f"cancelled {step}", **COMPLETE)
        assert again.version == 1
        versions = await memory.ahistory(record.id)
        assert [version.version for version in versions] == list(range(1, len(versions) + 1))
        assert [v.id for v in versions if v.is_current] == [record.id]
    assert len(await memory.alist_records()) == 13


def test_parallel_updates_of_one_record_all_happen(open_memory: OpenMemory) -> None:
    """Probe 20, next of kin: no update is lost, each is a version of its own."""
    memory = open_memory()
    other = open_memory()
    record = memory.remember("text")
    with ThreadPoolExecutor(8) as pool:
        changes: list[dict[str, Any]] = [{"importance": i / 100} for i in range(20)]
        changes += [{"categories": [f"c{i}"]} for i in range(20)]
        done = list(
            pool.map(
                lambda i: (memory, other)[i % 2].update(record.id, **changes[i]),
                range(40),
            )
        )
    versions = memory.history(record.id)
    assert [version.version for version in versions] == list(range(1, 42))
    assert {v.version for v in done} == set(range(2, 42))
    assert sum(version.is_current for version in versions) == 1
    for older, newer in pairwise(versions):
        assert (older.retired, older.superseded_by) == ("superseded", record.id)
        assert older.valid_to == newer.valid_from


# -- 21 ------------------------------------------------------------------------------------------


def test_two_memories_on_one_folder_see_each_others_writes(
    open_memory: OpenMemory, everything: Read, call: Call
) -> None:
    """Probe 21: what one commits, the other sees at once, in every reading method."""
    first, second = open_memory("new"), open_memory("new")
    record = call(first, "remember", "by the first", "/a")
    assert call(second, "get", record.id) == record
    assert [match.record for match in call(second, "recall", "first")] == [record]
    changed = call(second, "update", record.id, importance=0.9)
    assert call(first, "get", record.id) == changed
    first.remember_many([f"text {i}" for i in range(50)], "/a")
    assert call(second, "info", "/a").record_count == 51
    assert everything(first) == everything(second)
    assert call(second, "reset") == 51
    assert call(first, "list_records") == []
    first.close()
    assert call(second, "remember", "after the first closed").version == 1


@pytest.mark.parametrize("scope", [None, "/a"])
def test_a_reset_amid_the_writes_of_another_memory_keeps_both_consistent(
    open_memory: OpenMemory, everything: Read, scope: str | None
) -> None:
    """Probe 21: one resets again and again while the other writes: no error, one view of it."""
    first, second = open_memory("new"), open_memory("new")
    stop = threading.Event()
    resets = 0

    def write() -> list[MemoryRecord]:
        records: list[MemoryRecord] = []
        while len(records) < 6 or (resets < 2 and len(records) < 1000):
            records.append(first.remember(f"text {len(records)}", "/a"))
        records += first.remember_many([f"more {i}" for i in range(40)], "/a").wait(60)
        stop.set()
        return records

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        while not stop.is_set() and not written.done():
            second.reset(scope)
            resets += 1
            time.sleep(0.1)
        records = written.result(60)
    assert resets >= 2
    assert len(records) >= 6  # a reset also forgets what is accepted and not yet encoded
    left = everything(first)
    assert left == everything(second)
    assert set(left) <= {record.content for record in records}
    last = second.remember("last", "/a")
    assert first.get(last.id) == last
    assert first.reset(scope) == len(left) + 1
    assert second.list_records() == []


def test_a_save_that_waits_for_its_retry_is_taken_over_by_another_memory(
    open_memory: OpenMemory, everything: Read
) -> None:
    """Probes 14 and 21: the memory that accepted it is closed; the other one saves it."""
    embedder = FakeEmbedder()
    first, second = open_memory("new", embedder=embedder), open_memory("new")
    second.remember("before")
    embedder.fail = True
    receipt = first.remember_many(["kept"])
    with pytest.raises(SaveError):
        receipt.wait(10)
    first.close()
    assert [r.content for r in receipt.wait(20, through_retries=True)] == ["kept"]
    assert set(everything(second)) == {"before", "kept"}
    assert second.dead_letters() == []


def test_opening_and_closing_in_many_threads_loses_nothing(
    open_memory: OpenMemory, everything: Read, tmp_path: Path
) -> None:
    """Probe 21: memories over one folder come and go in threads; every text is there once."""
    keeper = open_memory("new")
    keeper.remember("before")

    def visit(number: int) -> None:
        memory = Memory(llm=None, storage=tmp_path / "store", embedder=FakeEmbedder())
        memory.remember_many([f"text {number} {i}" for i in range(5)])
        memory.remember(f"one more {number}")
        memory.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(24)))
    keeper.close()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(24, 32)))
    wanted = {f"text {n} {i}" for n in range(32) for i in range(5)}
    wanted |= {"before", *(f"one more {n}" for n in range(32))}
    memory = open_memory("new")
    assert memory.drain_writes() == 0
    assert set(everything(memory)) == wanted


# -- 22 ------------------------------------------------------------------------------------------


class OtherModel(FakeEmbedder):
    """Another model with vectors of the same length."""

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [vector[::-1] for vector in super().embed(texts)]


@pytest.mark.parametrize(
    "other", [FakeEmbedder(dimension=32), OtherModel()], ids=["dimension", "model"]
)
def test_another_embedder_is_refused_by_name_and_changes_nothing(
    open_memory: OpenMemory, everything: Read, call: Call, other: FakeEmbedder
) -> None:
    """Probe 22: another dimension, or another model of the same one, is a named error."""
    memory = open_memory("new")
    memory.remember("kept", record_id="k")
    before = everything(memory)
    memory.close()
    wrong = open_memory("new", embedder=other, save_attempts=1)
    attempts: list[tuple[str, tuple[Any, ...]]] = [
        ("remember", ("new",)),
        ("recall", ("kept",)),
        ("update", ("k", "changed")),
    ]
    for name, args in attempts:
        with pytest.raises(EmbedderMismatchError, match="reindex"):
            call(wrong, name, *args)
    with pytest.raises(SaveError) as raised:
        wrong.remember_many(["new"]).wait(10)
    assert isinstance(raised.value.__cause__, EmbedderMismatchError)
    wrong.forget(scope="/elsewhere")
    wrong.close()
    again = open_memory("new")
    assert everything(again) == before
    assert again.recall("kept")[0].record.content == "kept"


def test_reindexing_brings_a_store_to_another_embedder(
    open_memory: OpenMemory, everything: Read, call: Call
) -> None:
    """Probe 22: reindex re-embeds every version, and the store then belongs to the new embedder."""
    memory = open_memory("new")
    first = memory.remember("kept text", "/a", metadata={"n": 0})
    memory.update(first.id, "changed text")
    memory.remember("a secret", source="bob", private=True)
    before, history = everything(memory), memory.history(first.id)
    assert call(memory, "reindex", FakeEmbedder(dimension=32)) == 3
    assert everything(memory) == before
    assert memory.history(first.id) == history
    assert memory.recall("changed text")[0].record.id == first.id
    memory.remember("and on it goes")
    memory.close()
    with pytest.raises(EmbedderMismatchError):
        open_memory("new").recall("changed text")
    reopened = open_memory("new", embedder=FakeEmbedder(dimension=32))
    assert reopened.recall("changed text")[0].record.id == first.id


REINDEX_AND_DIE = """
    import os, signal, sys
    from mnemotrace import Memory
    from mnemotrace.testing import FakeEmbedder

    class Dying(FakeEmbedder):
        model_name = "the other model"

        copied = 0  # versions come in the order of their point ids, which no text decides

        def embed(self, texts):
            self.copied += sum(text.startswith("text ") for text in texts)
            if self.copied == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed(texts)

    memory = Memory(storage=sys.argv[1], llm=None, embedder=FakeEmbedder())
    for i in range(5):
        memory.remember(f"text {i}", importance=0.5)
    memory.reindex(Dying(dimension=32), batch_size=1)
"""


@pytest.mark.slow
def test_a_reindex_survives_being_killed(
    open_memory: OpenMemory, everything: Read, tmp_path: Path
) -> None:
    """Probe 22: killed in the middle, the store is as it was, and reindexing goes on."""
    run_until_killed(REINDEX_AND_DIE, tmp_path / "store")
    texts = {f"text {i}" for i in range(5)}
    memory = open_memory("new")
    assert set(everything(memory)) == texts
    assert memory.recall("text 3")[0].record.content == "text 3"
    memory.close()
    other = FakeEmbedder(dimension=32)
    other.model_name = "the other model"  # type: ignore[attr-defined]
    with pytest.raises(EmbedderMismatchError):
        open_memory("new", embedder=other).recall("text 3")
    memory = open_memory("new")
    assert memory.reindex(other) <= 5
    assert set(other.texts) < texts, "it began again from the start"
    assert set(everything(memory)) == texts
    assert memory.recall("text 3")[0].record.content == "text 3"


# -- 23 ------------------------------------------------------------------------------------------

IDS = (
    *(f"customer-{i}" for i in range(5)), "0", "1", "a", "A", " a", "a ", "a/b", "a b", "é",
    "e\u0301", "고객", "客户", "x'; --", '"quoted"', "100%", "a\nb", "../up", "*", "[]", "null",
    "5d1f3c52-0f0b-4c8e-9d0a-6d7a7f2b8a41", "5D1F3C52-0F0B-4C8E-9D0A-6D7A7F2B8A41", "long" * 500,
)  # fmt: skip


def test_every_id_is_a_record_of_its_own(open_memory: OpenMemory, call: Call) -> None:
    """Probe 23: whatever the id, it works in get, history, update and forget, and only itself."""
    memory = open_memory()
    for number, record_id in enumerate(IDS):
        memory.remember(f"text {number}", record_id=record_id)
    assert {record.id for record in memory.list_records()} == set(IDS)
    recalled = {match.record.id for match in memory.recall("text", limit=100)}
    assert recalled == set(IDS)
    for number, record_id in enumerate(IDS):
        record = call(memory, "get", record_id)
        assert record.id == record_id
        assert record.content == f"text {number}"
        assert call(memory, "update", record_id, importance=0.9).id == record_id
        assert len(call(memory, "history", record_id)) == 2
    for number, record_id in enumerate(IDS):
        assert call(memory, "forget", record_ids=[record_id]) == 1
        left = {record.id for record in memory.list_records()}
        assert left == set(IDS[number + 1 :])


def test_a_taken_id_is_refused_unless_it_says_the_same(open_memory: OpenMemory, call: Call) -> None:
    """Probe 23: an explicit id that is taken by another text is an error; saving it again is not."""
    memory = open_memory()
    first = call(memory, "remember", "one text", record_id="mine")
    assert call(memory, "remember", "one text", record_id="mine") == first
    with pytest.raises(RecordError, match="mine"):
        call(memory, "remember", "another text", record_id="mine")
    with pytest.raises(SaveError) as raised:
        memory.remember_many([{"content": "another text", "record_id": "mine"}]).wait(10)
    assert isinstance(raised.value.__cause__, RecordError)
    with pytest.raises(ValueError):
        memory.remember_many(
            [{"content": "a", "record_id": "same"}, {"content": "b", "record_id": "same"}]
        )
    assert memory.list_records() == [first]
    memory.forget(scope="/", include_private=True)


def test_ids_printed_by_the_command_line_work_in_every_method(tmp_path: Path) -> None:
    """Probe 23: an id from `mnemotrace list` works in get, update and forget, and back."""
    folder = tmp_path / "store"
    with Memory(llm=None, storage=folder) as memory:
        for number in range(5):
            memory.remember(f"text {number}", record_id=f"customer-{number}")
        memory.remember("text without an id of its own")
    listing = CliRunner().invoke(app, ["list", "--json", "--storage", str(folder)])
    ids = {entry["id"] for entry in json.loads(listing.stdout)}
    assert len(ids) == 6
    plain = CliRunner().invoke(app, ["list", "--storage", str(folder)]).stdout
    with Memory(llm=None, storage=folder) as memory:
        for record_id in ids:
            assert record_id in plain
            assert memory.get(record_id) is not None
            assert memory.update(record_id, importance=0.9).version == 2
            assert memory.forget(record_ids=[record_id]) == 1
        assert memory.list_records() == []


# -- 24 and 25 -----------------------------------------------------------------------------------

SIMILAR = {"old text": [1.0, 0.0, 0.0], "new text": [0.98, 0.199, 0.0]}


def consolidating(answer: Any) -> ScriptedLLM:
    return ScriptedLLM({"consolidation": answer})


INVALID = {
    "no json": "I would keep it.",
    "empty": "",
    "half a schema": {"actions": [{"id": "old", "action": "delete"}]},
    "half an action": {"actions": [{"id": "old"}], "insert_new": True},
    "unknown action": {"actions": [{"id": "old", "action": "destroy"}], "insert_new": True},
    "wrong type": {"actions": "delete everything", "insert_new": True},
    "cut off": '{"actions": [{"id": "old", "action": "delete"',
    "a failing model": LLMError("overloaded"),
    "any exception": RuntimeError("boom"),
    "update without text": {"actions": [{"id": "old", "action": "update"}], "insert_new": False},
    "an id not shown": {"actions": [{"id": "other", "action": "delete"}], "insert_new": True},
}


@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_consolidation_changes_no_record_and_is_visible(
    open_memory: OpenMemory, everything: Read, call: Call, kind: str
) -> None:
    """Probe 24: the old record stays as it was, the new text is saved, and an event tells."""
    memory = open_memory(llm=consolidating(INVALID[kind]), embedder=FakeEmbedder(SIMILAR))
    other = memory.remember("unrelated", record_id="other", **COMPLETE)
    old = memory.remember("old text", record_id="old", **COMPLETE)
    with RecordingListener() as heard:
        new = call(memory, "remember", "new text", **COMPLETE)
    assert everything(memory) == {"unrelated": other, "old text": old, "new text": new}
    assert memory.history("old") == [old]
    (event,) = heard.of(MemoryAnalysisFailedEvent)
    assert event.operation == "consolidation"
    assert event.error


def test_a_consolidation_that_arrives_too_late_changes_no_record(
    open_memory: OpenMemory, everything: Read
) -> None:
    """Probe 24: a record that changed while the model was thinking is not overwritten."""
    memory = open_memory(embedder=FakeEmbedder(SIMILAR))
    memory.remember("old text", record_id="old", **COMPLETE)
    answers = 0

    async def slow(request: Any) -> dict[str, Any]:
        nonlocal answers
        answers += 1
        if answers == 1:
            await memory.aforget(record_ids=["old"])
        return {"actions": [{"id": "old", "action": "delete"}], "insert_new": False}

    thinking = open_memory(llm=consolidating(slow), embedder=FakeEmbedder(SIMILAR))
    new = thinking.remember("new text", **COMPLETE)
    assert everything(memory) == {"new text": new}
    assert new.supersedes == []


DIE_WHILE_CONSOLIDATING = """
    import os, signal, sys
    from mnemotrace import Memory
    from mnemotrace.testing import FakeEmbedder, ScriptedLLM

    def die(request):
        os.kill(os.getpid(), signal.SIGKILL)

    vectors = {"old text": [1.0, 0.0, 0.0], "new text": [0.98, 0.199, 0.0]}
    memory = Memory(
        storage=sys.argv[1],
        llm=ScriptedLLM({"consolidation": die}),
        embedder=FakeEmbedder(vectors),
    )
    memory.remember("old text", "/home", ["c"], importance=0.5, record_id="old")
    memory.remember_many(["new text"], "/home", ["c"], importance=0.5)
    memory.drain_writes()
"""


@pytest.mark.slow
def test_a_crash_while_consolidating_changes_no_record(
    open_memory: OpenMemory, everything: Read, tmp_path: Path
) -> None:
    """Probe 24: killed before the answer, both texts are there after reopening."""
    run_until_killed(DIE_WHILE_CONSOLIDATING, tmp_path / "store")
    memory = open_memory("new", embedder=FakeEmbedder(SIMILAR))
    assert set(everything(memory)) == {"old text", "new text"}
    assert len(memory.history("old")) == 1


LONG = "The archive lists shelf after shelf. " * 400 + "The vault code is 7413."
LONGER = "The archive lists shelf after shelf. " * 401 + "The key hangs behind Rembrandt."


def test_consolidation_sees_long_records_to_their_very_end(
    open_memory: OpenMemory, everything: Read
) -> None:
    """Probe 25: prompts have whole texts, and a merge that drops the end of either is refused."""
    near = {LONG: [1.0, 0.0], LONGER: [0.99, 0.14]}
    both = LONG + " The key hangs behind Rembrandt."

    def merge(text: str) -> Callable[[Any], dict[str, Any]]:
        def answer(request: Any) -> dict[str, Any]:
            assert "The vault code is 7413." in request.prompt
            assert "The key hangs behind Rembrandt." in request.prompt
            return {
                "actions": [{"id": "long", "action": "update", "content": text}],
                "insert_new": False,
            }

        return answer

    for merged, left in (
        (both, {both}),
        (LONG, {LONG, LONGER}),
        (LONGER, {LONG, LONGER}),
        ("The archive.", {LONG, LONGER}),
    ):
        vectors = {**near, merged: [1.0, 0.0]}
        memory = open_memory(llm=consolidating(merge(merged)), embedder=FakeEmbedder(vectors))
        memory.remember(LONG, record_id="long", **COMPLETE)
        memory.remember(LONGER, **COMPLETE)
        assert set(everything(memory)) == left
        memory.forget(scope="/")


# -- 26 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "llm", [None, ScriptedLLM(), ScriptedLLM(default="no json")], ids=["none", "down", "nonsense"]
)
def test_the_same_text_saved_three_times_is_one_record(
    open_memory: OpenMemory, everything: Read, call: Call, llm: Any
) -> None:
    """Probe 26: with a failing model too, and however the text is spaced or composed."""
    memory = open_memory(llm=llm)
    records = [
        call(memory, "remember", text)
        for text in ("Caf\u00e9 at noon", "Cafe\u0301 at noon", "  Caf\u00e9   at\nnoon ")
    ]
    assert len({record.id for record in records}) == 1
    assert len(everything(memory)) == 1
    assert [r.id for r in memory.remember_many(["Caf\u00e9 at noon"] * 3).wait(10)] == [
        records[0].id
    ] * 3
    assert len(everything(memory)) == 1
    assert len(memory.history(records[0].id)) == 1, "saying it again wrote a new version"


@pytest.mark.parametrize(
    "who", [{}, {"source": "bob", "private": True}, {"private": True}], ids=str
)
def test_the_same_private_text_saved_three_times_is_one_record(
    open_memory: OpenMemory, everything: Read, who: dict[str, Any]
) -> None:
    """Probe 26: for private rows too, those without a source included."""
    memory = open_memory()
    assert len({memory.remember("one text", **who).id for _ in range(3)}) == 1
    assert len(everything(memory)) == 1


@pytest.mark.parametrize("judging", [False, True])
def test_twenty_parallel_saves_of_one_text_are_one_record(
    open_memory: OpenMemory, everything: Read, judging: bool
) -> None:
    """Probe 26: from threads and tasks, through two Memory objects, one by one and in batches."""
    llm = (
        ScriptedLLM(
            {
                "save_analysis": {"scope": "/found", "importance": 0.6},
                "consolidation": {"actions": [], "insert_new": True},
            },
            delay=0.01,
        )
        if judging
        else None
    )
    first, second = open_memory("new", llm=llm), open_memory("new", llm=llm)
    memories = [first, second]

    async def tasks() -> list[MemoryRecord]:
        saves = [memories[i % 2].aremember("the one fact") for i in range(10)]
        return list(await asyncio.gather(*saves))

    with ThreadPoolExecutor(12) as pool:
        threads = [pool.submit(memories[i % 2].remember, "the one fact") for i in range(10)]
        batches = [pool.submit(memories[i % 2].remember_many, ["the one fact"]) for i in range(2)]
        ids = {record.id for record in asyncio.run(tasks())}
        ids |= {future.result().id for future in threads}
        ids |= {future.result().wait(30)[0].id for future in batches}
    assert len(ids) == 1
    assert set(everything(first)) == {"the one fact"}
    assert [record.id for record in first.list_records()] == list(ids)


# -- what is not saved when a memory is closed -----------------------------------------------------


def unsaved(memory: Memory, embedder: FakeEmbedder, *, final: bool) -> SaveReceipt:
    """Accept two texts that cannot be saved, and see their first attempt fail."""
    memory.remember("the first text makes the store")
    embedder.fail = True
    receipt = memory.remember_many(["one", "two"])
    with pytest.raises(SaveError):
        receipt.wait(20)
    assert memory.drain_writes() == (0 if final else 2)
    return receipt


@pytest.mark.parametrize("attempts", [1, 5], ids=["given up", "waiting"])
def test_texts_that_go_with_a_closed_memory_are_told(
    caplog: pytest.LogCaptureFixture, attempts: int
) -> None:
    embedder = FakeEmbedder()
    memory = Memory(storage=":memory:", llm=None, embedder=embedder, save_attempts=attempts)
    receipt = unsaved(memory, embedder, final=attempts == 1)
    memory.close()
    told = [record.getMessage() for record in caplog.records if "was closed" in record.getMessage()]
    assert len(told) == 1
    assert "2 accepted texts" in told[0] and "lost" in told[0] and "drain_writes()" in told[0]
    assert memory.drain_writes() == (0 if attempts == 1 else 2)
    if attempts > 1:
        with pytest.raises(SaveError, match="lost"):
            receipt.wait(1)
        assert "(lost)" in repr(receipt)


def test_texts_that_a_closed_folder_keeps_are_told_and_saved_at_the_next_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = FakeEmbedder()
    memory = Memory(storage=tmp_path / "m", llm=None, embedder=embedder)
    other = Memory(storage=tmp_path / "m", llm=None, embedder=embedder)
    unsaved(memory, embedder, final=False)
    memory.close()
    assert "was closed" not in caplog.text, "the other memory goes on with them"
    other.close()
    (told,) = [r.getMessage() for r in caplog.records if "was closed" in r.getMessage()]
    assert "2 accepted texts" in told and str(tmp_path / "m") in told and "next opened" in told
    embedder.fail = False
    caplog.clear()
    with Memory(storage=tmp_path / "m", llm=None, embedder=embedder) as again:
        assert {"one", "two"} < {record.content for record in again.list_records()}
    assert caplog.text == ""


def test_a_close_tries_once_more_and_then_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    embedder = FakeEmbedder()
    memory = Memory(storage=":memory:", llm=None, embedder=embedder)
    receipt = unsaved(memory, embedder, final=False)
    embedder.fail = False
    caplog.clear()
    memory.close()
    assert [record.content for record in receipt.wait(1)] == ["one", "two"]
    assert caplog.text == ""
    assert memory.drain_writes() == 0


@pytest.mark.parametrize("folder", [True, False])
def test_an_exit_that_cannot_wait_says_how_many_texts_are_not_saved(
    folder: bool, tmp_path: Path
) -> None:
    embedder = FakeEmbedder()
    storage = str(tmp_path / "m") if folder else ":memory:"
    memory = Memory(storage=storage, llm=None, embedder=embedder)
    unsaved(memory, embedder, final=False)
    told = memory._core.late_at_exit(5.0)
    assert "2 accepted texts not saved yet" in told and "close()" in told
    assert (f"kept in {tmp_path}" if folder else "lost") in told
    embedder.fail = False
    memory.close()


def test_the_end_of_the_program_tells_what_goes_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedder = FakeEmbedder()
    memory = Memory(storage=":memory:", llm=None, embedder=embedder)
    unsaved(memory, embedder, final=False)
    memory._runtime.run(memory._core.leave())
    assert "2 accepted texts not saved: lost" in caplog.text
    memory.close()
