"""What one recall knows so far: its queries, the evidence found, and how it ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

from mnemotrace import scoring
from mnemotrace.config import MemoryConfig
from mnemotrace.embedders.fingerprint import DEFAULT_CALIBRATION
from mnemotrace.embedders.lexical import tokenize
from mnemotrace.llm.service import Patience
from mnemotrace.records import MemoryMatch, ScoreBasis, ScoreComponents
from mnemotrace.stores.backend import (
    Candidate,
    Manifest,
    Ranking,
    SearchResult,
    SparseVector,
    Vector,
)
from mnemotrace.stores.selection import Selection

MODEL_SHARE = 0.75
"""Share of `recall_timeout` for asking the model: a model that hangs must not fail the recall."""
LONGEST_GAP = 200


NOT_EMBEDDED: Vector = np.empty(0, dtype=np.float32)
"""In the place of a vector that the search is yet to make."""


@dataclass(slots=True, eq=False)
class SubQuery:
    """One phrase to search for, with its vectors."""

    text: str
    dense: Vector
    lexical: SparseVector
    weight: float = 1.0
    """Below 1 for a phrase made from the evidence: it may add records, but not confirm them."""

    @property
    def is_embedded(self) -> bool:
        """Whether it has its vector already."""
        return len(self.dense) > 0


@dataclass(slots=True, eq=False)
class RecallRun:
    """One recall on its way through the flow; passed by reference from step to step."""

    query: str
    selection: Selection
    limit: int
    depth: str
    now: datetime
    ranking: Ranking
    zone: tzinfo | None = None
    """The time zone in which the query's relative times are meant; None for this machine's."""
    patience: Patience = field(default_factory=Patience)
    """How long the model is asked."""

    queries: list[SubQuery] = field(default_factory=list)
    suggested: tuple[str, ...] = ()
    complex: bool = False
    windowed: Selection | None = None
    """The selection cut to the time window that the query speaks of."""
    narrowed: bool = False
    """Whether only part of the selection was searched so far."""
    scope_counts: dict[str, int] | None = None
    """The visible scopes with their records; None until somebody asked."""
    plan: list[tuple[SubQuery, Selection]] = field(default_factory=list)
    searched: set[tuple[str, Selection]] = field(default_factory=set)
    attempted: int = 0
    failed: int = 0
    """Searches that were tried, and those of them that could not be made."""
    rounds: int = 0
    news: int = 0

    found: dict[str, Candidate] = field(default_factory=dict)
    found_by: dict[str, list[str]] = field(default_factory=dict)
    scored_by: dict[str, tuple[SubQuery, SearchResult]] = field(default_factory=dict)
    """The search that gave each record the score it has."""
    results: list[SearchResult] = field(default_factory=list)
    """What was found for phrases of the query itself, for the confidence."""
    confidence: float = 0.0
    gaps: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    first_error: Exception | None = None
    failures: list[str] = field(default_factory=list)
    """Why help by a language model was given up, one line each."""
    matches: list[MemoryMatch] = field(default_factory=list)
    calibration: tuple[float, float] = (DEFAULT_CALIBRATION["lo"], DEFAULT_CALIBRATION["hi"])

    @classmethod
    def of(
        cls,
        query: str,
        selection: Selection,
        limit: int,
        depth: str,
        now: datetime,
        config: MemoryConfig,
        zone: tzinfo | None = None,
    ) -> RecallRun:
        """Return a run with the ranking that the settings describe."""
        ranking = Ranking(
            semantic_weight=config.semantic_weight,
            recency_weight=config.recency_weight,
            importance_weight=config.importance_weight,
            half_life_days=config.recency_half_life_days,
            lexical_weight=config.lexical_weight,
            now=now,
        )
        patience = Patience(MODEL_SHARE * config.recall_timeout)
        return cls(query, selection, limit, depth, now, ranking, zone, patience)

    @property
    def local_now(self) -> datetime:
        """The run's time in its time zone; in UTC where that is beyond the years there are."""
        try:
            return self.now.astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return self.now

    def local(self, moment: datetime) -> datetime:
        """Return a time in UTC; a naive one is meant in the run's time zone.

        Raises:
            OverflowError: it lies beyond the years that can be told.
        """
        if moment.tzinfo is None and self.zone is not None:
            moment = moment.replace(tzinfo=self.zone)
        try:
            return moment.astimezone(UTC)
        except (ValueError, OSError) as error:
            raise OverflowError(str(error)) from error

    def __repr__(self) -> str:
        return f"RecallRun({self.depth}, {len(self.found)} found)"

    def use(self, manifest: Manifest) -> None:
        """Take the embedder's levels of related and unrelated texts from the manifest."""
        levels = {**DEFAULT_CALIBRATION, **(manifest.embedder.get("calibration") or {})}
        self.calibration = (float(levels["lo"]), float(levels["hi"]))

    def add(self, query: SubQuery, result: SearchResult) -> None:
        """Take in what one search found; a record keeps its best score of all searches."""
        for candidate in result.candidates:
            record = candidate.record
            held = self.found.get(record.id)
            if query.weight < 1.0:
                if held is not None:
                    continue
                semantic = candidate.semantic * query.weight
                loss = self.ranking.semantic_weight * (candidate.semantic - semantic)
                candidate = replace(candidate, semantic=semantic, score=candidate.score - loss)
            by = self.found_by.setdefault(record.id, [])
            if query.text not in by:
                by.append(query.text)
            if held is None or (candidate.record.version, candidate.score) > (
                held.record.version,
                held.score,
            ):
                self.found[record.id] = candidate
                self.scored_by[record.id] = (query, result)
        if query.weight == 1.0:
            self.results.append(result)
        for record_id in result.unreadable:
            line = f"record {record_id} cannot be read and was left out"
            if line not in self.errors:
                self.errors.append(line)

    def ranked(self) -> list[Candidate]:
        """Return the evidence, best first: score, then newest, then id."""
        return sorted(
            self.found.values(),
            key=lambda c: (-c.score, -c.record.created_at.timestamp(), c.record.id),
        )

    def measure_confidence(self) -> float:
        """Return 0..1 from the relevance of the evidence alone (see `scoring.confidence`)."""
        levels = self.calibration
        return max((_confidence(result, *levels) for result in self.results), default=0.0)

    def stands_out(self) -> dict[str, Any]:
        """Return what the confidence was made from, for the trace."""
        if not self.results:
            return {}
        result = max(self.results, key=lambda result: _confidence(result, *self.calibration))
        return {
            "best_cosine": result.best_cosine,
            "ordinary_cosine": result.ordinary_cosine,
            "coverage": result.coverage,
            "ordinary_lexical": result.ordinary_lexical,
        }

    def set_gaps(self, gaps: Iterable[str], limit: int) -> None:
        """Keep short, distinct gaps, at most `limit`; they replace those of an earlier round.

        Each round judges all the evidence, so a gap that it no longer names is closed.
        """
        known: set[frozenset[str]] = set()
        self.gaps = []
        for gap in gaps:
            text = " ".join(gap.split())
            if len(text) > LONGEST_GAP:
                text = text[: LONGEST_GAP - 1].rstrip() + "…"
            terms = frozenset(tokenize(text))
            if terms and terms not in known and len(self.gaps) < limit:
                known.add(terms)
                self.gaps.append(text)

    def build_matches(self) -> list[MemoryMatch]:
        """Return the best `limit` matches with every number of their scores."""
        return [self.match_of(candidate) for candidate in self.ranked()[: self.limit]]

    def match_of(self, candidate: Candidate) -> MemoryMatch:
        """Return one of the candidates found, with every number of its score."""
        ranking, record = self.ranking, candidate.record
        query, result = self.scored_by[record.id]
        components = ScoreComponents(
            cosine=candidate.cosine,
            similarity=scoring.similarity(candidate.cosine),
            lexical=candidate.lexical,
            semantic=candidate.semantic,
            recency=candidate.recency,
            importance=record.importance,
            semantic_weight=ranking.semantic_weight,
            recency_weight=ranking.recency_weight,
            importance_weight=ranking.importance_weight,
            lexical_weight=result.lexical_weight,
            phrase_weight=query.weight,
        )
        basis = ScoreBasis(
            query.text,
            ranking.now,
            ranking.half_life_days,
            ranking.lexical_weight,
            result.coverage,
            result.best_lexical,
        )
        return MemoryMatch(
            record=record,
            score=candidate.score,
            match_reasons=_reasons(components),
            components=components,
            evidence_gaps=list(self.gaps),
            found_by=self.found_by[record.id],
            basis=basis,
        )


def _confidence(result: SearchResult, low: float, high: float) -> float:
    return scoring.confidence(
        result.best_cosine,
        result.ordinary_cosine,
        result.coverage,
        result.ordinary_lexical,
        low,
        high,
    )


def _reasons(c: ScoreComponents) -> list[str]:
    """Name the signals that speak for a match: more than half of what each could give."""
    reasons = ["semantic"] if c.semantic_weight > 0 else []
    if c.lexical > 0 and c.lexical_weight > 0:
        reasons.append("lexical")
    if c.recency > 0.5 and c.recency_weight > 0:
        reasons.append("recency")
    if c.importance > 0.5 and c.importance_weight > 0:
        reasons.append("importance")
    return reasons
