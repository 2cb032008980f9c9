"""Where the vectors of a language lie, so that they can be moved to one place.

Texts of one language have much in common in E5's space, whatever they say: across a store of
several languages a question is nearest to the texts in its own. Taking the mean vector of a
language off each of its texts removes that. The means are measured on twenty sentences that say
the same in four languages (``sentences.txt``) and kept in ``centres.npy``; a test measures them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.language import languages

LANGUAGES = ("English", "Korean", "Chinese", "Japanese")
"""The order of the rows; the row after them, the mean of all, serves every other language."""
_FOLDER = Path(__file__).parent
_SHORT = 200
"""Characters that are looked at for the language."""

Vectors = NDArray[np.float32]


def centre(vectors: Vectors, texts: Sequence[str], *, queries: bool) -> Vectors:
    """Return the vectors of texts without what their language puts in, at length 1.

    Args:
        vectors: one row a text, as the model made them.
        texts: what they are of.
        queries: whether the texts were embedded as queries; the model marks them.
    """
    moved: Vectors = vectors - _centres()[int(queries), centred_rows(texts)]
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def centred_rows(texts: Sequence[str]) -> NDArray[np.intp]:
    """Return which row of a table of centres is that of each text's language."""
    return np.array([_row(text) for text in texts], dtype=np.intp)


def _row(text: str) -> int:
    for language in languages(text[:_SHORT])[:1]:
        if language in LANGUAGES:
            return LANGUAGES.index(language)
        if language == "Latin script":
            return 0
    return len(LANGUAGES)


@cache
def _centres() -> Any:
    return np.load(_FOLDER / "centres.npy", allow_pickle=False)


def sentences() -> list[tuple[str, ...]]:
    """Return the sentences, each in the order of `LANGUAGES`."""
    blocks = (_FOLDER / "sentences.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [tuple(block.splitlines()) for block in blocks if not block.startswith("#")]


def measure(embed: Callable[[list[str], bool], Vectors]) -> Vectors:
    """Return the centres that a model gives: shape (2, languages + 1, d), documents first.

    Args:
        embed: from texts, and whether they are queries, to the model's own vectors.
    """
    both = []
    for queries in (False, True):
        means = [
            embed(list(texts), queries).mean(axis=0) for texts in zip(*sentences(), strict=True)
        ]
        both.append([*means, np.mean(means, axis=0)])
    return np.asarray(both, dtype=np.float32)
