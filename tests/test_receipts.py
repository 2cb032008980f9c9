"""The receipt of a background save, waited for from threads and from event loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mnemotrace.errors import EmbedderError, SaveError
from mnemotrace.receipts import SaveReceipt, SaveStatus
from mnemotrace.records import MemoryRecord

RECORDS = [MemoryRecord(id=f"r{n}", content=f"text {n}") for n in range(3)]
DOWN = EmbedderError("the embedder is down")


def receipt(size: int = 3) -> SaveReceipt:
    return SaveReceipt("batch-1", [f"r{n}" for n in range(size)])


def later(report: Callable[[], None], seconds: float = 0.05) -> threading.Thread:
    """Report from another thread, as the worker does."""

    def work() -> None:
        time.sleep(seconds)
        report()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_new_receipt_says_what_was_accepted() -> None:
    new = receipt()
    assert (new.id, new.accepted, len(new)) == ("batch-1", 3, 3)
    assert new.record_ids == ["r0", "r1", "r2"]
    assert (new.done, new.status) == (False, SaveStatus.PENDING)
    assert (new.records, new.errors) == ([], [])


def test_wait_returns_the_records_once_the_worker_has_resolved_it() -> None:
    new = receipt()
    thread = later(lambda: new.resolve(RECORDS))
    assert new.wait(timeout=5) == RECORDS
    assert new.done
    assert new.records == RECORDS
    assert new.wait(timeout=0) == RECORDS
    thread.join()


def test_a_merged_text_yields_the_record_that_survived() -> None:
    new = receipt(2)
    new.resolve([RECORDS[2], RECORDS[2]])
    assert [record.id for record in new.wait()] == ["r2", "r2"]
    assert new.record_ids == ["r0", "r1"]
    assert repr(new).endswith("done, 1 record>")


def test_records_are_readable_while_the_rest_is_encoded() -> None:
    new = receipt()
    new.progress(RECORDS[:1])
    new.progress(RECORDS[1:2])
    assert new.records == RECORDS[:2]
    assert not new.done
    new.resolve(RECORDS)
    assert new.records == RECORDS


def test_what_it_returns_can_be_changed_without_changing_it() -> None:
    new = receipt()
    new.resolve(RECORDS)
    new.wait().clear()
    new.records.clear()
    new.record_ids.clear()
    new.errors.append(DOWN)
    assert (len(new.records), len(new.record_ids), new.errors) == (3, 3, [])


def test_a_failed_attempt_raises_and_says_that_the_texts_are_kept_and_retried() -> None:
    new = receipt()
    thread = later(lambda: new.fail(DOWN, final=False))
    with pytest.raises(SaveError, match=r"3 texts.*batch-1.*attempt 1.*the embedder is down") as e:
        new.wait(timeout=5)
    thread.join()
    assert e.value.__cause__ is DOWN
    assert "kept on disk and will be tried again" in str(e.value)
    assert (new.done, new.status, new.records) == (False, SaveStatus.RETRYING, [])
    with pytest.raises(SaveError):
        new.wait()


def test_a_failed_receipt_is_done_after_all_when_a_later_attempt_succeeds() -> None:
    new = receipt()
    new.fail(DOWN, final=False)
    new.fail(ValueError("odd"), final=False)
    with pytest.raises(SaveError, match="attempt 2: ValueError: odd"):
        new.wait()
    new.resolve(RECORDS)
    assert new.wait() == RECORDS
    assert new.done
    assert [str(error) for error in new.errors] == ["the embedder is down", "odd"]


def test_a_save_that_was_given_up_names_the_dead_letter() -> None:
    new = receipt()
    new.fail(DOWN, final=False)
    new.fail(DOWN, final=True)
    with pytest.raises(SaveError, match=r"attempt 2.*dead letter.*retry_dead_letters\(\)"):
        new.wait()
    assert new.status is SaveStatus.FAILED
    new.resolve(RECORDS)
    assert new.wait() == RECORDS


def test_waiting_through_retries_raises_only_when_given_up() -> None:
    new = receipt()
    new.fail(DOWN, final=False)
    with pytest.raises(TimeoutError):
        new.wait(timeout=0.02, through_retries=True)
    first = later(lambda: new.fail(DOWN, final=False))
    second = later(lambda: new.resolve(RECORDS), 0.1)
    assert new.wait(timeout=5, through_retries=True) == RECORDS
    first.join()
    second.join()

    lost = receipt()
    lost.fail(DOWN, final=True)
    with pytest.raises(SaveError, match="given up"):
        lost.wait(timeout=5, through_retries=True)


def test_a_failure_reported_after_success_changes_nothing() -> None:
    new = receipt()
    new.resolve(RECORDS)
    new.fail(DOWN, final=True)
    assert new.wait() == RECORDS
    assert new.errors == []


def test_a_timeout_says_that_saving_goes_on() -> None:
    new = receipt()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"Batch batch-1.*0\.05 s.*saving goes on"):
        new.wait(timeout=0.05)
    assert time.monotonic() - began > 0.04
    new.resolve(RECORDS)
    assert new.wait() == RECORDS


async def test_it_can_be_awaited() -> None:
    new = receipt()
    thread = later(lambda: new.resolve(RECORDS))
    assert await new == RECORDS
    assert await new.await_done(timeout=1) == RECORDS
    thread.join()


async def test_awaiting_raises_for_a_failed_attempt() -> None:
    new = receipt()
    thread = later(lambda: new.fail(DOWN, final=False))
    with pytest.raises(SaveError, match="tried again") as caught:
        await new
    thread.join()
    assert caught.value.__cause__ is DOWN


async def test_awaiting_through_retries_waits_for_the_next_attempt() -> None:
    new = receipt()
    new.fail(DOWN, final=False)
    thread = later(lambda: new.resolve(RECORDS))
    assert await new.await_done(through_retries=True) == RECORDS
    thread.join()


async def test_awaiting_times_out_and_can_be_awaited_again() -> None:
    new = receipt()
    with pytest.raises(TimeoutError, match="saving goes on"):
        await new.await_done(timeout=0.02)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(new, 0.02)
    new.resolve(RECORDS)
    assert await new == RECORDS


async def test_awaiting_does_not_block_the_event_loop() -> None:
    new = receipt()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    thread = later(lambda: new.resolve(RECORDS), 0.2)
    await new
    ticker.cancel()
    thread.join()
    assert ticks >= 5


async def test_a_cancelled_task_leaves_the_receipt_to_the_others() -> None:
    new = receipt()
    cancelled = asyncio.create_task(new.await_done())
    other = asyncio.create_task(new.await_done())
    await asyncio.sleep(0.01)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    new.resolve(RECORDS)
    assert await other == RECORDS


def test_many_threads_and_event_loops_wait_for_one_receipt() -> None:
    new = receipt()

    def on_a_loop() -> list[MemoryRecord]:
        async def waiting() -> list[MemoryRecord]:
            return (await asyncio.gather(new, new))[0]

        return asyncio.run(waiting())

    with ThreadPoolExecutor(16) as pool:
        results = [pool.submit(new.wait, 5) for _ in range(8)]
        results += [pool.submit(on_a_loop) for _ in range(8)]
        time.sleep(0.05)
        new.resolve(RECORDS)
        assert all(result.result(timeout=5) == RECORDS for result in results)


def test_a_loop_that_gave_up_waiting_and_closed_does_not_disturb_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new = receipt()

    async def give_up() -> None:
        task = asyncio.create_task(new.await_done())
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(give_up())
    new.resolve(RECORDS)
    assert new.wait() == RECORDS
    assert caplog.records == []


def test_a_receipt_that_nobody_looks_at_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    new = receipt()
    new.fail(DOWN, final=True)
    del new
    gc.collect()
    assert caplog.records == []


def test_waiting_again_and_again_keeps_nothing() -> None:
    new = receipt()
    for _ in range(50):
        with pytest.raises(TimeoutError):
            new.wait(timeout=0)
    gc.collect()
    held = [one for one in gc.get_referents(new.__dict__) if isinstance(one, list)]
    assert all(len(one) == 0 for one in held)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (lambda new: None, "3 texts accepted, encoding in the background"),
        (
            lambda new: new.progress(RECORDS[:2]),
            "3 texts accepted, encoding in the background, 2 so far",
        ),
        (lambda new: new.resolve(RECORDS), "3 texts accepted, done, 3 records"),
        (
            lambda new: new.fail(EmbedderError("down"), final=False),
            "3 texts accepted, failed at attempt 1: EmbedderError: down (will be tried again)",
        ),
        (
            lambda new: new.fail(EmbedderError("down"), final=True),
            "3 texts accepted, failed at attempt 1: EmbedderError: down (given up)",
        ),
    ],
    ids=["pending", "progress", "done", "retrying", "failed"],
)
def test_it_prints_how_far_it_has_come(
    report: Callable[[SaveReceipt], None], expected: str
) -> None:
    new = receipt()
    report(new)
    assert repr(new) == f"<SaveReceipt batch-1: {expected}>"


def test_one_text_is_one_text() -> None:
    assert "1 text accepted" in repr(receipt(1))
