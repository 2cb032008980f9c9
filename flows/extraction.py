"""ExtractionFlow: recognise -> split -> extract -> combine.

A text becomes atomic statements, part by part. A part the model cannot help with is kept as it is
and costs no other part anything. Without a model the whole text is the one statement.
"""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from mnemotrace import chunks, language, prompts
from mnemotrace.errors import LLMError, MnemotraceError
from mnemotrace.stores.backend import Vector
from mnemotrace.stores.selection import Selection
from mnemotrace.trace import note, note_content, span

from . import echo
from .answers import ExtractedMemories
from .events import Divided, Extracted, ExtractionFinished, ExtractionStarted, Recognised
from .services import Services
from .steps import TracedWorkflow, traced_step

DEADLINE = 0.9
"""The part of `encode_timeout` after which parts still unanswered are kept as they are."""

OPENING = 300
"""Characters of the beginning of a long text that its later parts are shown."""


@dataclass(slots=True, eq=False)
class Part:
    """One part of the text and what became of it."""

    chunk: chunks.Chunk
    statements: list[str] | None = None
    """None until the model has answered."""
    failure: str | None = None
    language: str | None = None
    """What is wrong with the language of the statements; None when nothing is."""


@dataclass(slots=True, eq=False)
class ExtractionRun:
    """One extraction on its way through the flow; passed by reference from step to step.

    Attributes:
        content: the text as the caller gave it.
        selection: what is visible to the caller; only that can be echoed.
        now: timezone-aware; relative times in the text count from it.
        recent: ids of records that were returned recently.
        results: the statements, in the order of the text.
        echoes: statements left out because they only repeat what is remembered.
        failures: why help by a language model was given up, one line each.
    """

    content: str
    selection: Selection
    now: datetime
    recent: list[str]
    marked: echo.Marked = field(init=False)
    parts: list[Part] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    echoes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    """When the run began: what goes before the model takes from the same time."""

    def __post_init__(self) -> None:
        self.marked = echo.Marked(unicodedata.normalize("NFC", self.content), [])

    def __repr__(self) -> str:
        return f"ExtractionRun({len(self.content)} characters, {len(self.parts)} parts)"


