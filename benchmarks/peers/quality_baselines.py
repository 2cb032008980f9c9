"""What needs no memory system: chance, BM25 over stems, and the nearest vectors.

They run in mnemotrace's environment for its numpy and snowballstemmer, and use none of its code.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from functools import cache
from typing import Any

import snowballstemmer
from quality_worker import Setup, Turn

K1, B = 1.2, 0.75
STOP_WORDS = frozenset(
    """a about an and any are as at be been being but by can could did do does doing for from had
    has have he her hers him his how i if in into is it its me my of off on or our ours out over
    she should so some such than that the their them then there these they this those through to
    too under up us was we were what when where which while who whom whose why will with would
    you your yours s t d m ll re ve""".split()  # noqa: SIM905 - one word a line is unreadable
)
_WORD = re.compile(r"\w+")
_stemmer = snowballstemmer.stemmer("english")
_stem = cache(_stemmer.stemWord)


def stems(text: str) -> list[str]:
    """Return the stems of a text's words, English function words left out."""
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


class Baseline:
    """A ranking of all texts by one number each; times play no part."""

    remarks: tuple[str, ...] = ()
    cannot_set_time = "its ranking knows none"

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.texts: list[str] = []

    def load(self, turns: list[Turn], now: str, timed: bool) -> int:
        """Keep the texts."""
        self.texts = [turn.text for turn in turns]
        self.prepare()
        return len(self.texts)

    def prepare(self) -> None:
        """Index the texts."""

    def scores(self, question: str) -> list[float]:
        """Return one number a text; above 0 for those that may be found."""
        raise NotImplementedError

    def recall(self, mode: str, question: str, limit: int) -> tuple[list[str], float | None]:
        """Return the texts with the highest scores, the earlier first where they are equal."""
        scores = self.scores(question)
        best = sorted(range(len(scores)), key=lambda row: -scores[row])[:limit]
        return [self.texts[row] for row in best if scores[row] > 0], None

    def close(self) -> None:
        """Nothing to release."""


class Chance(Baseline):
    """A random order, the same for the same question."""

    def scores(self, question: str) -> list[float]:
        """Return random numbers."""
        rng = random.Random(f"{self.setup.seed}:{question}")
        return [1.0 - rng.random() for _ in self.texts]


class BM25(Baseline):
    """Okapi BM25 (Robertson and Zaragoza, 2009) over English stems, with a stop list."""

    def prepare(self) -> None:
        """Count stems."""
        self._counts = [Counter(stems(text)) for text in self.texts]
        self._lengths = [counts.total() for counts in self._counts]
        self._mean = max(sum(self._lengths) / len(self._lengths), 1e-9)
        self._holding = Counter(stem for counts in self._counts for stem in counts)

    def scores(self, question: str) -> list[float]:
        """Return the BM25 score of every text."""
        weights = {}
        for stem in set(stems(question)):
            holding = self._holding[stem]
            weights[stem] = math.log(1 + (len(self.texts) - holding + 0.5) / (holding + 0.5))
        found = []
        for counts, length in zip(self._counts, self._lengths, strict=True):
            damping = K1 * (1 - B + B * length / self._mean)
            # Sorted, because the order of a set of words, and with it rounding, changes by process.
            found.append(
                sum(
                    weights[stem] * counts[stem] * (K1 + 1) / (counts[stem] + damping)
                    for stem in sorted(weights)
                    if counts[stem]
                )
            )
        return found


class VectorOnly(Baseline):
    """The cosine of the bundled embedder's vectors."""

    def prepare(self) -> None:
        """Stack the unit vectors."""
        self._vectors = _unit(self.setup.vectors.array(self.texts))

    def scores(self, question: str) -> list[float]:
        """Return 1 + cosine."""
        query = _unit(self.setup.vectors.array([question]))[0]
        scores: list[float] = (1.0 + self._vectors @ query).tolist()
        return scores


def _unit(vectors: Any) -> Any:
    return vectors / (vectors**2).sum(axis=1, keepdims=True) ** 0.5


def open_peer(setup: Setup) -> Baseline:
    """Open the baseline that the options name."""
    kinds = {"chance": Chance, "bm25": BM25, "vector": VectorOnly}
    return kinds[setup.options["baseline"]](setup)
