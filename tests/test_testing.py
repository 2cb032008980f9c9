from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import EmbedderError, LLMError
from mnemotrace.events import MemoryEvent, MemoryEventBus, MemoryQueryStartedEvent
from mnemotrace.llm.protocol import LLMReply, LLMRequest
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM


def test_given_texts_get_their_vectors_and_others_a_fixed_one() -> None:
    embedder = FakeEmbedder({"cat": [1, 0, 0], "dog": [0.6, 0.8, 0]})

    cat, dog, other = embedder.embed(["cat", "dog", "a bird"])

    assert cat == [1.0, 0.0, 0.0]
    assert dog == [0.6, 0.8, 0.0]
    assert len(other) == embedder.dimension == 3
    assert other == FakeEmbedder(dimension=3).embed(["a bird"])[0]


def test_texts_that_share_words_are_nearer_than_others() -> None:
    one, alike, apart = np.array(
        FakeEmbedder().embed(["Ann drinks tea", "tea for Ann", "the train is late"])
    )

    assert one @ alike > 0.7
    assert one @ apart < 0.4
    assert np.linalg.norm(one) == pytest.approx(1.0)


def test_another_seed_is_another_model() -> None:
    one, two = FakeEmbedder(seed=1).embed(["tea"])[0], FakeEmbedder(seed=2).embed(["tea"])[0]

    assert abs(np.dot(one, two)) < 0.6


def test_vectors_of_several_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"several lengths: \[2, 3\]"):
        FakeEmbedder({"a": [1, 0], "b": [1, 0, 0]})
    with pytest.raises(ValueError, match=r"several lengths: \[2, 4\]"):
        FakeEmbedder({"a": [1, 0]}, dimension=4)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("count", "1 vector for 2 texts"),
        ("length", "length 65 for text 2"),
        ("nan", "NaN"),
        ("zeros", "zeros"),
    ],
)
async def test_each_fault_is_one_the_service_reports(fault: str, message: str) -> None:
    embedder = FakeEmbedder()
    service = EmbeddingService(embedder)
    await service.fingerprint()

    embedder.fault = fault
    with pytest.raises(EmbedderError, match=message):
        await service.embed_documents(["a", "b"])

    embedder.fault = None
    assert (await service.embed_documents(["a", "b"])).shape == (2, 64)


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown fault 'typo'"):
        FakeEmbedder(fault="typo").embed(["a"])


def test_an_embedder_can_be_down_for_a_number_of_calls() -> None:
    embedder = FakeEmbedder(fail=ConnectionError("down"))
    embedder.fail_times = 2

    for _ in range(2):
        with pytest.raises(ConnectionError, match="down"):
            embedder.embed(["a"])

    assert len(embedder.embed(["a"])) == 1


def test_a_delay_is_taken() -> None:
    start = time.perf_counter()
    FakeEmbedder(delay=0.05).embed(["a"])

    assert time.perf_counter() - start >= 0.05


async def test_calls_are_recorded_but_for_the_fingerprint() -> None:
    embedder = FakeEmbedder()
    service = EmbeddingService(embedder)
    await service.fingerprint()
    await service.embed_documents(["a", "b"])
    await service.embed_queries(["c"])

    assert embedder.calls == [["a", "b"], ["c"]]
    assert embedder.texts == ["a", "b", "c"]


class Reply(BaseModel):
    name: str


async def answer(request: LLMRequest) -> dict[str, str]:
    return {"asked": request.prompt}


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("plain", "plain"),
        ({"name": "미나"}, '{"name": "미나"}'),
        (Reply(name="Ann"), '{"name":"Ann"}'),
        (LLMReply("whole", tokens_in=3), "whole"),
        (["first", "second"], "first"),
        (lambda request: request.prompt.upper(), "HELLO"),
        (answer, '{"asked": "hello"}'),
        ([answer], '{"asked": "hello"}'),
    ],
)
@pytest.mark.parametrize("place", ["script", "default"])
async def test_a_script_answers(script: Any, text: str, place: str) -> None:
    llm = ScriptedLLM({"p": script}) if place == "script" else ScriptedLLM(default=script)

    assert (await llm.complete(LLMRequest("p", "", "hello"))).text == text


async def test_a_list_is_used_up_in_order() -> None:
    llm = ScriptedLLM({"p": ["one", ValueError("two")], "q": "always"})
    p, q = LLMRequest("p", "", "?"), LLMRequest("q", "", "?")

    assert (await llm.complete(p)).text == "one"
    with pytest.raises(ValueError, match="two"):
        await llm.complete(p)
    with pytest.raises(LLMError, match="no further answer for 'p'"):
        await llm.complete(p)
    assert (await llm.complete(q)).text == (await llm.complete(q)).text == "always"
    assert llm.asked("p") == [p, p, p]
    assert llm.asked("q") == [q, q]
    assert llm.asked("r") == []
    assert llm.running == 0


async def test_a_purpose_without_an_answer_fails() -> None:
    with pytest.raises(LLMError, match="no answer for 'p'"):
        await ScriptedLLM({"q": "x"}).complete(LLMRequest("p", "", ""))


def test_a_listener_keeps_the_events_of_its_block_only() -> None:
    bus = MemoryEventBus()
    event = MemoryQueryStartedEvent(query="q", limit=3)

    bus.emit("before", event)
    with RecordingListener(bus) as heard:
        bus.emit("memory", event)
        bus.emit("memory", MemoryEvent())
    bus.emit("after", event)

    assert heard.of(MemoryQueryStartedEvent) == [event]
    assert len(heard.events) == 2
    assert heard.sources == ["memory", "memory"]
