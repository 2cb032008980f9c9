"""The bundled model as trained further; and stores written with the condensed vectors before."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mnemotrace import Memory
from mnemotrace.embedders import condensing, trained
from mnemotrace.embedders.bundled import (
    BundledEmbedder,
    CondensedBundledEmbedder,
    WholeBundledEmbedder,
    _files,
)
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import EmbedderError, EmbedderMismatchError

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ODD = ["", " \n", ".", "😀😀", "\u200b", "שלום", "x" * 9_000, "회의 " * 3_000, "\ud800"]


def test_odd_texts_have_finite_vectors_that_stay_the_same() -> None:
    vectors = BundledEmbedder().embed(ODD)
    assert vectors.shape == (len(ODD), 256)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert (np.linalg.norm(vectors, axis=1) > 0.1).all()
    assert np.array_equal(vectors, BundledEmbedder().embed(ODD))


def test_with_no_move_the_vectors_are_those_of_the_model_as_it_was() -> None:
    """What is trained takes the place of the model's own weights, and of nothing else."""
    texts = ["Ann likes tea", "회의는 금요일에 한다", "预算会议在星期五举行", "会議は金曜日です"]
    still = {
        name: value if name == "pieces" else np.zeros_like(value)
        for name, value in trained.read().items()
    }
    still["table"] = np.full_like(still["table"], 0x88)  # twice a code of 0
    still |= condensing._data()
    found = trained.TrainedModel(_files.get(), still).embed(texts)
    assert np.allclose(found, CondensedBundledEmbedder().embed(texts), atol=1e-4)
    assert not np.allclose(found, BundledEmbedder().embed(texts), atol=0.1)


@pytest.mark.parametrize("bits", [4, 8])
def test_moves_are_packed_to_within_half_a_step(bits: int) -> None:
    moves = np.random.default_rng(3).normal(size=(50, 64)).astype(np.float32)
    moves[7] = 0.0
    moves[8] *= 1e-4
    codes, steps = trained.pack(moves, bits)
    assert codes.nbytes == moves.size * bits // 8
    found = trained.unpack(codes, bits) * steps.astype(np.float32)
    assert (np.abs(found - moves) <= 0.52 * steps.astype(np.float32) + 1e-7).all()


def test_a_row_that_did_not_move_is_the_models_own() -> None:
    table = np.arange(40, dtype=np.uint8).reshape(10, 4)
    codes = np.array([[1, -2, 0, 7]], dtype=np.int8)
    moved = trained.MovedTable(table, np.array([3]), codes, np.array([[0.5]], dtype=np.float16))
    rows = moved[np.array([3, 0, 3])]
    assert rows[1].tolist() == table[0].tolist()
    assert rows[0].tolist() == rows[2].tolist() == [12.5, 12.0, 14.0, 18.5]


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_damaged_weights_are_reported(damage: bytes | None, tmp_path: Path) -> None:
    broken = tmp_path / "trained.npz"
    if damage is not None:
        broken.write_bytes(damage)
    with pytest.raises(EmbedderError, match="install mnemotrace again"):
        trained.read(broken)


def test_weights_that_do_not_fit_the_model_are_reported() -> None:
    stored = trained.read()
    for change in ({"pieces": stored["pieces"][:-1]}, {"d0": stored["d0"][:-1]}):
        with pytest.raises(EmbedderError, match="install mnemotrace again"):
            trained.TrainedModel(_files.get(), {**stored, **change})
    few = {name: value for name, value in stored.items() if name != "basis"}
    with pytest.raises(EmbedderError, match="install mnemotrace again"):
        trained.TrainedModel(_files.get(), few)


@pytest.mark.parametrize(
    ("old", "others"),
    [
        (CondensedBundledEmbedder, (BundledEmbedder, WholeBundledEmbedder)),
        (BundledEmbedder, (CondensedBundledEmbedder, WholeBundledEmbedder)),
    ],
)
async def test_the_manifest_says_which_vectors_a_store_has(old: Any, others: Any) -> None:
    recorded = await EmbeddingService(old()).fingerprint()
    service = resolve_embedder(None, recorded)
    assert type(service.embedder) is old
    await service.verify(recorded)
    for other in others:
        with pytest.raises(EmbedderMismatchError, match="reindex"):
            await EmbeddingService(other()).verify(recorded)


def test_a_store_written_before_training_opens_and_answers(tmp_path: Path) -> None:
    with Memory(storage=tmp_path, embedder=CondensedBundledEmbedder(), llm=None) as memory:
        memory.remember("회의는 금요일에 한다")
        memory.remember("미나는 고양이를 키운다")
    with Memory(storage=tmp_path, llm=None) as memory:
        assert memory.recall("미나의 반려동물")[0].record.content == "미나는 고양이를 키운다"
        assert "-condensed@" in repr(memory)


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_more_questions_in_other_words_find_their_fact_first(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    part = importlib.import_module("multilingual_set").read(language)
    texts = part.texts()
    wanted = np.array([texts.index(fact.text) for fact in part.facts])

    def hits(embedder: BundledEmbedder) -> int:
        stored, asked = embedder.embed(texts), embedder.embed([f.question for f in part.facts])
        return int((np.argmax(asked @ stored.T, axis=1) == wanted).sum())

    assert hits(BundledEmbedder()) >= hits(CondensedBundledEmbedder()) + 3
