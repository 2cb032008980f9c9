"""Long texts for models whose working memory grows with the text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WINDOW = 1500
"""Characters embedded at once, about 300 English words."""


def readable(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair: no model reads one."""
    return text.encode("utf-8", "replace").decode("utf-8")


def split(text: str, size: int = WINDOW) -> list[str]:
    """Cut a text into pieces of at most `size` characters, at spaces where there are any.

    Joined together again the pieces are the text, as far as it is `readable`.
    """
    text = readable(text)
    pieces = []
    start = 0
    while len(text) - start > size:
        space = text.rfind(" ", start + size // 2, start + size)
        end = start + size if space < 0 else space
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


def join(vectors: NDArray[np.float32], pieces: list[list[str]]) -> NDArray[np.float32]:
    """Return one vector per text: the mean over its pieces, weighted by their length.

    Args:
        vectors: one row per piece, in order, shape (sum of pieces, d).
        pieces: the pieces of each text, as `split` made them.

    Returns:
        Shape (len(pieces), d).
    """
    if len(vectors) == len(pieces):
        return np.asarray(vectors, dtype=np.float32)
    out = np.empty((len(pieces), vectors.shape[1]), dtype=np.float32)
    start = 0
    for row, group in enumerate(pieces):
        weights = np.array([max(len(piece), 1) for piece in group], dtype=np.float32)
        out[row] = weights @ vectors[start : start + len(group)] / weights.sum()
        start += len(group)
    return out
