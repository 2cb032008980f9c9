"""What is exported and imported is the same memory: lists, history, recall, privacy."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mnemotrace import Memory
from mnemotrace.errors import (
    InvalidInputError,
    ScopePermissionError,
    StoreNotWritableError,
)
from mnemotrace.records import MemoryRecord
from mnemotrace.testing import FakeEmbedder

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SEOUL = datetime(2026, 1, 2, 0, 30, tzinfo=ZoneInfo("Asia/Seoul"))


def plain(record: MemoryRecord) -> dict[str, Any]:
    """A record without what a read may change."""
    return record.model_dump(exclude={"access_count", "last_accessed"})


def listed(memory: Any) -> list[dict[str, Any]]:
    return [plain(record) for record in memory.list_records(include_private=True)]


def fill(memory: Memory) -> dict[str, str]:
    """Remember one of everything; returns ids by what they stand for."""
    kept = memory.remember(
        "The harbour closes at nine. \x1b[31m 등대 灯台 🌊",
        scope="/port",
        categories=["hours", "sea"],
        metadata={
            "pier": 7,
            "open": False,
            "share": 0.1 + 0.2,
            "said": SEOUL,
            "day": date(2026, 1, 2),
            "text": "2026-01-02",
            "deep": {"$datetime": [1, "x", None]},
        },
        importance=0.9,
        source="ada",
        created_at="2025-09-30T09:00:00.123456+09:00",
        expires_at="2030-01-01",
        pinned=True,
        record_id="pier 7",
    )
    memory.update(kept.id, content="The harbour closes at ten.")
    memory.update(kept.id, importance=0.7)
    secret = memory.remember(
        "Bob looks for another job.", scope="/people", source="bob", private=True
    )
    gone = memory.remember("The ferry is red.", scope="/port/ferry")
    memory.forget(record_ids=[gone.id], erase=False)
    turns = ["Ana: Where did you grow up?", "Ben: In Oslo.", "Ana: And then?"]
    memory.remember_many(turns, scope="/talk", session="monday").wait()
    return {"kept": kept.id, "secret": secret.id, "gone": gone.id}


def test_everything_comes_back_as_it_was(here: Memory, there: Memory, file: Path) -> None:
    ids = fill(here)
    done = here.export_records(file, include_private=True, history=True)
    assert (done, done.versions) == (6, 8)
    result = there.import_records(file)
    assert (result.added, result.versions, result.conflicts) == (6, 8, [])
    assert listed(there) == listed(here)
    for record_id in ids.values():
        versions = [plain(r) for r in here.history(record_id, include_private=True)]
        assert [plain(r) for r in there.history(record_id, include_private=True)] == versions
    kept = there.get(ids["kept"])
    assert kept is not None
    assert kept.metadata["said"].tzinfo == ZoneInfo("Asia/Seoul")
    assert type(kept.metadata["day"]) is date
    assert kept.metadata["share"] == 0.1 + 0.2
    assert there.tree(include_private=True) == here.tree(include_private=True)


def test_recall_is_the_same_with_the_words_of_neighbours(
    here: Memory, there: Memory, file: Path
) -> None:
    fill(here)
    here.export_records(file, include_private=True, history=True)
    there.import_records(file)

    def scores(memory: Memory, query: str) -> dict[str, float]:
        found = memory.recall(query, now=NOW, include_private=True)
        return {match.record.content: match.score for match in found}

    for query in ("grow up", "harbour", "등대", "another job"):
        here_first = scores(here, query)
        assert list(scores(there, query)) == list(here_first)
        # float32 sums, in another order
        assert scores(there, query) == pytest.approx(here_first, abs=1e-6)
    # "Oslo" is said in an answer that does not have the question's words.
    assert there.recall("grow up", scope="/talk", limit=2, now=NOW)[1].components.lexical > 0
    past = there.recall("harbour", as_of=datetime.now(UTC), limit=1)
    assert past[0].record.content == "The harbour closes at ten."


def test_importing_again_changes_nothing_and_embeds_nothing(
    here: Memory, there: Memory, file: Path, embedded: Callable[[Memory], list[str]]
) -> None:
    fill(here)
    here.export_records(file, include_private=True, history=True)
    there.import_records(file)
    before, sequence = len(embedded(there)), there.store.sequence()
    again = there.import_records(file)
    assert (again.unchanged, again.records, again.versions, again.embedded) == (6, 6, 0, 0)
    assert (len(embedded(there)), there.store.sequence()) == (before, sequence)
    second = file.with_name("second.jsonl")
    there.export_records(second, include_private=True, history=True)
    assert second.read_text("utf-8").splitlines()[1:] == file.read_text("utf-8").splitlines()[1:]


def test_an_import_that_was_stopped_is_finished_by_another_one(
    here: Memory, there: Memory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mnemotrace.transfer.importing.PAGE", 2)
    fill(here)
    here.export_records(file, include_private=True, history=True)

    def stop(done: int, total: int) -> None:
        assert (done, total) == (2, 6)
        raise KeyError("stopped")

    with pytest.raises(KeyError):
        there.import_records(file, progress=stop)
    rest = there.import_records(file)
    assert (rest.unchanged, rest.added) == (2, 4)
    assert listed(there) == listed(here)


def test_without_history_the_current_versions_come_and_history_completes_them(
    here: Memory, there: Memory, file: Path
) -> None:
    ids = fill(here)
    here.export_records(file)
    first = there.import_records(file)
    assert first.added == 4
    assert [r.version for r in there.history(ids["kept"])] == [3]
    assert there.get(ids["secret"], include_private=True) is None
    here.export_records(file, history=True)
    second = there.import_records(file)
    assert (second.added, second.completed, second.unchanged) == (1, 1, 3)
    assert [r.version for r in there.history(ids["kept"])] == [1, 2, 3]


def test_conditions_choose_records_and_their_history_comes_along(
    here: Memory, there: Memory, file: Path
) -> None:
    here.remember("One, old.", scope="/a", categories=["x"], record_id="1", importance=0.5)
    here.update("1", content="One, new.", categories=["y"])
    here.remember("Two, old.", scope="/a", categories=["y"], record_id="2", importance=0.5)
    here.update("2", content="Two, new.", categories=["x"])
    here.remember("Three.", scope="/a", categories=["x"], record_id="3", importance=0.5)
    here.forget(record_ids=["3"], erase=False)
    here.update("1", scope="/b")

    def exported(**options: Any) -> set[tuple[str, int]]:
        here.export_records(file, history=True, **options)
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()[1:-1]]
        return {(line["id"], line["version"]) for line in lines}

    assert exported(categories=["x"]) == {("2", 1), ("2", 2), ("3", 1)}
    # Of a record that moved elsewhere there is what it was here; the rest completes it later.
    assert exported(scope="/a") == {("1", 1), ("1", 2), ("2", 1), ("2", 2), ("3", 1)}
    there.import_records(file)
    assert there.get("1") is None
    here.export_records(file, history=True)
    assert (there.import_records(file).completed, there.import_records(file).unchanged) == (1, 3)
    assert listed(there) == listed(here)


def test_an_export_holds_what_its_maker_may_see_and_no_more(here: Memory, file: Path) -> None:
    fill(here)

    def texts(memory: Any, **options: Any) -> set[str]:
        memory.export_records(file, **options)
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()[1:-1]]
        return {line["content"] for line in lines}

    assert "Bob looks for another job." not in texts(here)
    assert "Bob looks for another job." not in texts(here, source="ada", history=True)
    assert "Bob looks for another job." in texts(here, source="bob")
    assert texts(here.scope("/people"), include_private=True) == {"Bob looks for another job."}
    assert texts(here.slice(["/port/ferry", "/people"])) == set()
    assert texts(here, scope="/port") == {"The harbour closes at ten."}
    assert texts(here, categories=["sea"], metadata_filter={"pier": 7}) == {
        "The harbour closes at ten."
    }
    assert texts(here, until="2026-01-01") == {"The harbour closes at ten."}
    with pytest.raises(ScopePermissionError):
        here.slice(["/people"]).export_records(file, scope="/port")


def test_a_view_imports_into_what_it_may_write_only(
    here: Memory, there: Memory, file: Path
) -> None:
    fill(here)
    here.export_records(file)
    with pytest.raises(ScopePermissionError, match=r"Line \d+ cannot be imported: its scope"):
        there.scope("/talk").import_records(file)
    with pytest.raises(ScopePermissionError, match="read-only"):
        there.slice(["/talk", "/port"]).import_records(file)
    assert listed(there) == []
    here.scope("/talk").export_records(file)
    assert there.scope("/talk").import_records(file).added == 3
    assert len(there.list_records()) == 3


def test_vectors_of_the_same_embedder_are_taken_and_others_made_anew(
    here: Memory, there: Memory, file: Path, embedded: Callable[[Memory], list[str]], tmp_path: Path
) -> None:
    fill(here)
    here.export_records(file, embeddings=True)
    before = len(embedded(there))
    assert there.import_records(file).embedded == 0
    assert len(embedded(there)) == before
    assert there.recall("harbour", now=NOW)[0].score == here.recall("harbour", now=NOW)[0].score
    other = FakeEmbedder(dimension=8, seed=5)
    with Memory(llm=None, storage=tmp_path / "other", embedder=other) as elsewhere:
        result = elsewhere.import_records(file)
        assert (result.added, result.embedded) == (4, 4)
        public = [plain(record) for record in here.list_records()]
        assert [plain(record) for record in elsewhere.list_records()] == public


@pytest.mark.parametrize("binary", [True, False])
def test_open_files_and_pipes_are_written_and_read(
    here: Memory, there: Memory, binary: bool
) -> None:
    fill(here)
    out: Any = io.BytesIO() if binary else io.StringIO()
    here.export_records(out)
    text = out.getvalue()

    class Pipe:
        """Can be read once, and not be sought in."""

        def __init__(self) -> None:
            self.rest = text

        def read(self, size: int) -> Any:
            piece, self.rest = self.rest[:size], self.rest[size:]
            return piece

    pipe: Any = Pipe()
    assert there.import_records(pipe).added == 4
    assert json.loads(text.splitlines()[0])["mnemotrace"] == "export"


def test_an_export_that_fails_leaves_the_file_that_was_there(here: Memory, file: Path) -> None:
    fill(here)
    file.write_text("the old one", "utf-8")

    def fail(done: int, total: int) -> None:
        raise KeyError("stopped")

    with pytest.raises(KeyError):
        here.export_records(file, progress=fail)
    assert file.read_text("utf-8") == "the old one"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    with pytest.raises(StoreNotWritableError, match=r"is a file\. Name a file in a folder"):
        here.export_records(file / "below")


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_an_export_is_readable_by_its_owner_only(here: Memory, file: Path) -> None:
    here.export_records(file)
    assert os.stat(file).st_mode & 0o077 == 0


def test_an_empty_memory_exports_and_imports(here: Memory, there: Memory, file: Path) -> None:
    assert here.export_records(file) == 0
    assert len(file.read_text("utf-8").splitlines()) == 2
    assert there.import_records(file).records == 0


def test_async_twins_leave_the_loop_free(here: Memory, there: Memory, file: Path) -> None:
    fill(here)

    async def run() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        await here.aexport_records(file)
        await there.aimport_records(file)
        ticker.cancel()
        return ticks

    assert asyncio.run(run()) > 0
    assert len(there.list_records()) == 4


def test_a_place_that_can_be_no_file_is_told_before_anything_is_read(
    here: Memory, tmp_path: Path
) -> None:
    fill(here)
    told: list[int] = []
    for place, message in (
        (tmp_path, f"which is a folder. Name a file in it, such as {tmp_path / 'memory.jsonl'}"),
        (tmp_path / "no" / "file", f"there is no folder {tmp_path / 'no'}. Make it first"),
    ):
        with pytest.raises(StoreNotWritableError) as caught:
            here.export_records(place, progress=lambda done, _: told.append(done))
        assert message in str(caught.value)
    assert told == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EACCES, "a folder that you may write to"),
        (errno.EIO, "Name another file"),
    ],
)
def test_what_to_do_about_a_file_that_cannot_be_written_fits_the_cause(
    here: Memory, file: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreNotWritableError, match=remedy) as told:
        here.export_records(file)
    assert os.strerror(number) in str(told.value)
    assert ("space" in str(told.value).lower()) == (number == errno.ENOSPC)
    assert not file.exists()


def test_what_is_no_file_is_refused(here: Memory) -> None:
    target: Any = 7
    with pytest.raises(
        InvalidInputError, match="target of an export must be a path or an open file, not 7"
    ):
        here.export_records(target)
    with pytest.raises(
        InvalidInputError, match="file to import must be a path or an open file, not 7"
    ):
        here.import_records(target)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        here.import_records("nowhere.jsonl")
    options: Any = {"on_conflict": "merge"}
    with pytest.raises(InvalidInputError, match="'error', 'skip' or 'replace'"):
        here.import_records("nowhere.jsonl", **options)


def test_progress_counts_up_to_the_whole(here: Memory, there: Memory, file: Path) -> None:
    fill(here)
    told: list[tuple[int, int]] = []
    here.export_records(file, progress=lambda done, total: told.append((done, total)))
    there.import_records(file, progress=lambda done, total: told.append((done, total)))
    assert told == [(4, 4), (4, 4)]
