"""One system under measurement in one process: JSON commands on stdin, JSON answers on stdout.

Started by `benchmarks/speed.py` with the system's own interpreter. Commands are objects with a
`do` key (a method of `Worker`, or `close`); every answer is one line. What the libraries
print goes to stderr, so that nothing but answers reaches stdout.
"""

from __future__ import annotations

import importlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from serving import serve
from workload import Corpus, Item, embed, project, team


class Peer(Protocol):
    """What a system must be able to do here; an operation it lacks is named in `missing`."""

    missing: dict[str, str]
    remarks: dict[str, str]

    def load(self, items: list[Item]) -> None:
        """Store the corpus by the quickest path the system has; not timed against the others."""

    def settle(self) -> None:
        """Bring the store into its best state before a timed round (untimed)."""

    def count(self) -> int:
        """Return how many records are stored."""

    def shallow(self, query: str) -> list[str]:
        """Return the texts of the ten best matches of a plain recall."""

    def deep(self, query: str) -> list[str]:
        """Return the texts of the ten best matches of the default, deepest recall."""

    def scoped(self, query: str, scope: str) -> list[str]:
        """Return the texts of the ten best matches inside one scope, as shallow recall."""

    def tree(self) -> str:
        """Return the scope tree as text."""

    def remember(self, item: Item) -> None:
        """Store one record with every field given."""

    def remember_many(self, texts: list[str], like: Item) -> None:
        """Store many texts with the fields of `like`; return when all are saved."""

    def llm_calls(self) -> int:
        """Return how often an LLM was asked (it never answers here)."""

    def close(self) -> None:
        """Release the store."""


def _disk(folder: Path) -> tuple[int, int]:
    """Return bytes allocated and bytes in apparent length of every file under a folder."""
    stats = [path.lstat() for path in folder.rglob("*") if path.is_file()]
    return sum(s.st_blocks * 512 for s in stats), sum(s.st_size for s in stats)


def _resident() -> int:
    """Return the resident memory of this process in bytes (0 where /proc is missing)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class Worker:
    """Runs commands against one peer; each public method is one command."""

    def __init__(self, peer: Peer, folder: Path, seed: int) -> None:
        self._peer = peer
        self._folder = folder
        self._corpus = Corpus(seed)
        self._size = 0
        self._written = 0

    def load(self, size: int) -> dict[str, Any]:
        """Load the first `size` records and check that all of them arrived."""
        items = [self._corpus.item(number) for number in range(size)]
        start = time.perf_counter()
        self._peer.load(items)
        seconds = time.perf_counter() - start
        stored = self._peer.count()
        if stored != size:
            raise RuntimeError(f"{stored} records stored after loading {size}")
        self._size = size
        self._peer.settle()
        return {"seconds": seconds, **self.stat()}

    def stat(self) -> dict[str, Any]:
        """Report record count, disk, memory, LLM calls and the peer's notes."""
        allocated, apparent = _disk(self._folder)
        return {
            "records": self._peer.count(),
            "disk": allocated,
            "disk_apparent": apparent,
            "rss": _resident(),
            "rss_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "llm_calls": self._peer.llm_calls(),
            "missing": self._peer.missing,
            "remarks": self._peer.remarks,
        }

    def run(self, op: str, first: int, calls: int, seconds: float) -> dict[str, Any]:
        """Time up to `calls` calls of an operation, at least one, stopping after `seconds`.

        Returns the milliseconds of each call, and how many recalls found the record that their
        query was cut from among their ten matches.
        """
        if op in self._peer.missing:
            return {"ms": [], "found": 0, "missing": self._peer.missing[op]}
        self._peer.settle()
        times: list[float] = []
        found = 0
        began = time.perf_counter()
        for number in range(first, first + calls):
            call, expected = self._prepare(op, number)
            start = time.perf_counter()
            answer = call()
            times.append((time.perf_counter() - start) * 1000)
            if expected is not None and any(expected in text for text in answer):
                found += 1
            if time.perf_counter() - began > seconds:
                break
        return {"ms": times, "found": found}

    def overhead(self, first: int, calls: int) -> dict[str, Any]:
        """Time a shallow recall, the engine's own query and the embedder in turn.

        Only for a peer with a method `raw`, which asks the engine under it.
        """
        raw = self._peer.raw  # type: ignore[attr-defined]
        times: dict[str, list[float]] = {"recall": [], "raw": [], "embed": []}
        for number in range(first, first + calls):
            query = self._corpus.query(number, self._size)
            vector = embed([query])[0]
            for name, call, argument in (
                ("recall", self._peer.shallow, query),
                ("raw", raw, vector),
                ("embed", embed, [query]),
            ):
                start = time.perf_counter()
                call(argument)
                times[name].append((time.perf_counter() - start) * 1000)
        return times

    def close(self) -> None:
        """Release the store."""
        self._peer.close()

    def first(self, size: int) -> dict[str, Any]:
        """Answer one shallow recall on a store that an earlier process filled."""
        return {"results": len(self._peer.shallow(self._corpus.query(0, size)))}

    def _prepare(self, op: str, number: int) -> tuple[Callable[[], Any], str | None]:
        """Build one call outside the timed part, and the text a recall should find."""
        peer, corpus = self._peer, self._corpus
        if op == "tree":
            return peer.tree, None
        if op == "remember":
            item = corpus.item(self._next(1))
            return lambda: peer.remember(item), None
        if op == "turn":
            item = corpus.item(self._next(1))
            words = " ".join(item.content.split()[2:8])
            return lambda: self._turn(item, words), words
        if op == "remember_many":
            start = self._next(1000)
            items = [corpus.item(n) for n in range(start, start + 1000)]
            texts = [item.content for item in items]
            return lambda: peer.remember_many(texts, items[0]), None
        if op == "embed":
            query = corpus.query(number, self._size)
            return lambda: embed([query]), None
        if op == "scoped":
            scope, query = project(number), corpus.query(number, self._size, share=100)
            return lambda: peer.scoped(query, scope), query
        if op == "team":
            scope, query = team(number), corpus.query(number, self._size, share=10)
            return lambda: peer.scoped(query, scope), query
        query = corpus.query(number, self._size)
        recall = getattr(peer, op)
        return lambda: recall(query), query

    def _turn(self, item: Item, query: str) -> list[str]:
        self._peer.remember(item)
        return self._peer.shallow(query)

    def _next(self, count: int) -> int:
        start = self._size + self._written
        self._written += count
        return start


def start(arguments: list[str]) -> Worker:
    """Open the system whose module, folder and seed are given."""
    module, folder, seed = arguments[0], Path(arguments[1]), int(arguments[2])
    folder.mkdir(parents=True, exist_ok=True)
    peer: Peer = importlib.import_module(module).open_peer(folder)
    return Worker(peer, folder, seed)


if __name__ == "__main__":
    serve(start)
