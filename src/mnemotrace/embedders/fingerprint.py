"""What is recorded of an embedder, so that a store is never read with another one.

Two embedders of one length cannot be told apart by looking at a store's vectors, and a name says
little: a function may be renamed, or its model exchanged. So the fingerprint holds the vector of
one fixed text, the canary.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemotrace.errors import EmbedderMismatchError

CANARY = "The lighthouse keeper writes down the weather every evening. 등대지기 燈臺"

# A question and the note that answers it, as recall compares them. Changing a text changes every
# fingerprint, so these stay as they are.
_RELATED = (
    ("Which database does our team use?", "Our team uses the PostgreSQL database."),
    ("When does Anna's train to Berlin leave?", "Anna's train to Berlin leaves at nine."),
    ("What is Tom allergic to?", "Tom cannot eat peanuts, he is allergic to them."),
    ("미나는 무슨 음식을 좋아해?", "미나는 매운 음식을 좋아한다."),
    ("회의는 언제 시작하나요?", "회의는 매주 월요일 오후 세 시에 시작합니다."),
    ("项目的预算是多少？", "这个项目的预算是五十万元。"),
    ("¿Dónde vive la hermana de Pablo?", "La hermana de Pablo vive en Sevilla."),
    ("Какой кофе пьёт Олег?", "Олег пьёт чёрный кофе без сахара."),
)
FIXED_TEXTS: tuple[str, ...] = (CANARY, *(text for pair in _RELATED for text in pair))
"""All texts embedded for a fingerprint, in one call."""

DEFAULT_CALIBRATION = {"lo": 0.2, "hi": 0.9}
"""Used for an embedder that cannot tell the fixed pairs apart."""

MIN_CONTRAST = 0.15
"""Least difference between related and unrelated pairs that counts as measured."""

MIN_CLEAR_CONTRAST = 0.03
"""The same where every related pair is above nearly all unrelated ones: some models (E5) give all
texts cosines near 0.8 and still tell them apart."""

SAME_COSINE = 0.98
"""Canaries at least this near are one model: hosted models wobble by less than 0.001, and two
models of one length are unrelated."""


def describe(embedder: Any) -> str:
    """Return the module and qualified name of a function, or of an object's class."""
    while isinstance(embedder, functools.partial):
        embedder = embedder.func
    named = embedder if isinstance(getattr(embedder, "__qualname__", None), str) else type(embedder)
    return f"{named.__module__}.{named.__qualname__}"


def canary_of(vector: NDArray[np.float32]) -> list[float] | None:
    """Return what is kept of the vector of `CANARY`: length 1, rounded to 5 decimals.

    None where it is all zeros.
    """
    length = np.linalg.norm(vector.astype(np.float64))
    return [round(float(x), 5) for x in vector / length] if length else None


def measure(vectors: NDArray[np.float32]) -> tuple[list[float] | None, dict[str, float]]:
    """Return the canary and the calibration from the vectors of `FIXED_TEXTS`.

    Args:
        vectors: (len(FIXED_TEXTS), d), finite; a row of zeros is a text the embedder knows
            nothing about.

    Returns:
        The canary, as `canary_of` has it. Then the calibration that turns a cosine into a confidence: ``lo``, which nine in ten pairs of a
        question and a foreign note stay below (recall looks at the best of many), and ``hi``, the
        median of the questions with their own notes.
    """
    canary = canary_of(vectors[0])
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit = vectors / np.where(lengths == 0.0, 1.0, lengths)
    cosines = unit[1::2] @ unit[2::2].T
    own = np.eye(len(_RELATED), dtype=bool)
    lo, hi = float(np.percentile(cosines[~own], 90)), float(np.median(cosines[own]))
    clear = float(cosines[own].min()) > lo
    if not lengths.all() or hi - lo < (MIN_CLEAR_CONTRAST if clear else MIN_CONTRAST):
        return canary, dict(DEFAULT_CALIBRATION)
    return canary, {"lo": round(lo, 4), "hi": round(hi, 4)}


def require_same(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Compare two fingerprints.

    A custom embedder may have been renamed: its canary decides. Named ones must also have the
    same provider and model; a part of the model's name after ``@`` is a package version and does
    not count.

    Raises:
        EmbedderMismatchError: they are of two different embedders.
    """
    reason = _difference(recorded, current)
    if reason is not None:
        raise EmbedderMismatchError(
            f"this store was written with the embedder {_name(recorded)} "
            f"({recorded.get('dimension')} dimensions), and is opened with {_name(current)} "
            f"({current.get('dimension')} dimensions): {reason}. The data is untouched. Open it "
            "with the embedder it was written with, or re-embed every record with "
            "mnemotrace.reindex(storage, embedder)"
        )


def _difference(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    if recorded.get("dimension") != current.get("dimension"):
        return "the vectors differ in length"
    named = "custom" not in (recorded.get("provider"), current.get("provider"))
    if named and _identity(recorded) != _identity(current):
        return "they are different models"
    old, new = recorded.get("canary"), current.get("canary")
    if old is None or new is None:
        return None
    cosine = float(np.dot(old, new) / (np.linalg.norm(old) * np.linalg.norm(new)))
    if cosine < SAME_COSINE:
        return f"they give different vectors for the same text (cosine {cosine:.2f})"
    return None


def _identity(fingerprint: Mapping[str, Any]) -> tuple[Any, str]:
    return fingerprint.get("provider"), str(fingerprint.get("model")).partition("@")[0]


def _name(fingerprint: Mapping[str, Any]) -> str:
    return f"{fingerprint.get('provider')}/{fingerprint.get('model')}"