class ExtractionFlow(TracedWorkflow):
    """Splits a text into atomic, self-contained statements; stores nothing."""

    def __init__(self, services: Services) -> None:
        super().__init__(timeout=services.config.encode_timeout)
        self.services = services

    @traced_step
    async def recognise(self, ev: ExtractionStarted) -> Recognised | ExtractionFinished:
        """Mark what the text repeats from memory; end at once when there is no model to ask."""
        run: ExtractionRun = ev.run
        if reason := self.services.llm.known_unavailable():
            run.failures.append(f"extraction: {reason}")
            run.results = [run.content]
            note(llm="skipped", reason=reason)
            return ExtractionFinished(run=run)
        text = run.marked.text
        quoted = await self.services.in_thread(echo.quoted_parts, text)
        parts: list[echo.Remembered] = []
        if (quoted or run.recent) and not run.selection.is_empty:
            try:
                parts = await self._remembered(run, text, quoted)
            except MnemotraceError as error:
                # Echoes are merged when they are saved, too: no reason to lose the statements.
                run.failures.append(f"echo guard: {error}")
                note(failed=str(error))
        run.marked = await self.services.in_thread(echo.Marked, text, parts)
        note(quoted=len(quoted), recent=len(run.recent), remembered=len(parts))
        note_content(remembered=list(run.marked.known.values()))
        return Recognised(run=run)

    async def _remembered(
        self, run: ExtractionRun, text: str, quoted: list[echo.Quoted]
    ) -> list[echo.Remembered]:
        """Return the parts of the text that are memories already (the rule is in `echo`)."""
        services = self.services
        if await services.manifest_for_reading() is None:
            return []
        returned = await services.in_thread(self._returned_parts, run, text, quoted)
        exact, rest = await services.in_thread(self._equal_parts, run, quoted, returned)
        near = rest[: echo.MOST_NEAR]
        if near:
            vectors = await services.embedder.embed_documents([q.texts[-1] for q in near])
            exact += await services.in_thread(self._near_parts, run, near, vectors)
        return echo.settled(text, [*returned, *exact])

    def _returned_parts(
        self, run: ExtractionRun, text: str, quoted: list[echo.Quoted]
    ) -> list[echo.Remembered]:
        if not run.recent:
            return []
        versions = self.services.store.get(replace(run.selection, history=True), run.recent)
        return echo.returned_parts(text, versions, quoted)

    def _equal_parts(
        self, run: ExtractionRun, quoted: list[echo.Quoted], known: list[echo.Remembered]
    ) -> tuple[list[echo.Remembered], list[echo.Quoted]]:
        """Return the quoted parts whose very text is stored, and the quoted parts left over."""
        wanted = {text_hash for part in quoted for text_hash in part.hashes}
        stored = self.services.saying(run.selection, wanted)
        found: list[echo.Remembered] = []
        rest: list[echo.Quoted] = []
        for part in quoted:
            if any(k.start < part.end and part.start < k.end for k in (*known, *found)):
                continue
            same = next((stored[h] for h in part.hashes if h in stored), None)
            if same is None:
                rest.append(part)
            else:
                found.append(echo.Remembered(part.start, part.end, same.content))
        return found, rest

    def _near_parts(
        self, run: ExtractionRun, quoted: list[echo.Quoted], vectors: Iterable[Vector]
    ) -> list[echo.Remembered]:
        """Return the quoted parts that say, in other punctuation or so, what a record says."""
        store = self.services.store
        found: list[echo.Remembered] = []
        for part, vector in zip(quoted, vectors, strict=True):
            keys = {echo.same(text) for text in part.texts}
            for record, _ in store.nearest(run.selection, vector, 3, echo.NEAR_COSINE):
                if echo.same(record.content) in keys:
                    found.append(echo.Remembered(part.start, part.end, record.content))
                    break
        return found

    @traced_step
    async def split(self, ev: Recognised) -> Divided:
        """Cut the text into overlapping parts of a size that a small model reads to the end."""
        run: ExtractionRun = ev.run
        cut = await self.services.in_thread(chunks.split, run.marked.text)
        run.parts = [Part(chunk) for chunk in cut]
        note(parts=len(cut), characters=len(run.marked.text))
        return Divided(run=run)

    @traced_step
    async def extract(self, ev: Divided) -> Extracted:
        """Ask for the statements of every part, several parts at a time."""
        run: ExtractionRun = ev.run
        text = run.marked.text
        speakers = await self.services.in_thread(chunks.speakers, text)
        tasks = {
            asyncio.ensure_future(self._extract_part(run, part, speakers)): part
            for part in run.parts
        }
        seconds = self.services.config.encode_timeout * DEADLINE
        spent = time.perf_counter() - run.begun
        try:
            done, late = await asyncio.wait(tasks, timeout=max(seconds - spent, 0.0))
        finally:
            for task in tasks:
                task.cancel()
        if late:
            await asyncio.wait(late)
        for task in late:
            if tasks[task].statements is None:
                tasks[task].failure = f"no answer within {seconds:g} s; raise encode_timeout"
        for task in done:
            task.result()
        failed = [part.failure for part in run.parts if part.failure]
        run.failures += [f"extraction: {reason}" for reason in failed]
        run.failures += [f"extraction: {p.language}" for p in run.parts if p.language]
        note(
            parts=len(run.parts),
            failed=len(failed),
            statements=sum(len(part.statements or ()) for part in run.parts),
        )
        return Extracted(run=run)

    async def _extract_part(self, run: ExtractionRun, part: Part, speakers: list[str]) -> None:
        marked, chunk = run.marked, part.chunk
        text = marked.text[chunk.start : chunk.end]
        with span("extract.part", kind="step"):
            if not marked.says_something(chunk.start, chunk.end):
                part.statements = []
                note(llm="skipped", reason="nothing but what is remembered")
                return
            try:
                statements = await self._ask(run, part, text, speakers)
            except LLMError as error:
                part.failure = str(error)
                note(failed=str(error))
                return
            part.statements = statements
            shown = "\n".join([text, *marked.known_in(chunk.start, chunk.end).values()])
            wrong = await self.services.in_thread(language.foreign, statements, shown)
            if wrong:
                await self._ask_again(run, part, text, speakers, wrong)
            note(characters=len(text), statements=len(part.statements))

    async def _ask(
        self,
        run: ExtractionRun,
        part: Part,
        text: str,
        speakers: list[str],
        answered_in: Sequence[str] = (),
    ) -> list[str]:
        marked, chunk = run.marked, part.chunk
        system, prompt = prompts.extraction(
            text,
            run.now,
            known=marked.known_in(chunk.start, chunk.end),
            opening=marked.text[:OPENING].strip() if chunk.start else None,
            speakers=speakers,
            speaker=chunk.speaker,
            answered_in=answered_in,
        )
        answer = await self.services.llm.ask("extraction", system, prompt, ExtractedMemories)
        return answer.memories

    async def _ask_again(
        self, run: ExtractionRun, part: Part, text: str, speakers: list[str], wrong: list[str]
    ) -> None:
        """Ask once more for statements in the language of the text.

        The second answer counts when it is better and has no fewer statements. Else the first one
        stays, with a warning: a fact in another language is a fact.
        """
        found = language.languages("\n".join(wrong))
        part.language = f"statements of a part were in {', '.join(found)}, not the text's language"
        try:
            again = await self._ask(run, part, text, speakers, found)
        except LLMError as error:
            note(language=found, again=str(error))
            return
        still = await self.services.in_thread(language.foreign, again, text)
        note(language=found, again=len(again), foreign=[len(wrong), len(still)])
        if len(still) < len(wrong) and len(again) >= len(part.statements or ()):
            part.statements = again
            if not still:
                part.language = None

    @traced_step
    async def combine(self, ev: Extracted) -> ExtractionFinished:
        """Put the statements together: each once, without echoes, failed parts as they are."""
        run: ExtractionRun = ev.run
        if all(part.statements is None for part in run.parts):
            run.results = [run.content]
        else:
            await self.services.in_thread(self._combine, run)
        note(statements=len(run.results), echoes=len(run.echoes))
        note_content(statements=list(run.results), echoes=list(run.echoes))
        return ExtractionFinished(run=run)

    def _combine(self, run: ExtractionRun) -> None:
        seen: set[tuple[str, ...]] = set()
        kept: int | None = None  # where the text begins that the last, failed parts stand in
        for part in run.parts:
            if part.statements is None:
                start = part.chunk.start if kept is None else kept
                raw = run.marked.original(start, part.chunk.end)
                run.results[len(run.results) - (kept is not None) :] = [raw]
                kept = start
                continue
            kept = None
            for text in part.statements:
                said = " ".join(text.split())
                statement = run.marked.plain(said)
                key = echo.same(statement)
                if not said or key in seen:
                    continue
                seen.add(key)
                (run.echoes if run.marked.echoes(said) else run.results).append(statement)
        run.results = [stripped for text in run.results if (stripped := text.strip())]
