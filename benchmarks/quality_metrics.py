"""Measures of a ranking, of a confidence, and of how sure a difference is: pure functions."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence


def recall_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Return the share of the evidence among the first k, 0..1.

    Args:
        ranked: ids, best first, each once.
        evidence: the ids that should be found; at least one.
        k: how many places count.
    """
    return len(set(evidence).intersection(ranked[:k])) / len(evidence)


def reciprocal_rank(ranked: Sequence[str], evidence: Collection[str]) -> float:
    """Return 1 over the place of the first piece of evidence; 0.0 when none is in the list."""
    for place, found in enumerate(ranked, 1):
        if found in evidence:
            return 1.0 / place
    return 0.0


def ndcg_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first k, 0..1.

    Every piece of evidence is worth 1 / log2(place + 1); 1.0 means that the first places hold
    evidence only, as much of it as there is or as fits (Järvelin and Kekäläinen, 2002).
    """
    gain = sum(
        1.0 / math.log2(place + 1) for place, found in enumerate(ranked[:k], 1) if found in evidence
    )
    ideal = sum(1.0 / math.log2(place + 1) for place in range(1, min(k, len(evidence)) + 1))
    return gain / ideal


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """Return how likely a right case scores above a wrong one, a tie counting half.

    This is the area under the ROC curve: 0.5 for scores that say nothing, 1.0 for perfect ones.

    Returns:
        None when all cases are right or all are wrong.
    """
    positives = sum(right)
    negatives = len(right) - positives
    if not positives or not negatives:
        return None
    order = sorted(range(len(scores)), key=lambda case: scores[case])
    total = 0.0
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and scores[order[end]] == scores[order[start]]:
            end += 1
        middle = (start + 1 + end) / 2  # mean of the ranks start+1 .. end
        total += middle * sum(right[case] for case in order[start:end])
        start = end
    return (total - positives * (positives + 1) / 2) / (positives * negatives)


def resamples(sizes: Sequence[int], draws: int, seed: int) -> list[list[int]]:
    """Return bootstrap samples of questions that lie in conversations.

    Each sample draws as many conversations as there are, with replacement, and from each of them
    as many questions as it has, with replacement: questions on one conversation resemble each
    other, and questions alone would make the interval too narrow.

    Args:
        sizes: how many questions each conversation has; the questions are numbered through.
        draws: how many samples.
        seed: same seed, same samples.
    """
    rng = random.Random(seed)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    found = []
    for _ in range(draws):
        sample: list[int] = []
        for number in rng.choices(range(len(sizes)), k=len(sizes)):
            start, size = starts[number], sizes[number]
            sample += rng.choices(range(start, start + size), k=size) if size else []
        found.append(sample)
    return found


def interval(
    values: Sequence[float], samples: Sequence[Sequence[int]], share: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of values.

    Args:
        values: one number a question.
        samples: as of `resamples`.
        share: how much of the means lies inside.

    Raises:
        ValueError: every sample is empty.
    """
    means = sorted(sum(map(values.__getitem__, s)) / len(s) for s in samples if s)
    if not means:
        raise ValueError("There is nothing to resample: no question in any conversation.")
    last = len(means) - 1
    cut = round((1.0 - share) / 2 * last)
    return means[cut], means[last - cut]
