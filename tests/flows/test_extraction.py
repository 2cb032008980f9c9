"""ExtractionFlow: long texts in parts, failures that cost only their own part, dates, languages."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mnemotrace import Memory, MemoryMixin
from mnemotrace.errors import InvalidInputError, LLMError, RecordError
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.flows.extraction import ExtractionFlow, ExtractionRun
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

from .dialogues import dialogue, reader, section, text_of

OpenMemory = Callable[..., Memory]
FACTS = r"^Order|^주문"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One store for the whole module: making one takes half a second."""
    path = tmp_path_factory.mktemp("extraction")
    with Memory(llm=None, storage=path, embedder=FakeEmbedder()) as holder:
        holder.remember("the first text makes the store")
        yield path


@pytest.fixture
def open_memory(folder: Path) -> Iterator[OpenMemory]:
    opened: list[Memory] = []

    def build(extraction: Any = None, **settings: Any) -> Memory:
        llm = ScriptedLLM({"extraction": extraction}) if extraction is not None else None
        settings = {"llm": llm, "embedder": FakeEmbedder(), **settings}
        opened.append(Memory(storage=folder, **settings))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()


def model_of(memory: Memory) -> ScriptedLLM:
    llm = memory._core.services.llm.llm
    assert isinstance(llm, ScriptedLLM)
    return llm


# -- long texts ------------------------------------------------------------------------------------


def test_every_step_leads_on() -> None:
    assert set(ExtractionFlow.validate_step_returns()) == {
        "recognise", "split", "extract", "combine",
    }  # fmt: skip


def test_every_fact_of_a_long_dialogue_is_found_once_and_in_order(open_memory: OpenMemory) -> None:
    """60,000 characters in Korean and English, read in overlapping parts."""
    text, facts = dialogue(60_000)
    memory = open_memory(reader(FACTS))
    found = memory.extract_memories(text)
    assert found == facts
    assert found.failures == found.echoes == []
    asked = model_of(memory).asked("extraction")
    assert len(asked) > 10
    raw = [s for request in asked for s in reader(FACTS)(request)["memories"]]
    assert len(raw) > len(facts), "the parts overlap"
    assert max(len(text_of(request)) for request in asked) < len(text) / 5
    trace = found.trace
    assert trace is not None
    steps = [name for name in trace.path if name != "extract.part"]
    assert steps == ["recognise", "split", "extract", "combine"]
    assert len(trace.find("llm.extraction")) == len(asked)
    assert trace.attrs["statements"] == len(facts)
    assert trace.find("extract")[0].attrs["parts"] == len(asked)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_parts_are_asked_about_together_up_to_the_limit(
    open_memory: OpenMemory, concurrency: int
) -> None:
    text, facts = dialogue(30_000, seed=1)
    memory = open_memory(reader(FACTS), llm_concurrency=concurrency)
    model_of(memory).delay = 0.005
    assert memory.extract_memories(text) == facts
    assert model_of(memory).most_running == concurrency


def test_later_parts_know_the_beginning_and_the_speakers(open_memory: OpenMemory) -> None:
    text = "Minutes of the meeting of 3 March 2026\n\n" + dialogue(12_000)[0]
    memory = open_memory(reader(FACTS))
    memory.extract_memories(text)
    first, *later = model_of(memory).asked("extraction")
    assert later
    assert not section(first, "The whole text begins")
    for request in later:
        assert "Minutes of the meeting of 3 March 2026" in section(request, "The whole text begins")
    for request in (first, *later):
        assert {"Alice", "앨리스"} <= set(section(request, "Speakers").split(", "))


def test_what_parts_share_is_kept_once_unless_a_fact_differs(open_memory: OpenMemory) -> None:
    said = [
        "The budget is $50k.",
        "the budget is  $50k",
        "Budget is $50k!",
        "The budget is $50.",
        "The budget is not $50k.",
        "Alice paid Bob.",
        "Bob paid Alice.",
        "주문 1001 번은 서울에 있습니다.",
        "주문 1002 번은 서울에 있습니다.",
        "주문 1001 번은 서울에 있습니다",
        "  ",
    ]
    memory = open_memory({"memories": said})
    assert memory.extract_memories("a text") == [
        "The budget is $50k.",
        "The budget is $50.",
        "The budget is not $50k.",
        "Alice paid Bob.",
        "Bob paid Alice.",
        "주문 1001 번은 서울에 있습니다.",
        "주문 1002 번은 서울에 있습니다.",
    ]


def test_the_result_is_a_plain_list_of_texts(open_memory: OpenMemory) -> None:
    memory = open_memory({"memories": ["Two\n  lines.", "More."]})
    facts = memory.extract_memories("a text")
    assert isinstance(facts, list)
    assert facts == ["Two lines.", "More."]
    assert facts[:1] == ["Two lines."]
    with pytest.raises(RecordError):
        memory.extract_memories(" \n")


