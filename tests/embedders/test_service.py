from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import ConfigurationError, EmbedderError, EmbedderMismatchError
from mnemotrace.testing import FakeEmbedder


def constant(texts: list[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


async def constant_later(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return constant(texts)


def returns_awaitable(texts: list[str]) -> Any:
    return constant_later(texts)


class WithEmbed:
    def embed(self, texts: list[str]) -> list[list[float]]:
        return constant(texts)


class WithAsync:
    def embed(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError("the async form is preferred")

    async def aembed(self, texts: list[str]) -> list[list[float]]:
        return constant(texts)


class Callable2:
    def __call__(self, texts: list[str]) -> list[list[float]]:
        return constant(texts)


class AsyncCallable:
    async def __call__(self, texts: list[str]) -> list[list[float]]:
        return constant(texts)


@pytest.mark.parametrize(
    "spec",
    [
        constant,
        constant_later,
        returns_awaitable,
        functools.partial(constant),
        functools.partial(constant_later),
        lambda texts: np.array(constant(texts), dtype=np.float64),
        lambda texts: tuple(np.array(v, dtype=np.float16) for v in constant(texts)),
        lambda texts: (v for v in constant(texts)),
        WithEmbed(),
        WithEmbed().embed,
        WithAsync(),
        Callable2(),
        AsyncCallable(),
    ],
)
async def test_every_kind_of_embedder_gives_contiguous_float32_rows(spec: Any) -> None:
    vectors = await EmbeddingService(spec).embed_documents(["a", "bb", "ccc"])

    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert vectors.tolist() == [[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]


async def test_the_result_is_a_copy_of_an_embedders_own_buffer() -> None:
    buffer = np.ones((1, 3), dtype=np.float32)
    vectors = await EmbeddingService(lambda texts: buffer).embed_documents(["a"])

    buffer[:] = 7.0

    assert vectors.tolist() == [[1.0, 1.0, 1.0]]


async def test_queries_use_the_query_side_of_an_embedder_that_has_one() -> None:
    class TwoSided(WithEmbed):
        def embed_query(self, texts: list[str]) -> list[list[float]]:
            return [[9.0, 9.0] for _ in texts]

    service = EmbeddingService(TwoSided())

    assert (await service.embed_queries(["a"])).tolist() == [[9.0, 9.0]]
    assert (await service.embed_documents(["a"])).tolist() == [[1.0, 1.0]]


async def test_vectors_are_not_normalised_and_may_have_any_length() -> None:
    service = EmbeddingService(FakeEmbedder({"big": [3e30, 4e30], "tiny": [1e-30, 0.0]}))

    vectors = await service.embed_documents(["big", "tiny"])

    assert vectors[0, 1] == np.float32(4e30)
    assert vectors[1, 0] == np.float32(1e-30)


async def test_no_texts_give_an_empty_array_without_a_call() -> None:
    embedder = FakeEmbedder(dimension=5, fail=True)

    assert (await EmbeddingService(embedder).embed_documents([])).shape == (0, 5)
    assert (await EmbeddingService(constant).embed_documents([])).shape == (0, 0)
    assert embedder.calls == []


async def test_texts_are_sent_in_chunks_and_come_back_in_order() -> None:
    embedder = FakeEmbedder(dimension=8)
    texts = [f"text {n}" for n in range(7)]

    whole = await EmbeddingService(embedder).embed_documents(texts)
    chunked = await EmbeddingService(embedder, max_batch=3).embed_documents(texts)

    assert [len(call) for call in embedder.calls] == [7, 3, 3, 1]
    assert (chunked == whole).all()


async def test_an_embedders_own_batch_limit_is_kept() -> None:
    class Small(FakeEmbedder):
        max_batch = 2

    embedder = Small()
    await EmbeddingService(embedder).embed_documents(["a", "b", "c"])

    assert [len(call) for call in embedder.calls] == [2, 1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda texts: [[1.0]] * (len(texts) - 1),
            "2 vectors for 3 texts.*one vector for each text",
        ),
        (lambda texts: [[1.0]], "1 vector for 3 texts"),
        (lambda texts: [[1.0, 2.0], [1.0, 2.0], [1.0]], "length 1 for text 3"),
        (lambda texts: [[1.0, 2.0], [1.0, float("nan")], [1.0, 1.0]], "NaN or infinite.*text 2"),
        (lambda texts: np.full((3, 2), np.inf), "NaN or infinite.*text 1"),
        (lambda texts: [[1e300, 1.0]] * 3, "NaN or infinite.*text 1"),
        (lambda texts: [[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]], "zeros.*text 3"),
        (lambda texts: np.zeros((3, 4)), "zeros.*text 1"),
        (lambda texts: [[], [], []], "an empty vector for text 1"),
        (lambda texts: np.empty((3, 0)), "an empty vector for text 1"),
        (lambda texts: [0.1, 0.2], "flat list of numbers"),
        (lambda texts: [0.1, 0.2, 0.3], "not a vector"),
        (lambda texts: [["a"], ["b"], ["c"]], "not numeric for text 1"),
        (lambda texts: [[[1.0]], [[1.0]], [[1.0]]], "not a vector"),
        (lambda texts: None, "returned None,"),
        (lambda texts: "vectors", "returned a str,"),
        (lambda texts: {"a": [1.0]}, "returned a dict,"),
        (lambda texts: 3.0, "returned a float,"),
    ],
)
@pytest.mark.parametrize("side", ["embed_documents", "embed_queries"])
async def test_vectors_that_cannot_be_used_are_named(
    answer: Callable[[list[str]], Any], message: str, side: str
) -> None:
    service = EmbeddingService(answer)

    with pytest.raises(EmbedderError, match=message):
        await getattr(service, side)(["a", "b", "c"])


async def test_a_fault_in_a_later_chunk_is_counted_from_the_first_text() -> None:
    service = EmbeddingService(
        lambda texts: [[float(text != "bad"), 0.0] for text in texts], max_batch=2
    )

    with pytest.raises(EmbedderError, match="text 4"):
        await service.embed_documents(["a", "b", "c", "bad", "e"])


async def test_a_vector_of_another_length_than_before_is_refused() -> None:
    service = EmbeddingService(lambda texts: [[1.0] * len(texts[0])] * len(texts))
    await service.embed_documents(["four"])

    with pytest.raises(EmbedderError, match=r"length 6 for text 1.*length 4"):
        await service.embed_documents(["longer"])


async def test_a_declared_dimension_is_checked() -> None:
    embedder = FakeEmbedder(dimension=3, fault="length")

    with pytest.raises(EmbedderError, match=r"length 4 for text 1.*length 3"):
        await EmbeddingService(embedder).embed_documents(["a"])


async def test_an_unusable_answer_does_not_fix_the_dimension() -> None:
    answers = iter([[[float("nan")] * 3], [[1.0, 0.0]]])
    service = EmbeddingService(lambda texts: next(answers))
    with pytest.raises(EmbedderError):
        await service.embed_documents(["a"])

    assert service.dimension is None
    assert (await service.embed_documents(["a"])).shape == (1, 2)


@pytest.mark.parametrize(
    ("embed", "told"),
    [
        (lambda texts: [[1.0, 2.0]], f"returned 1 vector for {len(FIXED_TEXTS)} texts. It must"),
        (lambda texts: [[] for _ in texts], "returned an empty vector for text 1. It must"),
        (lambda texts: 1 / 0, f"failed on {len(FIXED_TEXTS)} texts: ZeroDivisionError"),
    ],
)
async def test_a_fault_with_texts_that_are_not_the_users_says_so(embed: Any, told: str) -> None:
    with pytest.raises(EmbedderError) as caught:
        await EmbeddingService(embed).fingerprint()
    tried = f", tried with {len(FIXED_TEXTS)} short texts of mnemotrace's own, "
    assert f"{tried}{told}" in str(caught.value)
    with pytest.raises(EmbedderError) as caught:
        await EmbeddingService(embed).embed_documents(["tea", "rice"])
    assert "tried with" not in str(caught.value)


async def test_an_embedders_exception_is_the_cause_of_ours() -> None:
    down = OSError("socket closed")
    service = EmbeddingService(FakeEmbedder(fail=down))

    with pytest.raises(EmbedderError, match=r"failed on 2 texts: OSError: socket closed") as raised:
        await service.embed_documents(["a", "b"])

    assert raised.value.__cause__ is down


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(2), KeyboardInterrupt()])
async def test_an_exception_that_would_end_the_loop_is_an_ordinary_failure(
    error: BaseException,
) -> None:
    def broken(texts: list[str]) -> Any:
        raise error

    with pytest.raises(EmbedderError, match=type(error).__name__):
        await EmbeddingService(broken).embed_documents(["a"])


async def test_a_sync_embedder_does_not_block_the_loop() -> None:
    service = EmbeddingService(FakeEmbedder(delay=0.2))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    await service.embed_documents(["a"])
    ticker.cancel()

    assert ticks > 10


async def test_sync_embedders_run_side_by_side() -> None:
    service = EmbeddingService(FakeEmbedder(delay=0.3))
    start = time.perf_counter()

    await asyncio.gather(*(service.embed_queries([str(n)]) for n in range(4)))

    assert time.perf_counter() - start < 1.0


def test_one_service_serves_several_loops_and_threads() -> None:
    service = EmbeddingService(FakeEmbedder(dimension=4))
    results: list[Any] = []

    def run() -> None:
        async def work() -> None:
            await service.fingerprint()
            results.append(await service.embed_documents(["same text"]))

        asyncio.run(work())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 4
    assert all((result == results[0]).all() for result in results)


async def test_a_fingerprint_costs_one_call_however_often_it_is_asked_for() -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return FakeEmbedder().embed(texts)

    service = EmbeddingService(embed)
    first, second = await asyncio.gather(service.fingerprint(), service.fingerprint())
    await service.verify(first)

    assert calls == [list(FIXED_TEXTS)]
    assert first == second
    assert service.dimension == first["dimension"] == 64


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        (constant, "test_service.constant"),
        (functools.partial(constant), "test_service.constant"),
        (WithEmbed(), "test_service.WithEmbed"),
        (WithEmbed().embed, "test_service.WithEmbed.embed"),
        (Callable2(), "test_service.Callable2"),
    ],
)
def test_an_embedder_without_a_name_is_called_by_where_it_is_defined(spec: Any, model: str) -> None:
    assert EmbeddingService(spec).name.startswith("custom/")
    assert EmbeddingService(spec).name.endswith(model)


