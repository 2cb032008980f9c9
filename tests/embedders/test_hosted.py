"""Batches, parallel requests and retries, around requests that a fake answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mnemotrace.embedders.providers import hosted
from mnemotrace.embedders.providers.hosted import HostedEmbedder, Reply, TransientError
from mnemotrace.embedders.providers.settings import Settings
from mnemotrace.embedders.providers.table import PROVIDERS, Side
from mnemotrace.errors import EmbedderError
from mnemotrace.trace import start_trace


class Server:
    """Makes vectors of the length of each text; fails as it is told."""

    def __init__(self, *failures: BaseException | None, delay: float = 0.0) -> None:
        self.batches: list[list[str]] = []
        self.failures = list(failures)
        self.delay = delay
        self.open = self.together = self.given_up = 0
        self.preparing = 0.0

    async def prepare(self) -> None:
        if self.preparing:
            await asyncio.sleep(self.preparing)

    async def __call__(self, texts: list[str], side: Side, timeout: float) -> Reply:
        self.batches.append(texts)
        failure = self.failures.pop(0) if self.failures else None
        self.open += 1
        self.together = max(self.together, self.open)
        try:
            if failure is not None:
                raise failure
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.open -= 1
        return Reply([[float(len(text)), 1.0] for text in texts], tokens=len(texts), cost=0.5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "BACKOFF", 0.001)


class Answer(Server):
    """Gives what a function makes of the texts."""

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        super().__init__()
        self.function = function

    async def __call__(self, texts: list[str], side: Side, timeout: float) -> Reply:
        return Reply(self.function(texts))


def embedder(ask: Server, key: str = "openai", **config: Any) -> HostedEmbedder:
    return HostedEmbedder(Settings(key, PROVIDERS[key], {"api_key": "k", **config}), ask)


@pytest.mark.parametrize("key", ["openai", "cohere", "voyageai", "jina", "google-generativeai"])
async def test_no_request_has_more_texts_than_the_provider_takes(key: str) -> None:
    server = Server()
    most = PROVIDERS[key].batch("m")

    vectors = await embedder(server, key).aembed(["x"] * (2 * most + 1))

    assert sorted(map(len, server.batches)) == [1, most, most]
    assert vectors.shape == (2 * most + 1, 2)


async def test_no_request_has_more_characters_than_the_provider_takes() -> None:
    server = Server()
    room = PROVIDERS["voyageai"].request_characters
    text = "x" * 15_000

    await embedder(server, "voyageai", model="voyage-3").aembed([text] * 20)

    assert len(server.batches) > 1
    assert max(sum(map(len, batch)) for batch in server.batches) <= room
    assert sum(map(len, server.batches)) == 20


async def test_a_smaller_batch_may_be_asked_for_but_no_larger_one() -> None:
    small, large = Server(), Server()

    await embedder(small, "cohere", max_batch=2).aembed(["x"] * 5)
    await embedder(large, "cohere", max_batch=500).aembed(["x"] * 100)

    assert sorted(map(len, small.batches)) == [1, 2, 2]
    assert sorted(map(len, large.batches)) == [4, 96]


async def test_vectors_are_in_the_order_of_the_texts() -> None:
    class Backwards(Server):
        async def __call__(self, texts: list[str], side: Side, timeout: float) -> Reply:
            await asyncio.sleep(0.01 / len(texts[0]))  # short texts answer last
            return await super().__call__(texts, side, timeout)

    vectors = await embedder(Backwards(), max_batch=1).aembed(["x" * n for n in range(1, 9)])

    assert vectors[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_requests_are_made_at_the_same_time_but_not_too_many() -> None:
    server = Server(delay=0.01)

    await embedder(server, max_batch=1).aembed(["x"] * 40)

    assert server.together == hosted.PARALLEL


async def test_no_texts_make_no_request() -> None:
    server = Server()

    vectors = await embedder(server, dimensions=3).aembed([])

    assert vectors.shape == (0, 3)
    assert not server.batches


async def test_a_passing_failure_is_tried_again() -> None:
    server = Server(TransientError("busy"), TransientError("busy"))

    assert (await embedder(server).aembed(["four"])).tolist() == [[4.0, 1.0]]
    assert len(server.batches) == 3


async def test_another_failure_is_not_tried_again() -> None:
    server = Server(EmbedderError("wrong key"))

    with pytest.raises(EmbedderError, match="wrong key"):
        await embedder(server).aembed(["x"])

    assert len(server.batches) == 1


@pytest.mark.parametrize(("retries", "times"), [(0, "once"), (1, "2 times"), (5, "6 times")])
async def test_retries_end_and_their_number_is_told(retries: int, times: str) -> None:
    server = Server(*[TransientError("busy") for _ in range(20)])

    with pytest.raises(EmbedderError, match=rf"busy \(tried {times}\)"):
        await embedder(server, max_retries=retries).aembed(["x"])

    assert len(server.batches) == retries + 1


async def test_waits_double_and_are_never_twice_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "BACKOFF", 1.0)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(3):
        failing = Server(*[TransientError("busy") for _ in range(4)])
        with pytest.raises(EmbedderError):
            await embedder(failing).aembed(["x"])

    assert len(waits) == 9
    for number, wait in enumerate(waits):
        assert 0.5 <= wait / 2 ** (number % 3) <= 1.5
    assert len(set(waits)) == 9


async def test_the_first_failure_gives_up_the_other_requests() -> None:
    server = Server(None, None, EmbedderError("wrong key"), delay=30.0)

    with pytest.raises(EmbedderError, match="wrong key"):
        await asyncio.wait_for(embedder(server, max_batch=1).aembed(["x"] * 3), 5.0)

    assert (server.open, server.given_up) == (0, 2)


async def test_a_cancelled_call_leaves_no_request_behind() -> None:
    server = Server(delay=30.0)
    call = asyncio.ensure_future(embedder(server, max_batch=1).aembed(["x"] * 3))
    await asyncio.sleep(0.01)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert (server.open, server.given_up) == (0, 3)


async def test_preparing_is_no_part_of_a_requests_time() -> None:
    server = Server()
    server.preparing = 0.2

    await embedder(server, timeout=0.05).aembed(["x"])

    assert len(server.batches) == 1


async def test_a_request_that_hangs_is_ended() -> None:
    server = Server(delay=30.0)

    with pytest.raises(EmbedderError, match=r"did not answer within 0\.05 seconds \(tried 2"):
        await embedder(server, timeout=0.05, max_retries=1).aembed(["x"])

    assert server.given_up == 2


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([], "returned 0 vectors for 2 texts"),
        ([[1.0]], "returned 1 vector for 2 texts"),
        ([[1.0], [2.0], [3.0]], "returned 3 vectors for 2 texts"),
        ([[1.0], [2.0, 3.0]], "different lengths: 1, 2"),
        ([[1.0], "abc"], "not a vector of numbers"),
        ([[1.0], None], "different lengths"),
        ([[[1.0]], [[2.0]]], "different lengths: 1x1"),
    ],
)
async def test_an_unusable_answer_is_refused(vectors: list[Any], message: str) -> None:
    with pytest.raises(EmbedderError, match=message):
        await embedder(Answer(lambda texts: vectors)).aembed(["one", "two"])


async def test_half_a_surrogate_pair_is_not_sent() -> None:
    server = Server()

    await embedder(server).aembed(["a\ud800b"])

    assert server.batches == [["a?b"]]


@pytest.mark.parametrize("name", ["__call__", "embed", "embed_query"])
def test_it_can_be_called_without_a_loop(name: str) -> None:
    function: Callable[[list[str]], Any] = getattr(embedder(Server()), name)

    assert function(["four"]).tolist() == [[4.0, 1.0]]
    assert function(["five5"]).tolist() == [[5.0, 1.0]]


async def test_it_can_be_called_inside_a_loop_and_from_many_threads() -> None:
    made = embedder(Server(delay=0.01))
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(made(["x" * n]).tolist()))
        for n in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    assert made(["four"]).tolist() == [[4.0, 1.0]]
    for thread in threads:
        thread.join()

    assert sorted(results) == [[[float(n), 1.0]] for n in range(1, 9)]


async def test_the_trace_has_each_request_with_what_it_took() -> None:
    server = Server(TransientError("busy"))

    with start_trace("recall") as trace:
        await embedder(server, max_batch=2).aembed(["x"] * 3)

    assert trace is not None
    facts = [(item.name, item.kind, item.attempt, item.status) for item in trace.spans]
    assert sorted(facts) == [
        ("embed.request", "embed", 1, "error"),
        ("embed.request", "embed", 1, "ok"),
        ("embed.request", "embed", 2, "ok"),
    ]
    answered = [item.attrs for item in trace.spans if item.status == "ok"]
    assert sum(facts["tokens_in"] for facts in answered) == 3
    assert all(facts["cost"] == 0.5 for facts in answered)
    assert all(facts["model"] == "openai/text-embedding-3-small" for facts in answered)
