"""Memories that the tests of the views run on; making a store takes half a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory
from mnemotrace.testing import FakeEmbedder, ScriptedLLM

ANSWERS: dict[str, Any] = {
    "save_analysis": {"scope": "/studio", "categories": ["kiln"], "importance": 0.7},
    "consolidation": {"actions": [], "insert_new": True},
    "query_analysis": {"keywords": ["kiln"], "sub_queries": ["the kiln"], "scopes": ["/studio"]},
    "exploration": {"gaps": ["the glaze"], "sub_queries": ["the glaze"], "scopes": []},
    "extraction": {"memories": ["The kiln is on."]},
}


@pytest.fixture(scope="session")
def asking() -> Iterator[Memory]:
    """A memory whose model answers everything, and which is never sure of what it found."""
    with Memory(
        storage=":memory:",
        llm=ScriptedLLM(ANSWERS),
        embedder=FakeEmbedder(),
        confidence_threshold_low=1.0,
        confidence_threshold_high=1.0,
        complex_query_threshold=1.0,
        consolidation_threshold=0.0,
    ) as memory:
        memory.remember("The kiln fires at 1200 degrees.")
        yield memory


@pytest.fixture(scope="session")
def plain() -> Iterator[Memory]:
    """A memory without a model."""
    with Memory(storage=":memory:", llm=None, embedder=FakeEmbedder()) as memory:
        memory.remember("The kiln fires at 1200 degrees.", scope="/studio")
        yield memory


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose store stays open, so that opening one more memory on it costs little."""
    path = tmp_path_factory.mktemp("place")
    with Memory(storage=path, llm=None, embedder=FakeEmbedder()) as memory:
        memory.remember("the first text makes the store")
        yield path
