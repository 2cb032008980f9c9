"""Views of a trace: readable anywhere, and whatever they show stays data."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from mnemotrace.records import MemoryMatch, MemoryRecord, Recall, ScoreComponents
from mnemotrace.trace import Span, Trace, note, note_content, span, start_trace
from mnemotrace.trace_views import format_value, recall_html, trace_html, visible

HOSTILE = '<script>alert("x")</script>[bold red]\x1b[31mred\x1b[0m\nline\u202etwo&amp;'


def fixed_trace() -> Trace:
    """A recall with known times."""
    trace = Trace("recall", attrs={"depth": "deep", "results": 5, "confidence": 0.8333})
    trace.root.end_ns = 3_200_000
    trace.closed = True
    analysis = {
        "received": "RecallStarted",
        "returned": "QueryAnalyzed",
        "llm": "skipped",
        "reason": "shorter than 200 characters",
    }
    trace.spans = [
        Span(1, 0, "analyze_query", "step", 0, 100_000, attrs=analysis),
        Span(2, 0, "search", "step", 200_000, 1_400_000, attrs={"hits": 12}),
        Span(3, 2, "search.query", "search", 300_000, 900_000, attrs={"plan": "selective"}),
        Span(4, 2, "search.query", "search", 300_000, 1_300_000, "error", "StoreError: gone"),
        Span(5, 0, "synthesize", "step", 2_000_000, 3_100_000, attempt=2),
    ]
    return trace


def hostile_trace() -> Trace:
    with pytest.raises(ValueError), start_trace(HOSTILE, level="full", query=HOSTILE) as opening:
        note(**{HOSTILE: HOSTILE}, items=[HOSTILE], table={HOSTILE: HOSTILE})
        note_content(**{HOSTILE: HOSTILE})
        with span(HOSTILE, kind="step"):
            raise ValueError(HOSTILE)
    assert opening is not None
    return opening


def match(content: str, **fields: Any) -> MemoryMatch:
    components = ScoreComponents(
        cosine=0.91, similarity=0.92, lexical=0.5, semantic=0.77, recency=1.0, importance=0.5,
        semantic_weight=0.5, recency_weight=0.3, importance_weight=0.2, lexical_weight=0.35,
    )  # fmt: skip
    record = MemoryRecord(content=content, created_at=datetime(2026, 1, 2, tzinfo=UTC), **fields)
    return MemoryMatch(record, components.score, ["semantic", "recent"], components)


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that every tag is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.deepest = 0
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)
        self.deepest = max(self.deepest, self.open.count("details"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_tree_shows_names_times_facts_events_attempts_and_errors() -> None:
    assert fixed_trace().render(width=200).splitlines() == [
        "recall 3.2 ms depth=deep results=5 confidence=0.833",
        (
            "├── analyze_query 0.1 ms events=RecallStarted->QueryAnalyzed llm=skipped "
            'reason="shorter than 200 characters"'
        ),
        "├── search 1.2 ms hits=12",
        "│   ├── search.query 0.6 ms plan=selective",
        "│   └── search.query 1.0 ms failed: StoreError: gone",
        "└── synthesize 1.1 ms attempt 2",
    ]


def test_printing_a_trace_shows_the_tree() -> None:
    trace = fixed_trace()
    assert str(trace) == trace.render()
    assert f"{trace}".startswith("recall 3.2 ms")
    assert repr(trace) == "<Trace recall 3.2 ms, 5 spans>"


@pytest.mark.parametrize("width", [1, 20, 33, 80, 500])
def test_any_width_keeps_every_word_and_never_overruns(width: int) -> None:
    text = fixed_trace().render(width=width)
    assert all(len(line) <= max(width, 20) for line in text.splitlines())
    squeezed = re.sub(r"[\s│├└─]", "", text)
    for word in ("analyze_query", "shorterthan200characters", "StoreError:gone", "attempt2"):
        assert word in squeezed


def test_a_very_deep_trace_renders_in_a_narrow_terminal() -> None:
    trace = Trace("recall")
    trace.spans = [Span(n, n - 1, f"s{n}", "internal", n, n + 1) for n in range(1, 300)]
    assert "s299" in re.sub(r"[\s│├└─]", "", trace.render(width=2000))
    assert trace.render(width=20)
    assert Page(trace_html(trace)).deepest == 299


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
    assert len(result.stdout.splitlines()) == 2


def test_a_colour_terminal_gets_colour_from_rich_and_the_same_words() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=200)
    console.print(fixed_trace())
    assert "\x1b[" in out.getvalue()
    plain_text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert [line.rstrip() for line in plain_text.splitlines()] == fixed_trace().render(
        200
    ).splitlines()


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
    assert lines[1].startswith("└── search")
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
    assert len(lines) == 1 + 20 + 1 + 1
    assert "├── write 1.0 ms" in lines
    assert lines[-1] == "└── 980 more llm.analyze, 980.0 ms, 10 failed"
    assert "980 more llm.analyze" in Page(trace_html(trace)).text


def test_a_span_that_never_ended_says_so() -> None:
    trace = Trace("remember")
    trace.spans = [Span(1, 0, "write", "step", 5)]
    assert "write not finished" in trace.render()
    assert "write not finished" in Page(trace_html(trace)).text


def test_a_cancelled_span_says_so() -> None:
    trace = Trace("remember")
    trace.spans = [Span(1, 0, "write", "step", 5, 10, "cancelled")]
    assert "write 0.0 ms cancelled" in trace.render()
    assert "cancelled" in Page(trace_html(trace)).text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.833333, "0.833"),
        (1234567.8, "1234568"),
        (7, "7"),
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
)
def test_facts_are_shown_short(value: Any, shown: str) -> None:
    assert format_value(value) == shown
    assert shown.isprintable() or "\u200d" in shown


def test_visible_leaves_ordinary_text_of_any_script_alone() -> None:
    for text in ("plain", "한국어 中文 日本語", "Ünal é", "नमस्ते", "می‌خواهم"):
        assert visible(text) == text
    assert visible("a\tb\nc\x00", keep="\t\n") == "a\tb\nc\\x00"


def test_html_nests_like_the_trace_and_holds_every_fact() -> None:
    page = Page(trace_html(fixed_trace()))
    assert page.deepest == 2
    for words in ("recall 3.2 ms", "confidence=0.833", "StoreError: gone", "attempt 2", "plan="):
        assert words in page.text


def pages() -> Iterator[str]:
    yield trace_html(hostile_trace())
    yield hostile_trace()._repr_html_()
    hostile_match = match(HOSTILE, scope="/<b>", categories=[HOSTILE])
    hostile_match.match_reasons.append(HOSTILE)
    yield recall_html(
        Recall(
            [hostile_match],
            query=HOSTILE,
            trace=hostile_trace(),
            evidence_gaps=[HOSTILE],
            errors=[HOSTILE],
        )
    )


def test_html_escapes_everything_and_loads_nothing() -> None:
    for source in pages():
        page = Page(source)
        assert set(page.tags) <= {
            "div", "span", "details", "summary", "b", "ul", "li",
            "table", "thead", "tbody", "tr", "th", "td",
        }  # fmt: skip
        assert {name for name, _ in page.attributes} <= {"class", "style", "open"}
        assert not any("url(" in (value or "") for _, value in page.attributes)
        assert '<script>alert("x")</script>' in page.text
        assert "&amp;" in page.text
        assert "\x1b" not in source
        assert "\u202e" not in source


def test_html_bars_stay_inside_their_frame() -> None:
    with start_trace("recall") as opening:
        for _ in range(3):
            with span("search"):
                pass
    assert opening is not None
    opening.spans.append(Span(9, 0, "odd", "internal", 10**12, None))
    for left, width in re.findall(r"margin-left:([\d.]+)%;width:([\d.]+)%", trace_html(opening)):
        assert 0 <= float(left) <= 100
        assert 0 <= float(left) + float(width) <= 100.1


def test_recall_html_shows_matches_scores_gaps_errors_and_the_trace() -> None:
    recall = Recall(
        [match("서울에서 만났다", scope="/team"), match("second")],
        query="where did we meet",
        trace=fixed_trace(),
        confidence=0.83,
        evidence_gaps=["the date"],
        errors=["search in /x failed"],
    )
    page = Page(recall._repr_html_())
    for words in (
        "2 memories", '"where did we meet"', "confidence 0.83", "서울에서 만났다", "/team",
        "2026-01-02", "cosine 0.91", "semantic, recent", "the date", "search in /x failed",
        "analyze_query",
    ):  # fmt: skip
        assert words in page.text
    assert page.tags.count("tr") == 3


def test_recall_html_of_nothing_keeps_the_gaps() -> None:
    page = Page(recall_html(Recall(query="q", evidence_gaps=["anything about q"])))
    assert "Nothing was found." in page.text
    assert "anything about q" in page.text
    assert "table" not in page.tags
