"""Blocking calls of a language model, kept off the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def call_in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a blocking function in a daemon thread of its own and return its result.

    A call that hangs cannot be stopped, so it must not take a place in a shared pool, where a few
    of them would stop the store too, nor keep the program from ending. A model answers in
    hundreds of milliseconds; a new thread costs less than 0.1.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def work() -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = context.run(function, *args)
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            failure = error
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop over there
            failure = RuntimeError(f"{type(error).__name__} in a blocking call: {error}")
        if isinstance(failure, StopIteration):  # a future refuses to carry it
            failure = RuntimeError("StopIteration in a blocking call")
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            if not loop.is_closed():
                raise

    threading.Thread(target=work, name="mnemotrace-llm", daemon=True).start()
    return await future
