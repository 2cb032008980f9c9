"""An embedder for tests: known vectors for known texts, and every fault an embedder can have."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.embedders.lexical import tokenize


class FakeEmbedder:
    """A deterministic embedder that loads nothing.

    A text in `vectors` gets exactly that vector. Any other text gets a vector of length 1 made
    from the hashes of its words, so texts that share words are near each other.

    >>> embedder = FakeEmbedder({"cat": [1.0, 0.0], "dog": [0.6, 0.8]})
    >>> embedder.embed(["cat"])
    [[1.0, 0.0]]

    Its faults are switched on and off at any time by setting an attribute:

    Attributes:
        fail: an exception to raise at every call, or True for a RuntimeError.
        fail_times: how many more calls fail while `fail` is set; None for all of them.
        fault: ``"count"`` (one vector too few), ``"length"`` (the last vector is one number too
            long), ``"nan"`` or ``"zeros"`` (in the last vector); None for none.
        delay: seconds each call takes.
        calls: the texts of every call so far, in order; the call with mnemotrace's own
            fixed texts, from which it takes an embedder's fingerprint, is left out.

    Args:
        vectors: vectors for given texts, all of one length.
        dimension: length of all vectors; default: that of `vectors`, else 64.
        seed: another number gives another model: other vectors for the same words.
        fail: see above; likewise `fault` and `delay`.

    Raises:
        ValueError: `vectors` are not all of this length.
    """

    provider = "custom"

    def __init__(
        self,
        vectors: Mapping[str, Sequence[float]] | None = None,
        dimension: int | None = None,
        *,
        seed: int = 0,
        fail: bool | Exception = False,
        fault: str | None = None,
        delay: float = 0.0,
    ) -> None:
        self.vectors = {text: [float(x) for x in v] for text, v in (vectors or {}).items()}
        lengths = {len(vector) for vector in self.vectors.values()}
        if dimension is not None:
            lengths.add(dimension)
        if len(lengths) > 1:
            raise ValueError(f"vectors of several lengths: {sorted(lengths)}")
        self.dimension: int = next(iter(lengths), 64)
        self.seed = seed
        self.fail = fail
        self.fail_times: int | None = None
        self.fault = fault
        self.delay = delay
        self.calls: list[list[str]] = []
        self._lock = threading.Lock()

    @property
    def texts(self) -> list[str]:
        """Every text embedded so far, in order."""
        return [text for call in self.calls for text in call]

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text, or misbehave as told."""
        with self._lock:
            if tuple(texts) != FIXED_TEXTS:
                self.calls.append(list(texts))
            failing = bool(self.fail) and self.fail_times != 0
            if failing and self.fail_times is not None:
                self.fail_times -= 1
        if self.delay:
            time.sleep(self.delay)
        if failing:
            raise self.fail if isinstance(self.fail, Exception) else RuntimeError("embedder down")
        return self._spoilt([self.vectors.get(text) or self._hashed(text) for text in texts])

    def _hashed(self, text: str) -> list[float]:
        total = np.zeros(self.dimension)
        for term in tokenize(text) or [text]:
            key = f"{self.seed} {term}".encode("utf-8", "surrogatepass")
            number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
            total += np.random.default_rng(number).normal(size=self.dimension)
        unit: list[float] = (total / np.linalg.norm(total)).tolist()
        return unit

    def _spoilt(self, vectors: list[list[float]]) -> list[list[float]]:
        if self.fault is None or not vectors:
            return vectors
        *rest, last = vectors
        match self.fault:
            case "count":
                return rest
            case "length":
                return [*rest, [*last, 1.0]]
            case "nan":
                return [*rest, [float("nan"), *last[1:]]]
            case "zeros":
                return [*rest, [0.0] * len(last)]
        raise ValueError(f"unknown fault {self.fault!r}: count, length, nan or zeros")
