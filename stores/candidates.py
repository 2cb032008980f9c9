"""What a search knows of the points it has seen, as one table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .engine import PointId

Floats = NDArray[np.float64]

COSINE, LEXICAL, CREATED, IMPORTANCE, STATIC, MOST_LEXICAL = range(6)
"""The columns of the table."""
SETTLED, HIDDEN = 1, 2
"""States: every signal is known; it may not be seen. 0 is neither."""


class Candidates:
    """What is known of each point seen, one row each; see the columns below.

    A cosine or lexical score that was not looked up is NaN; the last column holds the most the
    lexical score can be. The column before it is the part of the score that does not depend on
    the query.
    """

    def __init__(self) -> None:
        self.ids: list[PointId] = []
        self.index: dict[PointId, int] = {}
        self.table: Floats = np.empty((0, 6))
        self.state: NDArray[np.int8] = np.empty(0, dtype=np.int8)

    def place(self, key: PointId) -> int:
        """Return the row of a point that is not known yet; its table row is added by `extend`."""
        place = self.index[key] = len(self.ids)
        self.ids.append(key)
        return place

    def extend(self, rows: Floats, state: NDArray[np.int8]) -> None:
        """Add the table rows of the points placed since the last time."""
        self.table = np.concatenate([self.table, rows])
        self.state = np.concatenate([self.state, state])
