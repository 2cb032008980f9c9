"""RecallFlow: analyze_query -> select_scopes -> search -> route -> explore -> synthesize.

A deep recall of a short query takes five steps and no language model, unless the evidence is weak
and there is a budget to explore. Exploration goes back to `search` with something new to search
for, or ends. `ShallowRecall` is the same search and
ranking in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from mnemotrace import prompts, scopes
from mnemotrace.embedders.lexical import encode_query, tokenize
from mnemotrace.errors import EmbedderMismatchError, LLMError, MnemotraceError, ScopeError
from mnemotrace.llm.service import RETRIES
from mnemotrace.stores.backend import SearchResult
from mnemotrace.stores.selection import Selection
from mnemotrace.trace import note, note_content, span

from .answers import Exploration, QueryAnalysis
from .events import (
    Confident,
    QueryAnalyzed,
    RecallFinished,
    RecallStarted,
    ScopesSelected,
    Searched,
    Uncertain,
)
from .evidence import NOT_EMBEDDED, RecallRun, SubQuery
from .services import Services
from .steps import TracedWorkflow, traced_step

M = TypeVar("M", bound=BaseModel)

MAX_SUB_QUERIES = 3
MAX_KEYWORDS = 12
MAX_SCOPES = 20
MAX_GAPS = 5
LONGEST_PHRASE = 1000
LONGEST_KEYWORD = 100
FIRST_MOMENT = datetime(1970, 1, 2, tzinfo=UTC)
"""A window that begins earlier has no beginning: models write such times for "always"."""
DEEP_CANDIDATES = 10
EVIDENCE_SHOWN = 8
FEEDBACK_WEIGHT = 0.85
_FEEDBACK_RECORDS = 3
_FEEDBACK_TERMS = 4
_PUNCTUATION = ".,;:!?'\"()[]{}。、，；：！？“”‘’…"


async def embed_queries(
    services: Services, texts: list[str], weight: float = 1.0
) -> list[SubQuery]:
    """Return the texts as sub-queries with both vectors; one embedder call for all of them."""
    if not texts:
        return []
    vectors = await services.embedder.embed_queries(texts)
    return [
        SubQuery(text, vector, encode_query(text), weight)
        for text, vector in zip(texts, vectors, strict=True)
    ]


async def search_one(
    services: Services, run: RecallRun, query: SubQuery, selection: Selection
) -> SearchResult:
    """Run one exact search in a worker thread, where the query is embedded too if it has to be."""
    if query.is_embedded:
        return await services.in_thread(search_now, services, run, query, selection)

    def search(vectors: NDArray[np.float32]) -> SearchResult:
        query.dense = vectors[0]
        return search_now(services, run, query, selection)

    return await services.embedder.embed_query_and(query.text, search)


def search_now(
    services: Services, run: RecallRun, query: SubQuery, selection: Selection
) -> SearchResult:
    """Run one exact search in this thread."""
    limit = max(run.limit, DEEP_CANDIDATES) if run.depth == "deep" else run.limit
    return services.store.search(selection, query.dense, query.lexical, run.ranking, limit)


class ShallowRecall(TracedWorkflow):
    """Embed, search, rank in one step; never a language model."""

    def __init__(self, services: Services) -> None:
        super().__init__(timeout=services.config.recall_timeout)
        self.services = services

    @traced_step
    async def search(self, ev: RecallStarted) -> RecallFinished:
        """Embed the query, search once, exactly, and rank what was found."""
        run: RecallRun = ev.run
        manifest = await self.services.manifest_for_reading()
        if manifest is None or run.selection.is_empty:
            note(empty="new store" if manifest is None else "selection")
            return RecallFinished(run=run)
        run.use(manifest)
        query = SubQuery(run.query, NOT_EMBEDDED, encode_query(run.query))
        run.queries = [query]
        result = await search_one(self.services, run, query, run.selection)
        run.add(query, result)
        note(**result.facts)
        return _finish(run)


class RecallFlow(TracedWorkflow):
    """The deep recall."""

    def __init__(self, services: Services) -> None:
        super().__init__(timeout=services.config.recall_timeout)
        self.services = services

    @traced_step
    async def analyze_query(self, ev: RecallStarted) -> QueryAnalyzed | Confident:
        """Distil a long query into sub-queries, scopes and a time window; embed them all."""
        run: RecallRun = ev.run
        config, llm = self.services.config, self.services.llm
        manifest = await self.services.manifest_for_reading()
        if manifest is None or run.selection.is_empty:
            note(empty="new store" if manifest is None else "selection")
            return Confident(run=run)
        run.use(manifest)
        texts = [run.query]
        if len(run.query) < config.query_analysis_threshold:
            note(llm="skipped", reason=f"shorter than {config.query_analysis_threshold} characters")
        elif reason := llm.known_unavailable():
            run.failures.append(f"query analysis: {reason}")
            note(llm="skipped", reason=reason)
        else:
            answer = await self._ask_for_analysis(run)
            if answer is not None:
                texts += _distinct(answer.sub_queries, texts)[: MAX_SUB_QUERIES - 1]
                texts += _distinct([_phrase(answer.keywords)], texts)
                run.suggested = tuple(answer.scopes[:MAX_SCOPES])
                run.complex = answer.complexity == "complex"
                if answer.unread:
                    note(unread=list(answer.unread))
                self._window(run, answer.since, answer.until)
        if len(texts) > 1 or run.suggested:
            run.queries = await embed_queries(self.services, texts)
        else:  # it goes into one search, which embeds it on its way
            run.queries = [SubQuery(run.query, NOT_EMBEDDED, encode_query(run.query))]
        note(sub_queries=len(texts), complex=run.complex)
        note_content(query=run.query, sub_queries=texts)
        return QueryAnalyzed(run=run)

    async def _ask_for_analysis(self, run: RecallRun) -> QueryAnalysis | None:
        shown = await self.services.scope_tree(await self._scope_counts(run))
        system, prompt = prompts.query_analysis(run.query, shown, run.local_now)
        return await self._ask(run, "query_analysis", system, prompt, QueryAnalysis)

    async def _ask(
        self,
        run: RecallRun,
        purpose: str,
        system: str,
        prompt: str,
        model: type[M],
        retries: int = RETRIES,
    ) -> M | None:
        """Ask the model; None, and a line in `run.failures`, when it cannot help."""
        try:
            return await self.services.llm.ask(
                purpose, system, prompt, model, patience=run.patience, retries=retries
            )
        except LLMError as error:
            run.failures.append(f"{purpose.replace('_', ' ')}: {error}")
            note(llm="failed", reason=str(error))
            return None

    async def _scope_counts(self, run: RecallRun) -> dict[str, int]:
        """Return the visible scopes with their records, read once a run."""
        if run.scope_counts is None:
            run.scope_counts = await self.services.scope_counts(run.selection)
        return run.scope_counts

    def _window(self, run: RecallRun, since: datetime | None, until: datetime | None) -> None:
        """Adopt the query's time window unless the caller gave one or it cannot hold anything."""
        if run.selection.since is not None or run.selection.until is not None:
            return
        try:
            if since is not None and since == until:  # a day, named twice
                until = since + timedelta(days=1)
            since, until = (None if t is None else run.local(t) for t in (since, until))
        except OverflowError:
            note(window="ignored: its times cannot be told")
            return
        if since is not None and since <= FIRST_MOMENT:
            since = None
        if since is None and until is None:
            return
        if until is not None and until <= (since or FIRST_MOMENT):
            note(window="ignored: it ends before it begins")
            return
        run.windowed = run.selection.narrow(since=since, until=until)
        note(
            since=run.windowed.since.isoformat() if run.windowed.since else None,
            until=run.windowed.until.isoformat() if run.windowed.until else None,
        )

    @traced_step
    async def select_scopes(self, ev: QueryAnalyzed) -> ScopesSelected:
        """Choose the subtrees to search: suggested ones inside the selection, else all of it."""
        run: RecallRun = ev.run
        base = run.windowed or run.selection
        roots = await self._allowed(run, run.suggested)
        if roots and roots != base.roots:
            run.narrowed = True
            targets = [base.within(*roots)]
            # A record at the caller's own scope is always in reach, whatever was suggested.
            targets += [replace(base, at_scope=root) for root in base.roots]
        else:
            targets = [base]
        run.plan = [(query, target) for query in run.queries for target in targets]
        note(scopes=list(roots) if run.narrowed else list(base.roots), searches=len(run.plan))
        return ScopesSelected(run=run)

    async def _allowed(self, run: RecallRun, suggested: Iterable[str]) -> tuple[str, ...]:
        """Return the suggested scopes that exist and lie within the selection."""
        wanted: set[str] = set()
        for path in suggested:
            if not path.strip().startswith("/"):
                continue
            try:
                wanted.add(scopes.normalise(path.strip()))
            except ScopeError:
                continue
        inside = scopes.intersect(run.selection.roots, wanted)
        if not inside:
            return ()
        known = await self._scope_counts(run)
        return tuple(path for path in inside if path == scopes.ROOT or path in known)

    @traced_step
    async def search(self, ev: ScopesSelected) -> Searched:
        """Search every planned pair of sub-query and scope, in parallel."""
        run: RecallRun = ev.run
        plan, run.plan = run.plan, []
        before = set(run.found)
        if len(plan) == 1:
            await self._search_pair(run, *plan[0])
        else:
            await asyncio.gather(*(self._search_pair(run, *pair) for pair in plan))
        if run.narrowed and not self._confident(run):
            # Suggested scopes go first; they must not hide a better record elsewhere.
            note(scopes="widened: not confident")
            run.narrowed = False
            base = run.windowed or run.selection
            await asyncio.gather(*(self._search_pair(run, q, base) for q in run.queries))
        if run.windowed is not None and not run.found:
            # A time window that was read into the query must not hide everything.
            note(window="dropped: nothing in it")
            run.windowed = None
            await asyncio.gather(*(self._search_pair(run, q, run.selection) for q in run.queries))
        if run.attempted == run.failed and run.first_error is not None:
            raise run.first_error
        run.news = len(set(run.found) - before)
        note(searches=len(plan), failed=run.failed, candidates=len(run.found), new=run.news)
        return Searched(run=run)

    def _confident(self, run: RecallRun) -> bool:
        return run.measure_confidence() >= self.services.config.confidence_threshold_high

    async def _search_pair(self, run: RecallRun, query: SubQuery, selection: Selection) -> None:
        run.searched.add((query.text, selection))
        run.attempted += 1
        with span("search.query", kind="search"):
            note_content(query=query.text)
            try:
                result = await search_one(self.services, run, query, selection)
            except (EmbedderMismatchError, asyncio.CancelledError):
                raise
            except MnemotraceError as error:
                where = ", ".join(selection.roots)
                run.errors.append(f"search in {where}: {type(error).__name__}: {error}")
                run.failed += 1
                run.first_error = run.first_error or error
                note(failed=str(error))
                return
            run.add(query, result)
            note(
                **{
                    **result.facts,
                    "scopes": list(selection.roots),
                    "results": len(result.candidates),
                }
            )

    @traced_step
    async def route(self, ev: Searched) -> Confident | Uncertain:
        """Decide from relevance alone whether the evidence suffices."""
        run: RecallRun = ev.run
        config = self.services.config
        _judge(run)
        low = config.complex_query_threshold if run.complex else config.confidence_threshold_low
        budget = config.exploration_budget - run.rounds
        if run.confidence >= config.confidence_threshold_high:
            reason = "confident"
        elif run.confidence >= low:
            reason = "good enough"
        elif budget <= 0:
            reason = "no budget left"
        elif run.rounds and not run.news:
            reason = "the last round brought nothing new"
        else:
            note(confidence=run.confidence, budget=budget, to="explore", threshold=low)
            return Uncertain(run=run)
        note(confidence=run.confidence, budget=budget, to="synthesize", reason=reason)
        return Confident(run=run)

    @traced_step
    async def explore(self, ev: Uncertain) -> ScopesSelected | Confident:
        """Plan one more round that searches something new, or end."""
        run: RecallRun = ev.run
        run.rounds += 1
        llm = self.services.llm
        reason = llm.known_unavailable()
        texts: list[str] = []
        roots: tuple[str, ...] = ()
        answer: Exploration | None = None
        if reason:
            note(llm="skipped", reason=reason)
        else:
            answer = await self._ask_for_exploration(run)
        if answer is not None:
            run.set_gaps(answer.gaps, MAX_GAPS)
            texts = _distinct(answer.sub_queries, [q.text for q in run.queries])[:MAX_SUB_QUERIES]
            roots = await self._allowed(run, answer.scopes[:MAX_SCOPES])
        else:
            texts = _distinct(_feedback(run), [q.text for q in run.queries])
        base = run.windowed or run.selection
        weight = 1.0 if answer is not None else FEEDBACK_WEIGHT
        fresh = await embed_queries(self.services, texts, weight)
        run.queries += fresh
        targets = [base.within(*roots)] if roots else []
        if run.narrowed or not targets:
            targets.append(base)
        asked = [*run.queries] if run.narrowed or roots else fresh
        run.narrowed = False
        run.plan = [
            (query, target)
            for query in asked
            for target in targets
            if (query.text, target) not in run.searched
        ]
        note(round=run.rounds, new_queries=len(fresh), searches=len(run.plan), gaps=len(run.gaps))
        note_content(gaps=list(run.gaps), new_queries=texts)
        return ScopesSelected(run=run) if run.plan else Confident(run=run)

    async def _ask_for_exploration(self, run: RecallRun) -> Exploration | None:
        shown = await self.services.scope_tree(await self._scope_counts(run))
        evidence = [c.record.content for c in run.ranked()[:EVIDENCE_SHOWN]]
        tried = [query.text for query in run.queries]
        system, prompt = prompts.exploration(run.query, evidence, shown, tried)
        # Not tried again: the budget bounds the requests, not only the rounds.
        return await self._ask(run, "exploration", system, prompt, Exploration, retries=0)

    @traced_step
    async def synthesize(self, ev: Confident) -> RecallFinished:
        """Fuse, score, order, deduplicate, cut to the limit."""
        return _finish(ev.run)


