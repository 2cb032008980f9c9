"""What the language of a text puts into its vector, for embedders that take it off.

Texts of one language have much in common in a model's space, whatever they say: across a store of
several languages a question is nearest to the texts in its own. Taking the mean vector of a
language off each of its texts removes that. The means are measured on twenty sentences that say
the same in four languages (``sentences.txt``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.language import languages

LANGUAGES = ("English", "Korean", "Chinese", "Japanese")
"""The order of the rows; the row after them, the mean of all, serves every other language."""
_SHORT = 200
"""Characters that are looked at for the language."""

Vectors = NDArray[np.float32]


def rows_of(texts: Sequence[str]) -> NDArray[np.intp]:
    """Return which row of a table of means is that of each text's language."""
    return np.array([_row(text) for text in texts], dtype=np.intp)


def _row(text: str) -> int:
    for language in languages(text[:_SHORT])[:1]:
        if language in LANGUAGES:
            return LANGUAGES.index(language)
        if language == "Latin script":
            return 0
    return len(LANGUAGES)


def sentences() -> list[tuple[str, ...]]:
    """Return the sentences, each in the order of `LANGUAGES`."""
    path = Path(__file__).with_name("sentences.txt")
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    return [tuple(block.splitlines()) for block in blocks if not block.startswith("#")]


def measure(embed: Callable[[list[str]], Vectors]) -> Vectors:
    """Return the mean vector of each language, and of all: shape (languages + 1, d).

    Args:
        embed: from texts to a model's vectors.
    """
    means = [embed(list(texts)).mean(axis=0) for texts in zip(*sentences(), strict=True)]
    return np.asarray([*means, np.mean(means, axis=0)], dtype=np.float32)


def unit(vectors: Any) -> Vectors:
    """Return rows at length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
