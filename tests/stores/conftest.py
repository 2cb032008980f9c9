"""Stores to test on: the embedded engine, and the server engine over qdrant-client's local mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from mnemotrace.stores.open import open_store
from mnemotrace.stores.qdrant import QdrantStore

from .building import MANIFEST

ENGINES = ("embedded", "server")
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


@pytest.fixture(params=ENGINES)
def new_store(
    request: pytest.FixtureRequest, make_embedded: MakeStore, make_server: MakeStore
) -> QdrantStore:
    """Return a store on which nothing was written, on each engine."""
    return make_embedded() if request.param == "embedded" else make_server()


@pytest.fixture
def store(new_store: QdrantStore) -> QdrantStore:
    """Return an empty store that is ready for records, on each engine."""
    new_store.initialise(MANIFEST)
    return new_store


@pytest.fixture(params=ENGINES, scope="module")
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