def _finish(run: RecallRun) -> RecallFinished:
    if run.depth == "shallow":
        _judge(run)
    run.matches = run.build_matches()
    note(results=len(run.matches), confidence=run.confidence, gaps=len(run.gaps))
    note_content(results=[match.record.content for match in run.matches])
    return RecallFinished(run=run)


def _judge(run: RecallRun) -> None:
    """Say how likely the evidence answers the query, and from what that follows."""
    run.confidence = run.measure_confidence()
    note(**run.stands_out())


def _distinct(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the texts that say something not yet in `known`, by their terms, in order."""
    seen = {frozenset(tokenize(text)) for text in known}
    kept: list[str] = []
    for text in texts:
        terms = frozenset(tokenize(text))
        if terms and terms not in seen and len(text) <= LONGEST_PHRASE:
            seen.add(terms)
            kept.append(text.strip())
    return kept


def _phrase(keywords: Iterable[str]) -> str:
    """Return the keywords as one phrase: what a long query asks for, without its other words."""
    short = (" ".join(word.split()) for word in keywords)
    return " ".join([word for word in short if len(word) <= LONGEST_KEYWORD][:MAX_KEYWORDS])


def _feedback(run: RecallRun) -> list[str]:
    """Return the query with the commonest new words of the best records (lexical feedback)."""
    have = set(tokenize(run.query))
    counts: dict[str, int] = {}
    spelled: dict[str, str] = {}
    for candidate in run.ranked()[:_FEEDBACK_RECORDS]:
        found: set[str] = set()
        for word in candidate.record.content.split():
            for term in set(tokenize(word)) - have - found:
                found.add(term)
                spelled.setdefault(term, word.strip(_PUNCTUATION))
        for term in found:
            counts[term] = counts.get(term, 0) + 1
    best = sorted(counts, key=lambda term: (-counts[term], term))[:_FEEDBACK_TERMS]
    words = dict.fromkeys(spelled[term] for term in best)
    return [f"{run.query} {' '.join(words)}"] if words else []
