"""One system with a language model in one process, for `benchmarks/llm_calls.py`.

Started with the system's own interpreter. JSON commands on stdin are objects with a `do` key (a
method of `LLMWorker`, or `close`); every answer on stdout is one line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import serve
from workload import Corpus, embed

MODEL = "gpt-4o-mini"
SCOPE = "/benchmark"
NEVER_CONFIDENT = {
    "confidence_threshold_high": 1.0,
    "confidence_threshold_low": 1.0,
    "complex_query_threshold": 1.0,
}
LONG = 260
UNSTORED = 10_000_000
"""Records from this number on are never stored."""


def open_mnemotrace(folder: Path, url: str, **settings: Any) -> Any:
    """Open mnemotrace with the model at `url`."""
    from mnemotrace import Memory
    from mnemotrace.llm.litellm_adapter import LiteLLMModel

    llm = LiteLLMModel(f"openai/{MODEL}", api_base=url, api_key="not-needed")
    return Memory(llm, folder, embed, **settings)


def open_crewai(folder: Path, url: str, **settings: Any) -> Any:
    """Open CrewAI's memory with the model at `url`."""
    from crewai import LLM, Memory

    llm = LLM(model=f"openai/{MODEL}", base_url=url, api_key="not-needed")
    return Memory(llm=llm, storage=str(folder), embedder=embed, **settings)


class LLMWorker:
    """Runs operations on one memory; texts are new in every round."""

    def __init__(self, system: str, folder: Path, url: str, seed: int) -> None:
        self._open = {"mnemotrace": open_mnemotrace, "crewai": open_crewai}[system]
        self._system = system
        self._folder = folder
        self._url = url
        self._corpus = Corpus(seed)
        self._next = 0
        self._memory = self._open(folder / "main", url)
        self._exploring: Any = None
        self._stored: list[str] = []

    def prepare(self, records: int, scopes: int, budget: int) -> dict[str, Any]:
        """Fill the memories that are recalled from, and let every library load what it needs."""
        self._stored = self._texts(records)
        given: dict[str, Any] = {"categories": ["note"], "importance": 0.5}
        self._memory.remember_many(self._stored, scope=SCOPE, **given)
        self._exploring = self._open(
            self._folder / "exploring", self._url, exploration_budget=budget, **NEVER_CONFIDENT
        )
        for number in range(scopes):
            self._exploring.remember_many(self._texts(20), scope=f"/team-{number}", **given)
        self._memory.remember(self._texts(1)[0])
        self._memory.recall(self._long(0), depth="deep")
        for memory in (self._memory, self._exploring):
            memory.drain_writes()
        return {"loaded": records}

    def run(self, op: str, number: int) -> dict[str, Any]:
        """Time one operation; returns its milliseconds."""
        call = self._prepare(op, number)
        if call is None:
            return {"ms": None, "results": 0}
        start = time.perf_counter()
        results = call()
        return {"ms": (time.perf_counter() - start) * 1000, "results": results}

    def close(self) -> None:
        """Close what is open."""
        for memory in (self._memory, self._exploring):
            if memory is not None:
                memory.close()

    def _prepare(self, op: str, number: int) -> Callable[[], int] | None:
        given: dict[str, Any] = {"scope": SCOPE, "categories": ["note"], "importance": 0.5}
        if op == "given":
            texts = self._texts(100)
            return lambda: self._save(texts, **given)
        if op == "inferred":
            texts = self._texts(100)
            return lambda: self._save(texts)
        if op == "similar":
            texts = [f"{text} {number}" for text in self._stored[:100]]
            return lambda: self._save(texts, **given)
        if op == "bare":
            return self._bare if self._system == "mnemotrace" else None
        if op == "single":
            texts = self._texts(100)
            return lambda: len([self._memory.remember(text) for text in texts])
        if op == "short":
            query = " ".join(self._stored[number % len(self._stored)].split()[2:8])
            return lambda: len(self._memory.recall(query, limit=10, depth="deep"))
        if op == "long":
            query = self._long(number)
            return lambda: len(self._memory.recall(query, limit=10, depth="deep"))
        query = self._unanswered(number)
        return lambda: len(self._exploring.recall(query, limit=10, depth="deep"))

    def _save(self, texts: list[str], **given: Any) -> int:
        self._memory.remember_many(texts, **given)
        self._memory.drain_writes()
        return len(texts)

    def _bare(self) -> int:
        """Send as many requests of the same kind by litellm alone, as many at a time."""
        import litellm

        from mnemotrace.flows.answers import SaveAnalysis

        schema = {"name": "SaveAnalysis", "schema": SaveAnalysis.model_json_schema()}
        form = {"type": "json_schema", "json_schema": schema}
        prompt = " ".join(self._stored[:20])

        async def all_of_them() -> int:
            limit = asyncio.Semaphore(self._memory.config.llm_concurrency)

            async def one() -> Any:
                async with limit:
                    return await litellm.acompletion(
                        model=f"openai/{MODEL}",
                        messages=[{"role": "user", "content": prompt}],
                        response_format=form,
                        api_base=self._url,
                        api_key="not-needed",
                    )

            return len(await asyncio.gather(*(one() for _ in range(100))))

        return asyncio.run(all_of_them())

    def _texts(self, count: int) -> list[str]:
        start, self._next = self._next, self._next + count
        return [self._corpus.item(number).content for number in range(start, start + count)]

    def _long(self, number: int) -> str:
        """Return a query above both systems' threshold for analysis, of words that are stored."""
        query = f"What do we know about this, and what follows? ({number})"
        for text in self._stored[number % len(self._stored) :]:
            if len(query) >= LONG:
                break
            query = f"{query} {text}"
        return query[:LONG]

    def _unanswered(self, number: int) -> str:
        """Return a query as long that no stored record answers."""
        first = UNSTORED + number * 20
        texts = [self._corpus.item(other).content for other in range(first, first + 20)]
        return f"What do we know about this? {' '.join(texts)}"[:LONG]


def start(arguments: list[str]) -> LLMWorker:
    """Open the system whose name, folder, model server and seed are given."""
    system, folder, url, seed = arguments[0], Path(arguments[1]), arguments[2], int(arguments[3])
    folder.mkdir(parents=True, exist_ok=True)
    return LLMWorker(system, folder, url, seed)


if __name__ == "__main__":
    serve(start)
