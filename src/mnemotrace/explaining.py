"""Explaining: run a recall, find out what became of one record, and try what would return it.

The engine judges each condition by itself, as it judges the whole recall. What is proposed was
tried: the changed recall ran, with the arguments checked like any other's, and the record was in
its matches. Nothing is written, no access is counted, and no listener hears of it.

Who may be told: the inquiry looks at records through the same Selection as `get` and `history`, so
a record outside a view's reach, or private to another source, is never read at all and cannot be
told from an id that does not exist. Only the memory itself, asked without a `source`, looks at
private records of everyone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows.errors import WorkflowTimeoutError

from .capture import Kind, capture
from .curation import may_see
from .embedders.lexical import encode_document, indices_of, text_hash
from .explanation import Explanation, Term, excerpt, explain_match, own_terms
from .flows.context import vectors
from .flows.events import RecallStarted
from .flows.evidence import RecallRun
from .flows.recall import ShallowRecall
from .flows.requests import checked_id
from .llm.protocol import LLMTimeoutError
from .obstacles import Conditions, Obstacle, several, when
from .recall_explanation import Change, Reason, RecallExplanation, Verdict
from .records import MemoryRecord
from .stores.backend import SparseVector
from .trace import note, start_trace

if TYPE_CHECKING:
    from .llm.protocol import LLMReply, LLMRequest
    from .views.base import Handle, Question

_WIDER = 4
"""How much deeper each look for the rank of a record goes."""
_FIRST_DEPTH = 40
_MOST_TRIED = 8
"""Combinations of changed conditions that are tried, besides the search for a rank."""


class Answers:
    """What the models answered during one inquiry, so that nothing is asked twice."""

    def __init__(self) -> None:
        self._known: dict[LLMRequest, LLMReply | Exception] = {}
        self._failed: dict[LLMRequest, Exception] = {}
        self._vectors: dict[tuple[Kind, tuple[str, ...]], Any] = {}
        self.asked = 0

    def settle(self) -> None:
        """Take failures of the recall that has ended as final; within it they are tried again."""
        for request, error in self._failed.items():
            self._known.setdefault(request, error)
        self._failed.clear()

    def began(self, now: datetime) -> None:
        """See `Capture`."""

    def known(self, request: LLMRequest) -> LLMReply | None:
        """See `Capture`."""
        found = self._known.get(_hashable(request))
        if isinstance(found, Exception):
            raise found
        return found

    def answered(self, request: LLMRequest, reply: LLMReply) -> None:
        """See `Capture`."""
        self.asked += 1
        self._known[_hashable(request)] = reply

    def unanswered(self, request: LLMRequest, error: BaseException) -> None:
        """See `Capture`."""
        self.asked += 1
        if not isinstance(error, Exception):  # cancelled, for its time was up
            error = LLMTimeoutError(f"the language model did not answer {request.purpose} in time")
        self._failed[_hashable(request)] = error

    def vectors(self, kind: Kind, texts: Sequence[str]) -> Any:
        """See `Capture`."""
        return self._vectors.get((kind, tuple(texts)))

    def embedded(self, kind: Kind, texts: Sequence[str], vectors: Any) -> None:
        """See `Capture`."""
        self._vectors[kind, tuple(texts)] = vectors

    def not_embedded(self, kind: Kind, texts: Sequence[str], error: BaseException) -> None:
        """See `Capture`."""


def _hashable(request: LLMRequest) -> LLMRequest:
    return replace(request, schema=None)  # the purpose decides it


class Inquiry:
    """Why one recall returned a record, or did not; see `run`.

    Args:
        handle: the memory or view that is asked.
        record_id: the record.
        arguments: those of `recall`, by name, as the caller gave them.
    """

    def __init__(self, handle: Handle, record_id: str, arguments: Mapping[str, Any]) -> None:
        self._handle = handle
        self._core = handle._core
        self._id = checked_id(record_id)
        self._arguments = dict(arguments)
        self._moment = self._core.services.clock()
        self._answers = Answers()
        self._question: Question = handle._question(**self._arguments)
        named = arguments.get("viewer")
        self._viewer = handle._seen_by(
            arguments.get("source") if named is None else named, False
        ).viewer
        self._is_owner = self._core.owner is handle and self._viewer is None
        self._may_know = handle._seen_by(
            self._viewer, bool(arguments.get("include_private")) or self._is_owner
        )
        self._conditions = Conditions(
            handle, self._question, self._id, self._may_know, self._moment
        )

    async def run(self) -> RecallExplanation:
        """Run the recall and explain what became of the record."""
        self._core.check_open()
        asked = self._question
        with start_trace(
            "explain", level=asked.level, depth=asked.depth, limit=asked.limit
        ) as trace:
            base = await self._recall(asked)
            note(results=len(base.matches), confidence=base.confidence)
        with start_trace("explain", level="off"):
            explanation = await self._explained(base)
        explanation.confidence = base.confidence
        explanation.errors = list(base.errors)
        explanation.trace = trace
        return explanation

    async def _recall(
        self, asked: Question, settings: Mapping[str, float] | None = None
    ) -> RecallRun:
        """Run a recall as `recall` does, at the time at which the inquiry began."""
        core, selection = self._core, asked.selection
        now = asked.now or selection.as_of or self._moment
        if selection.now is None:
            selection = replace(selection, now=self._moment)
        config = core.config.model_copy(update=dict(settings)) if settings else core.config
        run = RecallRun.of(
            asked.query, selection, asked.limit, asked.depth, now, config, asked.zone
        )
        await core._take_up()
        if asked.wait:
            await core._barrier()
        if run.limit > 0:
            started = RecallStarted(run=run)
            try:
                with capture(self._answers):
                    async with asyncio.timeout(config.recall_timeout):
                        if run.depth == "deep":
                            await core.flows[1].run(start_event=started)
                        else:
                            await ShallowRecall.search(core.flows[2], started)
                self._answers.settle()
            except (TimeoutError, WorkflowTimeoutError) as error:
                raise TimeoutError(
                    f"A recall that was to be explained took longer than "
                    f"recall_timeout={config.recall_timeout:g} s. Raise it, or find what is slow."
                ) from error
        return run

    # What became of the record.

    async def _explained(self, base: RecallRun) -> RecallExplanation:
        rank = self._rank(base)
        if rank is not None:
            return await self._returned(base, rank)
        versions = await self._conditions.versions()
        if not versions:
            pending = await self._pending()
            if pending is None:
                versions = (
                    await self._conditions.versions()
                )  # it may have been saved between the two looks
            if not versions:
                return await self._unseen(base, pending)
        record = self._conditions.relevant(versions)
        obstacles = await self._conditions.unmet(record, versions)
        if obstacles:
            return await self._kept_out(base, record, obstacles)
        return await self._behind(base, record)

    def _rank(self, run: RecallRun) -> int | None:
        ids = [match.record.id for match in run.matches]
        return ids.index(self._id) + 1 if self._id in ids else None

    async def _returned(self, base: RecallRun, rank: int) -> RecallExplanation:
        match = base.matches[rank - 1]
        score = await self._scored(base, self._id)
        names = ", ".join(match.match_reasons) or "none of the signals"
        others = "" if len(base.matches) == 1 else f" of {len(base.matches)}"
        text = (
            f"It was found by {several(match.found_by)} and has rank {rank}{others}; "
            f"what speaks for it: {names}."
        )
        facts = {
            "rank": rank,
            "results": len(base.matches),
            "score": match.score,
            "match_reasons": match.match_reasons,
            "found_by": match.found_by,
        }
        reason = Reason(Verdict.RETURNED, text, facts)
        return self._result([reason], rank=rank, record=match.record, score=score)

    async def _unseen(self, base: RecallRun, pending: Reason | None) -> RecallExplanation:
        """Explain what cannot be seen: all such records alike."""
        if pending is not None:
            return await self._with_pending(pending)
        if f"record {self._id} cannot be read and was left out" in base.errors:
            text = "The row that is stored for it cannot be read, so it was left out."
            return self._result([Reason(Verdict.UNREADABLE, text)])
        text = (
            "No record with this id may be seen from here: there is none, or it lies outside of "
            "what this may see."
        )
        if self._viewer is not None and not self._may_know.include_private:
            text += " Private memories of other sources than the one that asks are not looked at."
        return self._result([Reason(Verdict.UNKNOWN, text)])

    # Pending saves.

    async def _pending(self) -> Reason | None:
        """Return why the record is not saved yet; None when no such save may be seen."""
        outbox = self._core._queue.outbox

        def look() -> tuple[str, str | None] | None:
            for batch in outbox.batches():
                for save in outbox.load(batch.id):
                    if save.record_id == self._id and may_see(save, self._may_know):
                        return "retrying" if batch.attempts else "waiting", batch.error
            for letter in outbox.dead_letters():
                for save in letter.items:
                    if save.record_id == self._id and may_see(save, self._may_know):
                        return "dead letter", letter.error
            return None

        found = await self._core.runtime.in_thread(look)
        if found is None:
            return None
        state, error = found
        what = {
            "waiting": "It was accepted and waits to be saved; the recall did not wait for it.",
            "retrying": "It was accepted, but saving it failed and will be tried again",
            "dead letter": "It was accepted, but saving it was given up; see retry_dead_letters()",
        }[state]
        text = f"{what}: {error}" if error else what
        return Reason(Verdict.PENDING, text, {"state": state, "error": error})

    async def _with_pending(self, pending: Reason) -> RecallExplanation:
        changes = []
        if not self._question.wait:
            change = await self._try({"wait_for_writes": True}) or await self._deeper(
                {"wait_for_writes": True}
            )
            changes = [change] if change is not None else []
        return self._result([pending], changes)

    # What would return it.

    async def _kept_out(
        self, base: RecallRun, record: MemoryRecord, obstacles: list[Obstacle]
    ) -> RecallExplanation:
        """Explain a record that the conditions of the recall keep out."""
        changes: list[Change] = []
        if all(obstacle.options for obstacle in obstacles):
            combined = list(self._combined(obstacles, record))
            for arguments in combined[:_MOST_TRIED]:
                change = await self._try(arguments)
                if change is not None:
                    changes.append(change)
            if combined and not any(change.arguments == combined[0] for change in changes):
                change = await self._deeper(combined[0])
                if change is not None:
                    changes.append(change)
            if combined and not changes and self._question.depth == "deep":
                # The model read a window or scopes into the query that leave the record out.
                for more in self._unread(record, combined[0]):
                    change = await self._try(more) or await self._deeper(more)
                    if change is not None:
                        changes.append(change)
        twin = self._twin(base, record)
        reasons = [self._reason(obstacle, changes, base) for obstacle in obstacles]
        return self._result([*reasons, *twin], _sorted(changes), record=record)

    def _unread(self, record: MemoryRecord, arguments: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Yield arguments that also do away with what the model read into the query.

        A window or a scope of the caller's own takes the place of the model's.
        """
        asked = self._question.selection
        if asked.since is None and asked.until is None and not {"since", "until"} & {*arguments}:
            yield {**arguments, "since": record.created_at}
        yield {**arguments, "depth": "shallow"}

    def _combined(
        self, obstacles: list[Obstacle], record: MemoryRecord
    ) -> Iterable[dict[str, Any]]:
        """Yield changed arguments that do away with all obstacles, the least first."""
        choices = [obstacle.options for obstacle in obstacles]
        picks = [[0] * len(choices)]
        for place, options in enumerate(choices):
            for option in range(1, len(options)):
                picks.append([option if n == place else 0 for n in range(len(choices))])
        for pick in picks:
            arguments: dict[str, Any] = {}
            dropped: set[str] = set()
            for options, option in zip(choices, pick, strict=True):
                for name, value in options[option].items():
                    if name == "metadata_filter":
                        dropped.add(value)
                    else:
                        arguments[name] = value
            if dropped:
                rest = dict(self._arguments.get("metadata_filter") or {})
                for key in dropped:
                    del rest[key]
                arguments["metadata_filter"] = rest or None
            if arguments.get("source", "") is None and record.private:
                if record.source:  # its own source sees it
                    arguments["source"] = record.source
                else:
                    arguments["include_private"] = True
            yield arguments

    def _reason(self, obstacle: Obstacle, changes: Sequence[Change], base: RecallRun) -> Reason:
        facts = dict(obstacle.facts)
        text = obstacle.text
        heir = facts.get("superseded_by")
        ids = [match.record.id for match in base.matches]
        if heir in ids:
            facts["returned_at_rank"] = ids.index(heir) + 1
            text = f"{text[:-1]}, which was returned at rank {facts['returned_at_rank']}."
        names = {name for option in obstacle.options for name in option}
        helping = tuple(change for change in _sorted(changes) if names & change.arguments.keys())
        return Reason(obstacle.kind, text, facts, helping)

    async def _try(
        self, arguments: Mapping[str, Any], settings: Mapping[str, float] | None = None
    ) -> Change | None:
        """Run the changed recall; return the change if the record is among its matches."""
        asked = self._handle._question(**{**self._arguments, **arguments})
        run = await self._recall(asked, settings)
        rank = self._rank(run)
        return None if rank is None else Change(dict(arguments), dict(settings or {}), rank)

    async def _deeper(self, arguments: Mapping[str, Any]) -> Change | None:
        """Return the smallest limit with which changed arguments return the record."""
        found = await self._found(arguments)
        if found is None:
            return None
        return await self._smallest_limit(arguments, *found)

    async def _smallest_limit(
        self, arguments: Mapping[str, Any], run: RecallRun, rank: int
    ) -> Change:
        """Return the least limit that returns the record, which is in this run at this rank."""
        for limit in (rank, 2 * rank):
            if limit >= run.limit:
                break
            change = await self._try({**arguments, "limit": limit})
            if change is not None:
                return change
        return Change({**arguments, "limit": run.limit}, rank=rank)

    async def _found(self, arguments: Mapping[str, Any]) -> tuple[RecallRun, int] | None:
        """Run the recall with larger limits until the record is in it; return that run and rank."""
        asked = self._handle._question(**{**self._arguments, **arguments})
        services = self._core.services
        selection = replace(asked.selection, now=asked.selection.now or self._moment)
        total = await services.in_thread(services.store.count, selection)
        limit = asked.limit
        while limit < total or limit < 1:
            limit = min(max(_FIRST_DEPTH, limit * _WIDER), max(total, 1))
            run = await self._recall(replace(asked, limit=limit))
            rank = self._rank(run)
            if rank is not None:
                return run, rank
            if limit >= total:
                break
        return None

    # Records that the conditions allow.

    async def _behind(self, base: RecallRun, record: MemoryRecord) -> RecallExplanation:
        """Explain a record that may be returned but came too late, or was not searched for."""
        services = self._core.services
        selection = base.windowed or base.selection
        total = await services.in_thread(services.store.count, base.selection)
        if base.windowed is None or await self._conditions.passes(selection, record):
            found = await self._found({})
            if found is not None:
                return await self._outranked(base, *found, total)
        return await self._not_searched(base, record, total)

    async def _outranked(
        self, base: RecallRun, run: RecallRun, rank: int, total: int
    ) -> RecallExplanation:
        match = run.matches[rank - 1]
        score = await self._scored(run, self._id)
        limit = self._question.limit
        cut: Explanation | None = None
        facts: dict[str, Any] = {"rank": rank, "of": total, "limit": limit, "score": match.score}
        if base.matches:
            last = base.matches[-1]
            cut = await self._scored(base, last.record.id)
            short = last.score - match.score
            names = ("semantic", "recency", "importance")
            differences = {n: cut["products"][n] - score["products"][n] for n in names}
            facts |= {
                "cut_id": last.record.id,
                "cut_score": last.score,
                "short_by": short,
                "differences": differences,
            }
            worst = max(differences, key=lambda name: differences[name])
            text = f"It has rank {rank} of {total} and the limit is {limit}. "
            if short > 0:
                text += (
                    f"Its score {match.score:.4f} is {short:.4f} below the last one returned "
                    f"({last.score:.4f}); most of that is {worst} ({differences[worst]:+.4f})."
                )
            else:
                text += (
                    "It has the same score as the last one returned, which is newer or first by id."
                )
        else:
            text = f"It has rank {rank} of {total}, but the limit is {limit}: nothing is returned."
        changes = await self._raising(match.record, rank, run, facts.get("differences", {}))
        reason = Reason(Verdict.OUTRANKED, text, facts, tuple(changes))
        twin = self._twin(base, match.record)
        return self._result(
            [*twin, reason],
            changes,
            rank=rank,
            found=total,
            record=match.record,
            score=score,
            cut=cut,
        )

    async def _raising(
        self,
        record: MemoryRecord,
        rank: int,
        run: RecallRun,
        differences: Mapping[str, float],
    ) -> list[Change]:
        """Return what brings a record forward that came too late."""
        changes = [await self._smallest_limit({}, run, rank)]
        if self._question.selection.roots != (record.scope,):
            change = await self._try({"scope": record.scope})
            if change is not None:
                changes.append(change)
        if self._answers.asked:  # other weights change the evidence, and so what is asked
            return _sorted(changes)
        for name in ("recency", "importance"):
            if differences.get(name, 0.0) > 0:
                change = await self._with_less(f"{name}_weight")
                if change is not None:
                    changes.append(change)
        return _sorted(changes)

    async def _with_less(self, setting: str) -> Change | None:
        """Return the least reduction of a weight, in hundredths, that returns the record."""
        config = self._core.config
        weights = {"semantic_weight", "recency_weight", "importance_weight"} - {setting}
        if not any(getattr(config, name) for name in weights):
            return None
        best = await self._try({}, {setting: 0.0})
        if best is None:
            return None
        low, high = 0, math.ceil(getattr(config, setting) * 100)
        while high - low > 1:
            middle = (low + high) // 2
            change = await self._try({}, {setting: middle / 100})
            if change is None:
                high = middle
            else:
                low, best = middle, change
        return best

    async def _not_searched(
        self, base: RecallRun, record: MemoryRecord, total: int
    ) -> RecallExplanation:
        facts: dict[str, Any] = {"searched": [query.text for query in base.queries]}
        options: list[dict[str, Any]] = []
        if base.windowed is not None and not await self._conditions.passes(base.windowed, record):
            window = base.windowed
            facts |= {"since": window.since, "until": window.until}
            text = (
                f"The language model read a time window in the query, from {when(window.since)} "
                f"to {when(window.until)}; it was created at {record.created_at.isoformat()}."
            )
            options.append({"since": min(record.created_at, window.since or record.created_at)})
        elif base.narrowed:
            facts["scopes"] = list(base.suggested)
            text = (
                f"Only the scopes {', '.join(base.suggested)} were searched, which the language "
                f"model suggested; it is at {record.scope}."
            )
            options.append({"scope": record.scope})
        elif base.failed:
            text = "A search failed, and no other one found it; see the errors."
        else:
            text = "No search of this recall found it."
        if base.depth == "deep":
            options.append({"depth": "shallow"})
        changes = []
        for option in options:
            change = await self._try(option) or await self._deeper(option)
            if change is not None:
                changes.append(change)
        changes = _sorted(changes)
        reason = Reason(Verdict.NOT_SEARCHED, text, facts, tuple(changes))
        twin = self._twin(base, record)
        return self._result([*twin, reason], changes, found=total, record=record)

    def _twin(self, base: RecallRun, record: MemoryRecord) -> list[Reason]:
        """Return the reason that a record with the same text was returned, if there is one."""
        same = text_hash(record.content)
        for rank, match in enumerate(base.matches, 1):
            other = match.record
            if other.id != record.id and text_hash(other.content) == same:
                text = (
                    f"A record with the same text was returned at rank {rank}: {excerpt(other.id)}."
                )
                facts = {"duplicate_of": other.id, "returned_at_rank": rank, "scope": other.scope}
                return [Reason(Verdict.DUPLICATE, text, facts)]
        return []

    # The score, word by word.

    async def _scored(self, run: RecallRun, record_id: str) -> Explanation:
        """Return the numbers of a found record, with what each word gives to its lexical score."""
        match = run.match_of(run.found[record_id])
        query, result = run.scored_by[record_id]
        store, record = self._core.services.store, match.record
        selection = run.selection.narrow(record_ids=(record_id,))
        # Among the one record that is looked at, no word would be rare.
        ranking = replace(run.ranking, scoped_idf=False)

        def lexical(index: int, held: float) -> float:
            if result.idf is not None:
                return result.idf.get(index, 0.0) * held
            asked = SparseVector((index,), (1.0,), frozenset({index}))
            return store.search(selection, query.dense, asked, ranking, 1).best_lexical

        def look() -> list[Term]:
            own = encode_document(record.content)
            weights = dict(zip(own.indices, own.values, strict=True))
            among = vectors(store, [record])[0]
            full = dict(zip(among.indices, among.values, strict=True))
            terms = []
            for term in own_terms(query.text, record.content):
                text, label = indices_of(term.term)
                has, held = weights.get(text, 0.0), full.get(text, 0.0)
                score = lexical(text, held)
                # A turn takes the higher of a word's weight and what its neighbours lend.
                lent = score * (1.0 - min(has / held, 1.0)) if held else (0.0 if has else score)
                if label in weights:
                    score += lexical(label, weights[label])
                terms.append(replace(term, score=score, from_neighbours=lent))
            return sorted(terms, key=lambda term: -(term.score or 0.0))

        terms = await self._core.services.in_thread(look) if match.components.lexical else None
        return explain_match(match, terms)

    def _result(
        self, reasons: Sequence[Reason], changes: Sequence[Change] = (), **known: Any
    ) -> RecallExplanation:
        return RecallExplanation(
            query=self._question.query,
            record_id=self._id,
            reasons=tuple(reasons),
            changes=tuple(changes),
            limit=self._question.limit,
            **known,
        )


def _sorted(changes: Iterable[Change]) -> list[Change]:
    """Return the changes, fewest arguments first, settings after arguments."""
    return sorted(changes, key=lambda change: (change.size, bool(change.settings)))
