"""A drawing of the workflow with the path that a run took: as SVG, or as text for Mermaid."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from mnemotrace.checks import shortened
from mnemotrace.errors import InvalidInputError
from mnemotrace.trace import Trace

from .path import END, START, Edge, Node, Path, label_of, path_of
from .summary import steps_of, totals_of
from .values import duration_text, plural, short

TAKEN = "#4a86d8"
FAILED = "#d9534f"
_WIDTH, _HEIGHT, _PILL = 190, 42, 26
_PITCH, _TOP, _MARGIN, _GAP = 74, 70, 16, 24
_LETTER = 7.1
"""Pixels that a narrow letter of the labels takes at most; wide ones take twice that."""
_MAX_LABEL = 40


class Drawing(str):
    """A drawing as SVG text; a notebook shows the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def draw(trace: Trace, form: str = "svg") -> str:
    """Return a drawing of a run; see `Trace.draw`."""
    if form == "svg":
        return Drawing(_svg(trace, path_of(trace), inline=False))
    if form == "mermaid":
        return _mermaid(trace, path_of(trace))
    raise InvalidInputError(f"A trace is drawn as 'svg' or 'mermaid', not as {shortened(form)}.")


def workflow_svg(trace: Trace, *, inline: bool) -> str:
    """Return the drawing for an HTML page, in the page's own colours; empty without any step."""
    return _svg(trace, path_of(trace), inline=inline) if steps_of(trace) else ""


# -- SVG ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Placed:
    """A node with its place on the drawing."""

    node: Node
    left: float
    top: float
    height: float
    shown: str

    @property
    def middle(self) -> float:
        return self.left + _WIDTH / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(slots=True)
class _Lane:
    """An edge that runs beside the steps it leads past."""

    edge: Edge
    low: int
    high: int
    number: int = 0


