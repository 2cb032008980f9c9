"""What the probes share: memories on real folders, and the ways to call and to look at one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory, MemoryRecord
from mnemotrace.stores.backend import StorageBackend
from mnemotrace.stores.open import open_store
from mnemotrace.testing import FakeEmbedder

OpenMemory = Callable[..., Memory]
Stores = dict[int, tuple[Path, Memory]]
Call = Callable[..., Any]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Stores by dimension that tests use one after the other: making one takes half a second."""
    holders: Stores = {}
    yield holders
    for _, memory in holders.values():
        memory.close()


@pytest.fixture
def open_memory(
    tmp_path: Path, stores: Stores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenMemory]:
    """Open memories over one empty store, without a language model unless one is given.

    With ``storage="new"``, over a folder of this test's own; with `wrap`, over what that makes of
    the store.
    """
    opened: list[Memory] = []
    used: set[int] = set()

    def shared(dimension: int) -> Path:
        used.add(dimension)
        if dimension not in stores:
            folder = tmp_path_factory.mktemp(f"store{dimension}")
            holder = Memory(llm=None, storage=folder, embedder=FakeEmbedder(dimension=dimension))
            stores[dimension] = (folder, holder)
            holder.remember("the first text makes the store")
            holder.forget(scope="/")
        return stores[dimension][0]

    def build(
        storage: Any = None,
        *,
        llm: Any = None,
        embedder: Any = None,
        wrap: Any = None,
        **settings: Any,
    ) -> Any:
        embedder = FakeEmbedder() if embedder is None else embedder
        if storage is None:
            storage = shared(embedder.dimension)
        elif storage == "new":
            storage = tmp_path / "store"
        if wrap is not None:
            storage = wrap(open_store(storage))
        memory = Memory(llm=llm, storage=storage, embedder=embedder, **settings)
        opened.append(memory)
        return memory

    yield build
    for memory in opened:
        memory.close()
    for dimension in used:
        _, holder = stores[dimension]
        holder.forget(scope="/", include_private=True)
        assert holder.dead_letters() == []


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Call a method by name: as it is, or its async twin on an event loop of its own."""

    def blocking(target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(target, name)(*args, **kwargs)

    def awaiting(target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(getattr(target, f"a{name}")(*args, **kwargs))

    return blocking if request.param == "sync" else awaiting


@pytest.fixture(params=["memory", "scope", "slice"])
def view_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return the whole memory, a scope view or a slice; the last two reach `path` only."""

    def view(memory: Memory, path: str = "/home", read_only: bool = False) -> Any:
        if request.param == "memory":
            return memory
        if request.param == "scope":
            return memory.scope(path)
        return memory.slice([path], read_only=read_only)

    return view


class DelegatingStore:
    """A store that passes everything on to a real one; tests replace single methods."""

    def __init__(self, inner: StorageBackend) -> None:
        self.inner = inner


def _method(name: str) -> Any:
    def call(self: DelegatingStore, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    return call


def _property(name: str) -> Any:
    def read(self: DelegatingStore) -> Any:
        return getattr(self.inner, name)

    return property(read)


for _name, _member in inspect.getmembers(StorageBackend):
    if not _name.startswith("_"):
        kind = _property if isinstance(_member, property) else _method
        setattr(DelegatingStore, _name, kind(_name))


@pytest.fixture
def delegating() -> type[DelegatingStore]:
    """The class to derive faulty stores from."""
    return DelegatingStore


@pytest.fixture
def everything() -> Callable[[Memory], dict[str, MemoryRecord]]:
    """Return a function that gives all current records by content, private ones included."""

    def read(memory: Memory) -> dict[str, MemoryRecord]:
        records = memory.list_records(limit=10_000, include_private=True)
        found = {record.content: record for record in records}
        assert len(found) == len(records), "a text is stored twice"
        return found

    return read
