"""The same records, queries and embedder for every system under measurement.

Imported inside three different virtual environments, so it needs numpy and nothing else.
Everything is a function of fixed seeds: two processes build the same text, vector and query.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

DIMENSION = 256
LEAVES = 1_000  # 10 teams x 10 projects x 10 persons: a team holds 10 %, a project 1 %
_VOCABULARY = 20_000
_PROJECTION_ROWS = 8_192
_WORD = re.compile(r"\w+")
_PROJECTION = np.random.default_rng(20_260).standard_normal((_PROJECTION_ROWS, DIMENSION))
_CATEGORIES = ("decision", "fact", "preference", "task", "incident", "contact", "budget", "design")


def embed(texts: list[str]) -> list[list[float]]:
    """Random projection of hashed words, unit length, about 50 microseconds a short text.

    Cheap on purpose: an embedding model's time is the same for every system and would only
    hide the difference between them. Texts that share words come out similar.
    """
    vectors = []
    for text in texts:
        rows = [zlib.crc32(word.encode()) % _PROJECTION_ROWS for word in _WORD.findall(text)]
        total = _PROJECTION[rows].sum(axis=0) if rows else _PROJECTION[0]
        vectors.append((total / np.linalg.norm(total)).tolist())
    return vectors


@dataclass(frozen=True)
class Item:
    """One record of the corpus with every field given, so that no system asks an LLM."""

    content: str
    scope: str
    categories: list[str]
    importance: float


def team(number: int) -> str:
    """Return the scope of the team that record `number` belongs to: 10 % of all records."""
    return f"/team-{number % 10}"


def project(number: int) -> str:
    """Return the scope of the project that record `number` belongs to: 1 % of all records."""
    return f"{team(number)}/project-{number // 10 % 10}"


def leaf(number: int) -> str:
    """Return the scope that record `number` is stored in, one of 1,000."""
    return f"{project(number)}/person-{number // 100 % 10}"


def _vocabulary() -> list[str]:
    rng = random.Random(7)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "ai", "or")]
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        words["".join(rng.choices(syllables, k=rng.randint(2, 4)))] = None
    return list(words)


class Corpus:
    """Records in the order they are loaded, and queries cut out of them.

    Word frequencies follow the Zipf-Mandelbrot law (weight of rank r is 1 / (r + 2.7)), so a
    keyword index meets words that half the records share as well as rare ones. No two of the
    first 50,000 texts come near a duplicate threshold.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._words = _vocabulary()
        self._cumulative = list(
            accumulate(1.0 / (rank + 2.7) for rank in range(1, 1 + len(self._words)))
        )

    def _text(self, rng: random.Random) -> str:
        return " ".join(
            rng.choices(self._words, cum_weights=self._cumulative, k=rng.randint(12, 24))
        )

    def item(self, number: int) -> Item:
        """Return record `number`, the same one each time.

        Category and importance are one per leaf scope, so that a leaf can be loaded in one call.
        """
        fields = random.Random(f"{self._seed}:{leaf(number)}")
        return Item(
            content=self._text(random.Random(f"{self._seed}:{number}")),
            scope=leaf(number),
            categories=[fields.choice(_CATEGORIES)],
            importance=round(fields.random(), 2),
        )

    def query(self, number: int, size: int, share: int = 1) -> str:
        """Return four to six consecutive words of a stored record, as a person half remembers it.

        Args:
            number: which query.
            size: how many records are loaded; the query comes from one of them.
            share: take the query from every `share`-th record only, starting at `number`: 100
                stays inside `project(number)`, 10 inside `team(number)`.
        """
        rng = random.Random(f"{self._seed}:query:{number}")
        words = self.item(rng.randrange(number % share, size, share)).content.split()
        length = rng.randint(4, 6)
        start = rng.randrange(len(words) - length + 1)
        return " ".join(words[start : start + length])
