"""mnemotrace with its default settings, its bundled embedder and no LLM; or a variant of it."""

from __future__ import annotations

import inspect
from itertools import groupby
from pathlib import Path
from typing import Any

import shared_vectors
from quality_worker import Setup, Turn

from mnemotrace import Memory


class MnemotracePeer:
    """`mnemotrace.Memory(storage=folder, llm=None)` and the keyword arguments of a variant."""

    cannot_set_time = ""

    def __init__(self, setup: Setup) -> None:
        self._names_sessions = "session" in inspect.signature(Memory.remember_many).parameters
        named = "its name as session" if self._names_sessions else "no way to name the session"
        self.remarks = (
            f"remember_many(), one call per session with {named}",
            "it embeds in its own process, so the embedding model is part of its memory only",
        )
        self._memory = Memory(storage=setup.folder, llm=None, **setup.options)
        self._now = ""

    def load(self, turns: list[Turn], now: str, timed: bool) -> int:
        """Save session by session, and wait."""
        self._now = now
        for session, said in groupby(turns, lambda turn: turn.session):
            named: dict[str, Any] = {"session": session} if self._names_sessions else {}
            items = [
                {
                    "content": turn.text,
                    "record_id": turn.id,
                    "created_at": turn.time if timed else now,
                }
                for turn in said
            ]
            self._memory.remember_many(items, **named).wait()
        return self._memory.info("/").record_count

    def recall(self, mode: str, question: str, limit: int) -> tuple[list[str], float | None]:
        """Recall at depth `mode`."""
        found = self._memory.recall(question, limit=limit, depth=mode, now=self._now)
        return [match.record.content for match in found], found.confidence

    def close(self) -> None:
        """Close the store."""
        self._memory.close()


def make_vectors(texts: list[str], questions: list[str], folder: Path) -> None:
    """Write the bundled embedder's vectors for the other systems."""
    from mnemotrace.embedders.bundled import BundledEmbedder

    shared_vectors.save(folder, texts, questions, BundledEmbedder().embed)


def open_peer(setup: Setup) -> MnemotracePeer:
    """Open a fresh memory."""
    return MnemotracePeer(setup)
