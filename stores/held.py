"""Which points hold which terms: the answer to `Collection.held`, and what is remembered for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    examples: Mapping[int, SparseVector | None],
) -> Held:
    """Return the weights that follow from the engine's scores for each term alone.

    Args:
        terms: the query.
        lists: for each of its terms, the points that hold it with their scores, which are their
            weights times one number.
        examples: the stored vectors of the first point of each list.
    """
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


class TermCache:
    """Lexical vectors of the points that small searches looked at.

    For an engine that only this process writes to. A vector takes about a kilobyte, and 15
    microseconds to fetch.
    """

    _MOST = 20_000
    _SIEVE = 0xFFFF

    def __init__(self) -> None:
        self._known: dict[int, tuple[NDArray[np.uint32], NDArray[np.float32]]] = {}

    def held(
        self, ids: Sequence[int], terms: SparseVector, fetch: Callable[[list[int]], Vectors]
    ) -> Held:
        """Return the weights that points have of a query's terms.

        Args:
            ids: the points.
            terms: the query.
            fetch: from points that are not remembered to their vectors.
        """
        known = self._known
        missing = [key for key in ids if key not in known]
        new = {
            key: (
                np.array(vector.indices if vector else (), dtype=np.uint32),
                np.array(vector.values if vector else (), dtype=np.float32),
            )
            for key, vector in (fetch(missing) if missing else ())
        }
        ids = [key for key in ids if key in known or key in new]
        vectors = [known.get(key) or new[key] for key in ids]
        if new:
            if len(known) + len(new) > self._MOST:
                self._known = known = {}
            known.update(new)
        if not ids:
            return Held()
        indices = np.concatenate([vector[0] for vector in vectors])
        ends = np.cumsum([len(vector[0]) for vector in vectors])
        # Few of a hundred thousand terms are asked for: sixteen bits of them tell most apart.
        asked = np.array(terms.indices, dtype=np.uint32)
        sieve = np.zeros(self._SIEVE + 1, dtype=bool)
        sieve[asked & self._SIEVE] = True
        at = np.flatnonzero(sieve[indices & self._SIEVE])
        term = np.searchsorted(asked, indices[at])
        same = asked[np.minimum(term, len(asked) - 1)] == indices[at]
        at, term = at[same], term[same]
        weights = np.concatenate([vector[1] for vector in vectors])[at]
        return Held(ids, np.searchsorted(ends, at, side="right"), term, weights.astype(np.float64))

    def forget(self, ids: Iterable[int]) -> None:
        """Drop what is remembered of points that were written again or erased."""
        for key in ids:
            self._known.pop(key, None)
