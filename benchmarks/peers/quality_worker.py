"""One system under `benchmarks/quality.py` in one process: JSON commands in, JSON answers out.

Started with the system's own interpreter. Commands are objects with a `do` key (a method of
`Worker`, or `close`); every answer is one line. What libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from serving import serve
from shared_vectors import SharedVectors


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation, as the memory to store; see `benchmarks/locomo.py`."""

    id: str
    session: str
    text: str
    time: str


@dataclass(frozen=True)
class Setup:
    """What a peer is opened with.

    Attributes:
        folder: its own, and empty.
        vectors: the shared embedder; without any vectors for systems that embed themselves.
        options: settings of a variant.
        seed: for whatever is random.
    """

    folder: Path
    vectors: SharedVectors
    options: dict[str, Any]
    seed: int


class Peer(Protocol):
    """One fresh memory, filled once and then only asked.

    Attributes:
        remarks: what a reader should know of how it was measured.
        cannot_set_time: why a turn's time could not be given; empty when it could.
    """

    remarks: tuple[str, ...]
    cannot_set_time: str

    def load(self, turns: list[Turn], now: str, timed: bool) -> int:
        """Store the turns, each with its own time or all with that of `now`; count what is stored.

        Every later `recall` is meant to happen at `now` (ISO 8601, UTC).
        """

    def recall(self, mode: str, question: str, limit: int) -> tuple[list[str], float | None]:
        """Return the texts found, best first, and the confidence where the system has one."""

    def close(self) -> None:
        """Release the memory."""


def _plain(text: str) -> str:
    """Return a text without the white space that a system may tidy up."""
    return " ".join(text.split())


def peak_memory() -> int:
    """Return the most resident memory this process ever had, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    # Unlike ru_maxrss, this does not start with what the parent process had.
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        * 1024
    )


class Worker:
    """Runs commands against one system; each public method is one command."""

    def __init__(self, module: str, folder: Path, vectors: str, options: dict[str, Any], seed: int):
        self._module: Any = importlib.import_module(module)
        self._folder = folder
        self._vectors = SharedVectors(vectors)
        self._options = options
        self._seed = seed
        self._peer: Peer | None = None
        self._ids: dict[str, str] = {}
        self._loaded = 0

    def load(self, turns: list[dict[str, str]], now: str, timed: bool) -> dict[str, Any]:
        """Open a fresh memory, closing the one before, and store a conversation in it."""
        if self._peer is not None:
            self._peer.close()
        folder = self._folder / str(self._loaded)
        folder.mkdir(parents=True)
        self._loaded += 1
        self._ids = {_plain(turn["text"]): turn["id"] for turn in turns}
        start = time.perf_counter()
        self._peer = self._module.open_peer(Setup(folder, self._vectors, self._options, self._seed))
        stored = self._peer.load([Turn(**turn) for turn in turns], now, timed)
        return {
            "stored": stored,
            "seconds": time.perf_counter() - start,
            "remarks": list(self._peer.remarks),
            "cannot_set_time": self._peer.cannot_set_time,
        }

    def ask(self, mode: str, questions: list[str], limit: int) -> dict[str, Any]:
        """Ask every question of the conversation, after one recall to warm up.

        Returns:
            For each question the ids found, the confidence (or None) and the milliseconds,
            embedding included: vectors that were looked up add what making them took.
        """
        assert self._peer is not None
        self._peer.recall(mode, questions[0], limit)
        answers = []
        for question in questions:
            self._vectors.spent_ms = 0.0
            start = time.perf_counter()
            texts, confidence = self._peer.recall(mode, question, limit)
            milliseconds = (time.perf_counter() - start) * 1000 + self._vectors.spent_ms
            ids = list(dict.fromkeys(map(self._id, texts)))
            answers.append({"ids": ids, "confidence": confidence, "ms": milliseconds})
        return {"answers": answers}

    def _id(self, text: str) -> str:
        try:
            return self._ids[_plain(text)]
        except KeyError:
            raise LookupError(f"The system returned a text that was not stored: {text!r}") from None

    def embed(self, texts: list[str], questions: list[str], folder: str) -> dict[str, Any]:
        """Make the vectors that the other workers share; for the module that can."""
        self._module.make_vectors(texts, questions, Path(folder))
        return self.finish()

    def finish(self) -> dict[str, Any]:
        """Report the peak memory of the process."""
        return {"peak": peak_memory()}

    def close(self) -> None:
        """Release the last memory."""
        if self._peer is not None:
            self._peer.close()


def start(arguments: list[str]) -> Worker:
    """Open the system whose module, folder, vectors, options and seed are given."""
    module, folder, vectors, options, seed = arguments
    return Worker(module, Path(folder), vectors, json.loads(options), int(seed))


if __name__ == "__main__":
    serve(start)
