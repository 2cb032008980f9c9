"""Memory inside your own classes: `MemoryMixin` for any class, `Flow` for workflows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workflows import Workflow
from workflows.handler import WorkflowHandler

from mnemotrace.checks import shortened
from mnemotrace.errors import ConfigurationError, RuntimeMisuseError

from .steps import TracedRun, retrieve, stopped

if TYPE_CHECKING:
    from mnemotrace.receipts import SaveReceipt
    from mnemotrace.records import Extraction, MemoryRecord, Recall
    from mnemotrace.views import MemoryView


_opening = threading.Lock()


def _checked(memory: MemoryView | None) -> MemoryView | None:
    """Refuse what is not a memory, before it fails somewhere inside a step."""
    if memory is None or callable(getattr(memory, "arecall", None)):
        return memory
    raise ConfigurationError(
        f"memory={shortened(memory)} is not a memory. Pass a mnemotrace.Memory or a view of one, or leave "
        "it out for a default Memory()."
    )


class MemoryMixin:
    """Gives a class `self.memory`, `self.remember`, `self.recall`, `self.retrieve_for` and more.

    Set `self.memory` to a `Memory` or to a view of one (a view keeps the object within its
    scopes). Left unset, a default `Memory()` is opened on first use, and closed with
    `close_memory()`.
    """

    _memory: MemoryView | None = None
    _owns_memory: bool = False

    @property
    def memory(self) -> MemoryView:
        """The memory in use."""
        memory = self._memory
        if memory is None:
            from mnemotrace.memory import Memory

            with _opening:  # steps in several threads may ask first
                memory = self._memory
                if memory is None:
                    memory = self._memory = Memory()
                    self._owns_memory = True
        return memory

    @memory.setter
    def memory(self, value: MemoryView | None) -> None:
        value = _checked(value)
        self.close_memory()
        self._memory = value

    def close_memory(self) -> None:
        """Close the memory if this object opened it; one that was handed in stays open."""
        from mnemotrace.memory import Memory

        memory, self._memory = self._memory, None
        if self._owns_memory and isinstance(memory, Memory):
            memory.close()
        self._owns_memory = False

    def remember(
        self, content: str | Iterable[str | Mapping[str, Any]], **options: Any
    ) -> MemoryRecord | SaveReceipt:
        """Save a text (see `Memory.remember`), or a list of texts (`Memory.remember_many`)."""
        if isinstance(content, str):
            return self.memory.remember(content, **options)
        return self.memory.remember_many(content, **options)

    async def aremember(
        self, content: str | Iterable[str | Mapping[str, Any]], **options: Any
    ) -> MemoryRecord | SaveReceipt:
        """Async twin of `remember`."""
        if isinstance(content, str):
            return await self.memory.aremember(content, **options)
        return await self.memory.aremember_many(content, **options)

    def recall(self, query: str, **options: Any) -> Recall:
        """Recall (see `Memory.recall`)."""
        return self.memory.recall(query, **options)

    async def arecall(self, query: str, **options: Any) -> Recall:
        """Async twin of `recall`."""
        return await self.memory.arecall(query, **options)

    def retrieve_for(self, task: str, **options: Any) -> str:
        """Return what is remembered for a task, for its prompt (see `Memory.retrieve_for`)."""
        return self.memory.retrieve_for(task, **options)

    async def aretrieve_for(self, task: str, **options: Any) -> str:
        """Async twin of `retrieve_for`."""
        return await self.memory.aretrieve_for(task, **options)

    def extract_memories(self, content: str, **options: Any) -> Extraction:
        """Split a text into atomic statements (see `Memory.extract_memories`)."""
        return self.memory.extract_memories(content, **options)

    async def aextract_memories(self, content: str, **options: Any) -> Extraction:
        """Async twin of `extract_memories`."""
        return await self.memory.aextract_memories(content, **options)


class Flow(MemoryMixin, Workflow):
    """A llama-index workflow with a memory.

    Write steps as in any `workflows.Workflow`; inside them use ``self.remember(...)``,
    ``self.recall(...)`` and ``self.extract_memories(...)``, or their async twins, which do not
    block the loop. When a run ends, in whatever way, its pending saves are drained.

    Args:
        memory: a `Memory` or a view of one; a default `Memory()` on first use when None.
        options: for `workflows.Workflow` (``timeout``, ``verbose``, ...).
    """

    def __init__(self, memory: MemoryView | None = None, **options: Any) -> None:
        memory = _checked(memory)
        super().__init__(**options)
        self._memory = memory

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Start a run, as `Workflow.run`; its handler's result waits for pending saves.

        Raises:
            RuntimeMisuseError: no event loop is running here; nothing was run.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeMisuseError(
                f"{type(self).__name__}.run() needs a running event loop; nothing was run. Await "
                "it in a coroutine: `async def main(): await flow.run()`, then asyncio.run(main())."
            ) from None
        return FlowHandler(super().run(*args, **kwargs), self)


class FlowHandler(TracedRun):
    """A `WorkflowHandler` whose result comes after the flow's pending saves are drained.

    Cancelling the task that awaits it stops the run. Everything else (`stream_events`, `ctx`,
    `cancel_run`, ...) is the handler's own.
    """

    def __init__(self, handler: WorkflowHandler, flow: Flow) -> None:
        super().__init__(handler)
        self._flow = flow
        # A task of its own, so that a run nobody awaits is drained too.
        self._finished = asyncio.ensure_future(self._finish())
        self._finished.add_done_callback(retrieve)

    async def _finish(self) -> Any:
        try:
            return await self._handler
        finally:
            if self._flow._memory is not None:
                await self._flow._memory.adrain_writes()

    async def _result(self) -> Any:
        try:
            return await asyncio.shield(self._finished)
        except asyncio.CancelledError:
            if not self._finished.done():
                await stopped(self._handler)
                await asyncio.wait([self._finished])
            raise

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._result().__await__()