def _svg(trace: Trace, path: Path, *, inline: bool) -> str:
    straight, left, right = _sorted_edges(path)
    pitch = max((_columns(_label(edge)) for edge in path.edges), default=0) * _LETTER + 18
    width_left = _MARGIN + _lanes(left) * pitch
    placed, row_width = _place(path, width_left)
    width = width_left + row_width + _MARGIN + _lanes(right) * pitch
    title, totals = _title(trace, path), " · ".join(totals_of(trace))
    longest = max(_columns(title) * 8, _columns(totals) * _LETTER)
    width = max(width, longest + 2 * _MARGIN)
    height = placed[END].bottom + _MARGIN + (18 if path.left_out else 0)
    taken = " → ".join(label_of(item.name) for item in steps_of(trace)[:60])
    about = f"{title}, {totals}. Path taken: {taken or 'none'}."
    color = "" if inline else ' color="#1f2328"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{_xml(about)}" '
        f'font-family="system-ui,sans-serif" font-size="11" fill="currentColor"{color}>'
    )
    parts = [opening, f"<title>{_xml(title)}</title>"]
    if not inline:
        parts.append(f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>')
    parts.append(_text(title, _MARGIN, 24, size=13, weight=600))
    parts.append(_text(totals, _MARGIN, 41))
    # What was not taken lies below what was.
    for wanted in (False, True):
        parts += [_straight(edge, placed) for edge in straight if bool(edge.times) is wanted]
        for lanes, side in ((left, -1), (right, 1)):
            start = width_left - _MARGIN / 2 if side < 0 else width_left + row_width + 4
            parts += [
                _beside(lane, lanes, placed, start, pitch, side)
                for lane in lanes
                if bool(lane.edge.times) is wanted
            ]
    total = trace.duration_ms
    parts += [_node(item, total) for item in placed.values()]
    if path.left_out:
        parts.append(_text(f"{plural(path.left_out, 'more step')}", _MARGIN, height - 10))
    parts.append("</svg>")
    return "".join(parts)


def _title(trace: Trace, path: Path) -> str:
    kind = short(trace.kind, _MAX_LABEL)
    return f"{path.flow}: {kind}" if path.flow else kind


def _sorted_edges(path: Path) -> tuple[list[Edge], list[_Lane], list[_Lane]]:
    """Return the edges to the next row, those that lead back, those that lead past steps."""
    straight: list[Edge] = []
    left: list[_Lane] = []
    right: list[_Lane] = []
    for edge in path.edges:
        source, target = path.nodes[edge.source].row, path.nodes[edge.target].row
        if not edge.back and target - source == 1:
            straight.append(edge)
        else:
            lane = _Lane(edge, min(source, target), max(source, target))
            (left if edge.back else right).append(lane)
    for lanes in (left, right):
        lanes.sort(key=lambda lane: (lane.high - lane.low, lane.low, lane.edge.source))
        for index, lane in enumerate(lanes):
            busy = {
                other.number
                for other in lanes[:index]
                if other.low <= lane.high and lane.low <= other.high
            }
            lane.number = next(n for n in range(len(lanes)) if n not in busy)
    return straight, left, right


def _lanes(lanes: list[_Lane]) -> int:
    return max((lane.number + 1 for lane in lanes), default=0)


def _place(path: Path, left: float) -> tuple[dict[str, _Placed], float]:
    rows: dict[int, list[Node]] = {}
    for node in path.nodes.values():
        rows.setdefault(node.row, []).append(node)
    most = max(len(row) for row in rows.values())
    whole = most * _WIDTH + (most - 1) * _GAP
    placed: dict[str, _Placed] = {}
    for number, row in sorted(rows.items()):
        own = len(row) * _WIDTH + (len(row) - 1) * _GAP
        for index, node in enumerate(row):
            small = node.name in (START, END)
            height = _PILL if small else _HEIGHT
            top = _TOP + number * _PITCH + (_HEIGHT - height) / 2 - (_HEIGHT - _PILL) / 2
            x = left + (whole - own) / 2 + index * (_WIDTH + _GAP)
            placed[node.name] = _Placed(node, x, top, height, _fit(label_of(node.name), 26))
    return placed, whole


def _node(item: _Placed, total_ms: float) -> str:
    node = item.node
    taken = node.visits > 0
    color = FAILED if node.status != "ok" else TAKEN
    look = (
        f'fill="{color}" fill-opacity=".14" stroke="{color}" stroke-width="2"'
        if taken
        else 'fill="currentColor" fill-opacity=".03" stroke="currentColor" stroke-opacity=".4" '
        'stroke-dasharray="4 3"'
    )
    small = node.name in (START, END)
    radius = item.height / 2 if small else 6
    opacity = "" if taken else ' opacity=".55"'
    shape = (
        f'<rect x="{item.left:.0f}" y="{item.top:.0f}" width="{_WIDTH}" height="{item.height:.0f}" '
        f'rx="{radius:.0f}" {look}/>'
    )
    if small:
        return f"<g{opacity}>{shape}{_middle(item.shown, item.middle, item.top + 17, 12)}</g>"
    parts = [shape, _middle(item.shown, item.middle, item.top + 18, 13, 600)]
    parts.append(_middle(_visits(node), item.middle, item.top + 33, 11))
    if taken and total_ms > 0:
        share = min(1.0, node.ms / total_ms) * (_WIDTH - 12)
        parts.append(
            f'<rect x="{item.left + 6:.0f}" y="{item.bottom - 5:.0f}" width="{max(1.0, share):.1f}"'
            f' height="3" fill="{color}"/>'
        )
    return f"<g{opacity}>{''.join(parts)}</g>"


def _visits(node: Node) -> str:
    if not node.visits:
        return "not taken"
    parts = [duration_text(node.ms)]
    if node.visits > 1:
        parts.insert(0, f"{node.visits} times")
    if node.llm_calls:
        parts.append(plural(node.llm_calls, "LLM call"))
    if node.status != "ok":
        parts.append("failed" if node.status == "error" else "cancelled")
    return " · ".join(parts)


def _label(edge: Edge) -> str:
    label = _fit(" | ".join(edge.events), _MAX_LABEL)
    return f"{label} ×{edge.times}" if edge.times > 1 else label


def _stroke(edge: Edge) -> str:
    if edge.times:
        return f'fill="none" stroke="{TAKEN}" stroke-width="2"'
    return 'fill="none" stroke="currentColor" stroke-opacity=".4" stroke-dasharray="4 3"'


def _head(edge: Edge, x: float, y: float, dx: float, dy: float) -> str:
    """Return an arrow head with its point at (x, y), for a line that comes along (dx, dy)."""
    color = f'fill="{TAKEN}"' if edge.times else 'fill="currentColor" fill-opacity=".45"'
    back_x, back_y = x - 8 * dx, y - 8 * dy
    points = (
        f"{x:.1f},{y:.1f} {back_x - 4 * dy:.1f},{back_y + 4 * dx:.1f} "
        f"{back_x + 4 * dy:.1f},{back_y - 4 * dx:.1f}"
    )
    return f'<polygon points="{points}" {color}/>'


def _straight(edge: Edge, placed: dict[str, _Placed]) -> str:
    source, target = placed[edge.source], placed[edge.target]
    x1, y1, x2, y2 = source.middle, source.bottom, target.middle, target.top
    half = (y1 + y2) / 2
    line = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {half:.1f} {x2:.1f} {half:.1f} {x2:.1f} {y2 - 6:.1f}"
    return (
        f'<path d="{line}" {_stroke(edge)}/>{_head(edge, x2, y2, 0, 1)}'
        f"{_edge_text(edge, (x1 + x2) / 2 + 8, half + 3, 'start')}"
    )


def _beside(
    lane: _Lane,
    lanes: Iterable[_Lane],
    placed: dict[str, _Placed],
    start: float,
    pitch: float,
    side: int,
) -> str:
    """Draw an edge that leaves and comes back at the same side (-1 left, 1 right)."""
    edge = lane.edge
    source, target = placed[edge.source], placed[edge.target]
    x = start + side * (12 + lane.number * pitch)
    y1, y2 = _port(lane, lanes, placed, leaving=True), _port(lane, lanes, placed, leaving=False)
    x1 = source.left + (_WIDTH if side > 0 else 0)
    x2 = target.left + (_WIDTH if side > 0 else 0)
    turn = 8 if y2 > y1 else -8
    line = (
        f"M{x1:.1f} {y1:.1f}H{x - 8 * side:.1f}Q{x:.1f} {y1:.1f} {x:.1f} {y1 + turn:.1f}"
        f"V{y2 - turn:.1f}Q{x:.1f} {y2:.1f} {x - 8 * side:.1f} {y2:.1f}H{x2 + 6 * side:.1f}"
    )
    anchor = "start" if side > 0 else "end"
    return (
        f'<path d="{line}" {_stroke(edge)}/>{_head(edge, x2, y2, -side, 0)}'
        f"{_edge_text(edge, x + 6 * side, (y1 + y2) / 2 + 4, anchor)}"
    )


def _port(
    lane: _Lane, lanes: Iterable[_Lane], placed: dict[str, _Placed], *, leaving: bool
) -> float:
    """Return the height at which an edge meets its step, apart from others on that side."""
    name = lane.edge.source if leaving else lane.edge.target
    row = placed[name].node.row
    meeting: list[tuple[tuple[int, int], _Lane, bool]] = []
    for other in lanes:
        for is_source, end in ((True, other.edge.source), (False, other.edge.target)):
            if end == name:
                above = (other.low if other.high == row else other.high) < row
                # Outer lanes go outwards of inner ones, so that no two cross.
                order = (0, -other.number) if not above else (-1, other.number)
                meeting.append((order, other, is_source))
    meeting.sort(key=lambda item: item[0])
    index = next(i for i, (_, o, out) in enumerate(meeting) if o is lane and out is leaving)
    place = placed[name]
    return place.top + place.height * (index + 1) / (len(meeting) + 1)


def _edge_text(edge: Edge, x: float, y: float, anchor: str) -> str:
    label = _label(edge)
    if not label:
        return ""
    weight = ' font-weight="600"' if edge.times else ' opacity=".55"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{_xml(label)}</text>'


def _text(text: str, x: float, y: float, size: int = 11, weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}">'
        f"{_xml(text)}</text>"
    )


