"""Sync and async twins: one coroutine, two methods, on every kind of view."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mnemotrace import Memory, MemoryScope, MemorySlice
from mnemotrace.flows.runtime import Runtime, get_runtime
from mnemotrace.twins import awaitable, blocking

METHODS = (
    "dead_letters",
    "drain_writes",
    "explain",
    "export_records",
    "extract_memories",
    "forget",
    "get",
    "history",
    "import_records",
    "info",
    "list_categories",
    "list_records",
    "list_scopes",
    "reanalyze",
    "recall",
    "retrieve_for",
    "remember",
    "remember_many",
    "reset",
    "retry_dead_letters",
    "tree",
    "update",
)
"""What every view can do."""

OWNER_METHODS = ("close", "compact", "reindex")
"""What only the memory itself can do: it concerns the whole store."""

STREAMS = ("recall_stream", "arecall_stream")
"""Iterators, not coroutines; tests/test_live.py has their tests."""

VIEWS = (Memory, MemoryScope, MemorySlice)


def public_methods(kind: type) -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and callable(member)
    }


@pytest.mark.parametrize("kind", VIEWS)
def test_every_view_has_every_method_and_its_twin(kind: type) -> None:
    names = {*METHODS, *(f"a{name}" for name in METHODS), *STREAMS, "scope", "slice"}
    if kind is Memory:
        names |= {*OWNER_METHODS, *(f"a{name}" for name in OWNER_METHODS)}
    if kind is MemoryScope:
        names.add("subscope")
    assert public_methods(kind) == names


@pytest.mark.parametrize("name", METHODS)
def test_twins_share_signature_and_documentation(name: str) -> None:
    expected = inspect.signature(getattr(Memory, name))
    for kind in VIEWS:
        sync, twin = getattr(kind, name), getattr(kind, f"a{name}")
        assert inspect.signature(sync) == inspect.signature(twin) == expected
        assert sync.__doc__ == twin.__doc__
        assert sync.__doc__ and sync.__doc__.strip()
        assert sync.__name__ == name
        assert twin.__name__ == f"a{name}"
        assert not inspect.iscoroutinefunction(sync)
        assert inspect.iscoroutinefunction(twin)


def test_views_share_the_code_of_their_methods() -> None:
    for name in METHODS:
        assert getattr(Memory, name) is getattr(MemoryScope, name) is getattr(MemorySlice, name)


class Answering:
    """The smallest thing with twins."""

    def __init__(self) -> None:
        self._runtime: Runtime = get_runtime()

    async def _answer(self, question: str, *, twice: bool = False) -> tuple[str, object]:
        """Return the question and the loop it was answered on."""
        await asyncio.sleep(0)
        return question * (2 if twice else 1), asyncio.get_running_loop()

    answer = blocking(_answer)
    aanswer = awaitable(_answer)

    async def _fail(self) -> None:
        """Raise."""
        raise LookupError("nothing there")

    fail = blocking(_fail)
    afail = awaitable(_fail)


async def test_both_run_on_the_runtimes_own_loop() -> None:
    thing = Answering()
    word, loop = await asyncio.to_thread(thing.answer, "a", twice=True)
    assert (word, loop) == ("aa", thing._runtime.loop)
    assert await thing.aanswer("b") == ("b", thing._runtime.loop)
    assert asyncio.get_running_loop() is not thing._runtime.loop


def test_errors_come_out_as_they_are() -> None:
    with pytest.raises(LookupError, match="nothing there"):
        Answering().fail()
    with pytest.raises(LookupError, match="nothing there"):
        asyncio.run(Answering().afail())


def called(kind: str) -> Callable[..., Any]:
    thing = Answering()
    if kind == "sync":
        return thing.answer
    return lambda *args, **kwargs: asyncio.run(thing.aanswer(*args, **kwargs))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_wrong_arguments_are_type_errors_that_help(kind: str) -> None:
    call = called(kind)
    with pytest.raises(
        TypeError, match=r"answer\(\) has no argument 'twise'. Did you mean 'twice'"
    ):
        call("a", twise=True)
    with pytest.raises(TypeError, match="It takes: question, twice"):
        call("a", zzz=True)
    with pytest.raises(TypeError, match="question"):
        call()
    with pytest.raises(TypeError, match="self"):
        call("a", self=1)
