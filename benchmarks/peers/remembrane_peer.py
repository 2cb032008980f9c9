"""remembrane's MemoryStore: one SQLite file, exact hybrid recall, numpy for the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from remembrane import MemoryStore
from workload import DIMENSION, Item, embed


def _namespace(item: Item) -> str:
    """Return the project part of a scope: namespaces do not nest."""
    return item.scope.rpartition("/")[0]


class SharedEmbedder:
    """The shared callable in the shape remembrane asks for."""

    dimension = DIMENSION

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts."""
        return embed(list(texts))


class RemembranePeer:
    """`remembrane.MemoryStore(path)`; a namespace stands in for a project scope."""

    def __init__(self, folder: Path) -> None:
        self.missing = {"tree": "no scope tree: namespaces are a flat list"}
        self.remarks = {
            "load": "store_many(), one call per namespace",
            "deep": "one depth only: the same hybrid recall as under shallow",
            "scoped": "no scopes: one flat namespace per project",
            "remember": "no categories, no duplicate check",
            "remember_many": "store_many(): synchronous, no duplicate check",
        }
        self._store = MemoryStore(folder / "memory.db", embedder=SharedEmbedder())

    def load(self, items: list[Item]) -> None:
        """Store one namespace after another."""
        for namespace, group in groupby(sorted(items, key=_namespace), _namespace):
            self._store.store_many([item.content for item in group], namespace=namespace)

    def settle(self) -> None:
        """Fill the cache of all namespaces, which every write empties."""
        self._store.recall("warm", namespace=None, touch=False)

    def count(self) -> int:
        """Count the rows."""
        return self._store.count()

    def shallow(self, query: str) -> list[str]:
        """Recall over all namespaces."""
        return [r.memory.content for r in self._store.recall(query, k=10, namespace=None)]

    deep = shallow

    def scoped(self, query: str, scope: str) -> list[str]:
        """Recall inside one namespace."""
        return [r.memory.content for r in self._store.recall(query, k=10, namespace=scope)]

    def tree(self) -> str:
        """Refuse: there is no tree."""
        raise NotImplementedError(self.missing["tree"])

    def remember(self, item: Item) -> None:
        """Store one memory."""
        self._store.store(
            item.content,
            namespace=_namespace(item),
            importance=item.importance,
            metadata={"origin": "benchmark"},
        )

    def remember_many(self, texts: list[str], like: Item) -> None:
        """Store many memories in one transaction."""
        self._store.store_many(
            texts,
            namespace=_namespace(like),
            importance=like.importance,
            metadata={"origin": "benchmark"},
        )

    def llm_calls(self) -> int:
        """Return zero: remembrane knows no LLM."""
        return 0

    def close(self) -> None:
        """Close the file."""
        self._store.close()


def open_peer(folder: Path) -> RemembranePeer:
    """Open the store in a folder."""
    return RemembranePeer(folder)
