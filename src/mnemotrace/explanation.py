"""Explanation: one match's score, with every number that led to it.

``score = semantic_weight*semantic + recency_weight*recency + importance_weight*importance``; the
explanation goes on from there: semantic from similarity and lexical score, those from the cosine
and the words, recency from the age. Everything shown is data: nothing in it is markup.
"""

from __future__ import annotations

import functools
import html
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .embedders.lexical import encode_document, indices_of, tokenize
from .records import MemoryMatch
from .scoring import SECONDS_PER_DAY
from .trace_views import visible

MAX_TERMS = 64
"""Terms of a query that are looked at one by one."""
_SHOWN_TERMS = 8
_EXCERPT = 72
_BOX = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.5;text-align:left"
_CELL = "text-align:left;vertical-align:top;padding:1px 8px"
_DIM = "opacity:.65"


class Explanation(dict[str, Any]):
    """Every number in one match's score: a dict of plain JSON values that prints as a derivation.

    Keys:
        id, score, reasons: of the match.
        components: ``cosine``, ``similarity``, ``lexical``, ``semantic``, ``recency``,
            ``importance``.
        weights: ``semantic``, ``recency``, ``importance``; ``lexical``, the share of the lexical
            score in the semantic term; ``phrase``, which multiplies that term.
        products: weight times component for the three terms of the score, and ``rounding``, what
            floating point left over (0 or about 1e-16). Added up from left to right they are the
            score, to the last bit.
        found_by: the sub-queries that found the record; ``scored_by`` is the one whose search gave
            the score.
        basis: what the components follow from: ``now``, ``created_at``, ``age_days``,
            ``half_life_days``, ``lexical_setting`` and ``coverage`` (their product, coverage
            squared, is the lexical weight), ``lexical_score`` over ``best_lexical`` (the quotient
            is the lexical component). None for a match that no search made.
        terms: the words of the sub-query, those that count most first; see `Term`.
    """

    record_text: str = ""
    """Beginning of the record's text, for display; not one of the keys."""
    scope: str = ""

    @property
    def score(self) -> float:
        """The composite score."""
        return float(self["score"])

    @property
    def total(self) -> float:
        """The products added from left to right; equal to `score`."""
        return functools.reduce(operator.add, self["products"].values(), 0.0)

    @property
    def matched(self) -> list[dict[str, Any]]:
        """The terms that this record has, in its own text or by its neighbours; best first."""
        return [term for term in self["terms"] if term["in_text"] or term["score"]]

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict of plain values, for `json.dumps`."""
        return dict(self)

    def __str__(self) -> str:
        place = f" ({visible(self.scope)})" if self.scope else ""
        head = f'[{self.score:.4f}] "{self.record_text}"{place}'
        rows = list(_rows(self))
        wide = max(2 * depth + len(label) for depth, label, _ in rows)
        lines = [f"  {'  ' * depth + label:<{wide}}  {text}" for depth, label, text in rows]
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="{_CELL};padding-left:{8 + 14 * depth}px">{_escaped(label)}</td>'
            f'<td style="{_CELL}">{_escaped(text)}</td></tr>'
            for depth, label, text in _rows(self)
        )
        return (
            f'<div class="mnemotrace-explanation" style="{_BOX}"><div><b>{self.score:.4f}</b> '
            f'{_escaped(self.record_text)} <span style="{_DIM}">{_escaped(self.scope)}</span></div>'
            f'<table style="border-collapse:collapse"><tbody>{rows}</tbody></table></div>'
        )


@dataclass(frozen=True, slots=True)
class Term:
    """One word (stem, pair of characters) that the sub-query asks for.

    Attributes:
        term: as it is searched for.
        in_text: the record's own text, or its label, has it.
        weight: what it weighs there (BM25 without how rare it is); 0.0 when it is not there.
        score: what it gives to the record's lexical score; the scores of all terms add up to
            ``lexical_score``. None where the store was not asked (`MemoryMatch.explain`).
        from_neighbours: the part of `score` that comes from the turns around the record; None
            where the store was not asked.
    """

    term: str
    in_text: bool
    weight: float
    score: float | None = None
    from_neighbours: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the term as plain data."""
        return {
            "term": self.term,
            "in_text": self.in_text,
            "weight": self.weight,
            "score": self.score,
            "from_neighbours": self.from_neighbours,
        }


def own_terms(query: str, text: str) -> list[Term]:
    """Return the terms of a query with what they weigh in a text, the heaviest first."""
    held = encode_document(text)
    weights = dict(zip(held.indices, held.values, strict=True))
    terms = []
    for term in dict.fromkeys(tokenize(query)):
        weight = sum(weights.get(index, 0.0) for index in indices_of(term))
        terms.append(Term(term, weight > 0.0, weight))
        if len(terms) == MAX_TERMS:
            break
    return sorted(terms, key=lambda item: -item.weight)


