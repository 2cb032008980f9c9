"""Replaying: run again what was recorded, with every answer of the models taken from the tape.

No model and no embedder is asked: what is not on the tape raises a ReplayError that names it. The
runs take the times, the record ids and the settings of the recording, and go through the same
flows, so that on the store as it was they give the same results and a trace of their own.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .capture import Kind, capture
from .checks import checked_path, counted, kind_of
from .config import MemoryConfig
from .embedders.fingerprint import require_same
from .embedders.service import EmbeddingService
from .errors import (
    EmbedderError,
    EmbedderMismatchError,
    InvalidInputError,
    LLMError,
    LLMUnavailableError,
    MnemotraceError,
    ReplayError,
)
from .explanation import excerpt
from .flows.batch import EncodingRun
from .flows.encoding import EncodingFlow
from .flows.events import EncodingStarted, RecallStarted
from .flows.evidence import RecallRun
from .flows.recall import RecallFlow, ShallowRecall
from .flows.services import Services
from .llm.protocol import LLMReply, LLMRequest, LLMTimeoutError, TransientLLMError
from .llm.service import LLMService
from .recording import encode_result, recall_result
from .records import MemoryRecord, Recall
from .stores.backend import StorageBackend
from .tape import (
    Tape,
    TapedRun,
    load,
    request_key,
    save_from_json,
    selection_from_json,
    text_key,
    zone_from_json,
)
from .trace import Span, Trace, note, start_trace, watching
from .twins import awaitable, blocking

if TYPE_CHECKING:
    from .core import MemoryCore
    from .flows.runtime import Runtime
    from .views import MemoryView

_FAILURES: dict[str, type[LLMError]] = {
    kind.__name__: kind for kind in (LLMUnavailableError, LLMTimeoutError, TransientLLMError)
}
_BY_TIME = frozenset(
    {"search", "nearest", "get", "vectors", "list_records", "count", "facet", "erase"}
)
"""Methods of a store that judge by a time what has expired."""


@dataclass(slots=True)
class ReplayedRun:
    """One run of a tape, run again.

    Attributes:
        kind: ``recall`` or ``encode``.
        result: what came out: a `Recall`, or the records that were saved; None when it failed.
        error: what it failed with; None when it did not.
        differences: how that is not what was recorded, one line each; empty when it is the same.
        trace: of the run now; `mnemotrace.compare` sets it beside `recorded_trace`.
        recorded_trace: of the run then; None when tracing was off.
    """

    kind: str
    result: Recall | list[MemoryRecord] | None = None
    error: Exception | None = None
    differences: list[str] = field(default_factory=list)
    trace: Trace | None = None
    recorded_trace: Trace | None = None

    @property
    def same(self) -> bool:
        """Whether the result is the recorded one: ids, order, scores and texts, to the last bit."""
        return not self.differences


class Replay(list[ReplayedRun]):
    """The runs of a tape, run again, in their order."""

    @property
    def same(self) -> bool:
        """Whether every result is the recorded one."""
        return all(run.same for run in self)

    def __str__(self) -> str:
        lines = []
        for number, run in enumerate(self, 1):
            if run.error is not None:
                what = f"failed with {type(run.error).__name__}"
            else:
                nouns = ("match", "matches") if run.kind == "recall" else ("record", "records")
                what = counted(len(run.result or ()), *nouns)
            lines.append(f"{number}. {run.kind}: {what}, {'the same' if run.same else 'different'}")
            lines += [f"   {excerpt(difference, 200)}" for difference in run.differences]
        return "\n".join(lines)


class _Player:
    """Gives one run the answers of its tape; a `Capture`, and a `Watcher` for its trace.

    Attributes:
        missing: the first thing that was asked and is not on the tape; None so far.
        trace: of the run; None when tracing is off.
    """

    def __init__(self, tape: Tape, run: TapedRun, number: int) -> None:
        self._tape = tape
        self._run = run
        self._number = number
        self.missing: ReplayError | None = None
        self.trace: Trace | None = None
        self._answers: dict[str, deque[dict[str, Any]]] = {}
        for answer in run.answers:
            self._answers.setdefault(answer["key"], deque()).append(answer)

    def began(self, now: datetime) -> None:
        """See `Capture`."""

    def known(self, request: LLMRequest) -> LLMReply | None:
        """See `Capture`."""
        left = self._answers.get(request_key(request))
        if not left:
            again = " again" if left is not None else ""
            raise self._lacks(
                f"the language model was asked for {request.purpose}{again}: "
                f'"{excerpt(request.prompt, 200)}"'
            )
        answer = left.popleft()
        if "error" in answer:
            # A request that was cancelled had run out of its time.
            unanswered = LLMTimeoutError if answer["error"] == "CancelledError" else LLMError
            raise _FAILURES.get(answer["error"], unanswered)(answer["message"])
        return LLMReply(
            answer["text"],
            answer["model"],
            answer["tokens_in"],
            answer["tokens_out"],
            answer["cost"],
        )

    def answered(self, request: LLMRequest, reply: LLMReply) -> None:
        """See `Capture`."""

    def unanswered(self, request: LLMRequest, error: BaseException) -> None:
        """See `Capture`."""

    def vectors(self, kind: Kind, texts: Sequence[str]) -> Any:
        """See `Capture`."""
        found = []
        for text in texts:
            key = text_key(kind, text)
            place = self._run.embedded.get(key)
            if place is not None:
                found.append(self._tape.vector(place))
            elif key in self._run.not_embedded:
                raise EmbedderError(self._run.not_embedded[key])
            else:
                raise self._lacks(f'a {kind} was to be embedded: "{excerpt(text, 200)}"')
        return np.stack(found) if found else None

    def embedded(self, kind: Kind, texts: Sequence[str], vectors: Any) -> None:
        """See `Capture`."""

    def not_embedded(self, kind: Kind, texts: Sequence[str], error: BaseException) -> None:
        """See `Capture`."""

    def span_started(self, trace: Trace, span: Span) -> None:
        """See `Watcher`."""
        self.trace = trace

    def span_ended(self, trace: Trace, span: Span) -> None:
        """See `Watcher`."""

    def _lacks(self, what: str) -> ReplayError:
        error = ReplayError(
            f"Run {self._number} ({self._run.kind}) asked for something that is not on the tape: "
            f"{what}. Replay it on the store as it was when the recording began, with the same "
            "release, or record it again."
        )
        self.missing = self.missing or error
        return error


class _TapedLLM:
    """Stands for the language model of the recording; a `_Player` answers for it."""

    def __init__(self, name: str, reason: str | None) -> None:
        self.name = name
        self._reason = reason

    def unavailable(self) -> str | None:
        """Return why it could not be asked."""
        return self._reason

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Never called: the answers come from the tape."""
        raise LLMUnavailableError(self._reason or "a replay asks no language model")


