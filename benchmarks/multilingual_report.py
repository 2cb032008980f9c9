"""Turns the ranks that `multilingual.py` found into shares, verdicts and markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from report import Verdict, table

OURS = "mnemotrace"
MIXED = "all"
"""The store that holds the facts of all languages."""

NAMES = {
    "ko": "Korean",
    "zh": "Chinese",
    "ja": "Japanese",
    "en": "English",
    MIXED: "all in one store",
}
TITLES = {
    "mnemotrace": "mnemotrace",
    "vector": "vector only",
    "lexical": "lexical only",
    "crewai": "CrewAI",
    "remembrane": "remembrane",
}
REQUIRED = {"fragment": 0.95, "paraphrase": 0.85}
JUDGED_LANGUAGES = ("ko", "zh")
LEAST_AUROC = 0.80


@dataclass(frozen=True)
class Row:
    """What one system gave for one query at one depth.

    Attributes:
        store: the language of the facts in it, or `MIXED`.
        kind: ``fragment``, ``paraphrase``, a pair such as ``en>ko``, or ``none``.
        system: who answered.
        depth: ``shallow`` or ``deep``.
        query: what was asked.
        expected: the fact that answers it; None for kind ``none``.
        rank: its place from 1; 0 when it was not among the ten.
        confidence: 0..1; None from systems that have none.
        got: the text in the first place; None when nothing came back.
    """

    store: str
    kind: str
    system: str
    depth: str
    query: str
    expected: str | None
    rank: int
    confidence: float | None
    got: str | None


def hits(rows: list[Row], places: int) -> float:
    """Return the share of queries whose fact is in the first `places`, 0..1."""
    return fmean(0 < row.rank <= places for row in rows)


def reciprocal(rows: list[Row]) -> float:
    """Return the mean of 1/rank, 0 where the fact is not among the ten."""
    return fmean(1 / row.rank if row.rank else 0.0 for row in rows)


def auroc(rows: list[Row]) -> float | None:
    """Return how well confidence tells right answers from wrong ones, 0..1; 0.5 is chance.

    The odds that an answer with the right fact in the first place has a higher confidence than
    one without, ties counted half. Questions that nothing answers belong to those without.

    Returns:
        None when there is only one kind of answer, or no confidence.
    """
    right = [row.confidence for row in rows if row.rank == 1 and row.confidence is not None]
    wrong = [row.confidence for row in rows if row.rank != 1 and row.confidence is not None]
    if not right or not wrong:
        return None
    won = sum((a > b) + 0.5 * (a == b) for a in right for b in wrong)
    return won / (len(right) * len(wrong))


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge every requirement that the rows cover."""
    found = []
    for language in JUDGED_LANGUAGES:
        for kind, required in REQUIRED.items():
            for depth in _depths(rows):
                chosen = _chosen(rows, OURS, depth, store=language, kind=kind)
                if chosen:
                    value = hits(chosen, 1)
                    what = f"{NAMES[language]} {kind}s, {depth}, hit@1"
                    found.append(_verdict(what, value, required))
    for depth in _depths(rows):
        chosen = [row for row in _chosen(rows, OURS, depth) if row.store != MIXED]
        if (area := auroc(chosen)) is not None:
            what = f"confidence AUROC, {depth}, every language's own store"
            found.append(_verdict(what, area, LEAST_AUROC))
    return found


def _verdict(what: str, value: float, required: float) -> Verdict:
    return Verdict(what, f"{value:.3f}", f"at least {required:.2f}", value >= required)


def render(rows: list[Row], setting: dict[str, Any], failures: bool = False) -> str:
    """Return the whole report as markdown.

    Args:
        rows: what was measured.
        setting: ``versions``, ``embedder``, ``machine`` and ``texts``, as in the JSON.
        failures: also list what mnemotrace at depth deep did not put first.
    """
    parts = ["# Recall in several languages", _setting(setting)]
    for depth in _depths(rows):
        parts += [f"## Depth {depth}: hit@1 / hit@5 / MRR", _ranks(rows, depth)]
    if confidences := _confidences(rows):
        parts += ["## Confidence", confidences]
    judged = [
        [v.what, v.measured, v.required, "yes" if v.met else "**no**"] for v in verdicts(rows)
    ]
    if judged:
        parts += ["## Required", table(["", "measured", "required", "met"], judged)]
    if failures:
        parts += ["## Not found first", _failures(rows)]
    return "\n\n".join(parts) + "\n"


