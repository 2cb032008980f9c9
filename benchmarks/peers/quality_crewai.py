"""CrewAI's unified memory on LanceDB, default settings, its own ranking, the shared embedder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from crewai import Memory
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryRecord
from quality_worker import Setup, Turn


class UnreachableLLM:
    """Refuses each call, as a provider without a network would."""

    def call(self, *_args: Any, **_kwargs: Any) -> str:
        """Refuse the call."""
        raise ConnectionError("no LLM in this benchmark")


class CrewAIPeer:
    """`crewai.Memory(storage=LanceDBStorage(path), embedder=...)`."""

    cannot_set_time = ""
    remarks = (
        "finished records straight into LanceDB, so that no turn is merged away",
        "its deep recall explores with an LLM only, and there is none",
        "its recall reads the clock, so turns with times are dated back from the moment of loading",
    )

    def __init__(self, setup: Setup) -> None:
        self._vectors = setup.vectors
        self._storage = LanceDBStorage(path=setup.folder)
        self._memory = Memory(
            llm=UnreachableLLM(), storage=self._storage, embedder=setup.vectors.lists
        )

    def load(self, turns: list[Turn], now: str, timed: bool) -> int:
        """Save finished records, the path its own encoding flow ends in."""
        moment = datetime.now(UTC).replace(tzinfo=None)  # CrewAI stores naive UTC
        vectors = self._vectors.lists([turn.text for turn in turns])
        self._storage.save(
            [
                MemoryRecord(
                    content=turn.text,
                    created_at=moment - (_age(turn, now) if timed else timedelta()),
                    embedding=vector,
                )
                for turn, vector in zip(turns, vectors, strict=True)
            ]
        )
        self._storage.optimize()
        return self._storage.count()

    def recall(self, mode: str, question: str, limit: int) -> tuple[list[str], float | None]:
        """Recall at depth `mode`; its matches have scores, but no confidence that they answer."""
        found = self._memory.recall(question, limit=limit, depth=mode)
        return [match.record.content for match in found], None

    def close(self) -> None:
        """Drain and close."""
        self._memory.close()


def _age(turn: Turn, now: str) -> timedelta:
    return datetime.fromisoformat(now) - datetime.fromisoformat(turn.time)


def open_peer(setup: Setup) -> CrewAIPeer:
    """Open a fresh memory."""
    return CrewAIPeer(setup)
