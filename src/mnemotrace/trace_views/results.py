"""Results in a notebook: a recall, a saved record, a receipt, an extraction, each with its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mnemotrace.trace import Trace

from .page import KIND_COLORS, folded, listed, said, section, text, trace_body
from .summary import totals_of
from .values import format_value, plural

if TYPE_CHECKING:
    from mnemotrace.receipts import SaveReceipt
    from mnemotrace.records import Extraction, MemoryMatch, MemoryRecord, Reanalyzed, Recall

MAX_CONTENT = 2000
"""Characters of a memory's text in a table."""
MAX_ROWS = 100
_SHARES = (KIND_COLORS["step"], KIND_COLORS["search"], KIND_COLORS["embed"])


def recall_html(recall: Recall) -> str:
    """Return a recall as HTML: its matches with their scores, what is missing, and the trace."""
    noun = "memory" if len(recall) == 1 else "memories"
    asked = said(format_value(recall.query, 500))
    sure = f'<span class="mnt-dim">confidence {recall.confidence:.2f}</span>'
    parts = [f"<p><b>{len(recall)} {noun}</b> for {asked} {sure}</p>"]
    if recall.errors:
        parts.append('<div><span class="mnt-bad">Part of the search failed:</span>')
        parts.append(f"{listed(recall.errors)}</div>")
    if recall:
        parts.append(_table(("", "score", "memory", "why")))
        parts += [_match(number, match) for number, match in enumerate(recall[:MAX_ROWS], 1)]
        parts.append(f"</tbody></table>{_more(len(recall))}")
    else:
        parts.append("<p>Nothing was found.</p>")
    if recall.evidence_gaps:
        parts.append(f"<div>Not found:{listed(recall.evidence_gaps)}</div>")
    parts.append(_how("How it was found", recall.trace))
    return section("Recalled memories", parts, "recall")


def record_html(record: MemoryRecord) -> str:
    """Return a record as HTML; the one that `remember` returned also with how it was saved."""
    rows = [
        ("scope", record.scope),
        ("categories", ", ".join(record.categories)),
        ("importance", f"{record.importance:g}"),
        ("created", f"{record.created_at:%Y-%m-%d %H:%M} UTC"),
        ("source", record.source),
        ("private", "yes" if record.private else None),
        ("metadata", format_value(record.metadata, 300) if record.metadata else None),
        ("version", str(record.version) if record.version > 1 else None),
        ("retired", record.retired),
        ("analysis", record.analysis),
        ("id", record.id),
    ]
    parts = [f'<p class="mnt-text"><b>{said(record.content, MAX_CONTENT)}</b></p><table><tbody>']
    parts += [
        f'<tr><th scope="row" class="mnt-dim">{name}</th><td>{said(value, 300)}</td></tr>'
        for name, value in rows
        if value
    ]
    parts.append("</tbody></table>")
    parts.append(_how("How it was saved", record.trace))
    return section("A memory", parts, "record")


def receipt_html(receipt: SaveReceipt) -> str:
    """Return a receipt as HTML: how far the save has come, its records, errors and runs."""
    bad = receipt.errors and not receipt.done
    status = f'<span class="mnt-bad">{receipt.status}</span>' if bad else str(receipt.status)
    parts = [f"<p><b>{plural(receipt.accepted, 'text')} accepted</b> {status}</p>"]
    if receipt.errors:
        lines = [f"{type(error).__name__}: {error}" for error in receipt.errors]
        parts.append(f'<div class="mnt-dim">Attempts that failed:{listed(lines)}</div>')
    records = receipt.records
    if records:
        parts.append(_table(("", "memory")))
        parts += [
            f'<tr><td class="mnt-num">{number}</td><td>{_memory(record)}</td></tr>'
            for number, record in enumerate(records[:MAX_ROWS], 1)
        ]
        parts.append(f"</tbody></table>{_more(len(records))}")
    runs = receipt.traces
    for number, trace in enumerate(runs, 1):
        which = f" (run {number} of {len(runs)})" if len(runs) > 1 else ""
        parts.append(_how(f"How it was saved{which}", trace))
    return section("Receipt of a save", parts, "receipt")


