"""E5's vectors without what their language puts in (`centring`).

The means, of documents and of queries, are kept in ``centres.npy``; a test measures them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mnemotrace.embedders import centring
from mnemotrace.embedders.centring import Vectors


def centre(vectors: Vectors, texts: Sequence[str], *, queries: bool) -> Vectors:
    """Return the vectors of texts without what their language puts in, at length 1.

    Args:
        vectors: one row a text, as the model made them.
        texts: what they are of.
        queries: whether the texts were embedded as queries; the model marks them.
    """
    return centring.unit(vectors - _centres()[int(queries), centring.rows_of(texts)])


@cache
def _centres() -> Any:
    return np.load(Path(__file__).with_name("centres.npy"), allow_pickle=False)


def measure(embed: Callable[[list[str], bool], Vectors]) -> Vectors:
    """Return the centres that a model gives: shape (2, languages + 1, d), documents first.

    Args:
        embed: from texts, and whether they are queries, to the model's own vectors.
    """
    documents = centring.measure(lambda texts: embed(texts, False))
    return np.stack([documents, centring.measure(lambda texts: embed(texts, True))])
