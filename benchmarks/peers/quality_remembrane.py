"""remembrane's MemoryStore, default settings, its own hybrid ranking, the shared embedder."""

from __future__ import annotations

from collections.abc import Sequence

from quality_worker import Setup, Turn
from remembrane import MemoryStore
from shared_vectors import SharedVectors


class SharedEmbedder:
    """The shared vectors in the shape remembrane asks for."""

    def __init__(self, vectors: SharedVectors) -> None:
        self._vectors = vectors
        self.dimension = vectors.dimension

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Look texts up."""
        return self._vectors.lists(texts)


class RemembranePeer:
    """`remembrane.MemoryStore(path, embedder=...)`."""

    cannot_set_time = "store() and store_many() take no time"
    remarks = (
        "recall(touch=False), so that no question changes the ranking of the next; one depth only",
    )

    def __init__(self, setup: Setup) -> None:
        self._store = MemoryStore(
            setup.folder / "memory.db", embedder=SharedEmbedder(setup.vectors)
        )

    def load(self, turns: list[Turn], now: str, timed: bool) -> int:
        """Store all turns in one transaction."""
        self._store.store_many([turn.text for turn in turns])
        return self._store.count()

    def recall(self, mode: str, question: str, limit: int) -> tuple[list[str], float | None]:
        """Recall; its results have scores, but no confidence that they answer."""
        found = self._store.recall(question, k=limit, touch=False)
        return [result.memory.content for result in found], None

    def close(self) -> None:
        """Close the file."""
        self._store.close()


def open_peer(setup: Setup) -> RemembranePeer:
    """Open a fresh memory."""
    return RemembranePeer(setup)
