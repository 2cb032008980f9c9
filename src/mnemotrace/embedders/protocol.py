"""What an embedder is: anything that turns texts into vectors.

`mnemotrace.Memory(embedder=...)` takes a function ``list[str] -> vectors``, sync or async, or an
object that fulfils `Embedder`. `EmbeddingService` gives both the same face inside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = Sequence[Sequence[float]] | NDArray[np.floating[Any]]
"""n vectors of one length d: a list of lists, a list of arrays, or an (n, d) array."""

EmbeddingCallable = Callable[[list[str]], Vectors] | Callable[[list[str]], Awaitable[Vectors]]


@runtime_checkable
class Embedder(Protocol):
    """Text to vectors.

    Only `embed` is required. These are used where an embedder has them:

    - ``embed_query(texts: list[str])``: for models that treat questions and passages differently;
    - ``aembed(texts)`` and ``aembed_query(texts)``: async forms, preferred to the sync ones;
    - ``model_name: str``, ``provider: str``: what the store's manifest records; without a
      `provider` it is "custom", and the vectors alone decide whether two embedders are the same;
    - ``dimension: int``: checked against every vector returned;
    - ``max_batch: int``: most texts per call, 256 if not given.
    """

    def embed(self, texts: list[str]) -> Vectors:
        """Return one vector per text, all of one length, finite and not all zeros."""
        ...


EmbedderSpec = str | Mapping[str, Any] | EmbeddingCallable | Embedder
