"""doctor says what is wrong with a memory, whatever state it is in, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mnemotrace import Memory
from mnemotrace.doctor import Report, examine
from mnemotrace.doctor.inspect import count_records, inspect
from mnemotrace.doctor.report import Check
from mnemotrace.errors import ConfigurationError
from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import NewVersion, WriteBatch
from mnemotrace.stores.open import open_store
from mnemotrace.stores.outbox import Outbox, PendingSave
from mnemotrace.testing import FakeEmbedder
from tests.stores.loopback import rest_server

SLOW = pytest.mark.slow  # it starts a process


def embedder(seed: int = 0) -> FakeEmbedder:
    return FakeEmbedder(dimension=8, seed=seed)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two records, one private, one waiting for its analysis."""
    folder = tmp_path_factory.mktemp("made") / "store"

    def broken(prompt: str) -> str:
        raise RuntimeError("quota exceeded")

    with Memory(llm=broken, storage=folder, embedder=embedder()) as memory:
        memory.remember("A public text.")
        memory.remember(
            "A private text.", scope="/a", categories=[], importance=0.5, source="x", private=True
        )
    return folder


@pytest.fixture
def store(_made: Path, tmp_path: Path) -> Path:
    """A copy of that store, of this test's own."""
    folder = tmp_path / "store"
    shutil.copytree(_made, folder)
    return folder


def state(folder: Path) -> dict[str, str]:
    """The content and the time of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = f"{digest} {path.stat().st_mtime_ns}"
        else:
            found[str(path.relative_to(folder))] = ""
    return found


def found(report: Report, name: str) -> Check:
    check = report.find(name)
    assert check is not None, [c.name for c in report.checks]
    return check


@SLOW
def test_a_healthy_store_is_counted_and_left_as_it_was(store: Path) -> None:
    before = state(store)
    report = examine(store, embedder=embedder())
    assert (report.status, report.exit_code, report.problems) == ("healthy", 0, [])
    records = found(report, "records")
    assert records.facts["records"] == records.facts["versions"] == 2
    assert (records.facts["private"], records.facts["unreadable"]) == (1, 0)
    assert found(report, "analysis").facts == {"awaiting": 1}
    assert found(report, "embedder").status == "ok"
    assert found(report, "lock").status == "ok"
    assert found(report, "manifest").facts["dimension"] == 8
    assert state(store) == before


@SLOW
def test_engine_files_that_are_damaged_are_a_problem_and_no_crash(store: Path) -> None:
    [generation] = (store / "generations").iterdir()
    for path in generation.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\x00\xffgarbage")
    report = examine(store, embedder=embedder())
    assert found(report, "records").status == "problem"
    assert report.exit_code == 1


@SLOW
def test_saves_that_wait_and_saves_that_were_given_up_are_told(store: Path) -> None:
    with Outbox(store / "outbox") as outbox:
        outbox.accept([PendingSave("w1", "Waiting."), PendingSave("w2", "Waiting, too.")])
        outbox.bury(outbox.accept([PendingSave("d", "Given up.")]), "EmbedderError: secret text")
    before = state(store)
    report = examine(store, embedder=embedder())
    assert (found(report, "pending").status, found(report, "pending").facts["waiting"]) == (
        "note",
        2,
    )
    dead = found(report, "dead_letters")
    assert (dead.status, dead.facts) == ("problem", {"dead": 1, "errors": ["EmbedderError"]})
    assert "secret" not in json.dumps(report.to_json())
    assert state(store) == before


def test_a_store_in_use_is_named_and_what_cannot_be_checked_is_unknown(store: Path) -> None:
    with Memory(llm=None, storage=store, embedder=embedder()) as memory:
        report = examine(store, embedder=embedder())
        assert memory.list_records()  # it goes on undisturbed
    lock = found(report, "lock")
    assert (lock.status, lock.facts["owner"]) == ("note", os.getpid())
    assert found(report, "records").status == "unknown"
    assert found(report, "embedder").status == "ok"
    assert (report.status, report.exit_code) == ("incomplete", 3)


def test_a_place_without_a_memory_is_no_problem_and_stays_so(tmp_path: Path) -> None:
    report = examine(tmp_path / "deep" / "new")
    assert (report.exit_code, found(report, "folder").status) == (0, "note")
    assert list(tmp_path.iterdir()) == []


def write(name: str, text: str) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        (folder / name).write_text(text, "utf-8")

    return put


def change(**fields: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")

    return edit


def lose(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (write("manifest.json", "{"), "manifest", "cannot be read"),
        (write("manifest.json", "[]"), "manifest", "not a JSON object"),
        (change(generation="one"), "manifest", "lacks fields"),
        (change(embedder={}), "manifest", "lacks fields"),
        (change(schema_version=99), "manifest", "schema 99"),
        (change(lexical="other-1"), "manifest", "'other-1'"),
        (lose("manifest.json"), "folder", "has lost its manifest.json"),
        (lose("generations/1"), "files", "is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_named_and_left_alone(
    store: Path, damage: Callable[[Path], None], name: str, message: str
) -> None:
    damage(store)
    before = state(store)
    report = examine(store, embedder=embedder())
    assert message in found(report, name).message
    assert found(report, name).status == "problem"
    assert report.exit_code == 1
    assert state(store) == before


@pytest.mark.parametrize("reason", ["foreign", "file"])
def test_what_is_no_memory_is_told(tmp_path: Path, reason: str) -> None:
    place = tmp_path / "place"
    if reason == "file":
        place.write_text("text", "utf-8")
    else:
        place.mkdir()
        (place / "diary.txt").write_text("Dear diary", "utf-8")
    assert examine(place).problems[0].name == "folder"


def test_leftovers_and_unfinished_work_are_notes(store: Path) -> None:
    (store / "generations" / "7").mkdir()
    report = Report("x")
    from mnemotrace.doctor.place import check_folder

    check_folder(report, store)
    assert "7 are left over" in found(report, "files").message
    change(reindex={"generation": 7, "embedder": {}})(store)
    report = Report("x")
    check_folder(report, store)
    assert "reindex was begun" in found(report, "manifest").message
    write("manifest.json", '{"state": "being made"}')(store)
    report = Report("x")
    check_folder(report, store)
    assert "being made" in found(report, "manifest").message
    assert report.problems == []


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="root may read and write anything"
)
def test_a_file_that_cannot_be_written_is_a_problem(store: Path) -> None:
    (store / "manifest.json").chmod(0o400)
    assert "manifest.json" in found(examine(store), "permissions").message


def test_a_disk_that_is_nearly_full_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 10 * 2**20))
    disk = found(examine(tmp_path / "new"), "disk")
    assert (disk.status, disk.facts["free_bytes"]) == ("problem", 10 * 2**20)


def test_another_embedder_and_one_that_is_down_are_problems(store: Path) -> None:
    with Memory(llm=None, storage=store, embedder=embedder()):  # in use: nothing is counted
        other = found(examine(store, embedder=embedder(seed=1)), "embedder")
        down = found(examine(store, embedder=FakeEmbedder(dimension=8, fail=True)), "embedder")
        unnamed = found(examine(store), "embedder")
    assert other.status == "problem" and "different vectors" in other.message
    assert down.status == "problem" and "embedder down" in down.message
    assert unnamed.status == "unknown" and "examine(storage, embedder=" in unnamed.remedy


def test_a_hosted_embedder_is_only_asked_with_leave(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    config = {"model_name": "text-embedding-3-small"}
    change(
        embedder={
            "provider": "openai",
            "model": "text-embedding-3-small",
            "dimension": 8,
            "config": config,
        }
    )(store)
    with _held(store):
        report = examine(store, network=False)
    assert found(report, "embedder").status == "unknown"
    assert "OPENAI_API_KEY" in found(report, "keys").message
    assert "sk-very-secret" not in json.dumps(report.to_json())


class _held:
    """The folder's lock, as another process would hold it."""

    def __init__(self, folder: Path) -> None:
        from mnemotrace.stores.folder import FolderLock

        self.lock = FolderLock(folder)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_keys_are_named_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "new"
    assert found(examine(place), "keys").status == "note"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("COHERE_API_KEY", "co-very-secret")
    report = examine(place)
    assert found(report, "keys").facts["set"] == ["COHERE_API_KEY", "OPENAI_API_KEY"]
    assert "very-secret" not in json.dumps(report.to_json())


