"""mnemotrace on its embedded engine, with its default settings and no LLM."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import qdrant_edge
from workload import Item, embed

from mnemotrace import Memory


class MnemotracePeer:
    """`mnemotrace.Memory(storage=path, embedder=callable, llm=None)`."""

    def __init__(self, folder: Path) -> None:
        self.missing: dict[str, str] = {}
        self.remarks = {"load": "remember_many(), one call per leaf scope, then drain_writes()"}
        self._memory = Memory(storage=folder, embedder=embed, llm=None)

    def load(self, items: list[Item]) -> None:
        """Save through the public path, every duplicate check included."""
        for _, group in groupby(
            sorted(items, key=lambda item: item.scope), lambda item: item.scope
        ):
            batch = list(group)
            self._save([item.content for item in batch], batch[0])
        self._memory.drain_writes()

    def _save(self, texts: list[str], like: Item) -> None:
        self._memory.remember_many(
            texts,
            scope=like.scope,
            categories=like.categories,
            importance=like.importance,
            metadata={"origin": "benchmark"},
        )

    def settle(self) -> None:
        """Finish pending saves; nothing else to prepare."""
        self._memory.drain_writes()

    def count(self) -> int:
        """Count the current records."""
        return self._memory.info("/").record_count

    def shallow(self, query: str) -> list[str]:
        """Recall at depth shallow."""
        return [m.record.content for m in self._memory.recall(query, limit=10, depth="shallow")]

    def deep(self, query: str) -> list[str]:
        """Recall at depth deep, the default."""
        return [m.record.content for m in self._memory.recall(query, limit=10, depth="deep")]

    def scoped(self, query: str, scope: str) -> list[str]:
        """Recall at depth shallow inside one scope."""
        matches = self._memory.recall(query, scope=scope, limit=10, depth="shallow")
        return [m.record.content for m in matches]

    def tree(self) -> str:
        """Draw three levels, the default."""
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
        self._save(texts, like)
        self._memory.drain_writes()

    def raw(self, vector: list[float]) -> list[Any]:
        """Ask the engine itself for the ten nearest of all points, exactly, with payload.

        Reaches past the public interface: a shard can be opened once only, so the comparison has
        to use the one that the memory holds.
        """
        store: Any = self._memory.store
        collection, _ = store._open()
        request = qdrant_edge.QueryRequest(
            limit=10,
            query=qdrant_edge.Query.Nearest(vector, using="dense"),
            params=qdrant_edge.SearchParams(exact=True),
            with_payload=True,
        )
        return list(collection._shard.query(request))

    def llm_calls(self) -> int:
        """Return zero: there is no LLM to call."""
        return 0

    def close(self) -> None:
        """Drain and close."""
        self._memory.close()


def open_peer(folder: Path) -> MnemotracePeer:
    """Open the store in a folder."""
    return MnemotracePeer(folder)
