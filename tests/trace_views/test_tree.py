"""The terminal tree: readable at any width, with and without colour, ASCII where need be."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel

from mnemotrace.trace import Span, Trace, note_content, span, start_trace
from mnemotrace.trace_views import format_value, trace_tree, visible

from .sampling import EXPLORED, fixed_trace, hostile_trace, walked

_DRAWN = r"[\s│├└─›]"


def squeezed(text: str) -> str:
    """The text without what it is drawn with."""
    return re.sub(_DRAWN, "", text)


def test_totals_and_route_come_first_then_each_span_with_its_time_and_bar() -> None:
    assert fixed_trace().render(width=200).splitlines() == [
        "recall 3.2 ms · 3 steps · 2 searches · no LLM calls",
        "analyze_query → search → synthesize",
        "depth=deep results=5 confidence=0.833",
        (
            "   0.1 ms ━                   ├── analyze_query llm=skipped "
            'reason="shorter than 200 characters" events=RecallStarted->QueryAnalyzed'
        ),
        "   1.2 ms  ━━━━━━━            ├── search hits=12",
        "   0.6 ms   ━━━               │   ├── search.query plan=selective",
        "   1.0 ms   ━━━━━━            │   └── search.query failed: StoreError: gone",
        "   1.1 ms            ━━━━━━   └── synthesize attempt 2",
    ]


def test_the_route_names_every_round_and_where_it_failed() -> None:
    lines = walked(*EXPLORED, depth="deep").render(200).splitlines()
    assert lines[1] == (
        "analyze_query → select_scopes → search → route → explore → search → route → synthesize"
    )
    failed = walked(*EXPLORED[:2], ("search", "ScopesSelected", None)).render(200).splitlines()
    assert failed[0] == "recall 3.0 ms · failed · 3 steps · no LLM calls StoreError: gone"
    assert failed[1] == "analyze_query → select_scopes → search (failed)"


def test_a_route_of_very_many_steps_ends_in_a_count() -> None:
    trace = walked(*[EXPLORED[0]] * 100)
    assert trace.render(2000).splitlines()[1].endswith("→ analyze_query → 76 more")


def test_the_totals_tell_calls_failures_tokens_and_cost() -> None:
    trace = fixed_trace()
    facts = {"model": "m", "tokens_in": 120, "tokens_out": 30}
    trace.spans += [
        Span(6, 2, "llm.x", "llm", 0, 2_000_000, attrs={**facts, "cost": 0.002}),
        Span(
            7, 2, "llm.x", "llm", 0, 1_000_000, "error", "LLMError", attrs={**facts, "cost": None}
        ),
    ]
    assert trace.render(200).splitlines()[0] == (
        "recall 3.2 ms · 3 steps · 2 searches · 2 LLM calls (1 failed) · 3.0 ms of LLM · "
        "240 tokens in, 60 out · $0.0020"
    )


def test_printing_a_trace_shows_the_tree() -> None:
    trace = fixed_trace()
    assert str(trace) == trace.render()
    assert f"{trace}".startswith("recall 3.2 ms")
    assert repr(trace) == "<Trace recall 3.2 ms, 5 spans>"


@pytest.mark.parametrize("width", [1, 20, 33, 59, 60, 80, 90, 500])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_any_width_keeps_every_word_and_never_overruns(width: int, ascii_only: bool) -> None:
    trace = fixed_trace()
    trace.spans[4].attrs["place"] = "서울특별시 종로구 세종대로 한국어中文日本語" * 2
    text = trace.render(width=width, ascii_only=ascii_only)
    assert all(cell_len(line) <= max(width, 20) for line in text.splitlines())
    assert text.isascii() is ascii_only
    plain = re.sub(r"[\s│├└─›|+`>-]", "", text)
    for word in ("analyze_query", "shorterthan200characters", "StoreError:gone", "attempt2"):
        assert word in plain


def test_a_narrow_terminal_has_the_times_beside_the_names() -> None:
    lines = fixed_trace().render(width=40).splitlines()
    assert "├ search 1.2 ms hits=12" in lines
    assert not [line for line in lines if "━" in line]


def test_a_very_deep_trace_stays_inside_a_narrow_terminal() -> None:
    trace = Trace("recall")
    trace.spans = [Span(n, n - 1, f"s{n}", "internal", n, n + 1) for n in range(1, 300)]
    assert "s299" in squeezed(trace.render(width=2000))
    for width in (20, 80):
        lines = trace.render(width=width).splitlines()
        assert all(len(line) <= width for line in lines)
        assert sum("s299" in line for line in lines) == 1


def test_without_a_terminal_the_text_has_no_colour_and_is_not_cut() -> None:
    code = (
        "from mnemotrace.trace import start_trace, span\n"
        "with start_trace('recall', reason='word ' * 12) as trace, span('search'): pass\n"
        "print(trace)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        capture_output=True, encoding="utf-8", check=True, timeout=60, env=environment,
    )  # fmt: skip
    assert "\x1b" not in result.stdout
    assert result.stdout.count("word") == 12
    assert len(result.stdout.splitlines()) == 3


def test_an_output_of_ascii_only_gets_ascii_only() -> None:
    code = (
        "from mnemotrace.trace import start_trace, span\n"
        "with start_trace('회상', reason='차 한 잔') as trace, span('search', kind='step'): pass\n"
        "print(trace)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, encoding="ascii", check=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert "`-- search" in result.stdout
    assert r"\ud68c" in result.stdout


def test_a_colour_terminal_gets_colour_from_rich_and_the_same_words() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=200)
    console.print(fixed_trace())
    assert "\x1b[" in out.getvalue()
    plain_text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert [line.rstrip() for line in plain_text.splitlines()] == fixed_trace().render(
        200
    ).splitlines()


@pytest.mark.parametrize(
    ("environment", "colour", "ascii_only"),
    [
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, True),
    ],
    ids=["terminal", "no colour", "dumb"],
)
def test_a_terminal_gets_what_it_can_show(
    environment: dict[str, str], colour: bool, ascii_only: bool
) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, _environ=environment)
    console.print(trace_tree(fixed_trace()))
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", out.getvalue())) is colour
    assert out.getvalue().isascii() is ascii_only
    assert "StoreError: gone" in out.getvalue()


def test_the_tree_fits_into_other_things_of_rich() -> None:
    out = io.StringIO()
    Console(file=out, width=70).print(Panel(trace_tree(fixed_trace())))
    lines = out.getvalue().splitlines()
    assert {len(line) for line in lines} == {70}
    assert all(line[0] in "╭│╰" and line[-1] in "╮│╯" for line in lines)


def test_markup_escapes_and_line_breaks_in_the_tree_are_shown_not_obeyed() -> None:
    trace = hostile_trace()
    text = trace.render(width=2000)
    assert "[bold red]" in text
    assert r"\x1b[31mred" in text
    assert r"\u202e" in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system="truecolor", width=2000).print(trace)
    assert "[bold red]" in out.getvalue()
    assert "\x1b[31mred" not in out.getvalue()


def test_kept_texts_stand_below_their_span() -> None:
    with start_trace("recall", level="full") as opening, span("search"):
        note_content(query="두 줄\n텍스트", long="x" * 1000)
    assert opening is not None
    lines = opening.render(width=400).splitlines()
    assert lines[1].endswith("└── search")
    assert lines[2].strip() == r'query: "두 줄\n텍스트"'
    assert lines[3].strip().endswith("…")
    assert len(lines) == 4


def test_many_alike_spans_are_summed_up() -> None:
    trace = Trace("remember")
    trace.spans = [
        Span(n, 0, "llm.analyze", "llm", 0, 1_000_000, "ok" if n % 100 else "error")
        for n in range(1, 1001)
    ] + [Span(1001, 0, "write", "step", 0, 1_000_000)]
    lines = trace.render(200).splitlines()
    assert len(lines) == 2 + 20 + 1 + 1
    assert sum(line.endswith("├── write") for line in lines) == 1
    assert lines[-1].endswith("└── 980 more llm.analyze, 980.0 ms, 10 failed")


@pytest.mark.parametrize("width", [40, 100])
def test_a_span_that_never_ended_says_so(width: int) -> None:
    trace = Trace("remember")
    trace.spans = [Span(1, 0, "write", "step", 5)]
    assert "write not finished" in trace.render(width)


def test_a_cancelled_span_says_so() -> None:
    trace = Trace("remember")
    trace.spans = [Span(1, 0, "write", "step", 5, 10, "cancelled")]
    assert "write cancelled" in trace.render(100)
    assert "write 0.0 ms cancelled" in trace.render(40)


def test_bars_stay_inside_their_column_whatever_the_times_are() -> None:
    trace = fixed_trace()
    trace.spans.append(Span(9, 0, "odd", "internal", 10**12, None))
    trace.spans.append(Span(10, 0, "early", "internal", 0, 10**15))
    for line in trace.render(100).splitlines()[3:]:
        bar = line[10:28]
        assert set(bar) <= set("━╸ ")
        assert line[28:30] == "  "


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.833333, "0.833"),
        (1234567.8, "1234568"),
        (7, "7"),
        (10**5000, "about 2**16610"),
        (True, "yes"),
        (None, "none"),
        ("deep", "deep"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a\nb", r"a\nb"),
        ("\ud800", r"\ud800"),
        ("가족 👨‍👩‍👧", '"가족 👨‍👩‍👧"'),
        ("x" * 200, "x" * 79 + "…"),
        (["/a", "/b"], "[/a, /b]"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, +94]"),
        ({"a": 1, "b": "c d"}, '{a: 1, b: "c d"}'),
        ((), "[]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_facts_are_shown_short(value: Any, shown: str) -> None:
    assert format_value(value) == shown
    assert shown.isprintable() or "\u200d" in shown


def test_visible_leaves_ordinary_text_of_any_script_alone() -> None:
    for text in ("plain", "한국어 中文 日本語", "Ünal é", "नमस्ते", "می‌خواهم"):
        assert visible(text) == text
    assert visible("a\tb\nc\x00", keep="\t\n") == "a\tb\nc\\x00"
