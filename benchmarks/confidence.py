"""Fit and check the confidence of a recall: does it tell whether the evidence was found?

    python benchmarks/confidence.py conversations.json [more.json ...]

Reads conversations in the format of LoCoMo, stores their turns in mnemotrace with the bundled
embedder and no language model, asks every question at depth shallow, and takes from each trace how
far the best record stands out. Prints the logistic regression of "evidence among the ten" on that,
its AUROC on conversations it was not fitted on, and how often the evidence was there by confidence.
`mnemotrace.scoring.confidence` holds the numbers in force.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace import Memory, scoring

Array = NDArray[np.float64]
ANSWERABLE = (1, 2, 3, 4)


@dataclass(frozen=True)
class Question:
    """One question that was asked."""

    conversation: int
    evidence: float
    """What `mnemotrace.scoring.confidence` is made from: how far the best stands out."""
    confidence: float
    found: bool


def turns_of(conversation: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each session's name with its turns: dialog id and text."""
    number = 1
    while f"session_{number}" in conversation:
        date = conversation.get(f"session_{number}_date_time", "")
        turns = []
        for turn in conversation[f"session_{number}"]:
            shares = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"[{date}] {turn['speaker']}: {turn['text']}{shares}"
            turns.append((turn["dia_id"], text))
        yield f"D{number}", turns
        number += 1


def ask(number: int, data: dict[str, Any]) -> Iterator[Question]:
    """Store one conversation and ask its questions."""
    with Memory(storage=":memory:", embedder="bundled", llm=None) as memory:
        ids: dict[str, set[str]] = {}
        for session, turns in turns_of(data["conversation"]):
            memory.remember_many([text for _, text in turns], "/talk", session=session)
            for dialog_id, text in turns:
                ids.setdefault(text, set()).add(dialog_id)
        memory.drain_writes()
        known = set().union(*ids.values())
        manifest = memory.store.manifest()
        assert manifest is not None
        levels = manifest.embedder["calibration"]
        for question in data["qa"]:
            wanted = set(re.findall(r"D\d+:\d+", " ".join(question.get("evidence", ())))) & known
            if question["category"] not in ANSWERABLE or not wanted:
                continue
            answer = memory.recall(question["question"], limit=10, depth="shallow")
            facts = answer.trace.find("search")[0].attrs
            got = set().union(*(ids[match.record.content] for match in answer))
            yield Question(number, _evidence(facts, levels), answer.confidence, bool(wanted & got))


def _evidence(facts: dict[str, Any], levels: dict[str, float]) -> float:
    """Invert the logistic function: the evidence is what the confidence grows with."""
    value = scoring.confidence(
        facts["best_cosine"],
        facts["ordinary_cosine"],
        facts["coverage"],
        facts["ordinary_lexical"],
        levels["lo"],
        levels["hi"],
    )
    value = min(max(value, 1e-9), 1.0 - 1e-9)
    return (math.log(value / (1.0 - value)) - scoring.OFFSET) / scoring.STEEPNESS


def fit(evidence: Array, found: Array) -> Array:
    """Return slope and offset of the logistic regression, by Newton's method."""
    rows = np.c_[evidence, np.ones(len(evidence))]
    weights = np.zeros(2)
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-rows @ weights))
        curvature = (rows * (chance * (1.0 - chance))[:, None]).T @ rows + 1e-6 * np.eye(2)
        weights -= np.linalg.solve(curvature, rows.T @ (chance - found))
    return weights


def auroc(scores: Array, found: Array) -> float:
    """Return the chance that a found one scores above one not found; ties count half."""
    yes, no = scores[found > 0], scores[found == 0]
    if not len(yes) or not len(no):
        return math.nan
    above = (yes[:, None] > no).mean() + 0.5 * (yes[:, None] == no).mean()
    return float(above)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="conversations in LoCoMo's format")
    options = parser.parse_args(arguments)
    data = [one for path in options.files for one in json.loads(path.read_text("utf-8"))]
    asked = [question for number, one in enumerate(data) for question in ask(number, one)]
    evidence = np.array([question.evidence for question in asked])
    found = np.array([float(question.found) for question in asked])
    group = np.array([question.conversation for question in asked])
    print(f"{len(asked)} questions, evidence among the ten for {found.mean():.1%}")
    slope, offset = fit(evidence, found)
    print(f"fitted: 1 / (1 + exp(-({slope:.2f} * evidence {offset:+.2f})))")
    print(f"in force: {scoring.STEEPNESS} and {scoring.OFFSET}")
    print(f"AUROC: {auroc(evidence, found):.3f}")
    for number in sorted(set(group)):
        held = group == number
        print(f"  conversation {number}: {auroc(evidence[held], found[held]):.3f}")
    print("| confidence | questions | evidence found |\n|---|---|---|")
    levels = np.array([question.confidence for question in asked])
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (levels >= low) & (levels < low + 0.2 + (low > 0.7))
        if inside.any():
            print(f"| {low:.1f} to {low + 0.2:.1f} | {inside.sum()} | {found[inside].mean():.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
