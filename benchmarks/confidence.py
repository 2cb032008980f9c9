"""Fit and check the confidence of a recall: does it tell whether the evidence was found?

    python benchmarks/confidence.py conversations.json [more.json ...]

Reads conversations in the format of LoCoMo, stores their turns in mnemotrace with the bundled
embedder and no language model, asks every question at depth shallow, and takes from each trace how
far the best record stands out. Prints the logistic regression of "evidence among the ten" on that,
its AUROC for all and for each conversation, and how often the evidence was there by confidence.
`mnemotrace.scoring.confidence` holds the numbers in force.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from locomo import Conversation, read
from numpy.typing import NDArray
from quality_metrics import auroc

from mnemotrace import Memory, scoring

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """One question that was asked."""

    conversation: int
    evidence: float
    """How far the best stands out: `mnemotrace.scoring.standing_out`."""
    confidence: float
    found: bool


def ask(number: int, conversation: Conversation) -> Iterator[Question]:
    """Store one conversation and ask its questions."""
    with Memory(storage=":memory:", embedder="bundled", llm=None) as memory:
        for session, turns in groupby(conversation.turns, lambda turn: turn.session):
            memory.remember_many(
                [{"content": turn.text, "record_id": turn.id} for turn in turns],
                "/talk",
                session=session,
            )
        memory.drain_writes()
        manifest = memory.store.manifest()
        assert manifest is not None
        levels = manifest.embedder["calibration"]
        for question in conversation.questions:
            answer = memory.recall(question.text, limit=10, depth="shallow")
            facts = answer.trace.find("search")[0].attrs
            evidence = scoring.standing_out(
                facts["best_cosine"],
                facts["ordinary_cosine"],
                facts["coverage"],
                facts["ordinary_lexical"],
                levels["lo"],
                levels["hi"],
            )
            found = any(match.record.id in question.evidence for match in answer)
            yield Question(number, evidence, answer.confidence, found)


def fit(evidence: Array, found: Array) -> Array:
    """Return slope and offset of the logistic regression, by Newton's method."""
    rows = np.c_[evidence, np.ones(len(evidence))]
    weights = np.zeros(2)
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-rows @ weights))
        curvature = (rows * (chance * (1.0 - chance))[:, None]).T @ rows + 1e-6 * np.eye(2)
        weights -= np.linalg.solve(curvature, rows.T @ (chance - found))
    return weights


def _auroc(asked: Sequence[Question]) -> str:
    value = auroc([question.evidence for question in asked], [q.found for q in asked])
    return "-" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="conversations in LoCoMo's format")
    options = parser.parse_args(arguments)
    conversations = [one for path in options.files for one in read(path)]
    asked = [question for number, one in enumerate(conversations) for question in ask(number, one)]
    evidence = np.array([question.evidence for question in asked])
    found = np.array([float(question.found) for question in asked])
    print(f"{len(asked)} questions, evidence among the ten for {found.mean():.1%}")
    slope, offset = fit(evidence, found)
    print(f"fitted: 1 / (1 + exp(-({slope:.2f} * evidence {offset:+.2f})))")
    print(f"in force: {scoring.STEEPNESS} and {scoring.OFFSET}")
    print(f"AUROC: {_auroc(asked)}")
    for number in range(len(conversations)):
        print(f"  conversation {number}: {_auroc([q for q in asked if q.conversation == number])}")
    print("| confidence | questions | evidence found |\n|---|---|---|")
    levels = np.array([question.confidence for question in asked])
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (levels >= low) & (levels < low + 0.2 + (low > 0.7))
        if inside.any():
            print(f"| {low:.1f} to {low + 0.2:.1f} | {inside.sum()} | {found[inside].mean():.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