def test_a_tokenizer_without_its_table_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(examine(tmp_path / "new"), "tokenizer").status == "ok"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert found(examine(tmp_path / "new"), "tokenizer").status == "note"


def test_a_library_of_another_version_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    real = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.1" if name == "qdrant-edge-py" else real(name)
    )
    libraries = found(examine(tmp_path / "new"), "libraries")
    assert libraries.status == "problem"
    assert "qdrant-edge-py is 0.1, and qdrant-edge-py==0.9.* is needed" in libraries.message


@pytest.mark.parametrize("storage", ["", ":memory:", "redis://x"])
def test_what_is_no_place_is_refused(storage: str) -> None:
    with pytest.raises(ConfigurationError):
        examine(storage)


def test_rows_that_no_record_can_have_are_counted(store: Path) -> None:
    opened: Any = open_store(store)
    try:
        record = MemoryRecord(id="x", content="One")
        for version in (1, 2):
            twice = record.model_copy(update={"version": version})
            opened.commit(WriteBatch([NewVersion(twice, "h", np.ones(8, np.float32))]))
        collection = opened._generation().collection
        [row] = [r for r in collection.scroll(100)[0] if r.payload["record_id"] == "x"][:1]
        assert count_records(opened)["doubled"] == ["x"]
        collection.set_payload([row.id], {"importance": "high"})
        counts = count_records(opened)
        assert (counts["unreadable"], counts["doubled"]) == (1, [])
    finally:
        opened.close()


def test_a_queue_that_cannot_be_read_is_told_and_the_records_all_the_same(store: Path) -> None:
    (store / "outbox").mkdir(exist_ok=True)
    (store / "outbox" / "outbox.sqlite3").write_bytes(b"no database at all")
    counted = inspect(store)
    assert "is damaged" in counted["outbox_error"]
    assert counted["records"]["records"] == 2


def test_a_server_that_is_down_is_a_problem() -> None:
    report = examine("http://127.0.0.1:9")
    assert found(report, "server").status == "problem"
    assert report.exit_code == 1


@SLOW
def test_a_memory_on_a_server_is_counted() -> None:
    with rest_server() as (url, _):
        assert "Nothing was stored" in found(examine(url), "manifest").message
        with Memory(llm=None, storage=url, embedder=embedder()) as memory:
            memory.remember("On a server.", scope="/a", categories=[], importance=0.5)
            # Others may use a server meanwhile.
            report = examine(url, embedder=embedder())
    assert report.status == "healthy"
    assert found(report, "records").facts["records"] == 1
    assert found(report, "embedder").status == "ok"
