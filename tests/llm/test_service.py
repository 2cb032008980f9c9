from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from mnemotrace.errors import LLMError, LLMUnavailableError
from mnemotrace.llm import service as service_module
from mnemotrace.llm.protocol import LLMReply, LLMRequest, TransientLLMError
from mnemotrace.llm.resolve import resolve_llm
from mnemotrace.llm.service import LLMService, Patience
from mnemotrace.testing import ScriptedLLM
from mnemotrace.trace import start_trace


class Answer(BaseModel):
    port: int


GOOD = {"port": 8080}


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "BACKOFF", 0.001)


async def ask(llm: Any, **settings: Any) -> Answer:
    return await LLMService(resolve_llm(llm), **settings).ask("find_port", "system", "?", Answer)


async def test_the_answer_is_validated_and_the_request_carries_the_schema() -> None:
    llm = ScriptedLLM({"find_port": GOOD})

    assert await ask(llm) == Answer(port=8080)
    assert llm.requests == [LLMRequest("find_port", "system", "?", Answer.model_json_schema())]


async def test_the_schema_of_an_answer_is_made_once() -> None:
    """Making one takes longer than all else a request takes here."""
    llm = ScriptedLLM({"find_port": GOOD})

    for _ in range(2):
        await ask(llm)

    assert llm.requests[0].schema is llm.requests[1].schema


@pytest.mark.parametrize("reply", ["", "no idea", '{"port": "none"}', '{"port": '])
async def test_an_unusable_answer_is_an_error_and_not_asked_again(reply: str) -> None:
    llm = ScriptedLLM({"find_port": reply})

    with pytest.raises(LLMError, match="language model's answer"):
        await ask(llm)

    assert len(llm.requests) == 1


class StatusError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


@pytest.mark.parametrize(
    "failure",
    [
        TransientLLMError("busy"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        StatusError(429),
        StatusError(503),
    ],
)
async def test_a_transient_failure_is_tried_twice_more(failure: Exception) -> None:
    recovering = ScriptedLLM({"find_port": [failure, failure, GOOD]})
    failing = ScriptedLLM({"find_port": failure})

    assert await ask(recovering) == Answer(port=8080)
    with pytest.raises(LLMError):
        await ask(failing)
    assert len(failing.requests) == 3


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (LLMUnavailableError("no key"), LLMUnavailableError),
        (LLMError("refused"), LLMError),
        (ValueError("bug"), LLMError),
        (StatusError(400), LLMError),
    ],
)
async def test_any_other_failure_is_not_tried_again(failure: Exception, kind: type) -> None:
    llm = ScriptedLLM({"find_port": failure})

    with pytest.raises(kind, match=str(failure)):
        await ask(llm)

    assert len(llm.requests) == 1


async def test_a_foreign_exception_is_the_cause_of_ours() -> None:
    failure = ValueError("bug")

    with pytest.raises(LLMError, match="ValueError: bug") as raised:
        await ask(ScriptedLLM({"find_port": failure}))

    assert raised.value.__cause__ is failure


async def test_no_model_fails_at_once_with_what_to_do() -> None:
    service = LLMService(resolve_llm(None))

    assert not service.configured
    assert "no language model is configured" in (service.known_unavailable() or "")
    with pytest.raises(LLMUnavailableError, match="pass llm="):
        await service.ask("find_port", "", "?", Answer)


async def test_a_model_that_cannot_tell_is_not_known_to_be_unavailable() -> None:
    service = LLMService(ScriptedLLM())

    assert service.configured
    assert service.known_unavailable() is None


async def test_no_more_requests_than_allowed_run_at_the_same_time() -> None:
    llm = ScriptedLLM({"find_port": GOOD}, delay=0.01)
    service = LLMService(llm, concurrency=3)

    await asyncio.gather(*(service.ask("find_port", "", "?", Answer) for _ in range(10)))

    assert llm.most_running == 3


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when there is nothing else to do.

    So a busy machine cannot make a request late, and nothing is really waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._skipped = 0.0

    def time(self) -> float:
        return self._skipped

    def _run_once(self) -> None:
        waiting, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not waiting and timers:
            self._skipped = max(self._skipped, timers[0].when())
        super()._run_once()  # type: ignore[misc]


def test_waiting_for_a_free_place_does_not_count_as_time_of_the_model() -> None:
    llm = ScriptedLLM({"find_port": GOOD}, delay=20.0)
    service = LLMService(llm, concurrency=1, timeout=21.0)

    async def six() -> tuple[list[Answer], float]:
        questions = (service.ask("find_port", "", "?", Answer) for _ in range(6))
        return await asyncio.gather(*questions), asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        answers, seconds = runner.run(six())

    assert len(answers) == 6
    assert seconds == pytest.approx(120.0)


def test_one_service_serves_several_loops_at_once() -> None:
    service = LLMService(ScriptedLLM({"find_port": GOOD}, delay=0.01), concurrency=1)
    answers: list[Answer] = []

    async def several() -> None:
        answers.extend(
            await asyncio.gather(*(service.ask("find_port", "", "?", Answer) for _ in range(3)))
        )

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 9


async def test_a_slow_model_is_given_up_and_named() -> None:
    with pytest.raises(LLMError, match=r"did not answer find_port within 0\.05 s"):
        await ask(ScriptedLLM({"find_port": GOOD}, delay=5.0), timeout=0.05)


