"""One event loop thread for everything that is asked through litellm, by models and embedders.

litellm keeps its connections and its logging task per loop, and blocks the loop it runs on now and
then: it parses answers of megabytes there, and asks an Ollama server about a model with a blocking
request. On a loop of its own it holds up nobody else, and nothing of it dies with another loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_tasks: set[asyncio.Task[Any]] = set()
"""Unfinished tasks of the loop. litellm drops its logging task when it is used on another loop, too,
and a task that is collected unfinished is complained about."""

MEASURED = 16
"""Calls after which it is measured anew what one takes of the thread."""
MOST_BETWEEN = 0.01
"""Seconds between two calls at most, whatever is measured: the first ones import what they need."""

CALLBACKS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_input_callback",
    "_async_success_callback",
    "_async_failure_callback",
)
"""Where litellm keeps what the user wants to be told of its calls."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine there and block until it is done."""
    return asyncio.run_coroutine_threadsafe(coroutine, _running_loop()).result()


async def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine there and await its result; cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _running_loop()))


class _Pace:
    """When the next call may begin, on the loop thread it is used in.

    Calls that begin together share the thread by turns, so none of their requests leaves before
    nearly all are ready. They are then answered together, too, and so on: the thread is busy while
    nothing is asked, and idle while everything is. Begun one after another, they overlap. So each
    waits until the one before has had the processor time that a call takes of the thread.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._between = MOST_BETWEEN / 2
        self._begun = 0
        self._mark = time.thread_time()

    def take(self) -> float:
        """Return the seconds to wait before the call that asks."""
        self._begun += 1
        if self._begun % MEASURED == 0:
            used = time.thread_time()
            self._between = min((used - self._mark) / MEASURED, MOST_BETWEEN)
            self._mark = used
        now = time.monotonic()
        begin = max(now, self._next)
        self._next = begin + self._between
        return begin - now


_pace: _Pace | None = None


async def in_turn() -> None:
    """Wait for the turn of one more call, on this module's loop; see `_Pace`."""
    global _pace
    if _pace is None:
        _pace = _Pace()
    wait = _pace.take()
    if wait > 0:
        await asyncio.sleep(wait)


@contextmanager
def unlogged(litellm: Any) -> Iterator[None]:
    """Spare litellm the record of a call that nobody asked to be told of.

    It prepares one for its callbacks even where there are none: a third of what a call costs it.
    Where the user has set callbacks, or a budget that is kept with their help, all is as ever.
    """
    flag = _internal_flag(litellm)
    if flag is None or any(getattr(litellm, name, None) for name in (*CALLBACKS, "max_budget")):
        yield
        return
    token = flag.set(True)
    try:
        yield
    finally:
        flag.reset(token)


def _internal_flag(litellm: Any) -> Any:
    """Return litellm's context variable for calls within its own; None in a version without."""
    return getattr(getattr(litellm, "_internal_context", None), "is_internal_call", None)


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _loop.set_task_factory(_held)
            threading.Thread(
                target=_loop.run_forever, name="mnemotrace-litellm-loop", daemon=True
            ).start()
        return _loop


def _held(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **options: Any,
) -> asyncio.Task[T]:
    """Make a task that is held until it is done."""
    task: asyncio.Task[T] = asyncio.Task(coroutine, loop=loop, **options)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def _after_fork() -> None:
    """Forget the loop: its thread does not exist in the child."""
    global _lock, _loop, _pace
    _lock, _loop, _pace = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