def _middle(text: str, x: float, y: float, size: int, weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}" '
        f'font-weight="{weight}">{_xml(text)}</text>'
    )


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _fit(text: str, columns: int) -> str:
    if _columns(text) <= columns:
        return text
    used, kept = 0, ""
    for char in text:
        used += _columns(char)
        if used >= columns:
            break
        kept += char
    return f"{kept}…"


def _xml(text: str) -> str:
    return html.escape(text)


# -- Mermaid --------------------------------------------------------------------------------


def _mermaid(trace: Trace, path: Path) -> str:
    ids = {name: f"s{number}" for number, name in enumerate(path.nodes)}
    about = " · ".join([_title(trace, path), *totals_of(trace)])
    lines = [f"%% {_plain(about)}", "flowchart TD"]
    for name, node in path.nodes.items():
        if name in (START, END):
            lines.append(f'  {ids[name]}(["{name}"])')
        else:
            lines.append(f'  {ids[name]}["{_plain(label_of(name))}<br/>{_plain(_visits(node))}"]')
    for edge in path.edges:
        arrow = "==>" if edge.times else "-.->"
        label = f'|"{_plain(_label(edge))}"|' if _label(edge) else ""
        lines.append(f"  {ids[edge.source]} {arrow}{label} {ids[edge.target]}")
    lines.append(f"  classDef taken stroke:{TAKEN},stroke-width:2px")
    lines.append(f"  classDef failed stroke:{FAILED},stroke-width:2px")
    lines.append("  classDef past stroke-dasharray:4 3,opacity:0.6")
    for name, node in path.nodes.items():
        look = "past" if not node.visits else "taken" if node.status == "ok" else "failed"
        lines.append(f"  class {ids[name]} {look}")
    if path.left_out:
        lines.append(f"  %% {plural(path.left_out, 'more step')}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return a text in which nothing is Mermaid's or HTML's: all but plain letters are entities."""
    return "".join(
        char if char.isalnum() or char in " _.,:-/$()×·|→…" else f"#{ord(char)};" for char in text
    )
