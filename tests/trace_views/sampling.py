"""Traces and results that the tests of the views look at."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from mnemotrace.records import MemoryMatch, MemoryRecord, ScoreComponents
from mnemotrace.trace import Span, Trace, note, note_content, span, start_trace

HOSTILE = '<script>alert("x")</script>[bold red]\x1b[31mred\x1b[0m\nline\u202etwo&amp;'

TAGS = frozenset(
    [
        "section",
        "style",
        "p",
        "b",
        "br",
        "bdi",
        "div",
        "span",
        "details",
        "summary",
        "ol",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "title",
        "rect",
        "g",
        "path",
        "polygon",
        "text",
        "pre",
    ]
)
"""The elements that our HTML is made of."""

ATTRIBUTES = frozenset(
    [
        "class",
        "style",
        "open",
        "scope",
        "role",
        "aria-label",
        "aria-hidden",
        "xmlns",
        "viewbox",
        "width",
        "height",
        "font-family",
        "font-size",
        "font-weight",
        "fill",
        "fill-opacity",
        "color",
        "x",
        "y",
        "rx",
        "d",
        "points",
        "stroke",
        "stroke-width",
        "stroke-opacity",
        "stroke-dasharray",
        "opacity",
        "text-anchor",
    ]
)
VOID = {"br"}


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


def walked(*ways: tuple[str, str, str | None], kind: str = "recall", **attrs: Any) -> Trace:
    """A trace of a run of a flow: for each step its name and the events it got and gave.

    A step that gave none failed, and took the run with it. Each takes a millisecond.
    """
    trace = Trace(kind, attrs=attrs)
    for number, (name, received, returned) in enumerate(ways):
        facts = {"received": received} | ({"returned": returned} if returned else {})
        trace.spans.append(
            Span(
                *(number + 1, 0, name, "step", number * 1_000_000, (number + 1) * 1_000_000),
                status="ok" if returned else "error",
                error=None if returned else "StoreError: gone",
                attrs=facts,
            )
        )
    trace.root.end_ns = len(ways) * 1_000_000
    if ways and ways[-1][2] is None:
        trace.root.status, trace.root.error = "error", "StoreError: gone"
    trace.closed = True
    return trace


DEEP = (
    ("analyze_query", "RecallStarted", "QueryAnalyzed"),
    ("select_scopes", "QueryAnalyzed", "ScopesSelected"),
    ("search", "ScopesSelected", "Searched"),
    ("route", "Searched", "Confident"),
    ("synthesize", "Confident", "RecallFinished"),
)
EXPLORED = (
    *DEEP[:3],
    ("route", "Searched", "Uncertain"),
    ("explore", "Uncertain", "ScopesSelected"),
    *DEEP[2:],
)


def long_trace(count: int) -> Trace:
    """A trace of so many spans in steps of ten, each with facts, none alike."""
    trace = Trace("recall", attrs={"depth": "deep"})
    for number in range(1, count + 1):
        top = (number - 1) % 10 == 0
        start = number * 10_000
        trace.spans.append(
            Span(
                *(number, 0 if top else (number - 1) // 10 * 10 + 1, f"step{number}"),
                *("step" if top else "search", start, start + (90_000 if top else 9_000)),
                attrs={
                    "plan": "selective",
                    "candidates": number,
                    "confidence": 0.123456,
                    "scopes": ["/project/alpha/decisions", "/project/beta"],
                    "reason": "shorter than 200 characters",
                },
            )
        )
    trace.root.end_ns = (count + 20) * 10_000
    trace.closed = True
    return trace


def hostile_trace(text: str = HOSTILE) -> Trace:
    """A trace in which everything that can be a text is this one."""
    with pytest.raises(ValueError), start_trace(text, level="full", query=text) as opening:
        note(**{text: text}, items=[text], table={text: text})
        note_content(**{text: text})
        with span(text, kind="llm", model=text, tokens_in=1, tokens_out=1, cost=None):
            note_content(prompt=[text, {text: text}])
        with span(text, kind="step", received=text, returned=text):
            raise ValueError(text)
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
        self.source = source
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
        if tag not in VOID:
            self.open.append(tag)
        self.deepest = max(self.deepest, self.open.count("ol"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data!r}")

    def values(self, attribute: str) -> list[str]:
        """All values of one attribute, in order."""
        return [value or "" for name, value in self.attributes if name == attribute]

    def assert_is_ours(self) -> None:
        """Check that nothing but our own elements is there, and that nothing is loaded or run."""
        assert set(self.tags) <= TAGS
        assert {name for name, _ in self.attributes} <= ATTRIBUTES
        assert not [value for _, value in self.attributes if "url(" in (value or "")]
        assert "url(" not in self.source.split("</style>")[0]
        assert not [c for c in self.source if not c.isprintable() and c not in "\n\t\u200c\u200d"]