def extraction_html(extraction: Extraction) -> str:
    """Return an extraction as HTML: its statements, what was left out, and the trace."""
    parts = [f"<p><b>{plural(len(extraction), 'statement')}</b></p>"]
    parts.append(_numbered(extraction))
    if extraction.echoes:
        parts.append(
            f"<div>Left out, as it is remembered already:{listed(extraction.echoes)}</div>"
        )
    if extraction.failures:
        parts.append(f'<div class="mnt-bad">Kept as it was:{listed(extraction.failures)}</div>')
    parts.append(_how("How it was extracted", extraction.trace))
    return section("Extracted statements", parts, "extraction")


def reanalyzed_html(result: Reanalyzed) -> str:
    """Return a reanalysis as HTML: what was filled in, what still waits, and the trace."""
    parts = [f"<p><b>{plural(int(result), 'record')} filled in</b></p>"]
    if result.failed:
        lines = [f"{name}: {reason}" for name, reason in list(result.failed.items())[:MAX_ROWS]]
        parts.append(f'<div><span class="mnt-bad">Still waiting:</span>{listed(lines)}</div>')
        parts.append(_more(len(result.failed)))
    parts.append(_how("How it was analysed", result.trace))
    return section("A later analysis", parts, "reanalysis")


def _how(title: str, trace: Trace | None) -> str:
    if trace is None:
        return '<p class="mnt-dim">No trace was kept.</p>' if title != "How it was saved" else ""
    summary = " · ".join(text(part) for part in totals_of(trace))
    return folded(f'{title} <span class="mnt-dim">{summary}</span>', trace_body(trace))


def _table(heads: Sequence[str]) -> str:
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>"


def _more(count: int) -> str:
    return f'<p class="mnt-dim">{count - MAX_ROWS} more</p>' if count > MAX_ROWS else ""


def _numbered(lines: Sequence[str]) -> str:
    rows = "".join(
        f'<tr><td class="mnt-num">{number}</td><td class="mnt-text">{said(line, MAX_CONTENT)}</td>'
        "</tr>"
        for number, line in enumerate(lines[:MAX_ROWS], 1)
    )
    return f"<table><tbody>{rows}</tbody></table>{_more(len(lines))}" if rows else ""


def _memory(record: MemoryRecord) -> str:
    said_by = f" · {said(record.source, 100)}" if record.source else ""
    return (
        f'<div class="mnt-text">{said(record.content, MAX_CONTENT)}</div><div class="mnt-dim">'
        f"{said(record.scope, 300)}{said_by} · {record.created_at:%Y-%m-%d}</div>"
    )


def _match(number: int, match: MemoryMatch) -> str:
    c = match.components
    shares = (
        ("semantic", c.semantic_weight, c.semantic),
        ("recency", c.recency_weight, c.recency),
        ("importance", c.importance_weight, c.importance),
    )
    total = sum(weight for _, weight, _ in shares) or 1.0
    bars = "".join(
        f'<span style="width:{max(0.0, 100 * weight * value / total):.1f}%;background:{color}">'
        "</span>"
        for (_, weight, value), color in zip(shares, _SHARES, strict=True)
    )
    sums = " + ".join(f"{weight:g} × {name} {value:.2f}" for name, weight, value in shares)
    reasons = ", ".join(match.match_reasons)
    return (
        f'<tr><td class="mnt-num">{number}</td><td class="mnt-num">{match.score:.3f}'
        f'<span class="mnt-share" aria-hidden="true">{bars}</span></td>'
        f'<td>{_memory(match.record)}</td><td>{said(reasons, 300)}<div class="mnt-dim">{sums}'
        f"<br>cosine {c.cosine:.2f}, lexical {c.lexical:.2f}</div></td></tr>"
    )
