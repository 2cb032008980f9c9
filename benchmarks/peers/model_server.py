"""The fake model that every system asks: JSON commands on stdin, JSON answers on stdout.

Run with mnemotrace's interpreter by `benchmarks/llm_calls.py`. The first line out is the server's
address. `take` returns what was asked since the last `take`; standard input ending ends it.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

from workload import Corpus, project

from mnemotrace.testing import FakeServer, ServerRequest
from mnemotrace.tokens import count_tokens

EXPLORATION_PROMPT = "say what's missing"
"""By this part of its prompt CrewAI's exploration is told, which asks without a schema."""


class Model:
    """Valid answers for the schemas of both systems, the same content for both."""

    def __init__(self, seed: int) -> None:
        self._corpus = Corpus(seed)
        self._numbers = itertools.count()

    def answers(self) -> dict[str, Any]:
        """Return the answer to each schema, by its title."""
        return {
            "SaveAnalysis": self._save,
            "MemoryAnalysis": self._save_crewai,
            "ConsolidationPlan": {
                "actions": [],
                "insert_new": True,
                "insert_reason": "It differs.",
            },
            "QueryAnalysis": self._query,
            "Exploration": self._explore,
            "text": "The name of the supplier is missing.",
        }

    def _fields(self) -> dict[str, Any]:
        number = next(self._numbers)
        item = self._corpus.item(number)
        return {
            "scope": project(number),
            "categories": item.categories,
            "importance": item.importance,
            "entities": ["supplier"],
            "dates": [],
            "topics": item.content.split()[:2],
        }

    def _save(self, request: ServerRequest) -> dict[str, Any]:
        return self._fields()

    def _save_crewai(self, request: ServerRequest) -> dict[str, Any]:
        fields = self._fields()
        extracted = {name: fields.pop(name) for name in ("entities", "dates", "topics")}
        fields["suggested_scope"] = fields.pop("scope")
        return {**fields, "extracted_metadata": extracted}

    def _query(self, request: ServerRequest) -> dict[str, Any]:
        phrases = self._phrases(1)
        properties = (request.schema or {}).get("properties") or {}
        if "recall_queries" in properties:  # CrewAI's
            return {
                "keywords": phrases[0].split()[:2],
                "suggested_scopes": [],
                "complexity": "complex",
                "recall_queries": phrases,
                "time_filter": None,
            }
        return {
            "sub_queries": phrases,
            "keywords": phrases[0].split()[:2],
            "scopes": [],
            "complexity": "complex",
            "since": None,
            "until": None,
        }

    def _explore(self, request: ServerRequest) -> dict[str, Any]:
        return {
            "gaps": ["the name of the supplier"],
            "sub_queries": self._phrases(1),
            "scopes": [],
        }

    def _phrases(self, count: int) -> list[str]:
        """Return phrases of words that are in the corpus, new ones each time."""
        return [self._corpus.query(next(self._numbers), 100) for _ in range(count)]


def _asked(request: ServerRequest) -> str:
    exploring = EXPLORATION_PROMPT in request.prompt
    return "Exploration" if request.title == "text" and exploring else request.title


def main() -> None:
    """Serve until standard input ends."""
    latency, seed = float(sys.argv[1]), int(sys.argv[2])
    with FakeServer(Model(seed).answers(), delay=latency) as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            if json.loads(line)["do"] != "take":
                break
            print(json.dumps(_take(server)), flush=True)


def _take(server: FakeServer) -> dict[str, Any]:
    """Return what was asked so far, and begin to count anew.

    Tokens are counted here and not while answering, where they would add to the latency.
    """
    asked: dict[str, int] = {}
    for request in server.requests:
        asked[_asked(request)] = asked.get(_asked(request), 0) + 1
    taken = {
        "calls": len(server.requests),
        "asked": asked,
        "tokens_in": sum(count_tokens(request.prompt) for request in server.requests),
        "tokens_out": sum(count_tokens(text) for text in server.written),
        "most_running": server.most_running,
    }
    server.requests.clear()
    server.written.clear()
    server.most_running = 0
    return taken


if __name__ == "__main__":
    main()
