"""Two memories to move records between; made once, emptied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.testing import FakeEmbedder


@pytest.fixture(scope="session")
def _two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Memory, Memory]]:
    made = []
    for name in ("here", "there"):
        folder = tmp_path_factory.mktemp(name) / "store"
        memory = Memory(llm=None, storage=folder, embedder=FakeEmbedder(dimension=16))
        memory.remember("the first text makes the store")
        made.append(memory)
    yield made[0], made[1]
    for memory in made:
        memory.close()


@pytest.fixture
def here(_two: tuple[Memory, Memory]) -> Memory:
    """The memory to export from; empty."""
    _two[0].forget(scope="/", include_private=True)
    return _two[0]


@pytest.fixture
def there(_two: tuple[Memory, Memory]) -> Memory:
    """The memory to import into; empty."""
    _two[1].forget(scope="/", include_private=True)
    return _two[1]


@pytest.fixture
def embedded() -> Callable[[Memory], list[str]]:
    """Return the texts a memory's embedder was given so far."""

    def read(memory: Memory) -> list[str]:
        fake = memory._core.services.embedder.embedder
        assert isinstance(fake, FakeEmbedder)
        return fake.texts

    return read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.jsonl"
