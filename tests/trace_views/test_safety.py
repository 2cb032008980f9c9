"""Whatever a trace holds, no view breaks and none lets anything in; at level on it holds no text."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mnemotrace import Memory, Recall, SaveReceipt
from mnemotrace.live import RecallUpdate
from mnemotrace.records import Extraction, Reanalyzed
from mnemotrace.testing import FakeEmbedder, ScriptedLLM
from mnemotrace.trace import Span, Status, Trace, catching
from mnemotrace.trace_views.live import Board

from .conftest import ANSWERS
from .sampling import Page, hostile_trace, match

NASTY = st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</bdi></section></details><b>",
        "</style><style>*{display:none}",
        "<!-- -->",
        "]]>",
        "&lt;",
        "\x1b]0;title\x07\x1b[2J\x1b[31m",
        "\x9b31m",
        "\u202eright\u202c\u2066\u200f",
        "a\r\nb\x00c\x85\u2028",
        "\ud800",
        "\ufffe\uffff",
        "[bold]x[/bold] :smile: [link=file:///x]y[/link]",
        'x"];click s0 "javascript:alert(1)"',
        "%%{init: {}}%%",
        "é́́́́́́",
        "한국어 中文 عربى",
        "",
        " ",
        "start",
        "end",
    ]
)
LONG = st.integers(1000, 5000).map(lambda length: "x" * length)
TEXT = st.one_of(
    NASTY, LONG, st.text(max_size=40), st.tuples(NASTY, st.text(max_size=9)).map("".join)
)
VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.just(datetime(2026, 1, 1, tzinfo=UTC)), st.binary(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=8), st.dictionaries(TEXT, inner, max_size=4)
    ),
    max_leaves=6,
)  # fmt: skip
FACTS = st.dictionaries(
    st.one_of(TEXT, st.sampled_from(["received", "returned"])), VALUE, max_size=4
)
STATUSES: tuple[Status, ...] = ("ok", "error", "cancelled")
TIMES = st.one_of(st.none(), st.integers(-(10**9), 10**15))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    kinds = st.one_of(st.sampled_from(["recall", "encode", "extract"]), TEXT)
    trace = Trace(draw(kinds), level="full", attrs=draw(FACTS))
    for number in range(1, draw(st.integers(0, 6)) + 1):
        trace.spans.append(
            Span(
                number,
                draw(st.integers(0, number - 1)),
                draw(TEXT),
                draw(st.one_of(st.sampled_from(["step", "llm", "search"]), TEXT)),
                draw(st.integers(-(10**9), 10**12)),
                draw(TIMES),
                draw(st.sampled_from(STATUSES)),
                error=draw(st.one_of(st.none(), TEXT)),
                attempt=draw(st.integers(1, 3)),
                attrs=draw(FACTS),
                content=draw(st.one_of(st.none(), FACTS)),
            )
        )
    # A step always names its calls' tokens; a foreign trace may not, or wrongly.
    for item in trace.spans:
        if item.kind == "llm":
            item.attrs |= {"tokens_in": 1, "tokens_out": 1, "cost": None}
    trace.root.end_ns = draw(TIMES)
    trace.root.status = draw(st.sampled_from(STATUSES))
    trace.root.error = draw(st.one_of(st.none(), TEXT))
    trace.closed = True
    return trace


fast = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@fast
@given(traces(), st.integers(1, 130), st.booleans())
def test_the_terminal_tree_holds_no_control_character_but_line_breaks(
    trace: Trace, width: int, ascii_only: bool
) -> None:
    text = trace.render(width, ascii_only=ascii_only)
    assert not [c for c in text if not (c.isprintable() or c in "\n\u200c\u200d")]
    assert all(cell_len(line) <= max(20, width) for line in text.splitlines())
    assert text.isascii() or not ascii_only
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system="truecolor", width=width).print(trace)
    plain = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert not [c for c in plain if not (c.isprintable() or c in "\n\u200c\u200d")]


@fast
@given(traces())
def test_the_page_and_the_drawings_hold_nothing_but_ours(trace: Trace) -> None:
    Page(trace._repr_html_()).assert_is_ours()
    root = ElementTree.fromstring(trace.draw())
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "rect", "g", "path", "polygon", "text",
    }  # fmt: skip
    comment, *lines = trace.draw("mermaid").splitlines()
    assert comment.startswith("%% ")
    assert comment.isprintable()
    for line in lines:
        assert line.isprintable()
        assert not re.search(r"<(?!br/>)|[{};]", re.sub(r"#\d+;", "", line))
        outside = re.sub(r'"[^"]*"', "", line)
        assert re.fullmatch(r"flowchart TD|  ((class|classDef|%%|s\d+)\b.*|%% .*)", outside)
        assert not re.search(r"click|javascript", outside)


@fast
@given(traces(), TEXT, TEXT)
def test_results_hold_nothing_but_ours(trace: Trace, text: str, other: str) -> None:
    # A record refuses blank texts and lone surrogates by itself.
    found = match("x")
    object.__setattr__(found.record, "__dict__", found.record.__dict__ | {
        "content": text, "scope": other, "source": other, "categories": [text],
        "metadata": {other: text}, "id": text,
    })  # fmt: skip
    found.match_reasons.append(other)
    found.record.keep_trace(trace)
    receipt = SaveReceipt(text, [text])
    receipt.ran(trace)
    receipt.fail(ValueError(text), final=True)
    receipt.progress([found.record])
    for result in (
        found.record,
        receipt,
        Recall([found], query=text, trace=trace, evidence_gaps=[other], errors=[text]),
        Extraction([text], trace=trace, echoes=[other], failures=[text]),
        Reanalyzed([text], failed={text: other}, trace=trace),
    ):
        Page(result._repr_html_()).assert_is_ours()


@fast
@given(traces())
def test_live_views_hold_no_control_character(trace: Trace) -> None:
    board = Board()
    board.span_started(trace, trace.root)
    for item in trace.spans:
        board.span_started(trace, item)
        update = RecallUpdate("ended", item.name, item.kind, 1, 0.0, 1.0, item.status, item.error,
                              dict(item.attrs))  # fmt: skip
        assert str(update).replace("\u200c", "").replace("\u200d", "").isprintable()
        if item.id % 2:
            board.span_ended(trace, item)
    lines = board.lines()
    board.span_ended(trace, trace.root)
    for line in [*lines, board.summary()]:
        assert not [c for c in line if not (c.isprintable() or c in "\u200c\u200d")]


@pytest.mark.parametrize(
    "line", ["x" * 1_000_000, "<b>" * 400_000, "\x1b[31m" * 200_000, "가 " * 500_000]
)
def test_a_line_of_a_megabyte_costs_no_view_more_than_a_short_one(line: str) -> None:
    trace = hostile_trace(line)
    for shown in (trace.render(100), trace.draw(), trace.draw("mermaid")):
        assert len(shown) < 20_000
    page = trace._repr_html_()
    assert len(page) < 1_200_000  # the kept texts, each cut at 20,000 characters, are escaped
    Page(page).assert_is_ours()
    began = time.perf_counter()
    trace.render(100)
    trace.draw()
    assert time.perf_counter() - began < 1.0  # 0.02 s here


CANARY = "Zq7canary"


def canary_script(request: Any) -> Any:
    """Answer with texts that hold the canary, wherever a text may stand."""
    answers: dict[str, Any] = {
        "query_analysis": {"keywords": [CANARY], "sub_queries": [f"where is {CANARY}"]},
        "exploration": {"gaps": [f"{CANARY} gap"], "sub_queries": [f"{CANARY} again"]},
        "extraction": {"memories": [f"{CANARY} is yellow."]},
        "save_analysis": {"scope": "/birds", "categories": ["birds"], "importance": 0.5},
        "consolidation": {
            "actions": [{"id": f"{CANARY} sings.", "action": "delete"}],
            "insert_new": True,
        },
    }
    return answers[request.purpose]


def canary_traces(place: Path, llm: Any, level: str) -> list[Trace]:
    options: dict[str, Any] = {
        "confidence_threshold_low": 1.0,
        "confidence_threshold_high": 1.0,
        "consolidation_threshold": 0.0,
    }
    with Memory(storage=place, llm=llm, embedder=FakeEmbedder(), trace=level, **options) as memory:
        receipt = memory.remember_many([f"{CANARY} one.", f"{CANARY} two.", f"{CANARY} one."])
        receipt.wait()
        found = [
            memory.remember(f"The {CANARY} sings.").trace,
            receipt.trace,
            memory.recall(f"Where is {CANARY}?").trace,
            memory.recall(f"Where is {CANARY}? " * 20).trace,
            memory.recall(f"Where is {CANARY}?", depth="shallow").trace,
            memory.extract_memories(f"{CANARY} sings. " * 30).trace,
            memory.reanalyze().trace,
            memory.remember(f"{CANARY} differs.", record_id="taken").trace,
        ]
        with catching() as caught, pytest.raises(ValueError):
            memory.remember(f"{CANARY} is another.", record_id="taken")
    traces = [trace for trace in (*found, caught.trace) if trace is not None]
    assert len(traces) == len(found) + 1
    assert traces[-1].status == "error"
    return traces


@pytest.mark.parametrize(
    "llm",
    [
        None,
        ScriptedLLM(dict.fromkeys(ANSWERS, canary_script)),
        ScriptedLLM(dict.fromkeys(ANSWERS, f"no JSON, but {CANARY}")),
        ScriptedLLM(
            {name: {"gaps": CANARY, "importance": CANARY, name: [CANARY]} for name in ANSWERS}
        ),
    ],
    ids=["no model", "a model", "a model that talks", "a model that errs"],
)
def test_a_trace_at_level_on_holds_no_text_that_was_saved_recalled_or_answered(
    llm: Any, place: Path
) -> None:
    for trace in canary_traces(place, llm, "on"):
        told = json.dumps(trace.to_json()) + trace.render(200) + trace._repr_html_() + trace.draw()
        assert CANARY.lower() not in told.lower(), trace.kind


def test_the_canary_is_found_where_texts_are_kept(place: Path) -> None:
    found = canary_traces(place, ScriptedLLM(dict.fromkeys(ANSWERS, canary_script)), "full")
    assert sum(CANARY in json.dumps(trace.to_json()) for trace in found) >= 5
