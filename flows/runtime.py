"""The one background loop that serves sync and async callers.

Every operation runs on one daemon loop thread per process, whoever calls: a script, a notebook
whose own loop is running, a web server, several threads. So loop-bound clients and locks have one
owner. Blocking work runs in a small pool of daemon threads beside it.

What the exit of the interpreter still finishes is a courtesy (`Runtime.at_exit`), not a guarantee:
durability belongs to whoever writes to disk before answering.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import inspect
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from mnemotrace.checks import counted
from mnemotrace.errors import RuntimeMisuseError
from mnemotrace.straight import in_loop, straight
from mnemotrace.trace import leave_trace

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

WORKERS = 8
"""Threads for blocking work; as many as calls of the language model run at once by default."""
EXIT_SECONDS = 5.0
"""How long the exit of the interpreter may wait for callbacks and running threads, in all."""


class _Workers(ThreadPoolExecutor):
    """A pool whose threads are daemons, so that a stuck call cannot keep the process alive.

    The first thread is started at once: Python 3.12.1 cannot start threads while it exits.
    A worker that itself waits for the runtime lends its place (`waiting`), so that callbacks
    which call the memory again cannot starve the pool.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(max_workers=limit, thread_name_prefix="mnemotrace-worker")
        self._limit = limit
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._state = threading.Lock()
        self._threads_alive = 1
        self._unfinished = 0
        self._closed = False
        self._own = threading.local()
        self._start_thread()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; its future can be cancelled until a thread takes it."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  the future carries it
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._state:
            if self._closed:
                raise RuntimeError("The mnemotrace runtime was closed; no further call can run.")
            self._unfinished += 1
        self._jobs.put(job)
        self._grow()
        return future

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let another thread take this worker's place while it waits."""
        if not getattr(self._own, "worker", False):
            yield
            return
        with self._state:
            self._limit += 1
        self._grow()
        try:
            yield
        finally:
            with self._state:
                self._limit -= 1

    @property
    def unfinished(self) -> int:
        """Calls queued or running."""
        return self._unfinished

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the calls already queued; never waits for them."""
        with self._state:
            self._closed = True
            threads = self._threads_alive
        for _ in range(threads):
            self._jobs.put(None)

    def _grow(self) -> None:
        """Start one more thread if there is work for it."""
        with self._state:
            if self._threads_alive >= min(self._limit, self._unfinished):
                return
            self._threads_alive += 1
        self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="mnemotrace-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is exiting; the threads there are take the call
            with self._state:
                self._threads_alive -= 1
                if self._threads_alive == 0:
                    raise

    def _work(self) -> None:
        self._own.worker = True
        while (job := self._jobs.get()) is not None:
            job()
            del job  # an idle thread must not keep the last call's arguments alive
            with self._state:
                self._unfinished -= 1
                if self._threads_alive > self._limit:  # it only stood in for a waiting one
                    self._threads_alive -= 1
                    return
        with self._state:
            self._threads_alive -= 1


class Runtime:
    """A loop in a daemon thread, started when first needed.

    Use `get_runtime` for the process's own. After a fork the child starts afresh: the parent's
    work is not run twice.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self._worker_limit = workers
        self._reset()
        _runtimes.add(self)

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int | None = None
        self._workers: _Workers | None = None
        self._background: set[Future[Any]] = set()
        self._exit_callbacks: list[Callable[[], Callable[[], object] | None]] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; it is started if need be."""
        return self._loop or self._start()

    @property
    def on_loop(self) -> bool:
        """Whether this code runs in the loop's own thread."""
        return threading.get_ident() == self._thread_id

    def submit(self, coro: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, with the caller's context variables.

        Returns:
            A future for any thread; cancelling it cancels the work.
        """
        try:
            return asyncio.run_coroutine_threadsafe(coro, self.loop)
        except BaseException:
            self._abandon(coro)
            raise

    def _abandon(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Cancel a coroutine of which it is not known whether the loop has it: Ctrl-C may come
        between handing it over and getting its future."""

        def cancel() -> None:  # comes after the coroutine's own start, if that was planned
            for task in asyncio.all_tasks(self.loop):
                if task.get_coro() is coro:
                    if not task.cancelling():  # a second time would interrupt what it tidies up
                        task.cancel()
                    return
            coro.close()

        try:
            self.loop.call_soon_threadsafe(cancel)
        except RuntimeError:  # the loop has ended, so nothing runs
            coro.close()

    def run(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for it, blocking this thread.

        Ctrl-C and the timeout cancel the work.

        Args:
            timeout: seconds to wait; None for no limit.

        Raises:
            RuntimeMisuseError: on the loop's own thread, which would wait for itself.
            TimeoutError: when the time is over.
        """
        if self.on_loop:
            coro.close()
            raise RuntimeMisuseError(
                "A blocking memory call was made from inside mnemotrace's own loop, by an event "
                "handler or by an async embedder, model or store callback; it would wait for "
                "itself. In a coroutine, await the async twin: `await memory.arecall(...)` "
                "instead of `memory.recall(...)`. An event handler hands the call to a thread of "
                "its own or to a queue (docs/events.md)."
            )
        future: Future[T] | None = None
        try:
            future = self.submit(coro)
            assert self._workers is not None
            with self._workers.waiting():
                return future.result(timeout)
        except BaseException as error:
            if future is None:
                self._abandon(coro)
            elif not future.done():
                future.cancel()
                if isinstance(error, TimeoutError):
                    raise TimeoutError(
                        f"The operation did not finish within {timeout} s and was cancelled."
                    ) from None
            raise

    async def arun(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and await it from any loop.

        Cancelling the awaiting task cancels the work.
        """
        if self.on_loop:
            return await coro
        return await asyncio.wrap_future(self.submit(coro))

    def spawn(self, coro: Coroutine[Any, Any, T], name: str = "background work") -> Future[T]:
        """Start a coroutine that belongs to no caller; what it raises is logged.

        It is kept referenced until it ends, and records nothing in the caller's trace.

        Args:
            name: names the work in the log.
        """
        context = contextvars.copy_context()
        context.run(leave_trace)
        future = context.run(self.submit, coro)
        self._background.add(future)

        def finished(done: Future[T]) -> None:
            self._background.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                logger.error("%s failed: %s", name, error, exc_info=error)

        future.add_done_callback(finished)
        return future

    def run_straight(
        self, coro: Coroutine[Any, Any, T], threads: Executor, timeout: float, late: str
    ) -> T:
        """Run a coroutine that never has to wait in one of these threads, and wait for it.

        The loop is not involved, which saves two of the four changes of threads of `run`.

        Args:
            timeout: seconds to wait. The thread goes on after that, its result is dropped.
            late: the message of the TimeoutError.

        Raises:
            TimeoutError: when the time is over.
        """
        self.loop  # noqa: B018  started, so that what the coroutine hands over to it finds it
        assert self._workers is not None
        future = threads.submit(contextvars.copy_context().run, straight, coro)
        try:
            with self._workers.waiting():
                return future.result(timeout)
        except BaseException as error:
            if future.cancel():  # no thread has begun it
                coro.close()
            if isinstance(error, TimeoutError) and not (future.done() and not future.cancelled()):
                raise TimeoutError(late) from None
            raise

    async def in_thread(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a worker thread, with the caller's context variables.

        When the awaiting task is cancelled the function still runs to its end; its result is
        dropped. Off the loop (see `straight`) the thread is a worker already.
        """
        if not in_loop():
            return fn(*args, **kwargs)
        if self._workers is None:
            self._start()
        assert self._workers is not None
        call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)

    def at_exit(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Register a callback for the exit of the interpreter.

        Plain functions run in a worker thread, coroutine functions on the loop, all at once and
        for at most five seconds together; what is not done by then is logged and abandoned. A
        bound method is held weakly: it is forgotten with its object, whose `late_at_exit(seconds)`,
        if it has one, returns what is logged when the method was not done in time.

        Returns:
            A function that unregisters the callback.
        """
        if self._loop is None:
            self._start()  # only a started runtime is asked at exit
        entry: Callable[[], Callable[[], object] | None]
        if inspect.ismethod(callback):
            entry = weakref.WeakMethod(callback, self._forget)
        else:
            entry = functools.partial(_same, callback)
        self._exit_callbacks.append(entry)
        return functools.partial(self._forget, entry)

    def close(self) -> None:
        """Cancel what runs and end the threads; for tests. The next call starts afresh."""
        loop, workers = self._loop, self._workers
        self._reset()
        if workers is not None:
            workers.shutdown()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)

    def drain(self, seconds: float = EXIT_SECONDS) -> None:
        """Run the exit callbacks, then wait for running worker threads, within `seconds` in all."""
        loop, workers = self._loop, self._workers
        if loop is None or workers is None or not loop.is_running():
            return
        deadline = time.monotonic() + seconds
        entries, self._exit_callbacks = self._exit_callbacks, []
        running: list[tuple[Callable[[], object], str, Future[object]]] = []
        for entry in reversed(entries):
            callback = entry()
            if callback is not None:
                name = getattr(callback, "__qualname__", None) or repr(callback)
                running.append((callback, name, self.submit(self._call(callback))))
        for callback, name, future in running:
            try:
                future.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                if future.done():
                    logger.error("%s failed at exit: %s", name, error, exc_info=error)
                else:
                    future.cancel()
                    logger.warning("%s", _late(callback, name, seconds))
            except Exception as error:
                logger.error("%s failed at exit: %s", name, error, exc_info=error)
        while workers.unfinished and time.monotonic() < deadline:
            time.sleep(0.005)
        if workers.unfinished:
            logger.warning(
                "%s still running %g s after exit began: abandoned.",
                counted(workers.unfinished, "blocking call"),
                seconds,
            )

    async def _call(self, callback: Callable[[], object]) -> object:
        if inspect.iscoroutinefunction(callback):
            return await callback()
        return await self.in_thread(callback)

    def _forget(self, entry: Callable[[], Callable[[], object] | None]) -> None:
        if entry in self._exit_callbacks:
            self._exit_callbacks.remove(entry)

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is not None:
                return self._loop
            workers = _Workers(self._worker_limit)
            loop = asyncio.new_event_loop()
            loop.set_default_executor(workers)
            ready = threading.Event()

            def serve() -> None:
                asyncio.set_event_loop(loop)
                self._thread_id = threading.get_ident()
                loop.call_soon(ready.set)
                try:
                    loop.run_forever()
                finally:
                    _cancel_all(loop)
                    loop.close()

            threading.Thread(target=serve, name="mnemotrace-loop", daemon=True).start()
            ready.wait()
            _register_exit_hook()
            self._workers = workers
            self._loop = loop  # last: it is what the fast path looks at
            return loop


def _late(callback: Callable[[], object], name: str, seconds: float) -> str:
    """Return what is logged of an exit callback that was not done in time."""
    tell = getattr(getattr(callback, "__self__", None), "late_at_exit", None)
    if tell is not None:
        return str(tell(seconds))
    return f"{name} was not done {seconds:g} s after exit began and was abandoned."


def get_runtime() -> Runtime:
    """Return the process's runtime; its thread starts with the first call that needs it."""
    return _process_runtime


def _same(callback: Callable[[], object]) -> Callable[[], object]:
    return callback


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _drain_all() -> None:
    for runtime in list(_runtimes):
        runtime.drain()


def _register_exit_hook() -> None:
    """Have `_drain_all` run at exit, once a process."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    # Private, but the only hook that runs while threads still work: with `atexit` alone, work
    # that needs a thread is lost without a word (measured on 3.11, 3.12 and 3.13).
    register = getattr(threading, "_register_atexit", None)
    try:
        if register is None:
            atexit.register(_drain_all)
        else:
            register(_drain_all)
    except RuntimeError:
        logger.debug("The runtime was started during interpreter exit; nothing is drained.")


def _after_fork_in_child() -> None:
    for runtime in list(_runtimes):
        # Kept, never closed: the loop shares its epoll set with the parent's, and tasks that are
        # collected while pending would be reported.
        _inherited.append((runtime._loop, runtime._workers, runtime._background))
        runtime._reset()


_inherited: list[object] = []
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_hooked = False
_process_runtime = Runtime()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
