"""Recording: keep recalls and saves, with what the models answered in them, in a file.

``with record("run.json"):`` keeps what the block does through any memory: each recall, and each
batch of saves on its way into the store, whether it was saved at once or in the background.
`mnemotrace.replay` runs them again, offline, to the same result.

Only runs of the block's own context are kept (its thread or task, and what those start), so two
blocks at the same time never mix. Background saves are known by the ids of their records.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast

from .capture import Kind, capture
from .checks import checked_path, counted
from .errors import TapeError
from .trace import Span, Trace, watching

if TYPE_CHECKING:
    from .core import MemoryCore
    from .flows.requests import SaveRequest
    from .llm.protocol import LLMReply, LLMRequest
    from .records import MemoryRecord, Recall
    from .tape import Tape, TapedRun

P = ParamSpec("P")
R = TypeVar("R")

UNSTABLE = frozenset({"last_accessed", "access_count", "usefulness"})
"""Fields of a record that reading it changes, so that two runs need not agree on them."""


class Recording:
    """What `record` returns: a block whose recalls and saves are kept.

    Attributes:
        path: the file, which is written when the block ends.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = checked_path(path, "The tape")
        self._tape: Tape | None = None
        self._expected: dict[str, MemoryCore] = {}
        self._problems: list[str] = []
        self._lock = threading.Lock()

    @property
    def runs(self) -> int:
        """How many runs were kept so far."""
        return 0 if self._tape is None else len(self._tape.runs)

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for core in self._cores():
                core.runtime.run(core.drain())
        finally:
            self._end()
            self._write()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for core in self._cores():
                await core.runtime.arun(core.drain())
        finally:
            self._end()
            await asyncio.to_thread(self._write)

    def _begin(self) -> None:
        from .tape import Tape

        if self._tape is not None:
            raise TapeError("A recording is used once. Call mnemotrace.record() again.")
        folder = self.path.parent
        if not folder.is_dir() or self.path.is_dir():
            what = "is a folder" if self.path.is_dir() else "has no folder to be written to"
            raise TapeError(f"The tape {str(self.path)!r} {what}. Choose another path.")
        self._tape = Tape()
        _here.set((*_here.get(), self))
        with _registering:
            _open.append(self)

    def _end(self) -> None:
        _here.set(tuple(item for item in _here.get() if item is not self))
        with _registering:
            _open.remove(self)

    def _write(self) -> None:
        assert self._tape is not None
        with self._lock:
            self._tape.save(self.path)
        if self._problems:
            raise TapeError(
                f"{counted(len(self._problems), 'run')} could not be recorded, the others are in "
                f"{str(self.path)!r}: {self._problems[0]}"
            )

    def _cores(self) -> list[MemoryCore]:
        return list({id(core): core for core in self._expected.values()}.values())

    def expect(self, core: MemoryCore, record_id: str) -> None:
        """Note that a save of this block is on its way."""
        self._expected[record_id] = core

    def expects(self, requests: Sequence[SaveRequest]) -> bool:
        """Tell whether a batch was accepted in this block."""
        return any(request.record_id in self._expected for request in requests)

    def add(self, kept: _Kept, result: dict[str, Any]) -> None:
        """Keep a run that has ended."""
        assert self._tape is not None
        with self._lock:
            try:
                self._tape.runs.append(kept.run(self._tape, result))
            except Exception as error:  # noqa: BLE001  the run itself is fine; told at the end
                self._problems.append(f"{type(error).__name__}: {error}")


_here: ContextVar[tuple[Recording, ...]] = ContextVar("mnemotrace_recordings", default=())
_open: list[Recording] = []
_registering = threading.Lock()


def record(path: str | PathLike[str]) -> Recording:
    """Keep the recalls and saves of a block in a file, to be replayed (`mnemotrace.replay`).

    Use it as ``with record("run.json"):`` or, in async code, ``async with record("run.json"):``.
    When the block ends, it waits for its background saves to be tried, then writes the file. The
    texts that were saved, asked and recalled are in it; only its owner may read it (mode 0600).

    Args:
        path: the file; one that exists is replaced. Its folder must exist.

    Raises:
        TapeError: it cannot be written there; known before the block begins, where possible.
    """
    return Recording(path)


def expect(core: MemoryCore, request: SaveRequest) -> SaveRequest:
    """Let the recordings of this context know a save; returns it."""
    for recording in _here.get():
        recording.expect(core, request.record_id)
    return request