class _Unhurried(LLMService):
    """Repeats a recorded failure at once, as there is nobody to wait for."""

    async def _complete(self, request: LLMRequest, retries: int) -> LLMReply:
        attempt = 1
        while True:
            try:
                return await self._call(request, attempt)
            except TransientLLMError:
                if attempt > retries:
                    raise
            attempt += 1


class _TapedEmbedder(EmbeddingService):
    """Stands for the embedder of the recording; a `_Player` answers for it."""

    def __init__(self, fingerprint: dict[str, Any] | None) -> None:
        def embed(texts: list[str]) -> list[list[float]]:
            raise ReplayError("A replay asks no embedder.")

        recorded = fingerprint or {}
        super().__init__(embed, provider=recorded.get("provider"), model=recorded.get("model"))
        self._recorded = fingerprint

    async def fingerprint(self) -> dict[str, Any]:
        """Return what the recorded store was written with."""
        if self._recorded is None:
            raise ReplayError(
                "This run was recorded on a store that was not yet written to, so the tape does "
                "not know its embedder and cannot begin a store."
            )
        return dict(self._recorded)

    async def verify(self, recorded: Any) -> None:
        """Refuse a store that was written with another embedder than the recorded one."""
        if self._recorded is not None:
            require_same(recorded, self._recorded)


class _AtTime:
    """A store at the time of a run: what has expired since is still there."""

    def __init__(self, store: StorageBackend, now: datetime) -> None:
        self._store = store
        self._now = now

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in _BY_TIME:
            return attribute

        @functools.wraps(attribute)
        def judged(selection: Any, *args: Any, **kwargs: Any) -> Any:
            if selection.now is None:
                selection = replace(selection, now=self._now)
            return attribute(selection, *args, **kwargs)

        return judged