async def test_a_slow_function_is_given_up_though_its_thread_hangs() -> None:
    release = threading.Event()

    def hang(prompt: str) -> str:
        release.wait(10.0)
        return "{}"

    try:
        with pytest.raises(LLMError, match="did not answer"):
            await ask(hang, timeout=0.05)
    finally:
        release.set()


async def test_a_run_asks_no_more_once_the_model_was_out_of_reach() -> None:
    llm = ScriptedLLM({"find_port": LLMUnavailableError("no connection")})
    service, patience = LLMService(llm), Patience(60.0, timeouts=3)

    for _ in range(3):
        with pytest.raises(LLMUnavailableError, match="no connection"):
            await service.ask("find_port", "", "?", Answer, patience=patience)

    assert len(llm.requests) == 1


async def test_a_run_asks_no_more_after_so_many_timeouts_in_a_row() -> None:
    async def answer(request: LLMRequest) -> dict[str, int]:
        if "slow" in request.prompt:
            await asyncio.sleep(5.0)
        return GOOD

    llm = ScriptedLLM({"find_port": answer})
    service, patience = LLMService(llm, timeout=0.02), Patience(60.0, timeouts=2)

    for prompt in ("slow", "quick", "slow", "slow", "quick"):
        with contextlib.suppress(LLMError):
            await service.ask("find_port", "", prompt, Answer, patience=patience)

    assert [request.prompt for request in llm.requests] == ["slow", "quick", "slow", "slow"]
    assert "did not answer" in (patience.exhausted or "")


async def test_a_run_asks_no_more_once_its_time_is_up() -> None:
    """Waiting for a free place counts, too: else a long queue would hold the run for ever."""
    llm = ScriptedLLM({"find_port": GOOD}, delay=5.0)
    service, patience = LLMService(llm, concurrency=1), Patience(0.05, timeouts=9)

    results = await asyncio.gather(
        *(service.ask("find_port", "", "?", Answer, patience=patience) for _ in range(3)),
        return_exceptions=True,
    )

    assert all(isinstance(result, LLMError) for result in results)
    assert len(llm.requests) == 1
    with pytest.raises(LLMError, match=r"no more time"):
        await service.ask("find_port", "", "?", Answer, patience=patience)
    assert len(llm.requests) == 1


async def test_a_run_may_forgo_retries() -> None:
    llm = ScriptedLLM({"find_port": TransientLLMError("busy")})

    with pytest.raises(TransientLLMError):
        await LLMService(llm).ask("find_port", "", "?", Answer, retries=0)

    assert len(llm.requests) == 1


@pytest.mark.parametrize(("length", "same"), [(10, True), (200_000, False)])
async def test_a_long_answer_is_parsed_off_the_loop(length: int, same: bool) -> None:
    threads: list[threading.Thread] = []

    class Note(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _seen(cls, value: str) -> str:
            threads.append(threading.current_thread())
            return value

    llm = ScriptedLLM({"note": {"text": "x" * length}})
    await LLMService(llm).ask("note", "", "?", Note)

    assert (threads == [threading.current_thread()]) is same


async def test_an_endless_answer_is_not_read() -> None:
    endless = '{"port": 1, "why": "' + "x" * service_module.MAX_REPLY + '"}'

    with pytest.raises(LLMError, match="more than the 2000000"):
        await ask(ScriptedLLM({"find_port": endless}))


async def test_a_cancelled_request_is_cancelled() -> None:
    llm = ScriptedLLM({"find_port": GOOD}, delay=5.0)
    task = asyncio.create_task(ask(llm))
    await asyncio.sleep(0.02)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.running == 0


async def test_every_call_is_in_the_trace_with_what_it_took() -> None:
    reply = LLMReply('{"port": 1}', model="m-1", tokens_in=7, tokens_out=3, cost=0.5, latency_ms=40)
    llm = ScriptedLLM({"find_port": [TransientLLMError("busy"), reply]}, model="m")

    with start_trace("recall") as trace:
        await ask(llm)

    assert trace is not None
    first, second = trace.find("llm.find_port")
    assert (first.status, first.attempt, first.attrs["model"]) == ("error", 1, "m")
    assert "busy" in (first.error or "")
    assert (second.status, second.attempt, second.attrs["model"]) == ("ok", 2, "m-1")
    totals = trace.totals()
    assert (totals["llm_calls"], totals["llm_failures"]) == (2, 1)
    assert (totals["tokens_in"], totals["tokens_out"], totals["cost"]) == (7, 3, 0.5)


async def test_a_timed_out_call_is_in_the_trace() -> None:
    with start_trace("recall") as trace, pytest.raises(LLMError):
        await ask(ScriptedLLM({"find_port": GOOD}, delay=5.0), timeout=0.02)

    assert trace is not None
    assert [call.status for call in trace.find("llm.find_port")] == ["cancelled"]


async def test_a_reply_of_the_wrong_kind_is_named() -> None:
    class Odd:
        async def complete(self, request: LLMRequest) -> Any:
            return "text"

    with pytest.raises(LLMError, match="returned a str from `complete`, not an LLMReply"):
        await ask(Odd())


def test_the_same_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    service = LLMService(ScriptedLLM())
    with caplog.at_level(logging.WARNING, logger="mnemotrace"):
        service.warn("save analysis", "no key")
        service.warn("save analysis", "no key")
        service.warn("query analysis", "no key")

    assert [record.getMessage() for record in caplog.records] == [
        "Memory goes on without the language model for save analysis: no key",
        "Memory goes on without the language model for query analysis: no key",
    ]
