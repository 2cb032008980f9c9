"""Comparing: two traces side by side, step by step.

Spans are put beside each other by their place in the tree: the first ``search`` below the run with
the first ``search`` of the other run, the second round with the second, and so on down. Times say
little about two runs, so they are shown as a ratio and play no part in `identical`.
"""

from __future__ import annotations

import html
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from .checks import kind_of
from .errors import InvalidInputError
from .trace import Span, Trace, plain
from .trace_views import format_value, visible

Presence = Literal["both", "first", "second"]

ROUTES = ("received", "returned", "to", "reason")
"""Facts that tell which way a run took."""
_TIMES = ("_ms", "_ns", "_seconds")
_LONGEST_ALIGNED = 400
"""Siblings from which two lists are no longer merged in their order, which is quadratic."""
_SHOWN = 200
_BOX = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.5;text-align:left"
_CELL = "text-align:left;vertical-align:top;padding:1px 8px"


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One span of either trace, or a pair of them.

    Attributes:
        name: of the span.
        number: which of its name it is below its parent, from 1: the round.
        depth: 0 for the run itself, 1 for what is below it, and so on.
        presence: ``both``, or the only trace that has it: ``first`` or ``second``.
        facts: what differs, by name: the values of the first and the second trace, None where
            there is none. Without times.
        ratio: how many times as long it took in the second trace; None where one of them has no
            time.
        duration_ms: in the first and in the second trace; None where it is not there.
    """

    name: str
    number: int
    depth: int
    presence: Presence
    facts: dict[str, tuple[Any, Any]] = field(default_factory=dict, hash=False)
    ratio: float | None = None
    duration_ms: tuple[float | None, float | None] = (None, None)

    @property
    def route(self) -> dict[str, tuple[Any, Any]]:
        """Those of the facts that tell which way the run took."""
        return {name: values for name, values in self.facts.items() if name in ROUTES}

    @property
    def identical(self) -> bool:
        """Whether both traces have it, with the same facts."""
        return self.presence == "both" and not self.facts

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return {
            "name": self.name,
            "number": self.number,
            "depth": self.depth,
            "presence": self.presence,
            "facts": {name: plain(list(pair)) for name, pair in self.facts.items()},
            "ratio": self.ratio,
            "duration_ms": list(self.duration_ms),
        }


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """Two traces side by side; see `compare`.

    Attributes:
        first, second: the traces.
        steps: every span of both, in the order of the runs, parents before children.
        totals: calls, failures, tokens and cost of the language model where they differ: the
            values of the first and the second trace.
    """

    first: Trace
    second: Trace
    steps: tuple[StepComparison, ...]
    totals: dict[str, tuple[Any, Any]] = field(default_factory=dict, hash=False)

    @property
    def identical(self) -> bool:
        """Whether both runs took the same steps with the same facts; times do not count."""
        return all(step.identical for step in self.steps) and not self.totals

    @property
    def differences(self) -> list[StepComparison]:
        """The steps that differ, or that only one trace has."""
        return [step for step in self.steps if not step.identical]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data, without the traces themselves."""
        return {
            "first": {"trace_id": self.first.trace_id, "path": list(self.first.path)},
            "second": {"trace_id": self.second.trace_id, "path": list(self.second.path)},
            "identical": self.identical,
            "steps": [step.to_json() for step in self.steps],
            "totals": {name: plain(list(pair)) for name, pair in self.totals.items()},
        }

    def __repr__(self) -> str:
        return f"<TraceComparison {len(self.steps)} steps, {len(self.differences)} different>"

    def __str__(self) -> str:
        wide = max(2 * step.depth + len(_label(step)) for step in self.steps)
        wide = min(wide, 40)
        lines = [self._headline()]
        for step in self.steps[:_SHOWN]:
            label = "  " * step.depth + _label(step)
            lines.append(
                f"{_sign(step)} {label:<{wide}}  {_timing(step):<23} {_changes(step)}".rstrip()
            )
        if len(self.steps) > _SHOWN:
            lines.append(f"  {len(self.steps) - _SHOWN} more steps")
        lines += [f"  {name}: {_pair(pair)}" for name, pair in self.totals.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colours = {" ": "inherit", "~": "#b9770e", "-": "#c0392b", "+": "#1e8449"}
        rows = []
        for step in self.steps[:_SHOWN]:
            sign = _sign(step)
            rows.append(
                f'<tr style="color:{colours[sign]}"><td style="{_CELL}">{sign}</td>'
                f'<td style="{_CELL};padding-left:{8 + 14 * step.depth}px">{_text(_label(step))}</td>'
                f'<td style="{_CELL};white-space:nowrap">{_text(_timing(step))}</td>'
                f'<td style="{_CELL}">{_text(_changes(step))}</td></tr>'
            )
        if len(self.steps) > _SHOWN:
            rows.append(f"<tr><td></td><td>{len(self.steps) - _SHOWN} more steps</td></tr>")
        rows += [
            f'<tr><td></td><td style="{_CELL}">{_text(name)}</td><td></td>'
            f'<td style="{_CELL}">{_text(_pair(pair))}</td></tr>'
            for name, pair in self.totals.items()
        ]
        return (
            f'<div class="mnemotrace-comparison" style="{_BOX}"><div><b>{_text(self._headline())}'
            f'</b></div><table style="border-collapse:collapse"><tbody>{"".join(rows)}</tbody>'
            "</table></div>"
        )

    def _headline(self) -> str:
        if self.identical:
            return f"The same {len(self.steps)} steps, times aside."
        kinds = Counter(step.presence for step in self.steps)
        changed = sum(step.presence == "both" and bool(step.facts) for step in self.steps)
        return (
            f"{changed} of {kinds['both']} common steps differ; {kinds['first']} only in the first "
            f"trace, {kinds['second']} only in the second."
        )


def compare(first: Trace, second: Trace) -> TraceComparison:
    """Compare two traces step by step.

    Args:
        first, second: of recalls or saves, as they were made or from `Trace.from_json`.

    Returns:
        Every step of both, with the facts that differ and how long each took.

    Raises:
        InvalidInputError: one of them is not a trace; a run with ``trace="off"`` has none.
    """
    for trace in (first, second):
        if not isinstance(trace, Trace):
            raise InvalidInputError(
                f"compare() needs two traces, not {kind_of(trace)}. Run with trace='on', "
                "or read one with Trace.from_json()."
            )
    below = (first.children(), second.children())
    steps: list[StepComparison] = []
    pending: list[tuple[Span | None, Span | None, int, int]] = [(first.root, second.root, 1, 0)]
    while pending:
        one, other, number, depth = pending.pop()
        steps.append(_compared(one, other, number, depth, first, second))
        children = [
            [] if item is None else tree.get(item.id, [])
            for item, tree in zip((one, other), below, strict=True)
        ]
        pending += [(*pair, depth + 1) for pair in reversed(list(_aligned(*children)))]
    was, now = dict(first.totals()), dict(second.totals())
    totals = {
        name: (was[name], now[name])
        for name in was
        if not name.endswith(_TIMES) and was[name] != now[name]
    }
    return TraceComparison(first, second, tuple(steps), totals)


def _aligned(left: list[Span], right: list[Span]) -> Iterator[tuple[Span | None, Span | None, int]]:
    """Yield siblings side by side with their number: the n-th of a name with the n-th of it."""
    ones, others = _numbered(left), _numbered(right)
    keys = list(dict.fromkeys((*ones, *others)))
    if max(len(ones), len(others)) <= _LONGEST_ALIGNED:
        keys = list(_merged(list(ones), list(others)))
    for key in keys:
        yield ones.get(key), others.get(key), key[1]


def _numbered(spans: list[Span]) -> dict[tuple[str, int], Span]:
    seen: Counter[str] = Counter()
    numbered = {}
    for item in spans:
        seen[item.name] += 1
        numbered[item.name, seen[item.name]] = item
    return numbered


def _merged(left: list[tuple[str, int]], right: list[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    """Return the keys of both lists in an order that is near to both, each once."""
    order: dict[tuple[str, int], None] = {}
    for _, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        order.update(dict.fromkeys(itertools.chain(left[a:b], right[c:d])))
    return order


def _compared(
    one: Span | None, other: Span | None, number: int, depth: int, first: Trace, second: Trace
) -> StepComparison:
    some = one or other
    assert some is not None
    times = (_duration(one, first), _duration(other, second))
    if one is None or other is None:
        presence: Presence = "first" if other is None else "second"
        return StepComparison(some.name, number, depth, presence, duration_ms=times)
    facts: dict[str, tuple[Any, Any]] = {}
    for name in ("name", "kind", "status", "error", "attempt"):
        if getattr(one, name) != getattr(other, name):
            facts[name] = (getattr(one, name), getattr(other, name))
    facts |= _differing(one.attrs, other.attrs)
    if one.content is not None and other.content is not None:
        facts |= _differing(one.content, other.content)
    ratio = times[1] / times[0] if times[0] and times[1] is not None else None
    return StepComparison(some.name, number, depth, "both", facts, ratio, times)


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that differ, as they are in JSON, so that a loaded trace equals a live one."""
    was, now = plain(dict(one)), plain(dict(other))
    return {
        name: (was.get(name), now.get(name))
        for name in dict.fromkeys((*was, *now))
        if not name.endswith(_TIMES) and was.get(name) != now.get(name)
    }


def _duration(item: Span | None, trace: Trace) -> float | None:
    if item is None:
        return None
    if item is trace.root:
        return trace.duration_ms
    return None if item.end_ns is None else item.duration_ms


def _label(step: StepComparison) -> str:
    name = visible(step.name)
    return f"{name} ({step.number})" if step.number > 1 else name


def _sign(step: StepComparison) -> str:
    if step.presence == "both":
        return "~" if step.facts else " "
    return "-" if step.presence == "first" else "+"


def _timing(step: StepComparison) -> str:
    was, now = (None if time is None else f"{time:.1f}" for time in step.duration_ms)
    if was is None or now is None:
        return f"{was or now or '?'} ms"
    ratio = "" if step.ratio is None else f" x{step.ratio:.2f}"
    return f"{was} -> {now} ms{ratio}"


def _changes(step: StepComparison) -> str:
    if step.presence != "both":
        return f"only in the {step.presence} trace"
    return ", ".join(f"{visible(name)}: {_pair(pair)}" for name, pair in step.facts.items())


def _pair(pair: tuple[Any, Any]) -> str:
    return f"{format_value(pair[0])} -> {format_value(pair[1])}"


def _text(value: str) -> str:
    return html.escape(visible(value))