def test_an_embedder_may_name_itself() -> None:
    class Named(WithEmbed):
        provider = "acme"
        model_name = "rocket-2"

    assert EmbeddingService(Named()).name == "acme/rocket-2"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (WithEmbed, "pass an instance"),
        (object(), "without an `embed` method"),
        (42, "int without"),
    ],
)
def test_what_is_no_embedder_is_refused_at_once(spec: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EmbeddingService(spec)


@pytest.mark.parametrize("value", [0, -1, "512", 1.5, True])
def test_an_impossible_dimension_is_refused_at_once(value: Any) -> None:
    class Odd(WithEmbed):
        dimension = value

    with pytest.raises(ConfigurationError, match=r"`dimension` is .* whole number above 0"):
        EmbeddingService(Odd())


async def test_verify_accepts_the_same_embedder_whatever_vectors_it_was_given() -> None:
    recorded = await EmbeddingService(FakeEmbedder({"a": [1.0] * 16})).fingerprint()

    await EmbeddingService(FakeEmbedder({"b": [2.0] * 16})).verify(recorded)


async def test_verify_accepts_a_renamed_callable() -> None:
    def renamed(texts: list[str]) -> list[list[float]]:
        return FakeEmbedder().embed(texts)

    recorded = await EmbeddingService(FakeEmbedder()).fingerprint()

    await EmbeddingService(renamed).verify(recorded)


async def test_verify_refuses_another_dimension_and_names_both_and_the_remedy() -> None:
    recorded = await EmbeddingService(FakeEmbedder(dimension=32), model="old").fingerprint()

    with pytest.raises(EmbedderMismatchError) as raised:
        await EmbeddingService(FakeEmbedder(dimension=16), model="new").verify(recorded)

    message = str(raised.value)
    assert "custom/old (32 dimensions)" in message
    assert "custom/new (16 dimensions)" in message
    assert "mnemotrace.reindex(storage, embedder)" in message


async def test_verify_refuses_another_model_of_the_same_dimension() -> None:
    recorded = await EmbeddingService(FakeEmbedder(seed=1)).fingerprint()

    with pytest.raises(EmbedderMismatchError, match="different vectors for the same text"):
        await EmbeddingService(FakeEmbedder(seed=2)).verify(recorded)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (("acme", "m1"), ("acme", "m1"), True),
        (("acme", "m1"), ("acme", "m2"), False),
        (("acme", "m1"), ("other", "m1"), False),
        (("acme", "m1@0.2.1"), ("acme", "m1@0.3"), True),
        (("acme", "m1"), ("custom", "anything"), True),
    ],
)
async def test_names_decide_only_between_embedders_that_have_them(
    old: tuple[str, str], new: tuple[str, str], same: bool
) -> None:
    def service(name: tuple[str, str]) -> EmbeddingService:
        return EmbeddingService(FakeEmbedder(), provider=name[0], model=name[1])

    recorded = await service(old).fingerprint()
    if same:
        await service(new).verify(recorded)
    else:
        with pytest.raises(EmbedderMismatchError, match="different models"):
            await service(new).verify(recorded)


