"""How long one recall takes with the real bundled embedder, its embedding included.

    python benchmarks/latency.py                     # 10,000 records
    python benchmarks/latency.py --records 10000,50000 --check

No peers: `speed.py` compares, with an embedder that costs nothing. Here the model is the one that
users have. Times are in milliseconds; on a machine that does other work they mean little.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from workload import Corpus

from mnemotrace import Memory
from mnemotrace.embedders.bundled import BundledEmbedder

QUERIES = 200
LIMIT_MS = 8.0
"""What issue 4 allows for 10,000 records."""


def median(call: Callable[[str], object], queries: Sequence[str]) -> float:
    """Return the median of one call for each query in milliseconds, after an uncounted warm-up."""
    for query in queries[:20]:
        call(query)
    times = []
    for query in queries:
        begun = time.perf_counter()
        call(query)
        times.append((time.perf_counter() - begun) * 1000)
    return sorted(times)[len(times) // 2]


def measure(records: int, folder: Path) -> dict[str, float]:
    """Return p50 by what was measured, over a new store with so many records."""
    corpus = Corpus(1)
    with Memory(llm=None, storage=folder, embedder="bundled") as memory:
        for start in range(0, records, 1000):
            items = [corpus.item(number) for number in range(start, min(start + 1000, records))]
            memory.remember_many(
                {
                    "content": item.content,
                    "scope": item.scope,
                    "categories": item.categories,
                    "importance": item.importance,
                }
                for item in items
            )
        memory.drain_writes()
        queries = [corpus.query(number, records) for number in range(QUERIES)]
        model = BundledEmbedder()
        return {
            "embedding one query": median(lambda q: model.embed([q]), queries),
            "recall, shallow": median(lambda q: memory.recall(q, depth="shallow"), queries),
            "recall, deep": median(memory.recall, queries),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; 1 when a requirement is missed and `--check` was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", default="10000", help="numbers with commas between")
    parser.add_argument("--check", action="store_true", help="exit with 1 beyond the limit")
    chosen = parser.parse_args(arguments)
    print("| records | what | p50, ms |\n|---|---|---|")
    late = False
    for records in map(int, chosen.records.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(records, Path(folder) / "memory")
        for name, value in found.items():
            print(f"| {records:,} | {name} | {value:.1f} |")
        late = late or (records == 10_000 and found["recall, shallow"] >= LIMIT_MS)
        late = late or (records == 10_000 and found["recall, deep"] >= LIMIT_MS)
    return int(late and chosen.check)


if __name__ == "__main__":
    sys.exit(main())
