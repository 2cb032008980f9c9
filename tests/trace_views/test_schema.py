"""The published JSON schema: every kind of run fulfils it, and what is broken does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from mnemotrace import Memory
from mnemotrace.errors import EmbedderError, LLMError, SaveError
from mnemotrace.events import MemorySaveFailedEvent
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM
from mnemotrace.trace import Trace, catching, span, start_trace
from mnemotrace.trace_views import trace_schema

from .sampling import EXPLORED, fixed_trace, hostile_trace, long_trace, walked

VALIDATOR = Draft202012Validator(trace_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
LONG = "Please tell me everything that we know about the kiln, the glaze and the studio. " * 4


def check(trace: Trace | None) -> dict[str, Any]:
    assert trace is not None
    data = json.loads(json.dumps(trace.to_json(), allow_nan=False))
    VALIDATOR.validate(data)
    assert isinstance(data, dict)
    return data


def test_the_schema_is_a_schema_and_every_trace_gives_it_out() -> None:
    Draft202012Validator.check_schema(trace_schema())
    assert Trace.json_schema() == trace_schema()
    trace_schema()["properties"].clear()
    assert trace_schema()["properties"]  # a new one each time


@pytest.mark.parametrize("level", ["on", "full"])
@pytest.mark.parametrize("depth", ["deep", "shallow"])
def test_recalls_fulfil_it(asking: Memory, plain: Memory, level: Any, depth: Any) -> None:
    for memory in (asking, plain):
        for query in ("the kiln", LONG):
            data = check(memory.recall(query, depth=depth, trace=level).trace)
            assert data["level"] == level
    assert check(asking.recall(LONG, trace=level).trace)["totals"]["llm_calls"] == 2


def test_saves_extractions_and_reanalyses_fulfil_it(
    asking: Memory, plain: Memory, place: Path
) -> None:
    for memory in (asking, plain):
        check(memory.remember("The glaze is blue, said Ana.").trace)
        receipt = memory.remember_many(["The door is red.", "The gate is green."])
        receipt.wait()
        check(receipt.trace)
        check(memory.extract_memories("The kiln is on. It is hot.").trace)
    with Memory(storage=place, llm=ScriptedLLM(), embedder=FakeEmbedder()) as memory:
        memory.reset("/")
        memory.remember("Nobody could analyse this.")
        data = check(memory.reanalyze().trace)
        assert data["totals"]["llm_failures"] == 1


def failing_model(place: Path) -> Trace | None:
    llm = ScriptedLLM({"query_analysis": LLMError("no")})
    with Memory(storage=place, llm=llm, embedder=FakeEmbedder()) as memory:
        return memory.recall(LONG).trace


def failing_save(place: Path) -> Trace | None:
    embedder = FakeEmbedder(fail=True)
    with Memory(storage=place, llm=None, embedder=embedder) as memory:
        with RecordingListener() as listener, pytest.raises(EmbedderError):
            memory.remember("x")
        [event] = listener.of(MemorySaveFailedEvent)
        return event.trace


def failing_background_save(place: Path) -> Trace | None:
    embedder = FakeEmbedder(fail=True)
    with Memory(storage=place, llm=None, embedder=embedder, save_attempts=1) as memory:
        receipt = memory.remember_many(["x"])
        with pytest.raises(SaveError):
            receipt.wait()
        return receipt.trace


def failing_recall(place: Path) -> Trace | None:
    embedder = FakeEmbedder()
    with Memory(storage=place, llm=None, embedder=embedder) as memory:
        embedder.fail = True
        with catching() as caught, pytest.raises(EmbedderError):
            memory.recall("y")
        return caught.trace


@pytest.mark.parametrize(
    "run", [failing_model, failing_save, failing_background_save, failing_recall]
)
def test_failed_runs_fulfil_it(run: Callable[[Path], Trace | None], place: Path) -> None:
    data = check(run(place))
    assert "error" in {data["status"], *(item["status"] for item in data["spans"])}


def test_open_cancelled_hostile_and_endless_traces_fulfil_it() -> None:
    check(hostile_trace())
    check(long_trace(200))
    with pytest.raises(KeyboardInterrupt), start_trace("recall") as opening, span("wait"):
        check(opening)
        raise KeyboardInterrupt
    assert check(opening)["status"] == "cancelled"
    trace = Trace("remember")
    trace.spans = long_trace(50).spans
    trace.dropped = 15
    check(trace)


def told() -> dict[str, Any]:
    trace = walked(*EXPLORED, depth="deep")
    with start_trace("x") as other, span("llm.q", kind="llm", model="m"):
        pass
    assert other is not None
    call = other.spans[0]
    call.id = len(trace.spans) + 1
    call.attrs |= {"tokens_in": 1, "tokens_out": 2, "cost": None}
    trace.spans.append(call)
    return trace.to_json()


def test_what_is_told_of_a_run_is_valid_before_it_is_broken() -> None:
    VALIDATOR.validate(told())


BROKEN: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    *(
        (f"without {name}", lambda data, name=name: data.pop(name))
        for name in fixed_trace().to_json()
    ),
    *(
        (f"span without {name}", lambda data, name=name: data["spans"][0].pop(name))
        for name in fixed_trace().to_json()["root"]
    ),
    *(
        (f"call without {name}", lambda data, name=name: data["spans"][-1]["attrs"].pop(name))
        for name in ("model", "tokens_in", "tokens_out", "cost")
    ),
    ("another version", lambda data: data.update(schema_version=2)),
    ("a level that is not", lambda data: data.update(level="off")),
    ("a status that is not", lambda data: data["spans"][0].update(status="late")),
    ("something more", lambda data: data.update(extra=1)),
    ("something more in a span", lambda data: data["spans"][0].update(extra=1)),
    ("something more in the totals", lambda data: data["totals"].update(extra=1)),
    ("a time zone that is not UTC", lambda data: data.update(started_at="2026-01-01T00:00:00")),
    ("an id that is not", lambda data: data.update(trace_id="x" * 32)),
    ("a root with a parent", lambda data: data["root"].update(parent=0)),
    ("a root that is no run", lambda data: data["root"].update(kind="step")),
    ("a span that is the run", lambda data: data["spans"][0].update(id=0)),
    ("a span without a place", lambda data: data["spans"][0].update(parent=None)),
    ("a time before the start", lambda data: data["spans"][0].update(start_ns=-1)),
    ("a time as text", lambda data: data["spans"][0].update(end_ns="1")),
    ("half a nanosecond", lambda data: data["spans"][0].update(start_ns=0.5)),
    ("no attempt", lambda data: data["spans"][0].update(attempt=0)),
    ("facts as a list", lambda data: data["spans"][0].update(attrs=[])),
    ("content at level on", lambda data: data["spans"][0].update(content={"query": "x"})),
    ("content of the run at level on", lambda data: data["root"].update(content={"query": "x"})),
    ("a failure without an error", lambda data: data["spans"][0].update(status="error")),
    ("an error without a failure", lambda data: data["spans"][0].update(error="x")),
    ("tokens below zero", lambda data: data["totals"].update(tokens_in=-1)),
    ("cost as text", lambda data: data["totals"].update(cost="free")),
]


@pytest.mark.parametrize(("what", "damage"), BROKEN, ids=[name for name, _ in BROKEN])
def test_what_is_broken_is_refused(what: str, damage: Callable[[dict[str, Any]], object]) -> None:
    data = copy.deepcopy(told())
    damage(data)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(data)


def test_at_level_full_content_is_valid() -> None:
    data = told() | {"level": "full"}
    data["spans"][0]["content"] = {"query": "x"}
    VALIDATOR.validate(data)