class _Replaying:
    """Runs one tape on one memory's store."""

    def __init__(self, path: Path, memory: MemoryView) -> None:
        core = getattr(memory, "_core", None)
        if core is None:
            raise InvalidInputError(
                f"replay() needs an open Memory, not {kind_of(memory)}; pass "
                "Memory(llm=None, storage=...) over the store to run on."
            )
        self._path = path
        self._core: MemoryCore = core

    @property
    def _runtime(self) -> Runtime:
        return self._core.runtime

    async def _run(self) -> Replay:
        """Run the tape from its beginning to its end."""
        core = self._core
        core.check_open()
        tape = await core.runtime.in_thread(load, self._path)
        await core.drain()
        done = Replay()
        for number, taped in enumerate(tape.runs, 1):
            done.append(await self._again(tape, taped, number))
        return done

    run = blocking(_run)
    arun = awaitable(_run)

    async def _again(self, tape: Tape, taped: TapedRun, number: int) -> ReplayedRun:
        now = datetime.fromisoformat(taped.now)
        memory = tape.memories[taped.memory]
        config = MemoryConfig.model_validate(memory["settings"])
        services = Services(
            cast("StorageBackend", _AtTime(self._core.store, now)),
            _TapedEmbedder(memory["embedder"]),
            _Unhurried(_TapedLLM(memory["model"], taped.unavailable), config.llm_concurrency),
            config,
            self._core.runtime,
            clock=lambda: now,
        )
        player = _Player(tape, taped, number)
        again = ReplayedRun(taped.kind)
        if taped.trace is not None:
            again.recorded_trace = Trace.from_json(taped.trace)
        try:
            with capture(player), watching(player):
                if taped.kind == "recall":
                    again.result = await _recall(services, taped, now)
                    result = recall_result(again.result)
                else:
                    again.result = await _encode(services, taped, now)
                    result = encode_result(again.result)
        except (MnemotraceError, TimeoutError) as error:
            result = {"error": type(error).__name__, "message": str(error)}
            of_the_replay = isinstance(error, ReplayError | EmbedderMismatchError)
            if of_the_replay and result != taped.result:
                raise
            again.error = error
        again.trace = player.trace
        if player.missing is not None:
            raise player.missing
        again.differences = list(_differences(taped.result, result))
        return again


async def _recall(services: Services, taped: TapedRun, now: datetime) -> Recall:
    asked, config = taped.arguments, services.config
    selection = selection_from_json(asked["selection"])
    zone = zone_from_json(asked["zone"], now)
    limit, depth = asked["limit"], asked["depth"]
    run = RecallRun.of(asked["query"], selection, limit, depth, now, config, zone)
    with start_trace("recall", level=config.trace, depth=depth, limit=limit) as trace:
        started = RecallStarted(run=run)
        if limit > 0 and depth == "deep":
            await RecallFlow(services).run(start_event=started)
        elif limit > 0:
            await ShallowRecall.search(ShallowRecall(services), started)
        note(results=len(run.matches), confidence=run.confidence)
    return Recall(
        run.matches,
        query=run.query,
        trace=trace,
        confidence=run.confidence,
        evidence_gaps=run.gaps,
        errors=run.errors,
    )


async def _encode(services: Services, taped: TapedRun, now: datetime) -> list[MemoryRecord]:
    requests = [save_from_json(data) for data in taped.arguments["saves"]]
    run = EncodingRun.of(requests, now)
    with start_trace("encode", level=services.config.trace, texts=len(requests)):
        await EncodingFlow(services).run(start_event=EncodingStarted(run=run))
    return run.outcomes


def _differences(recorded: dict[str, Any], result: dict[str, Any]) -> Sequence[str]:
    lines = []
    for name in dict.fromkeys((*recorded, *result)):
        was, now = recorded.get(name), result.get(name)
        if was == now:
            continue
        if isinstance(was, list) and isinstance(now, list):
            if len(was) != len(now):
                lines.append(f"{len(was)} {name} were recorded, now there are {len(now)}")
            for place, (old, new) in enumerate(zip(was, now, strict=False), 1):
                if old != new:
                    lines.append(f"{name} {place}: {old!r} was recorded, now it is {new!r}")
        else:
            lines.append(f"{name}: {was!r} was recorded, now it is {now!r}")
    return lines


def replay(path: str | PathLike[str], memory: MemoryView) -> Replay:
    """Run again what was recorded, with every answer of the models taken from the tape.

    The runs use the store of `memory` and nothing else of it: the settings, times, record ids and
    answers are those of the recording, so no key and no network are needed. On the store as it was
    when the recording began (a copy, or a new one when that was new) the results are the same.
    Recorded saves are written to the store; recalls count no access.

    Args:
        path: what `record` wrote.
        memory: an open memory over the store to run on.

    Returns:
        One run for each that was recorded, with its result, its trace, and whether it is the same.

    Raises:
        InvalidInputError: `path` is not a path, or `memory` is not an open memory.
        TapeError: the file is damaged, not a tape, or of a newer release.
        ReplayError: a run asked for something that is not on the tape; what ran before it is done.
        EmbedderMismatchError: the store was written with another embedder than the recorded one.
    """
    return _Replaying(checked_path(path, "The tape"), memory).run()


async def areplay(path: str | PathLike[str], memory: MemoryView) -> Replay:
    """Do what `replay` does, to be awaited.

    Args:
        path: what `record` wrote.
        memory: an open memory over the store to run on.
    """
    return await _Replaying(checked_path(path, "The tape"), memory).arun()
