"""Coroutines for callers without an event loop."""

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
    """Run a coroutine on one daemon loop thread and wait for its result.

    One loop for all calls, because litellm keeps its connections per loop. A caller that is
    inside a loop of its own blocks that loop; it should await the coroutine instead.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, _running_loop()).result()


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
