"""Much text at once, computed on all processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

WORTH_A_THREAD = 10_000
"""Characters that take about 100 ms; for fewer, threads of Python are no gain."""
MOST_THREADS = 8


def in_parts(
    vectors_of: Callable[[list[str]], NDArray[np.float32]], texts: Sequence[str]
) -> NDArray[np.float32]:
    """Return the vectors of texts, (n, d): of parts of like size, each in a thread of its own.

    How many parts depends on the texts and on the number of processors only, never on the moment.

    Args:
        vectors_of: computes them, mostly outside the interpreter lock; safe in several threads.
        texts: in order; few characters are computed in this thread.
    """
    ends = list(accumulate(len(text) for text in texts))
    characters = ends[-1] if ends else 0
    count = min(characters // WORTH_A_THREAD, _processors(), MOST_THREADS, len(texts))
    if count < 2:
        return vectors_of(list(texts))
    bounds = np.searchsorted(ends, [characters * k / count for k in range(1, count)]) + 1
    parts = [list(texts[a:b]) for a, b in zip([0, *bounds], [*bounds, len(texts)], strict=True)]
    with ThreadPoolExecutor(count, thread_name_prefix="mnemotrace-embed") as threads:
        return np.concatenate(list(threads.map(vectors_of, filter(None, parts))))


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
