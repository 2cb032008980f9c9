"""Sync and async twins: one coroutine, two methods, on every kind of view."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from mnemotrace import Memory, MemoryScope, MemorySlice
from mnemotrace.flows.runtime import Runtime, get_runtime
from mnemotrace.testing import FakeEmbedder
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


@pytest.fixture(scope="module")
def views() -> Iterator[dict[type, Any]]:
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as memory:
        yield {Memory: memory, MemoryScope: memory.scope("/a"), MemorySlice: memory.slice(["/a"])}


def refusal(method: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return what a call with wrong arguments is told, whatever kind of method it is."""
    with pytest.raises(TypeError) as told:
        result = method(*args, **kwargs)
        if inspect.isawaitable(result):
            asyncio.run(_result_of(result))
    return str(told.value)


async def _result_of(waiting: Awaitable[Any]) -> Any:
    return await waiting


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, f"{a}{name}") for kind in VIEWS for name in METHODS for a in ("", "a")),
        *((Memory, f"{a}{name}") for name in OWNER_METHODS for a in ("", "a")),
        *((kind, name) for kind in VIEWS for name in (*STREAMS, "scope", "slice")),
        (MemoryScope, "subscope"),
    ],
)
def test_wrong_arguments_are_told_in_the_words_of_the_caller(
    views: dict[type, Any], kind: type, name: str
) -> None:
    method = getattr(views[kind], name)
    parameters = inspect.signature(method).parameters.values()
    placed = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [p.name for p in parameters if p.default is p.empty]
    told = refusal(method, *["x"] * (len(placed) + 1))
    assert told.startswith(f"{name}() takes at most {len(placed)} positional argument")
    assert f", not {len(placed) + 1}." in told
    assert all(p.name in told for p in parameters)
    for word in needed:
        others = {other: "x" for other in needed if other != word}
        assert refusal(method, **others) == f"{name}() needs {word!r}."
    if placed:
        first = placed[0].name
        twice = refusal(method, "x", **{first: "x"})
        assert twice == f"{name}() was given {first!r} twice, by position and by name."
    assert refusal(method, zzz=1).startswith(f"{name}() has no argument 'zzz'. It takes")


@pytest.mark.parametrize(
    ("name", "word", "here"),
    [
        ("recall", "top_k", "Here that is 'limit'."),
        ("recall", "k", "Here that is 'limit'."),
        ("arecall", "n", "Here that is 'limit'."),
        ("recall", "size", "Here that is 'limit'."),
        ("recall", "similarity_top_k", "Here that is 'limit'."),
        ("recall", "filters", "Here that is 'metadata_filter'."),
        ("recall", "user_id", "'scope', such as scope='/users/ana'."),
        ("remember", "user_id", "'scope', such as scope='/users/ana'."),
        ("remember", "text", "Here that is 'content'."),
        ("remember", "thread_id", "Here that is 'session'."),
        ("remember", "tags", "Here that is 'categories'."),
        ("remember_many", "messages", "Here that is 'contents'."),
        ("get", "memory_id", "Here that is 'record_id'."),
        ("forget", "memory_ids", "Here that is 'record_ids'."),
        ("forget", "id", "Here that is 'record_ids'."),
        ("recall", "lmit", "Did you mean 'limit'?"),
        ("recall", "categry", "Did you mean 'categories'?"),
        ("recall", "metadata", "Did you mean 'metadata_filter'?"),
        ("tree", "top_k", "It takes: "),
        ("recall", "nope", "It takes: "),
    ],
)
def test_a_word_of_another_library_is_told_the_one_here(
    views: dict[type, Any], name: str, word: str, here: str
) -> None:
    assert here in refusal(getattr(views[Memory], name), **{word: 1})
