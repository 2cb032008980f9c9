"""Matches of a recall, and where each number of a score comes from."""

from __future__ import annotations

from rich.text import Text

from mnemotrace.records import MemoryMatch, Recall

from .showing import bar, block, day, excerpt, one_line

BAR = 10
LINE = 300
_LABEL = 12


def match_text(rank: int, match: MemoryMatch) -> Text:
    """Return a match in two lines: score and text; scope, date and reasons."""
    record = match.record
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{rank:>2} ").append(bar(match.score, BAR), "green")
    text.append(f" {match.score:.2f}  ", "bold").append(excerpt(record.content, LINE))
    reasons = one_line(", ".join(match.match_reasons)) or "-"
    private = " private" if record.private else ""
    place = one_line(record.scope)
    text.append(f"\n   {reasons}{private}  {day(record.created_at)}  {place}", "dim")
    return text


def summary(found: Recall) -> Text:
    """Return what a recall came to, in one line, and what is missing or failed."""
    count = len(found)
    text = Text().append(f"{count} match{'' if count == 1 else 'es'}", "bold")
    text.append(f", confidence {found.confidence:.2f}")
    if found.trace is not None:
        text.append(f", {found.trace.duration_ms:.0f} ms")
    for error in found.errors:
        text.append(f"\nPart of the search failed: {one_line(error)}", "red")
    for gap in found.evidence_gaps:
        text.append(f"\nNot found: {one_line(gap)}", "yellow")
    return text


def explanation(match: MemoryMatch) -> Text:
    """Return every number of a match's score: what was measured, its weight, what it gave."""
    told = match.explain()
    parts, weights = told["components"], told["weights"]
    text = Text().append(f"score {told['score']:.3f}", "bold")
    text.append(" = what each part gave\n\n")
    text.append(f"{'':{_LABEL}}{'value':>6} × {'weight':>6} = {'gave':>6}\n", "dim")
    for name in ("semantic", "recency", "importance"):
        gave = parts[name] * weights[name]
        text.append(f"{name:<{_LABEL}}", "bold")
        text.append(f"{parts[name]:>6.3f} × {weights[name]:>6.3f} = {gave:>6.3f} ")
        text.append(f"{bar(gave, BAR).rstrip()}\n", "green")
    text.append("\nsemantic", "bold").append(" is made of\n")
    for name, what in (
        ("cosine", "of query and record"),
        ("similarity", "1 / (1 + distance)"),
        ("lexical", f"words, weight {weights['lexical']:.2f}"),
    ):
        text.append(f"  {name:<{_LABEL - 2}}", "bold").append(f"{parts[name]:>6.3f} ")
        text.append(f"{bar(parts[name], BAR).rstrip()} ", "cyan").append(f"{what}\n", "dim")
    if weights["phrase"] != 1.0:
        text.append(f"  times {weights['phrase']:.2f}: only a phrase made from other evidence\n")
        text.append("  found it\n")
    text.append("\nreasons    ", "bold").append(one_line(", ".join(told["reasons"])) or "-")
    for phrase in told["found_by"]:
        text.append("\nfound by   ", "bold").append(excerpt(phrase, LINE))
    text.append("\nid         ", "bold").append(one_line(told["id"]))
    text.append("\nscope      ", "bold").append(one_line(match.record.scope))
    return text.append("\n\n").append(block(match.record.content))
