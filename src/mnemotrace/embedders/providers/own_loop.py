"""One event loop thread for all requests of embedders.

litellm keeps its connections per loop, and blocks the loop it runs on now and then: it parses
answers of megabytes there, and asks an Ollama server about a model with a blocking request. On a
loop of its own it holds up nobody else.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine there and block until it is done."""
    return asyncio.run_coroutine_threadsafe(coroutine, _running_loop()).result()


async def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine there and await its result; cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _running_loop()))


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(
                target=_loop.run_forever, name="mnemotrace-embed-loop", daemon=True
            ).start()
        return _loop


def _after_fork() -> None:
    """Forget the loop: its thread does not exist in the child."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
