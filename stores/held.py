"""Which points hold which terms: the answer to `Collection.held`.

Engines do not tell stored weights without whole vectors, which would be megabytes. Asked for each
term of a query alone, they give the weight times what is the same for all points, and one vector
tells that factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .backend import WEIGHT_STEP, SparseVector

Vectors = Iterable[tuple[int, SparseVector | None]]
"""Points with their lexical vectors."""
_ROUNDED = 0.02
"""How far, in steps, the engine's rounding may move the largest weight."""


@dataclass(frozen=True, slots=True)
class Held:
    """Stored weights of a query's terms: three arrays with one entry for each term of each point.

    Attributes:
        ids: the points that hold at least one.
        row: which of `ids`; rising.
        term: which of the query's indices; rising within a row.
        weight: its weight there.
    """

    ids: Sequence[int] = ()
    row: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    term: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    weight: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


def from_scores(
    terms: SparseVector,
    lists: Sequence[Sequence[tuple[int, float]]],
    fetch: Callable[[list[int]], Vectors],
) -> Held:
    """Return the weights that follow from the engine's scores for each term alone.

    Args:
        terms: the query.
        lists: for each of its terms, the points that hold it with their scores, which are their
            weights times one number.
        fetch: from points to their stored vectors; asked for the first point of each list.
    """
    examples = dict(fetch(sorted({found[0][0] for found in lists if found})))
    points: dict[int, int] = {}
    row: list[int] = []
    term: list[int] = []
    weight: list[float] = []
    for number, (index, found) in enumerate(zip(terms.indices, lists, strict=True)):
        example = examples.get(found[0][0]) if found else None
        if example is None or index not in example.indices or found[0][1] <= 0:
            continue  # erased by another process between two requests
        factor = example.values[example.indices.index(index)] / found[0][1]
        for key, score in found:
            row.append(points.setdefault(key, len(points)))
            term.append(number)
            weight.append(score * factor)
    order = np.lexsort((term, row))
    return Held(
        list(points),
        np.array(row, dtype=np.intp)[order],
        np.array(term, dtype=np.intp)[order],
        _as_stored(np.array(weight, dtype=np.float64)[order]),
    )


def _as_stored(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo the rounding of the engine, for weights that were stored in steps of `WEIGHT_STEP`."""
    steps = weights / WEIGHT_STEP
    nearest = np.rint(steps)
    return np.where(np.abs(steps - nearest) < _ROUNDED, nearest * WEIGHT_STEP, weights)
