"""What every view says first: the totals of a run, the route it took, and which spans to show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mnemotrace.trace import Span, Trace

from .values import duration_text, name_of, plural, short

MAX_SIBLINGS = 20
"""Spans of one name shown below one span; the others are summed up in a line."""
MAX_ROUTE = 24
"""Steps named in the route; a run that goes round more often ends in a count."""


def steps_of(trace: Trace) -> list[Span]:
    """Return the steps of the run itself, in the order they began, without what runs in them."""
    return [item for item in trace.spans if item.kind == "step" and not item.parent]


def route_of(trace: Trace) -> list[str]:
    """Return the steps taken, by name; a step that failed or was stopped says so."""
    names = []
    taken = steps_of(trace)
    for item in taken[:MAX_ROUTE]:
        note = {"error": " (failed)", "cancelled": " (cancelled)"}.get(item.status, "")
        names.append(name_of(item) + note)
    if len(taken) > MAX_ROUTE:
        names.append(f"{len(taken) - MAX_ROUTE} more")
    return names


def totals_of(trace: Trace) -> list[str]:
    """Return the totals of a run, one short text each: its time, steps, calls, tokens and cost."""
    parts = [duration_text(trace.duration_ms)]
    if trace.status != "ok":
        parts.append("failed" if trace.status == "error" else "cancelled")
    if steps := len(steps_of(trace)):
        parts.append(plural(steps, "step"))
    if searches := sum(item.kind == "search" for item in trace.spans):
        parts.append(plural(searches, "search"))
    total = trace.totals()
    if not total["llm_calls"]:
        parts.append("no LLM calls")
        return parts
    failed = f" ({total['llm_failures']} failed)" if total["llm_failures"] else ""
    parts.append(f"{plural(total['llm_calls'], 'LLM call')}{failed}")
    parts.append(f"{duration_text(total['llm_ms'])} of LLM")
    parts.append(f"{total['tokens_in']} tokens in, {total['tokens_out']} out")
    parts.append("cost unknown" if total["cost"] is None else f"${total['cost']:.4f}")
    return parts


@dataclass(frozen=True, slots=True)
class Rest:
    """Spans of one name that are only counted.

    Attributes:
        text: how many, how long together, how many failed.
    """

    text: str


def shown_of(siblings: list[Span]) -> list[Span | Rest]:
    """Return siblings, with all but the first 20 of each name summed up at the end."""
    if len(siblings) <= MAX_SIBLINGS:
        return list(siblings)
    shown: list[Span | Rest] = []
    rest: dict[str, list[Span]] = {}
    seen: Counter[str] = Counter()
    for item in siblings:
        seen[item.name] += 1
        if seen[item.name] <= MAX_SIBLINGS:
            shown.append(item)
        else:
            rest.setdefault(item.name, []).append(item)
    for name, items in rest.items():
        total = duration_text(sum(item.duration_ms for item in items))
        failed = sum(item.status != "ok" for item in items)
        line = f"{len(items)} more {short(name, 80)}, {total}"
        shown.append(Rest(f"{line}, {failed} failed" if failed else line))
    return shown


def end_of(trace: Trace) -> int:
    """Return the nanosecond at which the run was over, or the last span that outlived it; 1 at least."""
    own = trace.root.end_ns
    if own is None:
        own = 0 if trace.closed else trace.elapsed_ns()
    return max([1, own, *(item.end_ns or item.start_ns for item in trace.spans)])