def test_an_answer_of_blank_statements_is_none(open_memory: OpenMemory) -> None:
    found = open_memory({"memories": ["", " "]}).extract_memories("The bridge opens at nine.")
    assert found == ["The bridge opens at nine."]
    assert "blank" in found.failures[0]


def test_nothing_worth_remembering_is_an_empty_list(open_memory: OpenMemory) -> None:
    with RecordingListener() as heard:
        assert open_memory({"memories": []}).extract_memories("Hello! Bye!") == []
    assert heard.events == []


# -- when the model fails --------------------------------------------------------------------------

FAILURES: dict[str, Any] = {
    "down": LLMError("down"),
    "prose": "I could not find any facts, sorry.",
    "nothing": "",
    "wrong schema": {"facts": 3},
    "cut off": '{"memories": ["one", "tw',
    "crash": ValueError("bug"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_without_an_answer_the_whole_text_is_kept_as_one(
    open_memory: OpenMemory, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "  The kiln is on.\n\nThe glaze is blue.  "
    memory = open_memory(FAILURES[failure])
    with RecordingListener() as heard, caplog.at_level(logging.WARNING, "mnemotrace"):
        kept = memory.extract_memories(text)
    assert kept == [text]
    assert kept.failures
    (event,) = heard.of(MemoryAnalysisFailedEvent)
    assert event.operation == "extraction"
    assert "extraction" in caplog.text


def test_without_a_model_the_whole_text_is_kept_and_nobody_is_warned(
    open_memory: OpenMemory, caplog: pytest.LogCaptureFixture
) -> None:
    text = dialogue(20_000)[0]
    with RecordingListener() as heard, caplog.at_level(logging.WARNING, "mnemotrace"):
        kept = open_memory().extract_memories(text)
    assert kept == [text]
    assert kept.trace is not None
    assert kept.trace.path == ("recognise",)
    assert heard.events == []
    assert caplog.records == []


def test_a_part_that_fails_is_kept_as_it_is_and_costs_no_other(open_memory: OpenMemory) -> None:
    text, facts = dialogue(40_000, seed=2)
    lost = facts[len(facts) // 2]

    def answer(request: LLMRequest) -> Any:
        if lost in text_of(request):
            return LLMError("this part is too much")
        return reader(FACTS)(request)

    memory = open_memory(answer)
    with RecordingListener() as heard:
        kept = memory.extract_memories(text)
    raw = [item for item in kept if item not in facts]
    assert 1 <= len(raw) <= 2
    assert all(item in text for item in raw)
    assert any(lost in item for item in raw)
    for fact in facts:
        assert fact in kept or any(fact in item for item in raw)
    assert len(kept) > len(facts) / 2
    assert [item for item in kept if item in facts] == [fact for fact in facts if fact in kept]
    before = kept[: kept.index(raw[0])]
    assert 0 < len(before) < len(facts), "the part is kept in its place"
    assert all(text.index(fact) < text.index(raw[0]) + len(raw[0]) for fact in before)
    (event,) = heard.of(MemoryAnalysisFailedEvent)
    assert "this part is too much" in event.error


def test_neighbours_that_fail_are_kept_in_one_piece(open_memory: OpenMemory) -> None:
    text, facts = dialogue(40_000, seed=3)
    good = facts[0]
    memory = open_memory(
        lambda request: (
            reader(FACTS)(request) if good in text_of(request) else LLMError("down again")
        )
    )
    *found, raw = memory.extract_memories(text)
    assert found == facts[: len(found)]
    assert raw == text[text.index(raw[:200]) :].strip()
    assert raw.endswith(text[-50:].strip())
    assert all(fact in raw for fact in facts[len(found) :])


def test_a_part_that_hangs_is_kept_after_the_timeout_of_a_call(open_memory: OpenMemory) -> None:
    text, facts = dialogue(10_000, seed=4)

    async def answer(request: LLMRequest) -> Any:
        if facts[0] in text_of(request):
            await asyncio.sleep(60)
        return reader(FACTS)(request)

    kept = open_memory(answer, llm_timeout=0.2).extract_memories(text)
    assert kept[0].startswith(text[:100])
    assert facts[-1] in kept


def test_an_extraction_ends_before_its_timeout_and_keeps_what_is_left(
    open_memory: OpenMemory,
) -> None:
    text, facts = dialogue(10_000, seed=5)

    async def answer(request: LLMRequest) -> Any:
        if facts[-1] in text_of(request):
            await asyncio.sleep(60)
        return reader(FACTS)(request)

    for seconds in (1.0, 4.0, 16.0):  # one is enough, but on a machine that has much to do
        kept = open_memory(answer, encode_timeout=seconds).extract_memories(text)
        if kept[0] == facts[0]:
            break
    assert kept[0] == facts[0]
    assert facts[-1] in kept[-1]
    assert len(kept[-1]) > len(facts[-1])
    assert any("encode_timeout" in line for line in kept.failures)


def test_time_spent_before_the_model_is_asked_counts(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts wait only for what is left: else the whole extraction would time out."""
    waited: list[float] = []
    wait = asyncio.wait

    async def noted(tasks: Any, *, timeout: float | None = None, **how: Any) -> Any:
        if timeout is not None:
            waited.append(timeout)
        return await wait(tasks, timeout=timeout, **how)

    memory = open_memory({"memories": ["the kiln is on"]}, encode_timeout=100.0)

    def begun_before(*args: Any) -> ExtractionRun:
        run = ExtractionRun(*args)
        run.begun -= 60.0
        return run

    monkeypatch.setattr("mnemotrace.core.ExtractionRun", begun_before)
    monkeypatch.setattr("mnemotrace.flows.extraction.asyncio.wait", noted)
    assert memory.extract_memories("The kiln is on, says Ann.") == ["the kiln is on"]
    assert any(0.0 <= seconds <= 30.0 for seconds in waited)


async def test_a_cancelled_extraction_stops_asking(open_memory: OpenMemory) -> None:
    text, _ = dialogue(30_000)
    memory = open_memory({"memories": []}, llm_concurrency=1)
    llm = model_of(memory)
    llm.delay = 0.05
    task = asyncio.ensure_future(memory.aextract_memories(text))
    while not llm.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    assert len(llm.requests) <= 3
    assert llm.running == 0


# -- time and language -----------------------------------------------------------------------------


def dated(request: LLMRequest) -> dict[str, Any]:
    """Stand for a model that puts the date from the prompt in place of "yesterday" or "어제"."""
    day = re.search(r"yesterday (\d{4}-\d\d-\d\d)", section(request, "Now"))
    assert day is not None
    return {"memories": [re.sub("yesterday|어제", day[1], s) for s in text_of(request).split("|")]}


@pytest.mark.parametrize(
    ("now", "yesterday"),
    [
        (datetime(2026, 3, 1, 9, tzinfo=UTC), "2026-02-28"),
        (datetime(2026, 3, 1, 9), "2026-02-28"),
        ("2026-03-01T00:30:00+09:00", "2026-02-28"),
        ("2026-03-01", "2026-02-28"),
        (datetime(2026, 3, 1, 0, 30, tzinfo=ZoneInfo("Asia/Seoul")), "2026-02-28"),
        (datetime(2026, 2, 28, 15, 30, tzinfo=UTC).astimezone(ZoneInfo("Asia/Seoul")), "2026-02-28"),
    ],
)  # fmt: skip
def test_relative_dates_count_from_now_in_its_own_time_zone(
    open_memory: OpenMemory, now: Any, yesterday: str
) -> None:
    """At 00:30 in Seoul it is the day before in UTC."""
    memory = open_memory(dated)
    facts = memory.extract_memories("It was deployed yesterday.|어제 배포했습니다.", now=now)
    assert facts == [f"It was deployed {yesterday}.", f"{yesterday} 배포했습니다."]


@pytest.fixture
def far_east() -> Iterator[None]:
    """Put this machine five and a half hours east of Greenwich."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XYZ-05:30")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_now_is_told_with_weekday_and_zone(open_memory: OpenMemory) -> None:
    memory = open_memory({"memories": []})
    memory.extract_memories("t", now=datetime(2026, 3, 1, 0, 30, tzinfo=ZoneInfo("Asia/Seoul")))
    memory.extract_memories("t", now="2026-03-01T00:30:00-05:00")
    memory.extract_memories("t")
    seoul, west, present = model_of(memory).asked("extraction")
    assert section(seoul, "Now").startswith("Sunday 2026-03-01T00:30+09:00 (Asia/Seoul)\n")
    assert section(west, "Now").startswith("Sunday 2026-03-01T00:30-05:00\n")
    told = datetime.fromisoformat(section(present, "Now").split()[1])
    assert told.utcoffset() == timedelta(hours=5, minutes=30), "this machine's zone"
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize("now", ["yesterday", 7, "2026-13-01"])
def test_what_is_no_time_is_refused(open_memory: OpenMemory, now: Any) -> None:
    memory = open_memory({"memories": []})
    with pytest.raises(InvalidInputError, match="now"):
        memory.extract_memories("t", now=now)
    assert model_of(memory).requests == []


async def test_views_mixin_and_twins_take_the_same_arguments(open_memory: OpenMemory) -> None:
    memory = open_memory(dated)

    class Notebook(MemoryMixin):
        pass

    notebook = Notebook()
    notebook.memory = memory.scope("/x")
    text, now = "It rained yesterday.", "2026-03-01"
    expected = ["It rained 2026-02-28."]
    for view in (memory, memory.scope("/x"), memory.slice(["/x", "/y"])):
        assert await view.aextract_memories(text, now=now, source="user:a") == expected
    assert await notebook.aextract_memories(text, now=now) == expected
    assert await asyncio.to_thread(notebook.extract_memories, text, now=now) == expected
    assert await asyncio.to_thread(memory.extract_memories, text, now=now) == expected
    with pytest.raises(TypeError, match="Did you mean 'now'"):
        await memory.aextract_memories(text, nov=now)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("결제 서비스는 매주 화요일에 배포합니다.", "Korean"),
        ("我们决定使用 PostgreSQL 作为数据库。", "Chinese"),
        ("予算は五万円です。", "Japanese"),
        ("The kiln is on the hill.", "English"),
    ],
)
def test_facts_stay_in_the_language_of_the_text(
    open_memory: OpenMemory, text: str, language: str
) -> None:
    memory = open_memory(lambda request: {"memories": [text_of(request)]})
    assert memory.extract_memories(text) == [text]
    (request,) = model_of(memory).requests
    assert f"Write in {language}, the language of the text" in request.prompt


KOREAN = "우리는 PostgreSQL을 쓰기로 했다. 예산은 500만 원이다."
IN_KOREAN = ["우리는 PostgreSQL을 쓰기로 했다.", "예산은 500만 원이다."]
IN_ENGLISH = ["We decided to use PostgreSQL.", "The budget is 5 million won."]


@pytest.mark.parametrize(
    ("second", "kept", "warned"),
    [
        (IN_KOREAN, IN_KOREAN, False),
        (IN_ENGLISH, IN_ENGLISH, True),
        (IN_KOREAN[:1], IN_ENGLISH, True),
        ([IN_KOREAN[0], IN_ENGLISH[1]], [IN_KOREAN[0], IN_ENGLISH[1]], True),
        ([], IN_ENGLISH, True),
        ("no JSON", IN_ENGLISH, True),
    ],
    ids=["right", "wrong again", "fewer", "half", "none", "failed"],
)
def test_facts_in_another_language_are_asked_for_once_more_and_never_lost(
    open_memory: OpenMemory, second: Any, kept: list[str], warned: bool
) -> None:
    answers = [
        {"memories": IN_ENGLISH},
        second if isinstance(second, str) else {"memories": second},
    ]
    memory = open_memory(answers)
    with RecordingListener() as heard:
        result = memory.extract_memories(KOREAN)
    assert result == kept
    first, again = model_of(memory).requests
    assert "earlier answer" not in first.prompt
    assert "An earlier answer was in English, which the text is not" in again.prompt
    assert [e.operation for e in heard.of(MemoryAnalysisFailedEvent)] == ["extraction"] * warned
    assert result.failures == (
        ["extraction: statements of a part were in English, not the text's language"] * warned
    )


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        (KOREAN, [*IN_KOREAN, "PostgreSQL 16", "500"]),
        (f"{KOREAN} We decided to use PostgreSQL.", [*IN_KOREAN, IN_ENGLISH[0]]),
        ("東京で会議があります。予算五万円。", ["予算五万円。", "東京で会議があります。"]),
        ("Wir nehmen PostgreSQL, und zwar ab Mai.", ["We take PostgreSQL from May on."]),
        ("500, 600", ["The numbers are 500 and 600."]),
    ],
    ids=["names and numbers", "mixed", "Japanese", "same script", "no letters"],
)
def test_facts_in_a_language_of_the_text_are_asked_for_once(
    open_memory: OpenMemory, text: str, statements: list[str]
) -> None:
    memory = open_memory({"memories": statements})
    assert memory.extract_memories(text) == statements
    assert len(model_of(memory).requests) == 1


def test_each_part_of_a_long_text_is_told_its_own_language(open_memory: OpenMemory) -> None:
    korean = "결제 서비스는 매주 화요일에 배포합니다. " * 150
    english = "The payment service is deployed on every Tuesday. " * 300
    memory = open_memory({"memories": []})
    memory.extract_memories(korean + "\n\n" + english)
    requests = model_of(memory).requests
    assert "Write in Korean, the language" in requests[0].prompt
    assert "Write in English, the language" in requests[-1].prompt


def test_texts_are_in_the_trace_only_when_asked_for(open_memory: OpenMemory) -> None:
    for level, kept in (("on", False), ("full", True)):
        memory = open_memory({"memories": ["The kiln is on."]}, trace=level)
        trace = memory.extract_memories("The kiln is on, they say.").trace
        assert trace is not None
        assert ("kiln" in str(trace.to_json())) is kept
    assert open_memory({"memories": []}, trace="off").extract_memories("t").trace is None
