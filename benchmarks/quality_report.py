"""Turns the rankings of `quality.py` into measures, intervals, verdicts and markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from locomo import KINDS
from quality_metrics import auroc, interval, ndcg_at, recall_at, reciprocal_rank, resamples
from report import Verdict, table

OURS = "mnemotrace"
PEERS = ("crewai", "remembrane")
REFERENCE = (OURS, "deep")
"""The system and mode that the others are compared with: ours as it is by default."""

VARIANT = "variant-"
"""How the names of variants of ours begin."""

LEAST_RECALL = 0.76
LEAST_LEAD = 0.15
LEAST_AUROC = 0.80
Measured = dict[str, Any]
SETTINGS = {
    "untimed": (
        "All turns created at one time",
        "Every record is as old as every other, so recency does not matter.",
    ),
    "timed": (
        "Turns created on their session's date",
        "Questions are asked one day after the last session: recency favours the late sessions.",
    ),
}


@dataclass(frozen=True)
class Measures:
    """What one ranking is worth, as means over questions.

    Attributes:
        recalls: recall at 5, 10 and 20: the share of a question's evidence found.
        mrr: reciprocal rank of the first piece of evidence, 0 beyond the 20th place.
        ndcg: normalised discounted cumulative gain of the first ten.
        any_auroc: how well confidence tells questions with some evidence among the ten from
            those with none; None without a confidence or without both kinds.
        all_auroc: the same for all of the evidence among the ten.
        per_question: recall at 10 of each question.
    """

    recalls: dict[int, float]
    mrr: float
    ndcg: float
    any_auroc: float | None
    all_auroc: float | None
    per_question: tuple[float, ...]


def measures(answers: Sequence[Measured], questions: Sequence[Measured]) -> Measures:
    """Compare answers with the evidence of their questions, of which there is at least one."""
    pairs = [
        (answer["ids"], question["evidence"])
        for answer, question in zip(answers, questions, strict=True)
    ]
    tens = tuple(recall_at(ids, evidence, 10) for ids, evidence in pairs)
    scores = [answer["confidence"] for answer in answers]
    known = all(score is not None for score in scores)
    return Measures(
        {k: fmean(recall_at(ids, evidence, k) for ids, evidence in pairs) for k in (5, 10, 20)},
        fmean(reciprocal_rank(ids, evidence) for ids, evidence in pairs),
        fmean(ndcg_at(ids, evidence, 10) for ids, evidence in pairs),
        auroc(scores, [ten > 0 for ten in tens]) if known else None,
        auroc(scores, [ten == 1 for ten in tens]) if known else None,
        tens,
    )


def render(measured: Measured) -> str:
    """Return the whole report as markdown."""
    parts = ["# Does recall find the evidence?", _data(measured)]
    for setting, measured_rows in measured["settings"].items():
        title, meaning = SETTINGS[setting]
        rows = _marked(measured_rows) if setting == "timed" else measured_rows
        parts += [f"## {title}", meaning, _overall(measured, rows)]
        for kind in KINDS.values():
            count = sum(question["kind"] == kind for question in _questions(measured))
            if count:
                parts += [f"### {kind}, {count} questions", _of_kind(measured, rows, kind)]
        parts += _notes(rows, setting)
    parts += ["## Required", _verdict_table(verdicts(measured))]
    return "\n\n".join(parts) + "\n"


def verdicts(measured: Measured) -> list[Verdict]:
    """Judge every requirement that the measurements cover; they are set for untimed turns."""
    rows = {(row["system"], row["mode"]): row for row in measured["settings"].get("untimed", ())}
    if REFERENCE not in rows:
        return []
    ours = measures(_answers(rows[REFERENCE]), _questions(measured))
    found = [_at_least(f"{OURS}, recall@10", ours.recalls[10], LEAST_RECALL)]
    for (system, _), row in rows.items():
        if system in PEERS:
            theirs = measures(_answers(row), _questions(measured))
            lead = ours.recalls[10] - theirs.recalls[10]
            found.append(_at_least(f"recall@10 over {row['title']}", lead, LEAST_LEAD))
    if ours.any_auroc is not None:
        found.append(_at_least(f"{OURS}, AUROC of confidence", ours.any_auroc, LEAST_AUROC))
    return found


def _at_least(what: str, value: float, least: float) -> Verdict:
    return Verdict(what, f"{value:.3f}", f"at least {least:.2f}", value >= least)


def _questions(measured: Measured) -> list[Measured]:
    return [question for one in measured["conversations"] for question in one["questions"]]


def _answers(row: Measured) -> list[Measured]:
    return [answer for one in row["answers"] for answer in one]


def _data(measured: Measured) -> str:
    conversations = measured["conversations"]
    named = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    machine = measured["machine"]
    return (
        f"{', '.join(measured['files'])}: {len(conversations)} conversations, "
        f"{sum(one['turns'] for one in conversations):,} turns, "
        f"{len(_questions(measured)):,} questions "
        f"({sum(one['dropped'] for one in conversations)} without any evidence that exists were "
        f"left out). Measured on {measured['measured_on']}: {named}; {machine['cores']} cores, "
        f"Python {machine['python']}, {machine['system']}. No LLM. Times depend on the machine and "
        "what else it does; compare them within a table only."
    )


_HEADS = ["", "R@5", "R@10", "R@20", "MRR", "nDCG@10", "AUROC any", "AUROC all"]


def _cells(found: Measures) -> list[str]:
    numbers = [*found.recalls.values(), found.mrr, found.ndcg, found.any_auroc, found.all_auroc]
    return ["-" if number is None else _number(number) for number in numbers]


def _number(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _marked(rows: Sequence[Measured]) -> list[Measured]:
    """Return the rows, the titles of those without times saying so."""
    return [
        {**row, "title": f"{row['title']} (no times)"} if row["cannot_set_time"] else row
        for row in rows
    ]


def _overall(measured: Measured, rows: Sequence[Measured]) -> str:
    questions = _questions(measured)
    found = {(row["system"], row["mode"]): measures(_answers(row), questions) for row in rows}
    difference = _differences(measured, found)
    lines = []
    for row in rows:
        key = (row["system"], row["mode"])
        lines.append(
            [
                row["title"],
                *_cells(found[key]),
                f"{median(answer['ms'] for answer in _answers(row)):.1f}",
                f"{row['peak'] / (1 << 20):,.0f} MiB",
                difference(key),
            ]
        )
    heads = [*_HEADS, "ms p50", "peak memory", "R@10 less ours [95 %]"]
    return table(heads, lines)


def _differences(
    measured: Measured, found: dict[tuple[str, str], Measures]
) -> Callable[[tuple[str, str]], str]:
    """Return what writes the difference of a row's recall@10 to ours, with its interval."""
    if REFERENCE not in found:
        return lambda key: "-"
    sizes = [len(one["questions"]) for one in measured["conversations"]]
    samples = resamples(sizes, measured["draws"], measured["seed"])
    ours = found[REFERENCE].per_question

    def difference(key: tuple[str, str]) -> str:
        if key == REFERENCE:
            return "ours"
        theirs = found[key].per_question
        each = [their - our for their, our in zip(theirs, ours, strict=True)]
        low, high = interval(each, samples)
        return f"{_signed(fmean(each))} [{_signed(low)}, {_signed(high)}]"

    return difference


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:+.3f}"


