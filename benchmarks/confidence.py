"""Fit and check the confidence of a recall: does it tell whether the evidence was found?

    python benchmarks/confidence.py conversations.json [more.json ...]

Reads conversations in the format of LoCoMo, stores their turns in mnemotrace with the bundled
embedder and no language model, asks every question at depth shallow, and takes from each trace how
far the best record stands out. Does the same with the multilingual set, where some questions have no
answer and right is what comes first. Prints the logistic regression of "found" on that, with equal
weight for both, its AUROC for all and for each part, and how often the evidence was there by
confidence. `mnemotrace.scoring.confidence` holds the numbers in force.
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
from multilingual_set import LANGUAGES, Part
from multilingual_set import read as read_part
from numpy.typing import NDArray
from quality_metrics import auroc

from mnemotrace import Memory, Recall, scoring

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """One question that was asked."""

    part: str
    evidence: float
    """How far the best stands out: `mnemotrace.scoring.standing_out`."""
    confidence: float
    found: bool
    answerable: bool = True


def ask(part: str, conversation: Conversation) -> Iterator[Question]:
    """Store one conversation and ask its questions."""
    with Memory(storage=":memory:", embedder="bundled", llm=None) as memory:
        for session, turns in groupby(conversation.turns, lambda turn: turn.session):
            memory.remember_many(
                [{"content": turn.text, "record_id": turn.id} for turn in turns],
                "/talk",
                session=session,
            )
        for question in conversation.questions:
            answer, evidence = _recall(memory, question.text)
            found = any(match.record.id in question.evidence for match in answer)
            yield Question(part, evidence, answer.confidence, found)


def ask_language(part: Part) -> Iterator[Question]:
    """Store the facts of one language and ask every question, those without an answer, too."""
    with Memory(storage=":memory:", embedder="bundled", llm=None) as memory:
        memory.remember_many(part.texts(), "/facts")
        asked = [
            (question, fact.text)
            for fact in part.facts
            for question in (fact.fragment, fact.question, *fact.crossing.values())
        ]
        for question, wanted in (*asked, *((one, None) for one in part.unanswerable)):
            answer, evidence = _recall(memory, question)
            found = answer[0].record.content == wanted
            yield Question(part.language, evidence, answer.confidence, found, wanted is not None)


def _recall(memory: Memory, question: str) -> tuple[Recall, float]:
    """Return what is found, and how far the best of it stands out."""
    answer = memory.recall(question, limit=10, depth="shallow")
    manifest = memory.store.manifest()
    assert manifest is not None
    levels = manifest.embedder["calibration"]
    facts = answer.trace.find("search")[0].attrs
    evidence = scoring.standing_out(
        facts["best_cosine"],
        facts["ordinary_cosine"],
        facts["coverage"],
        facts["ordinary_lexical"],
        levels["lo"],
        levels["hi"],
    )
    return answer, evidence


def fit(evidence: Array, found: Array, weight: Array) -> Array:
    """Return slope and offset of the weighted logistic regression, by Newton's method."""
    rows = np.c_[evidence, np.ones(len(evidence))]
    weights = np.zeros(2)
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-rows @ weights))
        curvature = (rows * (weight * chance * (1.0 - chance))[:, None]).T @ rows + 1e-6 * np.eye(2)
        weights -= np.linalg.solve(curvature, rows.T @ (weight * (chance - found)))
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
    talks = [q for number, one in enumerate(conversations) for q in ask(f"talk {number}", one)]
    facts = [question for name in LANGUAGES for question in ask_language(read_part(name))]
    asked = [*talks, *facts]
    weight = np.repeat([1.0 / len(talks), 1.0 / len(facts)], [len(talks), len(facts)])
    evidence = np.array([question.evidence for question in asked])
    found = np.array([float(question.found) for question in asked])
    rate = found[: len(talks)].mean()
    print(f"{len(talks)} questions, evidence among the ten for {rate:.1%}; {len(facts)} of facts")
    slope, offset = fit(evidence, found, weight * len(asked))
    print(f"fitted: 1 / (1 + exp(-({slope:.2f} * evidence {offset:+.2f})))")
    print(f"in force: {scoring.STEEPNESS} and {scoring.OFFSET}")
    print(f"AUROC: {_auroc(talks)} conversations, {_auroc(facts)} facts")
    for part in dict.fromkeys(question.part for question in asked):
        print(f"  {part}: {_auroc([q for q in asked if q.part == part])}")
    unanswerable = [question.confidence for question in facts if not question.answerable]
    print(f"median confidence where nothing answers: {np.median(unanswerable):.2f}")
    print("| confidence | questions | evidence found |\n|---|---|---|")
    levels = np.array([question.confidence for question in talks])
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (levels >= low) & (levels < low + 0.2 + (low > 0.7))
        if inside.any():
            print(
                f"| {low:.1f} to {low + 0.2:.1f} | {inside.sum()} | {found[: len(talks)][inside].mean():.2f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
