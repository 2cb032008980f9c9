"""The outbox: accepted means on disk, once; forgotten means gone to the last byte."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mnemotrace.errors import (
    InvalidInputError,
    MemoryClosedError,
    RecordError,
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreNotWritableError,
)
from mnemotrace.stores.outbox import DeadLetter, Outbox, PendingSave
from mnemotrace.stores.outbox_file import QueueFile, store_errors

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def save(record_id: str, content: str | None = None, **options: Any) -> PendingSave:
    return PendingSave(record_id, content or f"text of {record_id}", None, options)


def batch(prefix: str, size: int) -> list[PendingSave]:
    return [PendingSave(f"{prefix}-{n}", f"text {prefix} {n}", n) for n in range(size)]


def ids(items: list[PendingSave]) -> list[str]:
    return [item.record_id for item in items]


def bytes_on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Run Python scripts in processes of their own; none outlives the test."""
    running = []

    def begin(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for a script to end well and return what it printed."""
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return printed


# -- accepting ----------------------------------------------------------------------------------


def test_opening_and_reading_write_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with Outbox(folder) as outbox:
        assert outbox.count() == 0
        assert outbox.pending() == outbox.load("none") == []
        assert outbox.batches() == []
        assert outbox.dead_letters() == []
        assert outbox.retry_dead() == outbox.discard_dead(["none"]) == []
        assert outbox.waiting(["none"]) == set()
        assert outbox.failed("none", "error", None) == 0
        assert outbox.purge(everything=True) == 0
        outbox.done("none")
        outbox.bury("none", "error")
    assert not folder.exists()


def test_an_accepted_batch_is_there_after_reopening_in_order(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        first = outbox.accept(batch("a", 3))
        second = outbox.accept(batch("b", 2))
    with Outbox(tmp_path) as outbox:
        assert outbox.count() == 5
        assert [(found.id, found.size) for found in outbox.batches()] == [(first, 3), (second, 2)]
        assert outbox.load(first) == batch("a", 3)
        assert outbox.pending() == batch("a", 3) + batch("b", 2)
        assert ids(outbox.pending(limit=4)) == ["a-0", "a-1", "a-2", "b-0"]
        assert outbox.pending(limit=0) == []


OPTIONS = {
    "scope": "/팀/α",
    "reach": ("/팀", "/b"),
    "categories": ("x",),
    "importance": None,
    "private": False,
    "created_at": NOON,
    "metadata": {
        "naive": datetime(2026, 1, 2, 3, 4, 5, 678901),
        "aware": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=9))),
        "day": date(2026, 1, 2),
        "zero": 0,
        "false": False,
        "empty": "",
        "none": None,
        "float": 0.1,
        "nested": [{"when": NOON}, [1, [2]], {}],
        "$datetime": "not a time",
        "looks": {"$datetime": "not a time"},
        "tuple": {"$tuple": [1]},
        "mapping": {"$mapping": [[1, 2]]},
        "numbered": {1: "one", None: "none"},
        "long": 2**80,
    },
}


def test_options_come_back_as_they_were(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([PendingSave("a", "text", 0, OPTIONS)])
    with Outbox(tmp_path) as outbox:
        (found,) = outbox.pending()
    assert found.options == OPTIONS
    metadata = found.options["metadata"]
    assert metadata["naive"].tzinfo is None
    assert metadata["aware"].utcoffset() == timedelta(hours=9)
    assert type(metadata["day"]) is date
    assert type(metadata["false"]) is bool
    assert type(found.options["reach"]) is tuple


@pytest.mark.parametrize(
    "text",
    [
        "김 연구원은 월요일에 출근한다",
        "研究员在北京 🏯👩‍👩‍👧",
        "é is not é",
        "null \x00 inside",
        "line\r\nline\u2028'; DROP TABLE items; --",
        "ﬁnal " * 50_000,
    ],
    ids=["korean", "chinese-emoji", "nfc-nfd", "nul", "newlines-sql", "long"],
)
def test_any_unicode_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([PendingSave(text[:40], text, 0, {text[:40]: text})])
    with Outbox(tmp_path) as outbox:
        assert outbox.pending() == [PendingSave(text[:40], text, 0, {text[:40]: text})]


BROKEN = "half \ud83d pair"


@pytest.mark.parametrize(
    "item",
    [
        PendingSave("b", BROKEN),
        PendingSave(BROKEN, "text"),
        PendingSave("b", "text", 1, {"source": BROKEN}),
        PendingSave("b", "text", 1, {"metadata": {"deep": [{BROKEN: 1}]}}),
    ],
    ids=["text", "record id", "option", "metadata key"],
)
def test_a_lone_surrogate_is_refused_and_nothing_is_accepted(
    tmp_path: Path, item: PendingSave
) -> None:
    with Outbox(tmp_path) as outbox:
        with pytest.raises(RecordError, match=r"[Tt]ext 2.*U\+D83D") as caught:
            outbox.accept([save("a"), item])
        assert "Nothing was accepted" in str(caught.value)
        assert outbox.count() == 0
    assert list(tmp_path.iterdir()) == []


def _endless() -> dict[str, Any]:
    options: dict[str, Any] = {}
    options["metadata"] = options
    return options


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([], InvalidInputError, "no texts"),
        ([save("a"), save("a", "other")], RecordError, "'a' is in the batch twice"),
        ([save("a"), save("b", metadata={"tags": {1, 2}})], RecordError, "set"),
        ([save("a"), save("b", metadata={"raw": b"bytes"})], RecordError, "bytes"),
        ([save("a"), PendingSave("b", "text", 1, _endless())], RecordError, "nested too deeply"),
    ],
    ids=["empty", "twice", "set", "bytes", "endless"],
)
def test_a_batch_that_cannot_be_stored_is_refused_whole(
    tmp_path: Path, items: list[PendingSave], error: type[Exception], message: str
) -> None:
    with Outbox(tmp_path) as outbox:
        kept = outbox.accept([save("kept")])
        with pytest.raises(error, match=message):
            outbox.accept(items)
        assert ids(outbox.pending()) == ["kept"]
        assert [found.id for found in outbox.batches()] == [kept]


def test_a_hundred_threads_accept_at_once_and_nothing_is_lost_or_doubled(
    tmp_path: Path, start: Start
) -> None:
    barrier = threading.Barrier(100)
    accepted: dict[str, list[PendingSave]] = {}

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(3):
            items = batch(f"{number}-{turn}", 1 + number % 4)
            accepted[outbox.accept(items)] = items

    with Outbox(tmp_path) as outbox:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) == 300
    with Outbox(tmp_path) as outbox:
        assert {found.id for found in outbox.batches()} == set(accepted)
        assert all(outbox.load(batch_id) == items for batch_id, items in accepted.items())
        assert outbox.count() == sum(len(items) for items in accepted.values())


def test_threads_that_accept_and_finish_at_once_leave_what_is_not_done(
    tmp_path: Path, start: Start
) -> None:
    with Outbox(tmp_path) as outbox:

        def work(number: int) -> None:
            for turn in range(10):
                batch_id = outbox.accept(batch(f"{number}-{turn}", 2))
                outbox.count()
                outbox.done(batch_id, [f"{number}-{turn}-0"])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = {f"{number}-{turn}-1" for number in range(8) for turn in range(10)}
        assert Counter(ids(outbox.pending())) == Counter(expected)


def test_accepting_many_texts_takes_time_in_proportion(tmp_path: Path) -> None:
    def cost(size: int) -> float:
        spent = []
        for turn in range(3):
            items = [save(f"{size}-{turn}-{n}", scope="/a", metadata={"n": n}) for n in range(size)]
            began = time.process_time()
            outbox.accept(items)
            spent.append(time.process_time() - began)
        return min(spent)

    with Outbox(tmp_path) as outbox:
        outbox.accept([save("first")])
        small, large = cost(500), cost(8_000)
    assert large < 64 * small  # 16 is proportional, 256 is quadratic
    assert large < 2.0


def test_a_commit_is_synced_and_removed_text_is_overwritten(tmp_path: Path) -> None:
    """No test can cut the power; these settings are what makes SQLite survive it."""
    file = QueueFile.claim(tmp_path / "outbox.sqlite3", create=True)
    assert file is not None
    expected = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "temp_store": 2}
    found = {name: file.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in expected}
    file.close()
    assert found == expected


def test_a_file_deleted_while_open_accepts_nothing_more(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
        for path in tmp_path.iterdir():
            path.unlink()
        with pytest.raises(StoreError, match="deleted or replaced while in use"):
            outbox.accept([save("b")])


# -- what becomes of a batch --------------------------------------------------------------------


def test_done_removes_what_is_finished_and_only_that(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        first, second = outbox.accept(batch("a", 3)), outbox.accept(batch("b", 2))
        outbox.done(first, ["a-1", "b-0", "unknown"])
        assert ids(outbox.load(first)) == ["a-0", "a-2"]
        assert ids(outbox.load(second)) == ["b-0", "b-1"]
        outbox.done(first, [])
        assert outbox.count() == 4
        outbox.done(first, ["a-0", "a-2"])
        assert [found.id for found in outbox.batches()] == [second]
        outbox.done("unknown")
        outbox.done(second)
        outbox.done(second)
        assert outbox.count() == 0
        assert outbox.batches() == []


def test_ids_that_cannot_be_read_to_the_end_change_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "a-0"
        raise RuntimeError("the caller's own error")

    with Outbox(tmp_path) as outbox:
        batch_id = outbox.accept(batch("a", 2))
        with pytest.raises(RuntimeError, match="the caller's own error"):
            outbox.done(batch_id, broken())
        assert outbox.load(batch_id) == batch("a", 2)
        outbox.done(batch_id)
        assert outbox.count() == 0


def test_waiting_tells_what_was_forgotten_since_it_was_loaded(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept(batch("a", 3))
        dead = outbox.accept(batch("dead", 1))
        outbox.bury(dead, "gone")
        outbox.purge(record_ids=["a-1"])
        assert outbox.waiting(["a-0", "a-1", "a-2", "dead-0", "other"]) == {"a-0", "a-2"}


def test_a_failed_attempt_is_counted_and_the_batch_stays(tmp_path: Path) -> None:
    retry_at = NOON + timedelta(microseconds=123457)
    before = datetime.now(UTC)
    with Outbox(tmp_path) as outbox:
        first, second = outbox.accept(batch("a", 2)), outbox.accept(batch("b", 1))
        assert outbox.failed(first, "embedder down", retry_at) == 1
        assert outbox.failed(first, "still down \ud800", retry_at.replace(tzinfo=None)) == 2
        assert outbox.failed("unknown", "x", None) == 0
    with Outbox(tmp_path) as outbox:
        found, other = outbox.batches()
        assert (found.id, found.size, found.attempts) == (first, 2, 2)
        assert (found.error, found.next_attempt_at) == ("still down \\ud800", retry_at)
        assert before <= found.accepted_at <= other.accepted_at <= datetime.now(UTC)
        assert (other.id, other.attempts, other.error) == (second, 0, None)
        assert other.next_attempt_at is None
        assert outbox.failed(first, "again", None) == 3
        assert outbox.batches()[0].next_attempt_at is None


def test_a_buried_batch_is_a_dead_letter_until_it_is_retried(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        first, second = outbox.accept(batch("a", 2)), outbox.accept(batch("b", 1))
        outbox.failed(first, "down", NOON)
        outbox.bury(first, "down for good")
        outbox.bury("unknown", "x")
        assert outbox.count() == 1
        assert ids(outbox.pending()) == ["b-0"]
        assert outbox.failed(first, "no longer counted", None) == 0
    with Outbox(tmp_path) as outbox:
        (letter,) = outbox.dead_letters()
        assert isinstance(letter, DeadLetter)
        assert (letter.batch_id, letter.attempts, letter.error) == (first, 2, "down for good")
        assert letter.record_ids == ("a-0", "a-1")
        assert letter.texts == ("text a 0", "text a 1")
        assert letter.items == tuple(batch("a", 2))
        assert letter.accepted_at <= letter.failed_at <= datetime.now(UTC)

        assert outbox.retry_dead([]) == outbox.retry_dead(["unknown", second]) == []
        assert outbox.retry_dead() == [first]
        assert outbox.dead_letters() == []
        found = outbox.batches()
        assert [(one.id, one.attempts, one.next_attempt_at) for one in found] == [
            (first, 0, None),
            (second, 0, None),
        ]
        assert outbox.count() == 3


def test_chosen_dead_letters_are_retried_or_discarded(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        batches = [outbox.accept(batch(name, 1)) for name in "abcd"]
        for batch_id in batches[:3]:
            outbox.bury(batch_id, "x")
        assert outbox.retry_dead([batches[1]]) == [batches[1]]
        assert outbox.discard_dead([batches[3], batches[2], "unknown"]) == [batches[2]]
        assert [letter.batch_id for letter in outbox.dead_letters()] == [batches[0]]
        assert ids(outbox.pending()) == ["b-0", "d-0"]
        assert outbox.load(batches[2]) == []


# -- forgetting ---------------------------------------------------------------------------------


def private(item: PendingSave) -> bool:
    return bool(item.options.get("private"))


@pytest.mark.parametrize(
    ("condition", "gone"),
    [
        ({"record_ids": ["app", "dead", "unknown"]}, {"app", "dead"}),
        ({"record_ids": []}, set()),
        ({"roots": ["/app"]}, {"app", "deep", "inferred"}),
        ({"roots": ["app/"]}, {"app", "deep", "inferred"}),
        ({"roots": []}, set()),
        (
            {"roots": ["/"]},
            {"app", "deep", "apple", "app_1", "app%", "inferred", "root", "dead"},
        ),
        ({"where": private}, {"apple", "deep"}),
        ({"roots": ["/app"], "where": private}, {"deep"}),
        ({"roots": ["/app"], "record_ids": ["apple", "app"]}, {"app"}),
        ({"everything": True, "record_ids": []}, set()),
        (
            {"everything": True},
            {"app", "deep", "apple", "app_1", "app%", "inferred", "root", "dead"},
        ),
    ],
)
def test_purge_removes_exactly_what_all_conditions_select(
    tmp_path: Path, condition: dict[str, Any], gone: set[str]
) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("app", scope="/app"), save("deep", scope="/app/x", private=True)])
        outbox.accept([save("apple", scope="/apple", private=True), save("app_1", scope="/app_1")])
        outbox.accept([save("app%", scope="/app%")])
        outbox.accept([save("inferred", scope=None, reach=("/app/mine",)), save("root")])
        outbox.bury(outbox.accept([save("dead", scope="/other")]), "x")
        forgotten = outbox.purge(**condition)
        assert set(forgotten.record_ids) == gone
        assert forgotten == len(gone)
        left = ids(outbox.pending()) + [r for one in outbox.dead_letters() for r in one.record_ids]
        assert Counter(left) == Counter(
            {"app", "deep", "apple", "app_1", "app%", "inferred", "root", "dead"} - gone
        )
        assert all(found.size for found in outbox.batches())


def test_purge_without_a_condition_is_refused(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
        with pytest.raises(InvalidInputError, match="everything=True"):
            outbox.purge()
        assert outbox.count() == 1


def test_an_error_message_that_may_quote_a_forgotten_text_goes_with_it(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        batch_id = outbox.accept([save("a", "the secret word"), save("b", "harmless")])
        outbox.failed(batch_id, "cannot embed 'the secret word'", None)
        assert outbox.purge(record_ids=["a"]) == 1
        assert "secret" not in (outbox.batches()[0].error or "")
        assert b"secret" not in bytes_on_disk(tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_no_byte_of_a_removed_text_stays_in_the_files(tmp_path: Path, seed: int) -> None:
    """Deleting alone leaves copies behind in some of these workloads, so wiping is what is seen."""
    rng = random.Random(seed)
    sizes = [1, 1, 2, 10, 60, 400]
    waiting: dict[str, str] = {}
    gone: list[str] = []

    def secret(number: int) -> str:
        return f"비밀{number:06d}END"

    with Outbox(tmp_path) as outbox:
        for step in range(rng.randint(3, 15)):
            numbers = range(step * 100, step * 100 + rng.randint(1, 40))
            batch_id = outbox.accept(
                [save(f"r{n}", secret(n) * rng.choice(sizes), note=secret(n)) for n in numbers]
            )
            waiting.update({f"r{n}": batch_id for n in numbers})
            for record_id in rng.sample(sorted(waiting), rng.randint(0, len(waiting))):
                outbox.done(waiting.pop(record_id), [record_id])
                gone.append(record_id)
        keep = outbox.accept([save("kept", "a text that is kept")])
        outbox.failed(keep, "x", None)

        def traces() -> list[str]:
            found = bytes_on_disk(tmp_path)
            return [r for r in gone if secret(int(r[1:])).encode() in found]

        outbox.purge(record_ids=["encoded long ago"])
        assert traces() == []
        assert sorted(ids(outbox.pending())) == sorted([*waiting, "kept"])
        gone += waiting
        outbox.purge(where=lambda item: item.record_id != "kept")
        assert traces() == []
        assert b"a text that is kept" in bytes_on_disk(tmp_path)
        outbox.done(keep)
        assert b"a text that is kept" not in bytes_on_disk(tmp_path)


def test_nothing_of_a_discarded_dead_letter_stays_in_the_files(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        batch_id = outbox.accept([save("a", "a secret")])
        outbox.bury(batch_id, "could not embed: a secret")
        assert b"a secret" in bytes_on_disk(tmp_path)
        outbox.discard_dead([batch_id])
        assert b"a secret" not in bytes_on_disk(tmp_path)


def test_purge_reaches_a_file_that_another_outbox_owns(tmp_path: Path) -> None:
    with Outbox(tmp_path) as mine, Outbox(tmp_path) as other:
        mine.accept([save("a", "secret of mine"), save("keep")])
        theirs = other.accept([save("b", "secret of theirs", scope="/x"), save("c")])
        assert mine.purge(where=lambda item: "secret" in item.content).record_ids == ("a", "b")
        assert ids(other.load(theirs)) == ["c"]
        assert b"secret of" not in bytes_on_disk(tmp_path)
        other.accept([save("d")])
        assert ids(other.pending()) == ["c", "d"]


# -- owners -------------------------------------------------------------------------------------


def test_a_second_outbox_on_a_folder_has_a_queue_of_its_own(tmp_path: Path) -> None:
    with Outbox(tmp_path) as first:
        first.accept([save("a")])
        with Outbox(tmp_path) as second:
            assert second.count() == 0
            second.accept([save("b")])
            assert ids(first.pending()) == ["a"]
            assert ids(second.pending()) == ["b"]
            assert first.adopt() == 0
        assert first.adopt() == 1
        assert ids(first.pending()) == ["a", "b"]
        assert sorted(path.name for path in tmp_path.glob("*.sqlite3")) == ["outbox.sqlite3"]
        assert first.adopt() == 0


def test_files_left_behind_are_merged_with_attempts_and_dead_letters(tmp_path: Path) -> None:
    with Outbox(tmp_path) as first, Outbox(tmp_path) as second, Outbox(tmp_path) as third:
        a, b = first.accept(batch("a", 2)), second.accept(batch("b", 2))
        c, d = third.accept(batch("c", 1)), third.accept(batch("d", 1))
        second.failed(b, "down", NOON)
        third.bury(c, "dead")
    with Outbox(tmp_path) as outbox:
        found = outbox.batches()
        assert [(one.id, one.attempts, one.error) for one in found] == [
            (a, 0, None),
            (b, 1, "down"),
            (d, 0, None),
        ]
        assert found[1].next_attempt_at == NOON
        assert outbox.load(b) == batch("b", 2)
        assert [(one.batch_id, one.texts) for one in outbox.dead_letters()] == [(c, ("text c 0",))]


def test_a_batch_that_two_files_hold_is_there_once(tmp_path: Path) -> None:
    """As a process leaves it that is killed between taking a batch over and deleting its file."""
    with Outbox(tmp_path) as outbox:
        batch_id = outbox.accept(batch("a", 3))
    shutil.copy(tmp_path / "outbox.sqlite3", tmp_path / "outbox-2.sqlite3")
    with Outbox(tmp_path) as outbox:
        assert [one.id for one in outbox.batches()] == [batch_id]
        assert ids(outbox.pending()) == ["a-0", "a-1", "a-2"]
    assert not (tmp_path / "outbox-2.sqlite3").exists()


ACCEPT_AND_STAY = """
    import sys
    from pathlib import Path
    from mnemotrace.stores.outbox import Outbox, PendingSave

    outbox = Outbox(Path(sys.argv[1]))
    items = [PendingSave(f"{sys.argv[2]}-{n}", f"text {sys.argv[2]} {n}", n) for n in range(5)]
    print(outbox.accept(items), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_after_a_kill_every_accepted_text_is_there_once(tmp_path: Path, start: Start) -> None:
    process = start(ACCEPT_AND_STAY, tmp_path, "a")
    assert process.stdout is not None
    batch_id = process.stdout.readline().strip()
    kill(process)
    for _ in range(2):
        with Outbox(tmp_path) as outbox:
            assert outbox.load(batch_id) == batch("a", 5)
            assert outbox.count() == 5
            assert len(outbox.batches()) == 1


ACCEPT_FOR_EVER = """
    import sys
    from itertools import count
    from pathlib import Path
    from mnemotrace.stores.outbox import Outbox, PendingSave

    outbox = Outbox(Path(sys.argv[1]))
    for turn in count():
        items = [PendingSave(f"{turn}-{n}", f"text {turn} {n} " * 20, n) for n in range(7)]
        batch_id = outbox.accept(items)
        print(batch_id, turn, flush=True)
        if turn % 3 == 0:
            outbox.done(batch_id)
            print(batch_id, "done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 40, 301])
def test_after_a_kill_in_a_loop_of_accepts_everything_acknowledged_is_there(
    tmp_path: Path, lines: int, start: Start
) -> None:
    process = start(ACCEPT_FOR_EVER, tmp_path)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(lines)]
    kill(process)
    rest = process.stdout.read()  # communicate() would skip the lines that readline has buffered
    acknowledged: dict[str, str] = {}
    finished_ones = set()
    for line in "".join([*printed, rest]).splitlines():
        batch_id, _, what = line.partition(" ")
        if what == "done":
            finished_ones.add(batch_id)
        elif what:
            acknowledged[batch_id] = what
    with Outbox(tmp_path) as outbox:
        found = {one.id: outbox.load(one.id) for one in outbox.batches()}
        records = ids(outbox.pending())
    assert not finished_ones & set(found)
    for batch_id in set(acknowledged) - finished_ones:
        turn = acknowledged[batch_id]
        # The last one acknowledged may have been finished without having said so.
        if batch_id in found or int(turn) != max(map(int, acknowledged.values())):
            assert found[batch_id] == [
                PendingSave(f"{turn}-{n}", f"text {turn} {n} " * 20, n) for n in range(7)
            ]
    assert len(set(found) - set(acknowledged)) <= 1  # on disk, killed before it could say so
    assert all(len(items) == 7 for items in found.values())
    assert max(Counter(records).values(), default=1) == 1


@pytest.mark.slow
def test_the_saves_of_a_killed_process_are_taken_over_by_a_running_one(
    tmp_path: Path, start: Start
) -> None:
    process = start(ACCEPT_AND_STAY, tmp_path, "a")
    assert process.stdout is not None
    theirs = process.stdout.readline().strip()
    with Outbox(tmp_path) as outbox:
        mine = outbox.accept(batch("b", 1))
        assert [one.id for one in outbox.batches()] == [mine]
        assert outbox.adopt() == 0
        assert outbox.purge(record_ids=["a-1"]) == 1
        kill(process)
        assert outbox.adopt() == 4
        assert {one.id for one in outbox.batches()} == {mine, theirs}
        assert ids(outbox.load(theirs)) == ["a-0", "a-2", "a-3", "a-4"]


@pytest.mark.slow
def test_a_forked_child_leaves_the_queue_of_its_parent_alone(tmp_path: Path, start: Start) -> None:
    script = """
        import os, sys
        from pathlib import Path
        from mnemotrace.stores.outbox import Outbox, PendingSave

        outbox = Outbox(Path(sys.argv[1]))
        outbox.accept([PendingSave("parent", "text")])
        pid = os.fork()
        if pid == 0:
            assert outbox.count() == 0
            outbox.accept([PendingSave("child", "text")])
            outbox.close()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        outbox.accept([PendingSave("parent again", "text")])
        print(*(item.record_id for item in outbox.pending()), sep=",")
        print(outbox.adopt(), *(item.record_id for item in outbox.pending()), sep=",")
        outbox.close()
    """
    printed = finished(start(script, tmp_path))
    assert printed.splitlines() == ["parent,parent again", "1,parent,parent again,child"] or (
        printed.splitlines() == ["parent,parent again", "1,parent,child,parent again"]
    )


# -- closing ------------------------------------------------------------------------------------


def test_a_closed_outbox_refuses_everything_and_closes_twice(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.accept([save("a")])
    outbox.close()
    outbox.close()
    operations: list[Callable[[], object]] = [
        lambda: outbox.accept([save("b")]),
        outbox.count,
        outbox.batches,
        outbox.adopt,
        lambda: outbox.purge(everything=True),
    ]
    for operation in operations:
        with pytest.raises(MemoryClosedError, match="closed"):
            operation()
    assert sorted(path.name for path in tmp_path.glob("*.sqlite3*") if path.suffix != ".lock") == [
        "outbox.sqlite3"
    ]


def test_a_temporary_outbox_is_removed_when_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Outbox(None) as outbox:
        assert list(tmp_path.iterdir()) == []
        outbox.accept(batch("a", 2))
        assert outbox.count() == 2
        assert outbox.purge(record_ids=["a-0"]) == 1
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_outbox_that_was_never_closed_gives_its_file_back(tmp_path: Path) -> None:
    Outbox(tmp_path).accept([save("a")])
    gc.collect()
    with Outbox(tmp_path) as outbox:
        assert ids(outbox.pending()) == ["a"]


# -- damage and refusal -------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database, it is prose" * 300)


def scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 2 : 4096 * 4] = os.urandom(4096 * 2)
    path.write_bytes(bytes(data))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 * 3 + 100])


def foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", [garbage, scribbled, cut_short, foreign])
def test_a_damaged_file_is_named_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "outbox.sqlite3"
    with Outbox(tmp_path) as outbox:
        outbox.accept([save(f"r{n}", f"text {n} " * 100) for n in range(50)])
    damage(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreCorruptError) as caught:
            Outbox(tmp_path)
        assert str(path) in str(caught.value)
        assert "Nothing was deleted" in str(caught.value)
        assert path.read_bytes() == before
    path.rename(tmp_path / "kept-aside")
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
        assert ids(outbox.pending()) == ["a"]


def test_a_damaged_second_file_fails_the_open_and_locks_nothing(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
    garbage(tmp_path / "outbox-2.sqlite3")
    with pytest.raises(StoreCorruptError, match=r"outbox-2\.sqlite3") as caught:
        Outbox(tmp_path)
    (tmp_path / "outbox-2.sqlite3").unlink()
    with Outbox(tmp_path) as outbox:  # while the error, and all that it refers to, is still held
        assert ids(outbox.pending()) == ["a"]
    assert caught.value.__traceback__ is not None


def test_options_that_cannot_be_read_are_an_error_that_names_file_and_record(
    tmp_path: Path,
) -> None:
    path = tmp_path / "outbox.sqlite3"
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE items SET options = '{\"scope\":'")
    connection.commit()
    connection.close()
    with Outbox(tmp_path) as outbox, pytest.raises(StoreCorruptError, match="'a'") as caught:
        outbox.pending()
    assert str(path) in str(caught.value)


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite3"
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="schema version 99"):
        Outbox(tmp_path)
    assert path.read_bytes() == before


def test_an_empty_file_of_a_process_killed_while_making_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "outbox.sqlite3").touch()
    with Outbox(tmp_path) as outbox:
        assert outbox.count() == 0
        outbox.accept([save("a")])
        assert ids(outbox.pending()) == ["a"]


def test_a_file_in_use_by_another_program_is_a_lock_error(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite3"
    with Outbox(tmp_path) as outbox:
        outbox.accept([save("a")])
    holder = sqlite3.connect(path, isolation_level=None)
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLockedError, match="while looking"), store_errors(path, "looking"):
        other.execute("BEGIN IMMEDIATE")
    holder.close()
    other.close()


def test_a_folder_that_is_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.write_text("not a folder")
    with Outbox(folder) as outbox, pytest.raises(StoreNotWritableError) as caught:
        outbox.accept([save("a")])
    assert str(folder) in str(caught.value)
    assert folder.read_text() == "not a folder"


@pytest.mark.slow
def test_a_full_disk_accepts_nothing_of_a_batch_and_keeps_the_earlier_ones(
    tmp_path: Path, start: Start
) -> None:
    script = """
        import resource, signal, sys
        from pathlib import Path
        from mnemotrace.errors import StoreNotWritableError
        from mnemotrace.stores.outbox import Outbox, PendingSave

        outbox = Outbox(Path(sys.argv[1]))
        outbox.accept([PendingSave("first", "text")])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        try:
            outbox.accept([PendingSave(f"big-{n}", "x" * 5_000) for n in range(100)])
        except StoreNotWritableError as error:
            print(error)
        print(*(item.record_id for item in outbox.pending()))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        outbox.accept([PendingSave("later", "text")])
        outbox.close()
    """
    message, kept = finished(start(script, tmp_path)).splitlines()
    assert str(tmp_path / "outbox.sqlite3") in message
    assert "free disk space" in message
    assert kept == "first"
    with Outbox(tmp_path) as outbox:
        assert ids(outbox.pending()) == ["first", "later"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="folder permissions are not enforced there")
def test_a_read_only_folder_can_be_read_but_accepts_nothing(tmp_path: Path, start: Start) -> None:
    script = """
        import logging, os, sys
        from pathlib import Path
        import filelock  # before the rights to the standard library are given up
        from mnemotrace.errors import StoreNotWritableError
        from mnemotrace.stores.outbox import Outbox, PendingSave

        logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
        os.chdir(sys.argv[1])
        if os.geteuid() == 0:
            os.setuid(65534)
        for folder in Path("with"), Path("without"):
            outbox = Outbox(folder)
            print(outbox.count())
            try:
                outbox.accept([PendingSave("b", "text")])
            except StoreNotWritableError as error:
                print("writable" in str(error), f"{folder}" in str(error))
            outbox.close()
    """
    with Outbox(tmp_path / "with") as outbox:
        outbox.accept([save("a")])
    (tmp_path / "without").mkdir()
    for lock in tmp_path.rglob("*.lock"):
        lock.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for folder in ("with", "without"):
        (tmp_path / folder).chmod(0o555)
    tmp_path.chmod(0o755)
    try:
        printed = finished(start(script, tmp_path))
    finally:
        for folder in ("with", "without"):
            (tmp_path / folder).chmod(0o755)
    assert printed.splitlines() == ["WARNING", "0", "True True", "0", "True True"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
