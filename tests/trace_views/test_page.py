"""Notebook HTML: foldable, to scale, for dark and light, for screen readers; nothing but ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from mnemotrace import Memory, MemoryRecord, Recall, SaveReceipt
from mnemotrace.records import Extraction, Reanalyzed
from mnemotrace.testing import FakeEmbedder
from mnemotrace.trace import Span, Trace, span, start_trace
from mnemotrace.trace_views import recall_html, trace_html

from .sampling import DEEP, HOSTILE, Page, fixed_trace, hostile_trace, match, walked


def test_html_nests_like_the_trace_and_holds_every_fact() -> None:
    page = Page(trace_html(fixed_trace()))
    assert page.deepest == 2
    for words in (
        "recall 3.2 ms · 3 steps", "confidence=0.833", "StoreError: gone", "attempt 2", "plan=",
        "analyze_query → search → synthesize", "1.2 ms", "not taken",
    ):  # fmt: skip
        assert words in page.text
    page.assert_is_ours()


def test_what_has_something_below_folds() -> None:
    page = Page(trace_html(fixed_trace()))
    assert page.tags.count("details") == page.tags.count("summary") == 2  # search, the workflow
    assert page.attributes.count(("open", None)) == 1


def test_a_very_deep_trace_is_nested_as_deep() -> None:
    trace = Trace("recall")
    trace.spans = [Span(n, n - 1, f"s{n}", "internal", n, n + 1) for n in range(1, 300)]
    page = Page(trace_html(trace))
    assert page.deepest == 299
    assert page.values("class").count("mnt-top") >= 250  # only the first ones are indented


def test_bars_are_to_scale_and_stay_inside_their_frame() -> None:
    bars = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", trace_html(fixed_trace()))
    assert bars[1] == ("6.2", "37.5")  # search: 0.2 to 1.4 of 3.2 ms
    with start_trace("recall") as opening:
        for _ in range(3):
            with span("search"):
                pass
    assert opening is not None
    opening.spans.append(Span(9, 0, "odd", "internal", 10**12, None))
    opening.spans.append(Span(10, 0, "backwards", "internal", 10**6, 0))
    for left, width in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", trace_html(opening)):
        assert 0 <= float(left) <= 99
        assert 0.5 <= float(width) <= 100
        assert float(left) + float(width) <= 100.1


def test_bars_and_outputs_have_names_for_screen_readers() -> None:
    page = Page(trace_html(fixed_trace()))
    labels = page.values("aria-label")
    assert labels[0] == "Trace of a run: recall"
    assert "starts at 0.2 ms, 1.2 ms" in labels
    assert page.values("role").count("img") == 5 + 1


def test_outputs_of_one_notebook_share_no_ids() -> None:
    for source in pages():
        assert Page(source).values("id") == []
        assert "url(#" not in source


def test_colours_are_those_of_the_notebook_dark_or_light() -> None:
    source = trace_html(walked(*DEEP, depth="deep"))
    assert "color:inherit" in source
    assert not re.search(r"#(fff|000|ffffff|000000)\b", source)
    # The drawing by itself stands on its own white paper.
    assert 'fill="#ffffff"' in walked(*DEEP, depth="deep").draw()


def test_a_span_that_never_ended_or_was_cancelled_says_so() -> None:
    trace = Trace("remember")
    trace.spans = [
        Span(1, 0, "write", "step", 5),
        Span(2, 0, "embed", "step", 5, 10, "cancelled"),
    ]
    assert "not finished" in Page(trace_html(trace)).text
    assert "embed cancelled" in Page(trace_html(trace)).text


def test_many_alike_spans_are_summed_up() -> None:
    trace = Trace("remember")
    trace.spans = [Span(n, 0, "llm.analyze", "llm", 0, 1_000_000) for n in range(1, 1001)]
    assert "980 more llm.analyze, 980.0 ms" in Page(trace_html(trace)).text


def pages() -> Iterator[str]:
    yield trace_html(hostile_trace())
    yield hostile_trace()._repr_html_()
    hostile_match = match(HOSTILE, scope="/<b>", categories=[HOSTILE], source=HOSTILE)
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
    record = hostile_match.record
    record.keep_trace(hostile_trace())
    yield record._repr_html_()
    receipt = SaveReceipt("batch", ["a"])
    receipt.ran(hostile_trace())
    receipt.fail(ValueError(HOSTILE), final=False)
    receipt.progress([record])
    yield receipt._repr_html_()
    extraction = Extraction([HOSTILE], trace=hostile_trace(), echoes=[HOSTILE], failures=[HOSTILE])
    yield extraction._repr_html_()
    yield Reanalyzed(["a"], failed={HOSTILE: HOSTILE}, trace=hostile_trace())._repr_html_()


def test_html_escapes_everything_and_loads_nothing() -> None:
    for source in pages():
        page = Page(source)
        page.assert_is_ours()
        assert '<script>alert("x")</script>' in page.text
        assert "&amp;" in page.text
        assert "\x1b" not in source
        assert "\u202e" not in source


def test_a_line_of_a_megabyte_is_cut_and_wraps() -> None:
    line = "x" * 1_000_000
    source = recall_html(Recall([match(line)], query=line, errors=[line], evidence_gaps=[line]))
    assert len(source) < 20_000
    assert "(1,000,000 characters in all)" in Page(source).text
    assert "overflow-wrap:anywhere" in source


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
        "analyze_query", "0.5 × semantic 0.77 + 0.3 × recency 1.00 + 0.2 × importance 0.50",
        "0.785",
    ):  # fmt: skip
        assert words in page.text
    assert page.tags.count("tr") == 3


def test_recall_html_of_nothing_keeps_the_gaps() -> None:
    page = Page(recall_html(Recall(query="q", evidence_gaps=["anything about q"])))
    assert "Nothing was found." in page.text
    assert "anything about q" in page.text
    assert "table" not in page.tags
    assert "No trace was kept." in page.text


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(storage=":memory:", llm=None, embedder=FakeEmbedder()) as opened:
        yield opened


SAVED = "The kiln fires at 1200 degrees."


def record_of(memory: Memory) -> MemoryRecord:
    return memory.remember(SAVED, scope="/studio")


def receipt_of(memory: Memory) -> SaveReceipt:
    receipt = memory.remember_many([SAVED, "The glaze is blue."], scope="/studio")
    receipt.wait()
    return receipt


RESULTS: list[tuple[str, Callable[[Memory], object], tuple[str, ...]]] = [
    ("record", record_of, (SAVED, "/studio", "How it was saved", "find_similar", "EncodingFlow")),
    ("receipt", receipt_of, ("2 texts accepted", "done", SAVED, "How it was saved", "dedup")),
    ("extraction", lambda m: m.extract_memories(SAVED), ("1 statement", SAVED, "recognise")),
    ("reanalysis", lambda m: m.reanalyze(limit=0), ("0 records filled in", "How it was analysed")),
    ("recall", lambda m: m.recall("the kiln"), (SAVED, "How it was found", "RecallFlow")),
]


@pytest.mark.parametrize(("kind", "make", "words"), RESULTS, ids=[name for name, *_ in RESULTS])
def test_every_result_shows_itself_and_how_it_came_about(
    memory: Memory, kind: str, make: Callable[[Memory], object], words: tuple[str, ...]
) -> None:
    result = make(memory)
    source = result._repr_html_()  # type: ignore[attr-defined]
    page = Page(source)
    page.assert_is_ours()
    assert f"mnemotrace-{kind}" in source
    for word in words:
        assert word in page.text
    assert page.tags.count("style") == 1


def test_a_record_without_a_trace_is_shown_without_one(memory: Memory) -> None:
    found = memory.get(record_of(memory).id)
    assert found is not None
    page = Page(found._repr_html_())
    assert SAVED in page.text
    assert "How it was saved" not in page.text