async def test_an_embedder_that_knows_none_of_the_fixed_texts_still_has_a_fingerprint() -> None:
    def counts(texts: list[str]) -> list[list[float]]:
        return [[float(text.count("zebra")), float(text.count("yak"))] for text in texts]

    fingerprint = await EmbeddingService(counts).fingerprint()

    assert fingerprint["canary"] is None
    assert fingerprint["calibration"] == {"lo": 0.2, "hi": 0.9}
    await EmbeddingService(counts).verify(fingerprint)
    with pytest.raises(EmbedderError, match="zeros"):
        await EmbeddingService(counts).embed_documents(["no such animal"])


async def test_calibration_lies_between_unrelated_and_related_texts() -> None:
    service = EmbeddingService(FakeEmbedder())
    levels = (await service.fingerprint())["calibration"]
    note, question, foreign = await service.embed_documents(
        ["Lea keeps bees on the roof", "Where does Lea keep her bees?", "The invoice is overdue"]
    )

    assert foreign @ question < levels["lo"] < levels["hi"]
    assert note @ question > levels["lo"]


async def test_an_embedder_with_high_cosines_throughout_is_still_measured() -> None:
    def lofty(texts: list[str]) -> list[list[float]]:
        return [[*vector, 2.5] for vector in FakeEmbedder(dimension=256).embed(texts)]

    levels = (await EmbeddingService(lofty).fingerprint())["calibration"]

    assert 0.85 < levels["lo"] < levels["hi"] < 1.0


