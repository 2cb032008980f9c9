"""EncodingFlow: embed -> dedup -> find_similar -> analyze -> consolidate -> write.

The cheap path (one text, every field given, no language model to ask) is embed, find_similar,
write. The write step holds the store's write lock from its last look to the commit; when another
writer got there first, the flow goes back to find_similar, so that parallel saves of one fact
give one record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any

from mnemotrace import prompts, scopes
from mnemotrace.embedders.lexical import encode_document, text_hash
from mnemotrace.errors import LLMError, RecordError, ScopeError, StoreError
from mnemotrace.llm.service import Patience
from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import Facet
from mnemotrace.stores.selection import Selection
from mnemotrace.trace import note, note_content, span

from .answers import ConsolidationPlan, SaveAnalysis
from .batch import Draft, EncodingRun, Item, find_twins
from .context import is_named, is_turn
from .events import (
    Analyzed,
    Deduplicated,
    Embedded,
    EncodingFinished,
    EncodingStarted,
    Settled,
    SimilarFound,
)
from .filing import Filing
from .plans import CheckedPlan, checked_plan
from .services import Services
from .steps import TracedWorkflow, traced_step

MAX_ATTEMPTS = 5
MODEL_SHARE = 0.75
"""Share of `encode_timeout` for asking the model: a model that hangs must not fail the save."""


class EncodingFlow(TracedWorkflow):
    """Turns accepted texts into records: embedded, deduplicated, filed, merged, written."""

    def __init__(self, services: Services) -> None:
        super().__init__(timeout=services.config.encode_timeout)
        self.services = services

    @traced_step
    async def embed(self, ev: EncodingStarted) -> Embedded | Deduplicated:
        """Embed the whole batch in one call and check the vectors."""
        run: EncodingRun = ev.run
        services = self.services
        run.patience = Patience(
            MODEL_SHARE * services.config.encode_timeout, services.config.llm_concurrency
        )
        await services.manifest_for_reading()  # refuses another embedder; makes no store yet
        texts = [item.request.content for item in run.items]
        vectors = await services.embedder.embed_documents(texts)
        for item, vector in zip(run.items, vectors, strict=True):
            item.dense = vector
        note(texts=len(texts), dimension=int(vectors.shape[1]))
        note_content(texts=texts)
        return Embedded(run=run) if len(texts) > 1 else Deduplicated(run=run)

    @traced_step
    async def dedup(self, ev: Embedded) -> Deduplicated:
        """Settle items that repeat an earlier one, unless a fact differs."""
        run: EncodingRun = ev.run
        threshold = self.services.config.batch_dedup_threshold
        inferring = not self.services.llm.known_unavailable()
        await self.services.in_thread(lambda: find_twins(run.items, threshold, inferring=inferring))
        note(dropped=sum(item.twin is not None for item in run.items))
        return Deduplicated(run=run)

    @traced_step
    async def find_similar(self, ev: Deduplicated) -> SimilarFound | Settled:
        """Look up exact duplicates and, when they can be judged, similar records."""
        run: EncodingRun = ev.run
        config, llm = self.services.config, self.services.llm
        run.attempts += 1
        run.sequence = self.services.store.sequence()
        run.inferring = not llm.known_unavailable()
        judge = (
            run.inferring
            and config.consolidation_threshold < 1.0
            and config.consolidation_limit > 0
        )
        run.judge = judge

        def look() -> bool:
            self._look_up(run)
            ask = any(
                (item.similar and item.plan is None) or not item.request.is_complete
                for item in run.open_items
                if item.existing is None
            )
            if not ask:
                self._count_words(run)
            return ask

        ask = await self.services.in_thread(look)
        note(
            duplicates=sum(item.existing is not None for item in run.open_items),
            similar=sum(len(item.similar) for item in run.open_items),
            judge="llm" if judge else "exact text only",
        )
        return SimilarFound(run=run) if ask else Settled(run=run)

    def _look_up(self, run: EncodingRun) -> None:
        store, config = self.services.store, self.services.config
        self._find_existing(run)
        for item in run.open_items:
            if item.existing is not None or not run.judge or item.dense is None:
                continue
            if item.request.valid_from is not None and item.request.valid_from > run.now:
                continue  # until it is valid, it takes nobody's place
            near = store.nearest(
                item.neighbourhood(inferring=run.inferring),
                item.dense,
                config.consolidation_limit,
                config.consolidation_threshold,
            )
            item.similar = [record for record, _ in near]
            found = frozenset((record.id, record.version) for record in item.similar)
            if found != item.judged:
                item.plan = None
                item.judged = found

    def _find_existing(self, run: EncodingRun) -> None:
        """Find the stored record that says exactly what an item says, the newest of several."""
        alike: dict[tuple[Selection, str | None, str | None], list[Item]] = {}
        for item in run.open_items:
            request = item.request
            # A turn is said again in another conversation.
            session = request.session if is_named(request.session) else None
            # That very record is wanted, not another that says so.
            record_id = request.record_id if request.explicit_id else None
            where = item.neighbourhood(inferring=run.inferring)
            alike.setdefault((where, session, record_id), []).append(item)
        for (neighbourhood, session, record_id), group in alike.items():
            wanted = replace(
                neighbourhood,
                session=session,
                record_ids=None if record_id is None else (record_id,),
                upcoming=True,
            )
            newest = self.services.saying(wanted, {item.hash for item in group})
            for item in group:
                item.existing = newest.get(item.hash)

    def _count_words(self, run: EncodingRun) -> None:
        """Make the lexical vectors of texts that may become records, turns of conversations aside.

        Those get theirs among their neighbours, when they are written.
        """
        lending = self.services.config.conversation_context
        for item in run.open_items:
            turn = lending and is_turn(item.request.session, item.request.content)
            if item.lexical is None and item.existing is None and not turn:
                item.lexical = encode_document(item.request.content)

    @traced_step
    async def analyze(self, ev: SimilarFound) -> Analyzed | Settled:
        """Fill in missing scope, categories and importance, several texts at a time."""
        run: EncodingRun = ev.run
        llm = self.services.llm
        due = [
            item
            for item in run.open_items
            if item.existing is None
            and not item.request.is_complete
            and item.analysis is None
            and not item.analysis_failed
        ]
        if due and (reason := llm.known_unavailable()):
            for item in due:
                item.analysis_failed = reason
            run.failures.append(f"save analysis: {reason}")
            note(llm="skipped", reason=reason, texts=len(due))
        elif due:
            # The writer's whole reach, public rows only: nothing private goes into a prompt.
            reach = Selection(roots=scopes.cover(r for i in due for r in i.request.reach))
            counts = await self.services.scope_counts(reach)
            shown = await self.services.scope_tree(counts)
            known = await self.services.in_thread(
                self.services.store.facet, reach, Facet.CATEGORIES
            )
            filing = await self.services.in_thread(Filing, counts, known)
            labels = filing.categories[: prompts.MOST_CATEGORIES]
            await asyncio.gather(
                *(self._analyze_one(run, item, shown, labels) for item in due),
                self.services.in_thread(self._count_words, run),  # while the model thinks
            )
            for item in due:  # in their order, so that new scopes and labels are spelled one way
                if item.analysis is not None:
                    item.analysis = filing.settle(item.analysis, item.request.top)
            note(texts=len(due), failed=sum(bool(item.analysis_failed) for item in due))
        else:
            note(texts=0)
        if any(i.similar and i.plan is None and i.existing is None for i in run.open_items):
            return Analyzed(run=run)
        return Settled(run=run)

    async def _analyze_one(
        self, run: EncodingRun, item: Item, shown: str, labels: list[str]
    ) -> None:
        system, prompt = prompts.save_analysis(item.request.content, shown, labels)
        with span("analyze.text", kind="step"):
            try:
                answer = await self.services.llm.ask(
                    "save_analysis", system, prompt, SaveAnalysis, patience=run.patience
                )
                scopes.normalise(answer.scope)
            except (LLMError, ScopeError) as error:
                item.analysis_failed = str(error) or type(error).__name__
                run.failures.append(f"save analysis: {error}")
                note(failed=str(error))
            else:
                item.analysis = answer

    @traced_step
    async def consolidate(self, ev: Analyzed) -> Settled:
        """Let the model judge stored records that are like a new text, from their full texts."""
        run: EncodingRun = ev.run
        due = [
            item
            for item in run.open_items
            if item.similar and item.plan is None and item.existing is None
        ]
        if run.patience is not None:
            run.patience.next_phase()
        await asyncio.gather(*(self._judge(run, item) for item in due))
        texts = {item.plan.merged for item in due if item.plan and item.plan.merged}
        merged = sorted(texts - run.merged.keys())
        if merged:
            vectors = await self.services.embedder.embed_documents(merged)
            run.merged.update(zip(merged, vectors, strict=True))
        note(texts=len(due), merged=len(merged))
        return Settled(run=run)

    async def _judge(self, run: EncodingRun, item: Item) -> None:
        system, prompt = prompts.consolidation(item.request.content, item.similar)
        with span("consolidate.text", kind="step"):
            try:
                plan = await self.services.llm.ask(
                    "consolidation", system, prompt, ConsolidationPlan, patience=run.patience
                )
            except LLMError as error:
                run.failures.append(f"consolidation: {error}")
                note(failed=str(error))
                item.plan = CheckedPlan()
                return
            # In a thread: comparing long texts word by word takes a while.
            merging = not item.request.explicit_id
            item.plan = await self.services.in_thread(
                checked_plan, plan, item.similar, item.request.content, merging
            )
            if item.plan.refused:
                run.failures.append(f"consolidation: refused {'; '.join(item.plan.refused)}")
            note(
                actions=[a.action for a in plan.actions],
                insert=item.plan.insert_new,
                refused=list(item.plan.refused),
                decisions=[decision.facts() for decision in item.plan.decisions],
            )
            note_content(told=[decision.told for decision in item.plan.decisions])

    @traced_step(num_workers=1)
    async def write(self, ev: Settled) -> EncodingFinished | Deduplicated:
        """Write the whole batch in one commit, or go back when another writer came first."""
        run: EncodingRun = ev.run
        services = self.services
        async with services.write_lock:
            if services.store.sequence() != run.sequence and run.attempts < MAX_ATTEMPTS:
                before = _standing(run)
                await services.in_thread(self._look_up, run)
                if _standing(run) != before and any(
                    i.similar and i.plan is None for i in run.open_items
                ):
                    note(stale=True)
                    return Deduplicated(run=run)
            await services.manifest_for_writing()
            committed = await _to_the_end(services.in_thread(self._commit, run))
        if not committed:
            if run.attempts >= MAX_ATTEMPTS:
                raise StoreError(
                    f"The records this save would merge with changed {run.attempts} times while "
                    "it was being decided; nothing was stored. Save again."
                )
            note(stale=True)
            return Deduplicated(run=run)
        note(records=len({record.id for record in run.outcomes}))
        return EncodingFinished(run=run)

    def _commit(self, run: EncodingRun) -> bool:
        draft = Draft(run, self.services.config.default_importance)
        for item in run.open_items:
            draft.settle(item)
        draft.fold_twins()
        batch = draft.batch()
        nothing_to_do = not batch.versions and not batch.retire
        if nothing_to_do or self.services.commit(batch, draft.base.values()):
            draft.publish()
            return True
        return self._adopt_finished(run)

    def _adopt_finished(self, run: EncodingRun) -> bool:
        """Recognise saves that were written before a crash; refuse an id that is taken."""
        everything = Selection(include_private=True, history=True)
        ids = [item.request.record_id for item in run.open_items]
        stored: dict[str, list[MemoryRecord]] = {}
        for record in self.services.store.get(everything, ids):
            stored.setdefault(record.id, []).append(record)
        for item in run.open_items:
            versions = stored.get(item.request.record_id)
            if not versions:
                continue
            latest = max(versions, key=lambda record: record.version)
            if item.request.explicit_id:
                same = _is_this_save(latest, item) and _stands(latest, item, run.now)
            else:
                same = any(_is_this_save(version, item) for version in versions)
            if same:
                item.adopted = item.outcome = latest
            elif item.request.explicit_id:
                raise RecordError(
                    f"The id {item.request.record_id!r} is taken: by a record that says something "
                    "else, that is not current any more, or that is not visible here. Nothing was "
                    "stored. Choose another record_id, change the record with update(), or erase "
                    "it with forget(record_ids=[...]) first."
                )
        return False


def _standing(run: EncodingRun) -> list[tuple[str | None, frozenset[tuple[str, int]]]]:
    """Return what each open item was found to equal and to be like."""
    return [(i.existing.id if i.existing else None, i.judged) for i in run.open_items]


def _is_this_save(version: MemoryRecord, item: Item) -> bool:
    """Tell whether a stored version says what a save says, to the same audience, in its reach."""
    request = item.request
    return (
        text_hash(version.content) == item.hash
        and version.private == request.private
        and (not version.private or version.source == request.source)
        and any(scopes.contains(root, version.scope) for root in request.reach)
    )


def _stands(record: MemoryRecord, item: Item, now: datetime) -> bool:
    """Tell whether a record holds on, or ends when this save said it would."""
    expires = record.expires_at
    over = expires is not None and expires <= now and expires != item.request.expires_at
    return record.retired is None and not over


async def _to_the_end(work: Coroutine[Any, Any, bool]) -> bool:
    """Wait for work in a thread even when cancelled: the thread cannot be stopped half-way."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
