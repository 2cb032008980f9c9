"""Coroutines that never have to wait, run without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from .errors import RuntimeMisuseError

T = TypeVar("T")


def in_loop() -> bool:
    """Tell whether an event loop runs this code, so that it can wait for something."""
    return asyncio._get_running_loop() is not None


def straight(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this thread, without a loop.

    Raises:
        RuntimeMisuseError: it had to wait for something.
    """
    try:
        coro.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coro.close()
    raise RuntimeMisuseError(
        "A coroutine that was to run without the loop had to wait for something. This is a fault "
        "in mnemotrace; please report it with this traceback."
    )
