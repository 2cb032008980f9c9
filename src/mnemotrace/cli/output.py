"""How records are printed. A memory's text is data: it cannot steer the terminal."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import typer

from mnemotrace.records import MemoryMatch, MemoryRecord, Recall
from mnemotrace.trace_views import visible

LIST_WIDTH = 100
"""Characters of a text in a listing; `show` prints all of it."""


def print_json(value: Any) -> None:
    """Print JSON with every script readable."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def note(text: str) -> None:
    """Say something to the person on stderr, where it is in no script's way."""
    typer.echo(text, err=True)


def one_line(text: str) -> str:
    """Return a text in one line, control characters made visible."""
    return visible(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with its lines kept and all other control characters made visible."""
    return "\n".join(visible(line) for line in text.expandtabs(4).splitlines())


def shorten(text: str, width: int = LIST_WIDTH) -> str:
    """Return one line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def day(moment: datetime | None) -> str:
    """Return the date in UTC, or a dash."""
    return "-" if moment is None else moment.date().isoformat()


def instant(moment: datetime | None) -> str:
    """Return date and time in UTC to the second, or a dash."""
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def record_json(record: MemoryRecord) -> dict[str, Any]:
    """Return every field of a record as JSON data; the embedding is left out."""
    return record.model_dump(mode="json")


def record_line(record: MemoryRecord) -> str:
    """Return a record as one line of a listing: id, date, scope, text."""
    private = "  [private]" if record.private else ""
    place = one_line(record.scope)
    return f"{one_line(record.id)}  {day(record.created_at)}  {place}{private}  " + shorten(
        record.content
    )


def record_page(record: MemoryRecord) -> str:
    """Return everything a person may want to know of a record, its text last."""
    rows = [
        ("id", record.id),
        ("scope", record.scope),
        ("categories", ", ".join(record.categories) or "-"),
        ("importance", f"{record.importance:.2f}"),
        ("created", instant(record.created_at)),
        ("source", ", ".join(record.sources) or record.source or "-"),
        ("private", "yes" if record.private else "no"),
        ("version", f"{record.version}, since {instant(record.valid_from or record.created_at)}"),
    ]
    if record.retired:
        rows.append(("retired", f"{record.retired}, {instant(record.valid_to)}"))
    if record.superseded_by and record.superseded_by != record.id:
        rows.append(("replaced by", record.superseded_by))
    if record.expires_at:
        rows.append(("expires", instant(record.expires_at)))
    if record.pinned:
        rows.append(("pinned", "yes"))
    if record.analysis:
        rows.append(("analysis", record.analysis))
    if record.metadata:
        data = record.model_dump(mode="json", include={"metadata"})["metadata"]
        rows.append(("metadata", json.dumps(data, ensure_ascii=False)))
    lines = [f"{name:<12}{one_line(value)}" for name, value in rows]
    return "\n".join([*lines, "", printable(record.content)])


def match_lines(rank: int, match: MemoryMatch) -> str:
    """Return a match as a line with its text and a line with where, when and why."""
    record = match.record
    reasons = ", ".join(match.match_reasons) or "-"
    private = " [private]" if record.private else ""
    return (
        f"{rank}. [{match.score:.2f}] {one_line(record.content)}\n"
        f"   {one_line(record.id)}  {day(record.created_at)}  "
        f"{one_line(record.scope)}{private}  ({one_line(reasons)})"
    )


def match_json(match: MemoryMatch) -> dict[str, Any]:
    """Return a match as JSON data: the record, and every number in its score."""
    return {**match.explain(), "record": record_json(match.record)}


def recall_json(recall: Recall, *, trace: bool) -> dict[str, Any]:
    """Return a recall as JSON data."""
    data: dict[str, Any] = {
        "query": recall.query,
        "status": recall.status,
        "confidence": recall.confidence,
        "matches": [match_json(match) for match in recall],
        "evidence_gaps": recall.evidence_gaps,
        "errors": recall.errors,
    }
    if trace:
        data["trace"] = recall.trace.to_json() if recall.trace else None
    return data
