"""The path a run took through its workflow: every step and transition there is, and which were taken.

For the flows of mnemotrace the steps and transitions come from the workflow classes; for other
runs, and for traces that an older release wrote, from the steps that the trace itself has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mnemotrace.trace import Span, Trace

from .summary import steps_of
from .values import short

if TYPE_CHECKING:
    from mnemotrace.flows.outline import Outline

START = "start"
END = "end"
MAX_STEPS = 60
"""Steps drawn; of a run with more, only the first ones."""


@dataclass(slots=True)
class Node:
    """One step and what the run did there.

    Attributes:
        row: how far it is from the start, by the longest way.
        visits: how often it ran; 0 when the path leads past it.
        ms: milliseconds in it, all visits together.
        llm_calls: calls of the language model made below it.
        status: ``ok``, ``error`` or ``cancelled``, of the last visit.
    """

    name: str
    row: int = 0
    visits: int = 0
    ms: float = 0.0
    llm_calls: int = 0
    status: str = "ok"


@dataclass(slots=True)
class Edge:
    """One way from a step to the next.

    Attributes:
        events: the events that lead there.
        times: how often it was taken.
        back: whether it leads back to a step before.
    """

    source: str
    target: str
    events: list[str] = field(default_factory=list)
    times: int = 0
    back: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """All steps and ways of a workflow, and what one run took of them.

    Attributes:
        flow: the name of the workflow; None when it is only known from the trace.
        nodes: by name, `START` first and `END` last.
        left_out: steps that are not drawn, because there are too many.
    """

    flow: str | None
    nodes: dict[str, Node]
    edges: list[Edge]
    left_out: int = 0


def path_of(trace: Trace) -> Path:
    """Return the path that a run took through its workflow."""
    steps = steps_of(trace)
    outline = _outline(trace, {item.name for item in steps})
    if outline is None:
        kept, left_out = _first_steps(steps)
        names = list(dict.fromkeys(item.name for item in kept))
        edges = _observed(kept)
        flow = None
    else:
        kept, left_out, names, flow = steps, 0, list(outline.steps), outline.name
        edges = _merged((way.source, way.event, way.target) for way in outline.transitions)
    _count(edges, kept)
    rows = _rows(names, edges)
    nodes = {START: Node(START, 0, visits=1)}
    nodes |= {name: Node(name, rows[name]) for name in sorted(names, key=lambda n: (rows[n], n))}
    ended = trace.status == "ok" and any(e.times for e in edges if e.target == END)
    edges.sort(key=lambda edge: (rows.get(edge.source, 0), rows.get(edge.target, 999), edge.target))
    nodes[END] = Node(END, max(rows.values(), default=0) + 1, visits=int(ended))
    calls = _calls_below(trace, {item.id for item in kept})
    for item in kept:
        node = nodes[item.name]
        node.visits += 1
        node.ms += item.duration_ms
        node.llm_calls += calls.get(item.id, 0)
        node.status = item.status
    return Path(flow, nodes, edges, left_out)


def label_of(name: str) -> str:
    """Return a step's name, ready to be shown."""
    return short(name, 40)


def _outline(trace: Trace, taken: set[str]) -> Outline | None:
    from mnemotrace.flows.outline import flow_of, outline

    flow = flow_of(trace.kind, trace.attrs)
    found = None if flow is None else outline(flow)
    return found if found is not None and taken <= set(found.steps) else None


def _first_steps(steps: list[Span]) -> tuple[list[Span], int]:
    names: dict[str, None] = {}
    for item in steps:
        # Two steps may not be called like our own start and end.
        names.setdefault(item.name)
    reserved = {START, END}
    shown = {name for name in list(names)[:MAX_STEPS] if name not in reserved}
    return [item for item in steps if item.name in shown], len(names) - len(shown)


def _event(attrs: Mapping[str, Any], key: str) -> str | None:
    value = attrs.get(key)
    return None if value is None else short(str(value), 60)


def _observed(steps: list[Span]) -> list[Edge]:
    """Return the ways that the steps of a trace tell of, by their events or by their order."""
    ways: list[tuple[str, str, str]] = []
    senders: dict[str, str] = {}
    before = START
    for item in steps:
        received = _event(item.attrs, "received")
        source = before if received is None else senders.get(received, START)
        ways.append((source, received or "", item.name))
        if (returned := _event(item.attrs, "returned")) is not None:
            senders[returned] = item.name
        before = item.name
    if steps:
        last = steps[-1]
        ways.append((last.name, _event(last.attrs, "returned") or "", END))
    return _merged(ways)


def _merged(ways: Iterable[tuple[str, str, str]]) -> list[Edge]:
    edges: dict[tuple[str, str], Edge] = {}
    for source, event, target in ways:
        edge = edges.setdefault((source, target), Edge(source, target))
        if event and event not in edge.events:
            edge.events.append(event)
    return list(edges.values())


def _count(edges: list[Edge], steps: list[Span]) -> None:
    """Count how often each way was taken: by the events that its source returned."""
    for edge in edges:
        for number, item in enumerate(steps):
            if edge.source == START:
                received = _event(item.attrs, "received")
                first = number == 0 if received is None else received in edge.events
                edge.times += item.name == edge.target and first
            elif item.name == edge.source and item.status == "ok":
                returned = _event(item.attrs, "returned")
                if returned is not None:
                    edge.times += returned in edge.events
                else:
                    follower = steps[number + 1].name if number + 1 < len(steps) else END
                    edge.times += not edge.events and follower == edge.target


def _rows(names: list[str], edges: list[Edge]) -> dict[str, int]:
    """Return how far each step is from the start, and mark the edges that lead back."""
    after: dict[str, list[Edge]] = {}
    for edge in sorted(edges, key=lambda edge: edge.target):
        after.setdefault(edge.source, []).append(edge)
    order: list[str] = []
    entered: set[str] = set()
    left: set[str] = set()
    for root in (START, *names):
        pending: list[tuple[str, bool]] = [(root, False)]
        while pending:
            name, done = pending.pop()
            if done:
                left.add(name)
                order.append(name)
                continue
            if name in entered:
                continue
            entered.add(name)
            pending.append((name, True))
            pending += [(edge.target, False) for edge in reversed(after.get(name, []))]
    place = {name: number for number, name in enumerate(reversed(order))}
    rows = {name: 1 for name in names} | {START: 0}
    for name in reversed(order):
        for edge in after.get(name, []):
            edge.back = place[edge.target] <= place[name]
            if not edge.back:
                rows[edge.target] = max(rows.get(edge.target, 1), rows.get(name, 1) + 1)
    return {name: rows[name] for name in names}


def _calls_below(trace: Trace, tops: set[int]) -> dict[int, int]:
    """Return how many calls of the language model were made below each of some spans."""
    parents = {item.id: item.parent or 0 for item in trace.spans}
    calls: dict[int, int] = {}
    for item in trace.spans:
        if item.kind != "llm":
            continue
        above = item.parent or 0
        while above and above not in tops:
            above = parents.get(above, 0)
        calls[above] = calls.get(above, 0) + 1
    return calls
