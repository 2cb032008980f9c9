"""Comparing traces: by place in the tree, facts and routes, times aside."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from mnemotrace import Memory, compare
from mnemotrace.errors import InvalidInputError
from mnemotrace.testing import FakeEmbedder, ScriptedLLM
from mnemotrace.trace import Trace, note, note_content, span, start_trace

LONG = "Please tell me everything that we know about the tea in the kitchen, " * 4


def a_run(rounds: int = 1, confidence: float = 0.8, level: Any = "on", tokens: int = 10) -> Trace:
    """Return the trace of something like a recall with so many rounds of exploration."""
    with start_trace("recall", level=level, limit=10) as trace:
        with span("analyze", kind="step", received="Started", returned="Analyzed"):
            with span("llm.query_analysis", kind="llm"):
                note(tokens_in=tokens, tokens_out=2, cost=0.001 * tokens)
            note_content(query="tea")
        for number in range(rounds):
            with span("search", kind="step", received="Analyzed", returned="Searched"):
                note(candidates=number + 3)
            last = number == rounds - 1
            with span("route", kind="step", received="Searched"):
                note(confidence=confidence, to="synthesize" if last else "explore")
                note(returned="Confident" if last else "Uncertain")
            if not last:
                with span("explore", kind="step"):
                    note(gaps=1)
    assert trace is not None
    return trace


def test_two_runs_of_the_same_steps_are_identical_whatever_they_took() -> None:
    comparison = compare(a_run(2), a_run(2))
    assert comparison.identical and comparison.differences == [] and comparison.totals == {}
    assert str(comparison).startswith("The same 8 steps")
    assert all(step.ratio is not None and step.ratio > 0 for step in comparison.steps)


def test_rounds_are_put_beside_each_other_in_order() -> None:
    comparison = compare(a_run(1), a_run(3))
    assert not comparison.identical
    order = [(step.name, step.number, step.presence) for step in comparison.steps]
    assert order == [
        ("recall", 1, "both"),
        ("analyze", 1, "both"),
        ("llm.query_analysis", 1, "both"),
        ("search", 1, "both"),
        ("route", 1, "both"),
        ("explore", 1, "second"),
        ("search", 2, "second"),
        ("route", 2, "second"),
        ("explore", 2, "second"),
        ("search", 3, "second"),
        ("route", 3, "second"),
    ]
    route = comparison.steps[4]
    assert route.route == {"to": ("synthesize", "explore"), "returned": ("Confident", "Uncertain")}
    assert [step.depth for step in comparison.steps[:4]] == [0, 1, 2, 1]
    back = compare(a_run(3), a_run(1))
    assert sum(step.presence == "first" for step in back.steps) == 6
    assert "search (2)" in str(back) and "only in the first trace" in str(back)


def test_facts_tokens_and_cost_are_told_apart() -> None:
    comparison = compare(a_run(confidence=0.8), a_run(confidence=0.3, tokens=25))
    differing = {step.name: step.facts for step in comparison.differences}
    assert differing["route"] == {"confidence": (0.8, 0.3)}
    assert set(differing["llm.query_analysis"]) == {"tokens_in", "cost"}
    assert comparison.totals["tokens_in"] == (10, 25)
    assert comparison.totals["cost"] == (0.01, 0.025)
    assert "confidence: 0.8 -> 0.3" in str(comparison)


def test_a_trace_from_json_equals_the_one_it_was_made_from() -> None:
    trace = a_run(2, level="full")
    loaded = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert compare(trace, loaded).identical
    assert compare(loaded, trace).identical
    data = trace.to_json()
    data["spans"][0]["content"]["query"] = "coffee"
    changed = compare(trace, Trace.from_json(data))
    assert changed.differences[0].facts == {"query": ("tea", "coffee")}
    assert compare(a_run(2), a_run(2, level="full")).identical  # kept texts are no step


def test_failures_differ() -> None:
    data = a_run().to_json()
    broken = copy.deepcopy(data)
    broken["spans"][2] |= {"status": "error", "error": "StoreError: gone", "attempt": 2}
    (step,) = compare(Trace.from_json(data), Trace.from_json(broken)).differences
    assert step.facts["status"] == ("ok", "error")
    assert step.facts["error"] == (None, "StoreError: gone")
    assert step.facts["attempt"] == (1, 2)


def test_real_recalls_and_saves_compare() -> None:
    script = {
        "query_analysis": {"keywords": ["tea"], "sub_queries": ["red kettle"]},
        "exploration": {"gaps": ["price"], "sub_queries": ["green tea"], "scopes": []},
    }
    with Memory(
        llm=ScriptedLLM(script), storage=":memory:", embedder=FakeEmbedder(),
        confidence_threshold_low=1.0, confidence_threshold_high=1.0,
    ) as memory:  # fmt: skip
        for text in ("the tea is red", "the kettle is green"):
            memory.remember(text, scope="/a", categories=["c"], importance=0.5)
        first, again = memory.recall(LONG), memory.recall(LONG)
        short = memory.recall("the tea is red")
    assert first.trace and again.trace and short.trace
    assert compare(first.trace, again.trace).identical
    comparison = compare(first.trace, short.trace)
    assert comparison.totals["llm_calls"] == (2, 0)
    assert {step.name for step in comparison.steps if step.presence == "first"} >= {
        "explore",
        "llm.query_analysis",
    }
    json.dumps(comparison.to_json(), allow_nan=False)


def test_many_spans_are_compared_in_time_and_shown_in_part() -> None:
    def wide(count: int) -> Trace:
        with start_trace("encode") as trace:
            for number in range(count):
                with span("analyze.text", n=number):
                    pass
        assert trace is not None
        return trace

    comparison = compare(wide(5000), wide(4000))
    assert len(comparison.steps) == 5001
    assert sum(step.presence == "first" for step in comparison.steps) == 1000
    assert "4801 more steps" in str(comparison)
    assert comparison._repr_html_().count("<tr") == 201


def test_markup_and_control_characters_stay_data() -> None:
    def run(text: str) -> Trace:
        with start_trace("recall") as trace, span(f"<b>{text}</b>"):
            note(**{f"<i>{text}": text})
        assert trace is not None
        return trace

    comparison = compare(run("\x1b[31m<script>"), run("\u202e<img src=x>"))
    shown = comparison._repr_html_()
    assert not any(tag in shown for tag in ("<script", "<img", "<i>", "<b>\\x1b"))
    for text in (shown, str(comparison)):
        assert "\x1b" not in text and "\u202e" not in text


def test_a_run_without_a_trace_cannot_be_compared() -> None:
    with pytest.raises(InvalidInputError, match="not None"):
        compare(a_run(), None)  # type: ignore[arg-type]
