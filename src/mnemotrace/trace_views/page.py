"""The trace in a notebook: totals, route, a waterfall of foldable spans to scale, the workflow.

It stands alone: no script, nothing loaded from anywhere, no ids that two outputs could share. Its
style sheet is scoped to its own class names (thrice where notebooks have rules of their own for
lists and tables); without it, as some viewers drop it, the nested lists still say everything.
Colours of text are the notebook's, so that dark and light both work, and no bar says what is not
said in words as well.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from mnemotrace.trace import Span, Trace, plain

from .drawing import workflow_svg
from .summary import Rest, end_of, route_of, shown_of, totals_of
from .values import (
    duration_text,
    error_of,
    facts,
    name_of,
    short,
    unfinished,
    visible,
)

MAX_TEXT = 20_000
"""Characters of one text: a kept one in a trace, or the content of a record."""
MAX_DEPTH = 40
"""Levels that are indented; deeper spans stand below each other."""

KIND_COLORS = {
    "step": "#4a86d8",
    "search": "#1f9e89",
    "llm": "#9a6bd8",
    "embed": "#c98a1b",
    "store": "#7a8b2e",
}
OTHER_COLOR = "#848b95"
FAILED_COLOR = "#d9534f"

_STYLE = """<style>
.mnt{font:13px/1.5 system-ui,sans-serif;text-align:left;color:inherit;overflow-x:auto;margin:.3em 0}
.mnt.mnt.mnt *{box-sizing:border-box}
.mnt.mnt.mnt :is(p,dl,dd,dt,li){margin:0;padding:0;font-weight:normal}
.mnt.mnt.mnt :is(ol,ul){list-style:none;margin:0;padding:0 0 0 1.2em}
.mnt.mnt.mnt ol.mnt-top{padding:0}
.mnt.mnt.mnt summary{cursor:pointer;list-style:none;margin:0}
.mnt summary::-webkit-details-marker{display:none}
.mnt summary:focus-visible{outline:2px solid #4a86d8}
.mnt .mnt-label::before{content:"";display:inline-block;width:1.1em;text-indent:0}
.mnt summary .mnt-label::before{content:"\\25B8"}
.mnt details[open]>summary .mnt-label::before{content:"\\25BE"}
.mnt-row{display:grid;grid-template-columns:minmax(14em,1fr) 200px 6em;gap:0 .8em;align-items:start;
border-top:1px solid rgba(128,128,128,.18);padding:1px 0}
.mnt-fall{min-width:42em}
.mnt-row .mnt-label{overflow-wrap:anywhere;padding-left:1.1em;text-indent:-1.1em}
.mnt-track{position:relative;height:1.5em;background:rgba(128,128,128,.08)}
.mnt-bar{position:absolute;top:.4em;height:.7em;min-width:2px;border-radius:2px}
.mnt-time{text-align:right;font-variant-numeric:tabular-nums}
.mnt-dim,.mnt-key{opacity:.72}
.mnt-fact{margin-left:.7em;font-size:12px;display:inline-block;text-indent:0}
.mnt-bad{color:#d9534f;font-weight:600}
.mnt-text{white-space:pre-wrap;overflow-wrap:anywhere;max-width:70em}
.mnt-route{margin:.1em 0 .3em}
.mnt-part{margin:.4em 0 0}
.mnt-box{padding-left:1.2em}
.mnt-swatch{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 .8em}
.mnt.mnt.mnt table{border-collapse:collapse;margin:.3em 0;font:inherit;color:inherit;border:0}
.mnt.mnt.mnt tr{background:none;text-align:left}
.mnt.mnt.mnt :is(th,td){text-align:left;vertical-align:top;padding:3px 10px 3px 0;background:none;
border:0;border-top:1px solid rgba(128,128,128,.25);font-weight:normal;max-width:none}
.mnt.mnt.mnt thead th{border-top:0;opacity:.72}
.mnt-num{font-variant-numeric:tabular-nums;white-space:nowrap}
.mnt-share{display:flex;width:9em;height:.6em;background:rgba(128,128,128,.12);margin:.35em 0}
.mnt svg{max-width:100%;height:auto}
</style>"""


def text(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text of any origin, escaped, its control characters made visible."""
    whole = str(value)
    shown = html.escape(visible(whole[:limit], keep="\n\t"))
    return shown if len(whole) <= limit else f"{shown}… ({len(whole):,} characters in all)"


def said(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text from a memory or model so that its direction moves nothing around it."""
    return f"<bdi>{text(value, limit)}</bdi>"


def listed(lines: Iterable[object]) -> str:
    """Return lines of any origin as a list."""
    return f"<ul>{''.join(f'<li>{said(line, 1000)}</li>' for line in lines)}</ul>"


def section(label: str, parts: Sequence[str], kind: str) -> str:
    """Return a whole output: one landmark with a name for screen readers, and its style."""
    return (
        f'<section class="mnt mnemotrace-{kind}" aria-label="{text(label, 200)}">{_STYLE}'
        f"{''.join(parts)}</section>"
    )


def folded(title: str, body: str, *, is_open: bool = False) -> str:
    """Return something that folds away below a title (escaped already)."""
    state = " open" if is_open else ""
    return (
        f'<details class="mnt-part"{state}><summary><span class="mnt-label">{title}</span>'
        f'</summary><div class="mnt-box">{body}</div></details>'
    )


def trace_html(trace: Trace) -> str:
    """Return a trace as HTML for a notebook. All texts are escaped."""
    return section(f"Trace of a run: {name_of(trace.root)}", [trace_body(trace)], "trace")


def trace_body(trace: Trace) -> str:
    """Return what `trace_html` shows, to stand inside another output."""
    root = trace.root
    totals = " · ".join(text(part) for part in totals_of(trace))
    parts = [f"<p><b>{text(name_of(root))}</b> {totals}{_status(root)}</p>"]
    if route := route_of(trace):
        steps = " → ".join(
            f'<span class="mnt-bad">{text(name)}</span>' if " (" in name else text(name)
            for name in route
        )
        parts.append(f'<p class="mnt-route">{steps}</p>')
    parts.append(f'<p class="mnt-route">{_facts(root)}</p>')
    parts.append(_content(root))
    if trace.spans:
        parts.append(_waterfall(trace))
    if trace.dropped:
        parts.append(f'<p class="mnt-dim">{trace.dropped} more spans were not kept</p>')
    if drawing := workflow_svg(trace, inline=True):
        parts.append(folded("Workflow, with the path taken", drawing))
    return "".join(parts)


def _waterfall(trace: Trace) -> str:
    total = end_of(trace)
    below = trace.children()
    axis = (
        '<div class="mnt-row mnt-dim" aria-hidden="true"><span></span>'
        '<span style="display:flex;justify-content:space-between"><span>0</span>'
        f'<span>{duration_text(total / 1e6)}</span></span><span class="mnt-time">took</span></div>'
    )
    parts = [
        '<div class="mnt-fall">',
        axis,
        '<ol class="mnt-top" aria-label="Steps and what ran in them">',
    ]
    pending: list[Span | Rest | str]
    pending = ["</ol></div>", *reversed(shown_of(below.get(0, [])))]
    depths = {0: 0}
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        if isinstance(item, Rest):
            parts.append(f'<li><div class="mnt-dim mnt-box">{text(item.text)}</div></li>')
            continue
        depth = depths[item.id] = depths.get(item.parent or 0, 0) + 1
        row, content = _row(item, total), _content(item)
        children = shown_of(below.get(item.id, []))
        if not children and not content:
            parts.append(f'<li><div class="mnt-row">{row}</div></li>')
            continue
        opened = " open" if children else ""
        parts.append(f'<li><details{opened}><summary class="mnt-row">{row}</summary>{content}')
        if children:
            indent = "" if depth <= MAX_DEPTH else ' class="mnt-top"'
            parts.append(f"<ol{indent}>")
            pending += ["</ol></details></li>", *reversed(children)]
        else:
            parts.append("</details></li>")
    parts.append(_legend(trace))
    return "".join(parts)


def _row(item: Span, total: int) -> str:
    end = total if item.end_ns is None else item.end_ns
    left = min(99.0, max(0.0, 100 * item.start_ns / total))
    width = min(100.0 - left, max(0.5, 100 * (end - item.start_ns) / total))
    color = FAILED_COLOR if item.status == "error" else KIND_COLORS.get(item.kind, OTHER_COLOR)
    open_end = unfinished(item)
    took = "not finished" if open_end else duration_text(item.duration_ms)
    starts = duration_text(item.start_ns / 1e6)
    attempt = f' <span class="mnt-dim">attempt {item.attempt}</span>' if item.attempt > 1 else ""
    return (
        f'<span class="mnt-label"><b>{text(name_of(item))}</b>{attempt}{_status(item)}'
        f"{_facts(item)}</span>"
        f'<span class="mnt-track" role="img" aria-label="starts at {starts}, {took}">'
        f'<span class="mnt-bar" style="left:{left:.1f}%;width:{width:.1f}%;background:{color}">'
        f'</span></span> <span class="mnt-time">{took}</span>'
    )


def _status(item: Span) -> str:
    if item.status == "cancelled":
        return ' <span class="mnt-bad">cancelled</span>'
    if item.status == "error":
        return f' <span class="mnt-bad">failed: {said(error_of(item))}</span>'
    return ""


def _facts(item: Span) -> str:
    return " ".join(
        f'<span class="mnt-fact"><span class="mnt-key">{text(name)}=</span>{said(value)}</span>'
        for name, value in facts(item)
    )


def _content(item: Span) -> str:
    return "".join(
        folded(text(short(str(key), 80)), f'<div class="mnt-text">{said(_whole(value))}</div>')
        for key, value in (item.content or {}).items()
    )


def _whole(value: Any) -> str:
    value = plain(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def _legend(trace: Trace) -> str:
    used = {item.kind for item in trace.spans}
    swatches = [
        f'<span class="mnt-swatch" style="background:{color}"></span>{kind}'
        for kind, color in KIND_COLORS.items()
        if kind in used
    ]
    if any(item.status == "error" for item in trace.spans):
        swatches.append(f'<span class="mnt-swatch" style="background:{FAILED_COLOR}"></span>failed')
    return f'<p class="mnt-dim">{"".join(swatches)}</p>' if swatches else ""