def _setting(setting: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in setting["versions"].items())
    texts = ", ".join(f"{count} {NAMES[name]}" for name, count in setting["texts"].items())
    return f"{versions}; {setting['machine']}. All on {setting['embedder']}. Texts stored: {texts}."


def _ranks(rows: list[Row], depth: str) -> str:
    systems = _distinct(row.system for row in rows)
    body = []
    for store in _distinct(row.store for row in rows):
        for kind, pairs in _kinds(rows, store):
            cells = []
            count = 0
            for system in systems:
                chosen = [
                    row for row in _chosen(rows, system, depth, store=store) if row.kind in pairs
                ]
                count = max(count, len(chosen))
                figures = (hits(chosen, 1), hits(chosen, 5), reciprocal(chosen)) if chosen else ()
                cells.append(" / ".join(f"{figure:.2f}" for figure in figures) or "-")
            body.append([NAMES[store], kind, str(count), *cells])
    head = ["facts", "query", "n", *(TITLES[system] for system in systems)]
    return table(head, body)


def _kinds(rows: list[Row], store: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the rows of the table for one store, each with the kinds it sums up."""
    kinds = [kind for kind in _distinct(r.kind for r in rows if r.store == store) if kind != "none"]
    pairs = tuple(kind for kind in kinds if ">" in kind)
    shown: list[tuple[str, tuple[str, ...]]] = [
        (kind, (kind,)) for kind in kinds if store == MIXED or ">" not in kind
    ]
    return [*shown, ("cross-lingual", pairs)] if pairs else shown


def _confidences(rows: list[Row]) -> str:
    body = []
    for system in _distinct(row.system for row in rows if row.confidence is not None):
        for depth in _depths(rows):
            for store in _distinct(row.store for row in rows):
                chosen = _chosen(rows, system, depth, store=store)
                value = auroc(chosen)
                groups = (
                    [row for row in chosen if row.rank == 1],
                    [row for row in chosen if row.rank != 1 and row.expected is not None],
                    [row for row in chosen if row.expected is None],
                )
                body.append(
                    [
                        TITLES[system],
                        depth,
                        NAMES[store],
                        "-" if value is None else f"{value:.3f}",
                        *(_median(group) for group in groups),
                    ]
                )
    if not body:
        return ""
    head = ["system", "depth", "facts", "AUROC", "right", "wrong", "nothing to find"]
    return (
        "An AUROC of 0.5 is chance. Then the median confidence, and of how many answers.\n\n"
        + table(head, body)
    )


def _median(rows: list[Row]) -> str:
    known = [row.confidence for row in rows if row.confidence is not None]
    return f"{median(known):.2f} of {len(known)}" if known else "-"


def _failures(rows: list[Row]) -> str:
    depth = _depths(rows)[-1]
    missed = [
        row for row in _chosen(rows, OURS, depth) if row.rank != 1 and row.expected is not None
    ]
    return (
        "\n".join(
            f"- {row.store} {row.kind}, rank {row.rank or 'beyond ten'}: {row.query}\n"
            f"  - expected: {row.expected}\n"
            f"  - got: {row.got or 'nothing'}"
            for row in missed
        )
        or "Everything was found first."
    )


def _chosen(
    rows: list[Row], system: str, depth: str, store: str | None = None, kind: str | None = None
) -> list[Row]:
    return [
        row
        for row in rows
        if row.system == system
        and row.depth == depth
        and store in (None, row.store)
        and kind in (None, row.kind)
    ]


def _depths(rows: list[Row]) -> list[str]:
    return _distinct(row.depth for row in rows)


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