async def test_the_fingerprint_fails_as_the_embedder_does() -> None:
    with pytest.raises(EmbedderError, match="embedder down"):
        await EmbeddingService(FakeEmbedder(fail=True)).fingerprint()


# -- embedding and using in one go ---------------------------------------------------------------


def sync_embedder(texts: list[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


async def async_embedder(texts: list[str]) -> list[list[float]]:
    return sync_embedder(texts)


def awaitable_embedder(texts: list[str]) -> Any:
    return async_embedder(texts)


@pytest.mark.parametrize("embedder", [sync_embedder, async_embedder, awaitable_embedder])
async def test_a_query_vector_is_used_off_the_loop(embedder: Any) -> None:
    service = EmbeddingService(embedder)
    used_in: list[int] = []

    def use(vectors: Any) -> Any:
        used_in.append(threading.get_ident())
        rows: list[list[float]] = vectors.tolist()
        return rows

    assert await service.embed_query_and("four", use) == [[1.0, 4.0]]
    assert used_in != [threading.get_ident()]


@pytest.mark.parametrize("embedder", [sync_embedder, async_embedder, awaitable_embedder])
async def test_what_the_use_raises_is_not_the_embedders(embedder: Any) -> None:
    def use(vectors: Any) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await EmbeddingService(embedder).embed_query_and("x", use)


async def test_a_vector_that_is_refused_is_not_used() -> None:
    used: list[Any] = []
    service = EmbeddingService(lambda texts: [[0.0, 0.0] for _ in texts])
    with pytest.raises(EmbedderError, match="vector of zeros"):
        await service.embed_query_and("x", used.append)
    with pytest.raises(EmbedderError, match=r"failed on 1 text.*ZeroDivisionError"):
        await EmbeddingService(lambda texts: 1 / 0).embed_query_and("x", used.append)
    assert used == []