class _Kept:
    """What passes between one run and its models; a `Capture`, and a `Watcher` for its trace."""

    def __init__(
        self, core: MemoryCore, kind: Literal["recall", "encode"], arguments: dict[str, Any]
    ) -> None:
        self._core = core
        self._kind = kind
        self._arguments = arguments
        self._now: datetime | None = None
        self._unavailable = core.services.llm.known_unavailable()
        self._answers: list[tuple[LLMRequest, LLMReply | BaseException]] = []
        self._embedded: list[tuple[Kind, Sequence[str], Any]] = []
        self._trace: Trace | None = None

    def began(self, now: datetime) -> None:
        """See `Capture`."""
        self._now = now

    def known(self, request: LLMRequest) -> LLMReply | None:
        """See `Capture`."""
        return None

    def answered(self, request: LLMRequest, reply: LLMReply) -> None:
        """See `Capture`."""
        self._answers.append((request, reply))

    def unanswered(self, request: LLMRequest, error: BaseException) -> None:
        """See `Capture`."""
        self._answers.append((request, error))

    def vectors(self, kind: Kind, texts: Sequence[str]) -> Any:
        """See `Capture`."""
        return None

    def embedded(self, kind: Kind, texts: Sequence[str], vectors: Any) -> None:
        """See `Capture`."""
        self._embedded.append((kind, list(texts), vectors))

    def not_embedded(self, kind: Kind, texts: Sequence[str], error: BaseException) -> None:
        """See `Capture`."""
        self._embedded.append((kind, list(texts), error))

    def span_started(self, trace: Trace, span: Span) -> None:
        """See `Watcher`."""
        if span is trace.root:
            self._trace = trace

    def span_ended(self, trace: Trace, span: Span) -> None:
        """See `Watcher`."""

    def run(self, tape: Tape, result: dict[str, Any]) -> TapedRun:
        """Return the run as it is kept on a tape."""
        from .tape import TapedRun, request_key, text_key

        core, manifest = self._core, self._core.store.manifest()
        assert self._now is not None
        memory = tape.memory(
            {
                "settings": core.config.model_dump(mode="json"),
                "embedder": None if manifest is None else dict(manifest.embedder),
                "model": str(getattr(core.services.llm.llm, "name", "")),
            }
        )
        run = TapedRun(self._kind, memory, self._now.isoformat(), self._arguments)
        run.unavailable, run.result = self._unavailable, result
        run.trace = None if self._trace is None else self._trace.to_json()
        for request, reply in list(self._answers):
            answer: dict[str, Any] = {"key": request_key(request), "purpose": request.purpose}
            if isinstance(reply, BaseException):
                answer |= {"error": type(reply).__name__, "message": str(reply)}
            else:
                answer |= {
                    "text": reply.text,
                    "model": reply.model,
                    "tokens_in": reply.tokens_in,
                    "tokens_out": reply.tokens_out,
                    "cost": reply.cost,
                }
            run.answers.append(answer)
        for kind, texts, vectors in list(self._embedded):
            if isinstance(vectors, BaseException):
                run.not_embedded.update((text_key(kind, text), str(vectors)) for text in texts)
                continue
            for text, vector in zip(texts, vectors, strict=True):
                run.embedded[text_key(kind, text)] = tape.keep(vector)
        return run


async def _kept(
    recordings: Sequence[Recording],
    kept: _Kept,
    work: Awaitable[R],
    describe: Callable[[R], dict[str, Any]],
) -> R:
    """Run something, and keep what passed when it has ended; a cancelled run is not kept."""
    try:
        with capture(kept), watching(kept):
            result = await work
    except Exception as error:
        failure = {"error": type(error).__name__, "message": str(error)}
        for recording in recordings:
            recording.add(kept, failure)
        raise
    described = describe(result)
    for recording in recordings:
        recording.add(kept, described)
    return result


def taped_recall(
    method: Callable[P, Coroutine[Any, Any, Recall]],
) -> Callable[P, Coroutine[Any, Any, Recall]]:
    """Keep what `MemoryCore.recall` does for the recordings of the context it is called in."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def recall(*args: P.args, **kwargs: P.kwargs) -> Recall:
        recordings = _here.get()
        if not recordings:
            return await method(*args, **kwargs)
        from .tape import selection_to_json, zone_to_json

        asked = signature.bind(*args, **kwargs)
        asked.apply_defaults()
        given = asked.arguments
        core: MemoryCore = given["self"]
        selection = given["selection"]
        given["now"] = now = given["now"] or selection.as_of or core.services.clock()
        kept = _Kept(
            core,
            "recall",
            {
                "query": given["query"],
                "selection": selection_to_json(selection),
                "limit": given["limit"],
                "depth": given["depth"],
                "zone": zone_to_json(given["zone"], now),
            },
        )
        kept.began(now)
        work = method(*asked.args, **asked.kwargs)
        return await _kept(recordings, kept, work, recall_result)

    return recall


def taped_encode(
    method: Callable[P, Coroutine[Any, Any, list[MemoryRecord]]],
) -> Callable[P, Coroutine[Any, Any, list[MemoryRecord]]]:
    """Keep what `MemoryCore._encode` does for the recordings in which the saves were accepted."""

    @functools.wraps(method)
    async def encode(*args: P.args, **kwargs: P.kwargs) -> list[MemoryRecord]:
        if not _open:
            return await method(*args, **kwargs)
        core, requests = cast("tuple[MemoryCore, list[SaveRequest]]", args)
        recordings = [item for item in tuple(_open) if item.expects(requests)]
        if not recordings:
            return await method(*args, **kwargs)
        from .tape import save_to_json

        arguments = {"saves": [save_to_json(request) for request in requests]}
        kept = _Kept(core, "encode", arguments)
        return await _kept(recordings, kept, method(*args, **kwargs), encode_result)

    return encode


def recall_result(result: Recall) -> dict[str, Any]:
    """Return what two equal recalls have in common, as plain data."""
    return {
        "matches": [[match.record.id, match.record.version, match.score] for match in result],
        "confidence": result.confidence,
        "evidence_gaps": list(result.evidence_gaps),
        "errors": list(result.errors),
    }


def encode_result(records: Sequence[MemoryRecord]) -> dict[str, Any]:
    """Return what two equal saves have in common, as plain data."""
    exclude = set(UNSTABLE)
    return {"records": [record.model_dump(mode="json", exclude=exclude) for record in records]}
