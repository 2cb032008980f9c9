"""Stores to test on: the embedded engine, and the server engine, in memory and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from mnemotrace.stores.open import open_store
from mnemotrace.stores.qdrant import QdrantStore

from .building import MANIFEST
from .loopback import rest_server

ENGINES = ("embedded", "server", "rest")
MakeStore = Callable[[], QdrantStore]
Fill = Callable[[QdrantStore], None]
ReadOnly = Callable[[Fill], QdrantStore]


@pytest.fixture
def make_embedded(tmp_path: Path) -> Iterator[MakeStore]:
    """Return a function that opens one more embedded store, closed when the test ends."""
    opened: list[QdrantStore] = []

    def make() -> QdrantStore:
        store = open_store(tmp_path / f"store-{len(opened)}")
        assert isinstance(store, QdrantStore)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def make_server() -> Iterator[MakeStore]:
    """Return a function that opens one more store on an in-memory reference client."""
    opened: list[QdrantStore] = []

    def make() -> QdrantStore:
        store = open_store(client=QdrantClient(":memory:"))
        assert isinstance(store, QdrantStore)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def make_rest() -> Iterator[MakeStore]:
    """Return a function that opens one more store on a server of its own."""
    with ExitStack() as stack:

        def make() -> QdrantStore:
            url, _ = stack.enter_context(rest_server())
            store = open_store(url)
            assert isinstance(store, QdrantStore)
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture(params=ENGINES)
def new_store(request: pytest.FixtureRequest) -> QdrantStore:
    """Return a store on which nothing was written, on each engine."""
    make: MakeStore = request.getfixturevalue(f"make_{request.param}")
    return make()


@pytest.fixture
def store(new_store: QdrantStore) -> QdrantStore:
    """Return an empty store that is ready for records, on each engine."""
    new_store.initialise(MANIFEST)
    return new_store


@pytest.fixture(params=("embedded", "server"), scope="module")
def read_only(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReadOnly]:
    """Return a function that fills a store the first time; for tests that change nothing."""
    filled: dict[Fill, QdrantStore] = {}

    def store_with(fill: Fill) -> QdrantStore:
        if fill not in filled:
            if request.param == "embedded":
                store = open_store(tmp_path_factory.mktemp("store"))
            else:
                store = open_store(client=QdrantClient(":memory:"))
            assert isinstance(store, QdrantStore)
            store.initialise(MANIFEST)
            fill(store)
            filled[fill] = store
        return filled[fill]

    yield store_with
    for store in filled.values():
        store.close()


@pytest.fixture
def embedded(make_embedded: MakeStore) -> QdrantStore:
    """Return an empty embedded store that is ready for records."""
    store = make_embedded()
    store.initialise(MANIFEST)
    return store