def explain_match(match: MemoryMatch, terms: Iterable[Term] | None = None) -> Explanation:
    """Return every number in a match's score.

    Args:
        match: what a recall returned.
        terms: the terms with what a store knows of them; by default those of the text alone.
    """
    c, record, basis = match.components, match.record, match.basis
    products = {
        "semantic": c.semantic_weight * c.semantic,
        "recency": c.recency_weight * c.recency,
        "importance": c.importance_weight * c.importance,
    }
    products["rounding"] = match.score - functools.reduce(operator.add, products.values())
    if terms is None:
        terms = own_terms(basis.query, record.content) if basis is not None else ()
    explanation = Explanation(
        id=record.id,
        score=match.score,
        reasons=list(match.match_reasons),
        components={
            "cosine": c.cosine,
            "similarity": c.similarity,
            "lexical": c.lexical,
            "semantic": c.semantic,
            "recency": c.recency,
            "importance": c.importance,
        },
        weights={
            "semantic": c.semantic_weight,
            "recency": c.recency_weight,
            "importance": c.importance_weight,
            "lexical": c.lexical_weight,
            "phrase": c.phrase_weight,
        },
        products=products,
        found_by=list(match.found_by),
        scored_by=None if basis is None else basis.query,
        basis=None,
        terms=[term.to_json() for term in terms],
    )
    if basis is not None:
        seconds = max((basis.now - record.created_at).total_seconds(), 0.0)
        explanation["basis"] = {
            "now": basis.now.isoformat(),
            "created_at": record.created_at.isoformat(),
            "age_days": seconds / SECONDS_PER_DAY,
            "half_life_days": basis.half_life_days,
            "lexical_setting": basis.lexical_setting,
            "coverage": basis.coverage,
            "lexical_score": c.lexical * basis.best_lexical,
            "best_lexical": basis.best_lexical,
        }
    explanation.record_text = excerpt(record.content)
    explanation.scope = record.scope
    return explanation


def excerpt(text: str, limit: int = _EXCERPT) -> str:
    """Return the beginning of a text on one line, with nothing invisible in it."""
    start = visible(" ".join(text[: 4 * limit].split()))
    return start if len(start) <= limit and len(text) <= 4 * limit else f"{start[: limit - 1]}…"


def _rows(e: Explanation) -> Iterable[tuple[int, str, str]]:
    """Yield the lines of a derivation: depth, name, and how the number comes about."""
    c, w, p = e["components"], e["weights"], e["products"]
    basis: Mapping[str, Any] | None = e["basis"]

    def product(name: str) -> str:
        return f"{p[name]:.4f} = {w[name]:.4g} x {c[name]:.4f}"

    yield 0, "semantic", product("semantic")
    fused = f"(1 - {w['lexical']:.4f}) x {c['similarity']:.4f} + {w['lexical']:.4f} x {c['lexical']:.4f}"
    phrase = f", all x {w['phrase']:.4g} for a phrase made from other memories"
    yield 1, "fusion", f"{c['semantic']:.4f} = {fused}{phrase if w['phrase'] != 1.0 else ''}"
    yield 1, "similarity", f"{c['similarity']:.4f} = 1 / (2 - cosine {c['cosine']:.4f})"
    if basis is None:
        yield 1, "lexical", f"{c['lexical']:.4f}"
    elif basis["best_lexical"] > 0:
        quotient = f"{basis['lexical_score']:.3f} / {basis['best_lexical']:.3f}, the best found"
        yield 1, "lexical", f"{c['lexical']:.4f} = {quotient}"
        share = f"{basis['lexical_setting']:.4g} x {basis['coverage']:.4f} ** 2"
        yield 1, "lexical share", f"{w['lexical']:.4f} = {share} (coverage of the query's words)"
    else:
        yield 1, "lexical", "0: no memory in sight has a word of the query"
    if e["terms"]:
        yield 1, "words", _terms_text(e)
    recency = product("recency")
    if basis is not None:
        half_life = f"half-life {basis['half_life_days']:.4g} days"
        recency += f" (age {basis['age_days']:.2f} days, {half_life})"
    yield 0, "recency", recency
    yield 0, "importance", product("importance")
    added = " + ".join(f"{p[name]:.4f}" for name in ("semantic", "recency", "importance"))
    yield 0, "score", f"{e.score:.4f} = {added}"
    if e["found_by"]:
        yield 0, "found by", ", ".join(f'"{excerpt(text)}"' for text in e["found_by"])
        if len(e["found_by"]) > 1 and e["scored_by"]:
            yield 0, "scored by", f'"{excerpt(e["scored_by"])}"'


def _terms_text(e: Explanation) -> str:
    matched = e.matched
    if not matched:
        has = (
            "none"
            if not e["components"]["lexical"]
            else "none in its own text: from its neighbours"
        )
        return has
    words = []
    for term in matched[:_SHOWN_TERMS]:
        word = visible(term["term"])
        if term["score"] is not None:
            word += f" {term['score']:.2f}"
            if term["from_neighbours"]:
                word += f" ({term['from_neighbours']:.2f} from its neighbours)"
        words.append(word)
    more = len(matched) - len(words)
    return ", ".join([*words, f"{more} more"] if more > 0 else words)


def _escaped(text: str) -> str:
    return html.escape(visible(text, keep="\n\t"))