def _of_kind(measured: Measured, rows: Sequence[Measured], kind: str) -> str:
    questions = _questions(measured)
    chosen = [number for number, question in enumerate(questions) if question["kind"] == kind]
    lines = []
    for row in rows:
        answers = _answers(row)
        found = measures([answers[n] for n in chosen], [questions[n] for n in chosen])
        lines.append([row["title"], *_cells(found)])
    return table(_HEADS, lines)


def _notes(rows: Sequence[Measured], setting: str) -> list[str]:
    lines: dict[str, None] = {}
    for row in rows:
        if row["system"].startswith(VARIANT):
            continue  # they are measured as ours is
        name = row["title"].partition(",")[0].removesuffix(" (no times)")
        if setting == "timed" and row["cannot_set_time"]:
            lines[f"- {name} is measured without times: {row['cannot_set_time']}."] = None
        for remark in row["remarks"]:
            lines[f"- {name}: {remark}."] = None
    return ["\n".join(lines)] if lines else []


def _verdict_table(found: list[Verdict]) -> str:
    if not found:
        return f"Nothing to judge: {OURS} was not measured at its default depth."
    rows = [[v.what, v.measured, v.required, "yes" if v.met else "**no**"] for v in found]
    return table(["", "measured", "required", "met"], rows)
