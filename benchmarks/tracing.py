"""What tracing costs: a recall with it and without, and the time its views take.

Everything is measured in one run: recalls with and without a trace take turns, so that both see
the same machine. Exit code 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from mnemotrace import Memory
from mnemotrace.testing import FakeEmbedder
from mnemotrace.trace import Span, Trace

MOST_ADDED_MS = 0.2
MOST_RENDER_MS = 200.0
RECORDS = 500
SPANS = 1000


@dataclass(frozen=True)
class Measured:
    """One number with its limit.

    Attributes:
        what: as in the report.
        ms: the median.
        most: the limit.
        remark: what it was made from.
    """

    what: str
    ms: float
    most: float
    remark: str

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.ms <= self.most


def timed(call: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def added(rounds: int) -> list[Measured]:
    """Measure what a trace adds to a recall."""
    found = []
    with Memory(storage=":memory:", llm=None, embedder=FakeEmbedder()) as memory:
        texts = [
            f"Note {number} of the meeting about the {number % 17}th plan."
            for number in range(RECORDS)
        ]
        memory.remember_many(texts, scope="/notes", categories=["note"], importance=0.5).wait()
        for depth in ("deep", "shallow"):
            times: dict[str, list[float]] = {"off": [], "on": []}
            for number in range(rounds + 20):
                order = ("off", "on") if number % 2 else ("on", "off")
                for level in order:
                    query = f"plan {number}"
                    took = timed(
                        lambda: memory.recall(query, depth=depth, trace=level)  # type: ignore[arg-type]  # noqa: B023
                    )
                    if number >= 20:  # the first ones warm up
                        times[level].append(took)
            differences = [on - off for on, off in zip(times["on"], times["off"], strict=True)]
            off, on = statistics.median(times["off"]), statistics.median(times["on"])
            found.append(
                Measured(
                    f"tracing adds to a {depth} recall",
                    statistics.median(differences),
                    MOST_ADDED_MS,
                    f"{off:.2f} ms without, {on:.2f} ms with",
                )
            )
    return found


def long_trace() -> Trace:
    """Return a trace of a thousand spans that are all shown: no two have the same name."""
    trace = Trace("recall", attrs={"depth": "deep", "limit": 10})
    for number in range(1, SPANS + 1):
        top = (number - 1) % 10 == 0
        parent = 0 if top else (number - 1) // 10 * 10 + 1
        start = number * 10_000
        facts = {
            "plan": "selective",
            "candidates": number,
            "confidence": 0.123456,
            "scopes": ["/project/alpha/decisions", "/project/beta"],
            "reason": "shorter than 200 characters",
        }
        kind, length = ("step", 90_000) if top else ("search", 9_000)
        trace.spans.append(
            Span(number, parent, f"span{number}", kind, start, start + length, attrs=facts)
        )
    trace.root.end_ns = (SPANS + 20) * 10_000
    trace.closed = True
    return trace


def rendered(rounds: int) -> list[Measured]:
    """Measure the views of a long trace."""
    trace = long_trace()

    def in_colour() -> str:
        out = io.StringIO()
        Console(file=out, force_terminal=True, color_system="truecolor", width=120).print(trace)
        return out.getvalue()

    views: dict[str, Callable[[], str]] = {
        "terminal, in colour": in_colour,
        "terminal, 120 columns": lambda: trace.render(120),
        "terminal, 40 columns": lambda: trace.render(40),
        "HTML": trace._repr_html_,
        "SVG": trace.draw,
        "Mermaid": lambda: trace.draw("mermaid"),
    }
    found = []
    for name, view in views.items():
        size = len(view())  # also loads what the view needs
        took = statistics.median(timed(view) for _ in range(rounds))
        found.append(
            Measured(
                f"{SPANS:,} spans as {name}", took, MOST_RENDER_MS, f"{size / 1000:,.0f} kB of text"
            )
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400, help="recalls with and without a trace")
    options = parser.parse_args(arguments)
    results = added(options.rounds) + rendered(max(3, options.rounds // 40))
    print(f"{'':40} {'measured':>10} {'limit':>9}")
    for item in results:
        verdict = "" if item.met else "  MISSED"
        print(f"{item.what:40} {item.ms:7.2f} ms {item.most:6.1f} ms  {item.remark}{verdict}")
    return 0 if all(item.met for item in results) else 1


if __name__ == "__main__":
    sys.exit(main())
