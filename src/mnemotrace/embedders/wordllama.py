"""wordllama: a small and very fast offline embedder for English (256 dimensions).

Optional: ``pip install "mnemotrace[wordllama]"``. About 0.1 ms per short text. Chinese is fair
with it, Korean is not: choose the bundled model for that.
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.trace import span

from . import windows
from .shared import SharedModel

INSTALL = 'pip install "mnemotrace[wordllama]"'


class WordLlamaEmbedder:
    """The wordllama model ``l2_supercat``; one copy per process, loaded at the first call.

    Raises:
        ImportError: wordllama is not installed; the message has the install line.
    """

    provider = "wordllama"
    dimension = 256
    max_batch = 256

    def __init__(self) -> None:
        if find_spec("wordllama") is None:
            raise ImportError(f"The wordllama embedder is not installed. Run: {INSTALL}")

    @cached_property
    def model_name(self) -> str:
        """Model and package version; the version does not matter when stores are compared."""
        return f"l2_supercat-256@{version('wordllama')}"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts: (n, 256) float32, not normalised.

        A text of more than 1,500 characters is embedded in pieces and gets their mean.
        """
        pieces = [windows.split(text) for text in texts]
        vectors = _model.get().embed([piece for group in pieces for piece in group])
        return windows.join(np.asarray(vectors, dtype=np.float32), pieces)


def _load() -> Any:
    with span("load_model", kind="embed", model="wordllama"):
        import wordllama

        # With its defaults `load` misses the tokenizer it ships and asks a model hub.
        folder = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


_model = SharedModel(_load)
