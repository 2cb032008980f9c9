"""CrewAI's unified memory on its default storage, LanceDB, with its default settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crewai import Memory
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryRecord
from workload import Item, embed


class UnreachableLLM:
    """Counts calls and refuses each, as a provider without a network would."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self, *_args: Any, **_kwargs: Any) -> str:
        """Refuse the call."""
        self.calls += 1
        raise ConnectionError("no LLM in this benchmark")


class CrewAIPeer:
    """`crewai.Memory(storage=LanceDBStorage(path))`, nothing switched off."""

    def __init__(self, folder: Path) -> None:
        self.missing: dict[str, str] = {}
        self.remarks = {
            "load": "LanceDBStorage.save() of 1,000 finished records at a time, then optimize()",
            "tree": "tree() lists at most 20 children a level",
        }
        self._llm = UnreachableLLM()
        self._storage = LanceDBStorage(path=folder)
        self._memory = Memory(llm=self._llm, storage=self._storage, embedder=embed)

    def load(self, items: list[Item]) -> None:
        """Save finished records in batches, the path its own encoding flow ends in."""
        for start in range(0, len(items), 1000):
            batch = items[start : start + 1000]
            vectors = embed([item.content for item in batch])
            self._storage.save(
                [
                    MemoryRecord(
                        content=item.content,
                        scope=item.scope,
                        categories=item.categories,
                        importance=item.importance,
                        metadata={"origin": "benchmark"},
                        embedding=vector,
                    )
                    for item, vector in zip(batch, vectors, strict=True)
                ]
            )
        self._storage.optimize()

    def settle(self) -> None:
        """Finish pending saves; upkeep in use is left to CrewAI, which compacts on its own."""
        self._memory.drain_writes()

    def count(self) -> int:
        """Count the rows of the table."""
        return self._storage.count()

    def shallow(self, query: str) -> list[str]:
        """Recall at depth shallow."""
        return [m.record.content for m in self._memory.recall(query, limit=10, depth="shallow")]

    def deep(self, query: str) -> list[str]:
        """Recall at depth deep, its default."""
        return [m.record.content for m in self._memory.recall(query, limit=10, depth="deep")]

    def scoped(self, query: str, scope: str) -> list[str]:
        """Recall at depth shallow inside one scope."""
        matches = self._memory.recall(query, scope=scope, limit=10, depth="shallow")
        return [m.record.content for m in matches]

    def tree(self) -> str:
        """Draw three levels, its default."""
        return self._memory.tree()

    def remember(self, item: Item) -> None:
        """Save one record."""
        self._memory.remember(
            item.content,
            scope=item.scope,
            categories=item.categories,
            importance=item.importance,
            metadata={"origin": "benchmark"},
        )

    def remember_many(self, texts: list[str], like: Item) -> None:
        """Save in the background and wait."""
        self._memory.remember_many(
            texts,
            scope=like.scope,
            categories=like.categories,
            importance=like.importance,
            metadata={"origin": "benchmark"},
        )
        self._memory.drain_writes()

    def llm_calls(self) -> int:
        """Count the refused calls."""
        return self._llm.calls

    def close(self) -> None:
        """Drain and close."""
        self._memory.close()


def open_peer(folder: Path) -> CrewAIPeer:
    """Open the store in a folder."""
    return CrewAIPeer(folder)
