"""A recall as it happens: steps and spans while they run, then the result.

`recall_stream` and `arecall_stream` of every view give one of the two streams below. Both are the
same machine, `_Feed`, which lives on the runtime's loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from .records import Recall
from .trace import MAX_SPANS, Span, Status, Trace, watching
from .twins import HasRuntime, misfit, named

if TYPE_CHECKING:
    from .flows.runtime import Runtime

P = ParamSpec("P")
S = TypeVar("S", bound=HasRuntime)
C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RecallUpdate:
    """One thing that happened in a recall.

    Attributes:
        type: ``started`` and ``ended`` for the run, its steps and what runs in them; ``done`` for
            the last one, which has the result.
        name: of the span, such as ``search``; ``recall`` for the run itself.
        kind: ``run``, ``step``, ``search``, ``llm``, ``embed``, ``store`` or another word.
        depth: 0 for the run, 1 for its steps, 2 for what runs in a step, and so on.
        at_ms: milliseconds since the recall began.
        duration_ms: milliseconds it took; None while it runs.
        status: ``ok``, ``error`` or ``cancelled``; ``ok`` while it runs.
        error: what it failed with; None when it did not.
        facts: what the span tells so far; a copy.
        span_id: the span's id in the trace; 0 for the run.
        recall: the result, in the last update; None before.
    """

    type: Literal["started", "ended", "done"]
    name: str
    kind: str
    depth: int
    at_ms: float
    duration_ms: float | None = None
    status: Status = "ok"
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    span_id: int = 0
    recall: Recall | None = field(default=None, repr=False)

    def __str__(self) -> str:
        from .trace_views.values import MAX_ERROR, duration_text, format_value, short

        sign = {"started": "+", "ended": "-", "done": "="}[self.type]
        parts = [f"{'  ' * self.depth}{sign} {short(self.name, 80)}"]
        if self.duration_ms is not None:
            parts.append(duration_text(self.duration_ms))
        if self.status == "error":
            parts.append(f"failed: {short(self.error or 'unknown error', MAX_ERROR)}")
        elif self.status == "cancelled":
            parts.append("cancelled")
        parts += [
            f"{short(name, 80)}={format_value(value)}"
            for name, value in self.facts.items()
            if value is not None
        ]
        return f"{duration_text(self.at_ms):>9} {' '.join(parts)}"


class _Feed:
    """One recall and what happened in it, but not yet told; used on the runtime's loop only.

    The spans of the run report themselves in whatever thread they run.
    """

    def __init__(self, runtime: Runtime, start: Callable[[], Coroutine[Any, Any, Recall]]) -> None:
        self.runtime = runtime
        self._start: Callable[[], Coroutine[Any, Any, Recall]] | None = start
        self._task: asyncio.Task[Recall] | None = None
        self._over = False
        self._stopped = False
        self._result: Recall | None = None
        self._failure: BaseException | None = None
        self._news: deque[RecallUpdate] = deque()
        self._happened = asyncio.Event()
        self._trace: Trace | None = None
        self._depths: dict[int, int] = {}
        self._left = 2 * MAX_SPANS

    # -- as a Watcher -------------------------------------------------------------------------

    def span_started(self, trace: Trace, span: Span) -> None:
        """Tell that a span of this run began."""
        if self._trace is None:
            self._trace = trace
        depth = 0 if span.parent is None else self._depths.get(span.parent, 0) + 1
        if trace is self._trace:  # not a recall that a model or embedder makes on the way
            self._depths[span.id] = depth
            self._tell(_update("started", span, depth, span.start_ns))

    def span_ended(self, trace: Trace, span: Span) -> None:
        """Tell that a span of this run ended."""
        if trace is self._trace and span.end_ns is not None:
            depth = self._depths.pop(span.id, 0)
            self._tell(_update("ended", span, depth, span.end_ns))

    def _tell(self, update: RecallUpdate) -> None:
        if self._left <= 0:  # as many as a trace keeps; nobody reads on for ever
            return
        self._left -= 1
        self._news.append(update)
        if not self._happened.is_set():
            self.runtime.loop.call_soon_threadsafe(self._happened.set)

    # -- for the stream -----------------------------------------------------------------------

    async def take(self) -> list[RecallUpdate]:
        """Return what happened since the last call, waiting for something; starts the run.

        The last update has the result. ``[]`` after that, and once the run was stopped.

        Raises:
            Whatever the recall raises, once all updates were taken.
        """
        self._begin()
        try:
            while not self._news and not self._over:
                self._happened.clear()
                if not self._news:
                    await self._happened.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise
        if self._news:
            news = list(self._news)
            self._news.clear()
            return news
        return self._last()

    def _begin(self) -> None:
        start, self._start = self._start, None
        if start is None or self._stopped:
            return
        with watching(self):
            self._task = asyncio.create_task(start(), name="mnemotrace-recall-stream")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Recall]) -> None:
        self._over = True
        self._task = None  # it knows this watcher: let both go
        if task.cancelled():
            self._failure = None if self._stopped else asyncio.CancelledError()
        elif (error := task.exception()) is not None:
            self._failure = error
        else:
            self._result = task.result()
        self._happened.set()

    def _last(self) -> list[RecallUpdate]:
        failure, self._failure = self._failure, None
        recall, self._result = self._result, None
        self._trace = None
        if failure is not None:
            raise failure
        if recall is None:
            return []
        took = recall.trace.duration_ms if recall.trace is not None else 0.0
        facts = {"results": len(recall), "confidence": recall.confidence, "status": recall.status}
        return [RecallUpdate("done", "recall", "run", 0, took, took, facts=facts, recall=recall)]

    async def stop(self) -> None:
        """Cancel the run if it goes on, and wait until it has stopped."""
        self._over = True
        self._start = None
        task = self._task
        self._cancel()
        if task is not None:
            await asyncio.wait([task])

    def abandon(self) -> None:
        """Cancel the run from any thread, without waiting."""
        task = self._task
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._stopped:
            self._task.cancel()  # once: a second time would disturb the run while it cleans up
        self._stopped = True


def _update(type_: Literal["started", "ended"], span: Span, depth: int, at: int) -> RecallUpdate:
    ended = type_ == "ended"
    return RecallUpdate(
        type_,
        span.name,
        span.kind,
        depth,
        at / 1e6,
        span.duration_ms if ended else None,
        span.status,
        span.error,
        dict(span.attrs),
        span.id,
    )


class _Stream:
    """What both streams have: the feed, and what was taken from it but not yet given."""

    def __init__(self, runtime: Runtime, start: Callable[[], Coroutine[Any, Any, Recall]]) -> None:
        self._feed = _Feed(runtime, start)
        self._taken: deque[RecallUpdate] = deque()
        self._ended = False
        self._recall: Recall | None = None

    @property
    def recall(self) -> Recall | None:
        """The result, once the last update was given; None before."""
        return self._recall

    def _next_taken(self) -> RecallUpdate | None:
        if not self._taken:
            return None
        update = self._taken.popleft()
        if update.recall is not None:
            self._recall = update.recall
            self._ended = True
        return update

    def __del__(self) -> None:
        feed = getattr(self, "_feed", None)
        if feed is not None:
            feed.abandon()


class RecallStream(_Stream):
    """The updates of one recall, to iterate over; blocks between them.

    The recall begins with the first update asked for. Leaving the loop early, `close()` and the
    end of a ``with`` block cancel it. What it raises comes out of the loop.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RecallUpdate:
        while (update := self._next_taken()) is None:
            if self._ended:
                raise StopIteration
            try:
                news = self._feed.runtime.run(self._feed.take())
            except BaseException:
                self._ended = True
                self._feed.abandon()  # `take` may have been done when the reader was cancelled
                raise
            self._taken.extend(news)
            self._ended = not news
        return update

    def close(self) -> None:
        """Cancel the recall if it still runs; safe to call at any time."""
        self._ended = True
        self._taken.clear()
        self._feed.runtime.run(self._feed.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncRecallStream(_Stream):
    """The updates of one recall, for ``async for``; it blocks no event loop.

    The recall begins with the first update asked for. Leaving the loop early, `aclose()` and the
    end of an ``async with`` block cancel it. What it raises comes out of the loop.
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RecallUpdate:
        while (update := self._next_taken()) is None:
            if self._ended:
                raise StopAsyncIteration
            try:
                news = await self._feed.runtime.arun(self._feed.take())
            except BaseException:
                self._ended = True
                self._feed.abandon()  # `take` may have been done when the reader was cancelled
                raise
            self._taken.extend(news)
            self._ended = not news
        return update

    async def aclose(self) -> None:
        """Cancel the recall if it still runs, and wait until it has stopped."""
        self._ended = True
        self._taken.clear()
        await self._feed.runtime.arun(self._feed.stop())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


Recalls = Callable[Concatenate[S, P], Coroutine[Any, Any, Recall]]

DOC = """Recall as `recall` does, with the same arguments, and tell what happens meanwhile.

        Returns:
            {what}: `RecallUpdate` objects for the run, its steps and what runs in them, as they
            start and end. The last one has the result as `recall`, and so has the stream from then
            on. With ``trace="off"`` there is only that one. The recall begins when the first update
            is asked for; leaving the loop early cancels it.

        Raises:
            TypeError: an unknown argument.
            What `recall` raises comes out of the iteration.
        """


def streaming(method: Recalls[S, P]) -> Callable[Concatenate[S, P], RecallStream]:
    """Return the method that gives a stream to iterate over."""
    name, signature = "recall_stream", inspect.signature(method)

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> RecallStream:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            raise misfit(name, method, args, kwargs) from None
        return RecallStream(self._runtime, lambda: method(self, *args, **kwargs))

    return _documented(call, name, method, "An iterator", "RecallStream")


def astreaming(method: Recalls[S, P]) -> Callable[Concatenate[S, P], AsyncRecallStream]:
    """Return the method that gives a stream for ``async for``."""
    name, signature = "arecall_stream", inspect.signature(method)

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRecallStream:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            raise misfit(name, method, args, kwargs) from None
        return AsyncRecallStream(self._runtime, lambda: method(self, *args, **kwargs))

    return _documented(call, name, method, "An asynchronous iterator", "AsyncRecallStream")


def _documented(call: C, name: str, method: Callable[..., Any], what: str, kind: str) -> C:
    call = named(call, name, method)
    call.__doc__ = DOC.format(what=what)
    signature = inspect.signature(method).replace(return_annotation=kind)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
