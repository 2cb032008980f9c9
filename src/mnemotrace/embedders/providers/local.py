"""Models of the sentence-transformers library, which run inside the process."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.embedders import windows
from mnemotrace.trace import span

from .base import ProviderEmbedder
from .settings import Settings


class SentenceTransformerEmbedder(ProviderEmbedder):
    """A sentence-transformers model; equal ones in a process share one copy.

    The library downloads a model that it does not have yet. Where a model has prompts for queries
    and documents, they are used.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._device: str | None = settings.get("device")
        self._normalise: bool = settings.get("normalize_embeddings")

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to be stored: (n, d) float32."""
        return self._encode(texts, "encode_document")

    def embed_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to search for: (n, d) float32."""
        return self._encode(texts, "encode_query")

    def _encode(self, texts: list[str], method: str) -> NDArray[np.float32]:
        self.check_installed()
        shared = _model(self.model_name, self._device)
        pieces = self._pieces(texts)
        # The two came with version 5 of the library.
        encode = getattr(shared.model, method, None) or shared.model.encode
        with shared.lock:
            vectors = encode(
                [piece for group in pieces for piece in group],
                batch_size=self._batch,
                convert_to_numpy=True,
                normalize_embeddings=self._normalise,
                show_progress_bar=False,
            )
        return windows.join(np.asarray(vectors, dtype=np.float32), pieces)


class _Shared:
    """A loaded model. One call at a time: tokenizers fail when two threads use one at once."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lock = threading.Lock()


_lock = threading.Lock()
_loaded: dict[tuple[str, str | None], _Shared] = {}


def _model(name: str, device: str | None) -> _Shared:
    with _lock:
        if (name, device) not in _loaded:
            with span("load_model", kind="embed", model=name):
                from sentence_transformers import SentenceTransformer

                _loaded[name, device] = _Shared(SentenceTransformer(name, device=device))
        return _loaded[name, device]


def _after_fork() -> None:
    """Renew the locks: a thread that held one does not exist in the child."""
    global _lock
    _lock = threading.Lock()
    for shared in _loaded.values():
        shared.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
