"""Much text is embedded on all processors, and gets the vectors it would get on one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemotrace.embedders import parts
from mnemotrace.embedders.bundled import BundledEmbedder


def test_rows_stay_in_order_however_long_the_texts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_processors", lambda: 3)
    meeting = threading.Barrier(3, timeout=30)

    def lengths(texts: list[str]) -> NDArray[np.float32]:
        meeting.wait()  # three at once, or this fails
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    sizes = [5, 40_000, 1, 0, 7, 12_000, 12_001, 3]
    vectors = parts.in_parts(lengths, ["x" * size for size in sizes])
    assert vectors[:, 0].tolist() == sizes


@pytest.mark.parametrize("texts", [[], [""], ["tea"] * 50, ["x" * 100_000]])
def test_few_texts_or_little_text_are_computed_in_this_thread(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_processors", lambda: 8)
    seen = []

    def ones(given: list[str]) -> NDArray[np.float32]:
        seen.append(threading.current_thread())
        return np.ones((len(given), 2), dtype=np.float32)

    assert parts.in_parts(ones, texts).shape == (len(texts), 2)
    assert seen == [threading.current_thread()]


def test_an_error_of_one_part_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_processors", lambda: 2)

    def broken(texts: list[str]) -> NDArray[np.float32]:
        if "b" in texts[0]:
            raise MemoryError("no room")
        return np.ones((len(texts), 2), dtype=np.float32)

    with pytest.raises(MemoryError, match="no room"):
        parts.in_parts(broken, ["a" * 20_000, "b" * 20_000])


def test_a_long_text_has_the_same_vector_on_two_processors_as_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Ann said that the meeting about 예산 is on Friday. " * 500
    vectors = []
    for processors in (1, 2):
        monkeypatch.setattr(parts, "_processors", lambda count=processors: count)
        vectors.append(BundledEmbedder().embed([text, "tea"]))
    assert np.allclose(vectors[0], vectors[1], atol=1e-5)
