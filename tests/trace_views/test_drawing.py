"""The drawing: the real workflow, the path taken through it, as SVG and as Mermaid text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mnemotrace.errors import InvalidInputError
from mnemotrace.flows.encoding import EncodingFlow
from mnemotrace.flows.extraction import ExtractionFlow
from mnemotrace.flows.outline import END, START, Transition, outline
from mnemotrace.flows.recall import RecallFlow, ShallowRecall
from mnemotrace.flows.steps import TracedWorkflow
from mnemotrace.trace import Span, Trace
from mnemotrace.trace_views.path import Path, path_of

from .sampling import DEEP, EXPLORED, HOSTILE, hostile_trace, long_trace, walked

FLOWS: list[tuple[type[TracedWorkflow], str, dict[str, str]]] = [
    (RecallFlow, "recall", {"depth": "deep"}),
    (ShallowRecall, "recall", {"depth": "shallow"}),
    (EncodingFlow, "encode", {}),
    (ExtractionFlow, "extract", {}),
]
NAMES = [flow.__name__ for flow, *_ in FLOWS]


def taken(path: Path) -> dict[tuple[str, str], int]:
    return {(edge.source, edge.target): edge.times for edge in path.edges if edge.times}


@pytest.mark.parametrize(("flow", "kind", "attrs"), FLOWS, ids=NAMES)
def test_every_step_and_transition_of_the_real_workflow_is_drawn(
    flow: type[TracedWorkflow], kind: str, attrs: dict[str, str]
) -> None:
    declared = flow.validate_step_returns()
    path = path_of(walked(kind=kind, **attrs))
    assert path.flow == flow.__name__
    assert next(iter(path.nodes)) == START
    assert list(path.nodes)[-1] == END
    assert set(path.nodes) - {START, END} == set(declared)
    leaving: dict[str, set[str]] = {}
    for edge in path.edges:
        leaving.setdefault(edge.source, set()).update(edge.events)
    assert {name: tuple(sorted(events)) for name, events in leaving.items() if name != START} == (
        declared
    )
    assert all(node.visits == 0 for name, node in path.nodes.items() if name != START)
    assert taken(path) == {}


def test_the_outline_of_the_recall_flow_has_its_loop() -> None:
    found = outline(RecallFlow)
    assert Transition(START, "RecallStarted", "analyze_query") in found.transitions
    assert Transition("explore", "ScopesSelected", "search") in found.transitions
    assert Transition("synthesize", "RecallFinished", END) in found.transitions
    assert len(found.transitions) == 10


def test_the_path_counts_visits_ways_and_times() -> None:
    path = path_of(walked(*EXPLORED, depth="deep"))
    assert {name: node.visits for name, node in path.nodes.items()} == {
        START: 1,
        "analyze_query": 1,
        "select_scopes": 1,
        "search": 2,
        "route": 2,
        "explore": 1,
        "synthesize": 1,
        END: 1,
    }
    assert path.nodes["search"].ms == 2.0
    assert taken(path) == {
        (START, "analyze_query"): 1,
        ("analyze_query", "select_scopes"): 1,
        ("select_scopes", "search"): 1,
        ("search", "route"): 2,
        ("route", "explore"): 1,
        ("route", "synthesize"): 1,
        ("explore", "search"): 1,
        ("synthesize", END): 1,
    }
    [back] = [edge for edge in path.edges if edge.back]
    assert (back.source, back.target) == ("explore", "search")
    rows = [node.row for node in path.nodes.values()]
    assert rows == list(range(8))


def test_a_run_that_failed_ends_at_the_step_that_did() -> None:
    path = path_of(walked(*DEEP[:2], ("search", "ScopesSelected", None), depth="deep"))
    assert path.nodes["search"].status == "error"
    assert path.nodes[END].visits == 0
    assert ("search", "route") not in taken(path)
    assert "failed" in walked(*DEEP[:2], ("search", "ScopesSelected", None), depth="deep").draw()


def test_a_step_counts_the_calls_of_a_model_below_it() -> None:
    trace = walked(*DEEP, depth="deep")
    trace.spans += [
        Span(90, 1, "inner", "internal", 0, 1),
        *(Span(n, 90, "llm.query_analysis", "llm", 0, 1) for n in (91, 92)),
        Span(93, 0, "llm.outside", "llm", 0, 1),
    ]
    nodes = path_of(trace).nodes
    assert {name: node.llm_calls for name, node in nodes.items() if node.llm_calls} == {
        "analyze_query": 2
    }
    assert "2 LLM calls" in trace.draw()


def svg(source: str) -> ElementTree.Element:
    root = ElementTree.fromstring(source)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(("flow", "kind", "attrs"), FLOWS, ids=NAMES)
def test_the_svg_stands_alone_and_stays_inside_its_frame(
    flow: type[TracedWorkflow], kind: str, attrs: dict[str, str]
) -> None:
    source = walked(kind=kind, **attrs).draw()
    root = svg(source)
    assert set(outline(flow).steps) <= set(texts(root))
    assert "href" not in source
    assert "url(" not in source
    assert "<style" not in source
    assert root.get("role") == "img"
    assert flow.__name__ in (root.get("aria-label") or "")
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    for element in root.iter():
        x, y = element.get("x"), element.get("y")
        if x is not None and y is not None:
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_the_svg_tells_the_taken_from_the_not_taken_not_by_colour_alone() -> None:
    shown = texts(svg(walked(*DEEP, depth="deep").draw()))
    assert shown.count("not taken") == 1  # explore
    assert "explore" in shown
    explored = texts(svg(walked(*EXPLORED, depth="deep").draw()))
    assert "not taken" not in explored
    assert "2 times · 2.0 ms" in explored
    assert "Searched ×2" in explored


def test_no_two_labels_of_ways_lie_on_each_other() -> None:
    for _, kind, attrs in FLOWS:
        root = svg(walked(kind=kind, **attrs).draw())
        spots = [
            (element.get("x"), element.get("y"))
            for element in root.iter("{http://www.w3.org/2000/svg}text")
        ]
        assert len(set(spots)) == len(spots)


def test_a_notebook_shows_the_drawing() -> None:
    drawing = walked(*DEEP, depth="deep").draw()
    assert drawing._repr_svg_() == drawing  # type: ignore[attr-defined]


def test_mermaid_text_has_every_step_and_the_path() -> None:
    lines = walked(*EXPLORED, depth="deep").draw("mermaid").splitlines()
    assert lines[1] == "flowchart TD"
    assert '  s3["search<br/>2 times · 2.0 ms"]' in lines
    assert '  s3 ==>|"Searched ×2"| s4' in lines
    assert '  s1 -.->|"Confident"| s6' in lines
    assert "  class s5 taken" in lines


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'png'"):
        walked().draw("png")  # type: ignore[arg-type]


def test_a_run_of_no_flow_is_drawn_from_its_own_steps() -> None:
    path = path_of(
        walked(("load", "Begun", "Loaded"), ("save", "Loaded", "Stopped"), kind="reindex")
    )
    assert path.flow is None
    assert taken(path) == {(START, "load"): 1, ("load", "save"): 1, ("save", END): 1}
    trace = Trace("mine")  # without events: the order tells
    trace.spans = [Span(n, 0, name, "step", n, n + 1) for n, name in ((1, "a"), (2, "b"), (3, "a"))]
    assert taken(path_of(trace)) == {(START, "a"): 1, ("a", "b"): 1, ("b", "a"): 1, ("a", END): 1}
    assert svg(trace.draw())


def test_a_trace_of_a_release_with_other_steps_is_drawn_from_its_own() -> None:
    path = path_of(walked(("dream", "RecallStarted", "RecallFinished"), depth="deep"))
    assert path.flow is None
    assert "dream" in path.nodes


def test_a_run_without_steps_and_one_with_very_many_are_drawn() -> None:
    assert texts(svg(Trace("empty").draw()))[2:] == ["start", "end"]
    trace = long_trace(1000)
    root = svg(trace.draw())
    assert "40 more steps" in texts(root)


@pytest.mark.parametrize("name", [HOSTILE, "start", "end", "x" * 1_000_000, '"];click s0 "', "%%{"])
def test_whatever_steps_are_called_the_drawing_stays_a_drawing(name: str) -> None:
    trace = walked((name, name, name), kind=name)
    root = svg(trace.draw())
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "rect", "g", "path", "polygon", "text",
    }  # fmt: skip
    assert len(trace.draw()) < 20_000
    for line in trace.draw("mermaid").splitlines()[2:]:
        assert re.fullmatch(
            r'  (s\d+(\(\["(start|end)"\]\)|\["[^"\[\]{}<>;&]*(#\d+;[^"\[\]{}<>;&]*)*<br/>[^"<>]*"\])'
            r'|s\d+ (==>|-\.->)(\|"[^"|<>]*(\|?[^"|<>]*)*"\|)? s\d+'
            r"|class(Def)? [\w ]+( [\w:#.,\- ]+)?|%% 1 more step)",
            line,
        ), line


def test_a_hostile_trace_is_drawn() -> None:
    assert svg(hostile_trace().draw())
