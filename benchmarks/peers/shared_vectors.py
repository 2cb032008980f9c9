"""The bundled embedder's vectors, made once in mnemotrace's environment and shared by files.

So a peer needs neither mnemotrace nor its model, and the same text has the same vector everywhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TEXTS, VECTORS = "texts.json", "vectors.npy"


def save(
    folder: Path, texts: Sequence[str], questions: Sequence[str], embed: Callable[[list[str]], Any]
) -> None:
    """Embed texts in batches and questions one by one, as a recall does, and write the files.

    Args:
        folder: where to; made if it is not there.
        texts: what is stored.
        questions: what is asked; how long each took is kept.
        embed: from texts to an array of vectors.
    """
    import numpy as np

    texts, questions = list(dict.fromkeys(texts)), list(dict.fromkeys(questions))
    rows = [np.asarray(embed(texts[start : start + 256])) for start in range(0, len(texts), 256)]
    if questions:
        embed([questions[0]])
    milliseconds = [0.0] * len(texts)
    for question in questions:
        start = time.perf_counter()
        rows.append(np.asarray(embed([question])))
        milliseconds.append((time.perf_counter() - start) * 1000)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / VECTORS, np.concatenate(rows).astype(np.float32))
    named = {"texts": [*texts, *questions], "ms": milliseconds}
    (folder / TEXTS).write_text(json.dumps(named), encoding="utf-8")


class SharedVectors:
    """Looks vectors up by their text.

    Args:
        folder: what `save` wrote; empty for a system that embeds its own texts.

    Attributes:
        spent_ms: what making the vectors looked up so far took; set it to 0 to start anew.
    """

    def __init__(self, folder: str) -> None:
        self.spent_ms = 0.0
        self._rows: dict[str, int] = {}
        self._ms: list[float] = []
        self._vectors: Any = None
        if folder:
            import numpy as np

            named = json.loads((Path(folder) / TEXTS).read_text(encoding="utf-8"))
            # A text that is both stored and asked has two equal rows; the later knows its time.
            self._rows = {text: row for row, text in enumerate(named["texts"])}
            self._ms = named["ms"]
            self._vectors = np.load(Path(folder) / VECTORS)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._vectors.shape[1])

    def array(self, texts: Sequence[str]) -> Any:
        """Return the vectors of texts as an (n, d) float32 array.

        Raises:
            LookupError: for a text that is neither a turn nor a question of the data.
        """
        try:
            rows = [self._rows[text] for text in texts]
        except KeyError as error:
            raise LookupError(
                f"No vector was made for the text {error.args[0]!r}: only stored turns and "
                "questions have one."
            ) from None
        self.spent_ms += sum(self._ms[row] for row in rows)
        return self._vectors[rows]

    def lists(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts as lists."""
        vectors: list[list[float]] = self.array(texts).tolist()
        return vectors
