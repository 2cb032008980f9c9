"""The loop that litellm runs on: when the next call may begin."""

from __future__ import annotations

import asyncio

import pytest

from mnemotrace import litellm_loop
from mnemotrace.litellm_loop import MEASURED, MOST_BETWEEN, _Pace


class Clocks:
    """The two clocks that a pace looks at, set by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 1.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.used


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(litellm_loop, "time", clocks)
    return clocks


def measured(clocks: Clocks, each: float) -> _Pace:
    """Return a pace that has seen calls which took this much of the thread, and is free now."""
    pace = _Pace()
    for _ in range(MEASURED):
        clocks.now += 1.0
        clocks.used += each
        pace.take()
    clocks.now += 1.0
    return pace


@pytest.mark.parametrize(
    ("each", "between"), [(0.004, 0.004), (0.001, 0.001), (0.5, MOST_BETWEEN), (0.0, 0.0)]
)
def test_calls_that_come_together_begin_as_far_apart_as_one_takes(
    clocks: Clocks, each: float, between: float
) -> None:
    pace = measured(clocks, each)
    assert [pace.take() for _ in range(4)] == pytest.approx([n * between for n in range(4)])


def test_a_call_that_comes_later_does_not_wait(clocks: Clocks) -> None:
    pace = measured(clocks, 0.004)
    assert pace.take() == 0.0
    clocks.now += 0.003
    assert pace.take() == pytest.approx(0.001)
    clocks.now += 0.1
    assert pace.take() == 0.0


def test_the_first_calls_of_all_wait_little_for_each_other(clocks: Clocks) -> None:
    pace = _Pace()
    assert pace.take() == 0.0
    assert 0.0 < pace.take() <= MOST_BETWEEN


def test_what_a_call_takes_is_measured_again_and_again(clocks: Clocks) -> None:
    pace = measured(clocks, 0.004)
    for _ in range(MEASURED):
        clocks.now += 1.0
        clocks.used += 0.002
        pace.take()
    clocks.now += 1.0
    assert [pace.take(), pace.take()] == pytest.approx([0.0, 0.002])


def test_on_the_loop_each_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([0.0, 0.02, 0.01])
    monkeypatch.setattr(_Pace, "take", lambda pace: next(turns))
    order: list[str] = []

    async def call(name: str) -> None:
        await litellm_loop.in_turn()
        order.append(name)

    async def three() -> None:
        await asyncio.gather(*(call(name) for name in ("first", "last", "second")))

    litellm_loop.run(three())
    assert order == ["first", "second", "last"]
