"""Steps and workflows that record themselves in the trace."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import re
import typing
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, overload

from llama_index_instrumentation.dispatcher import Dispatcher
from llama_index_instrumentation.event_handlers import NullEventHandler
from llama_index_instrumentation.span_handlers import NullSpanHandler
from workflows import Context, Workflow, step
from workflows.decorators import StepConfig, StepFunction
from workflows.events import Event, StopEvent
from workflows.handler import WorkflowHandler
from workflows.retry_policy import RetryPolicy

from mnemotrace.checks import shortened
from mnemotrace.errors import ConfigurationError, FlowError
from mnemotrace.trace import note, span

P = ParamSpec("P")
R = TypeVar("R", bound="Event | list[Any] | None")
W = TypeVar("W", bound=Workflow)
Step = Callable[Concatenate[W, P], Awaitable[R]]

DEFAULT_WORKERS = 4


@overload
def traced_step(func: Step[W, P, R], /) -> StepFunction[Concatenate[W, P], Awaitable[R]]: ...
@overload
def traced_step(
    *, num_workers: int = DEFAULT_WORKERS, retry_policy: RetryPolicy | None = None
) -> Callable[[Step[W, P, R]], StepFunction[Concatenate[W, P], Awaitable[R]]]: ...
def traced_step(
    func: Step[W, P, R] | None = None,
    /,
    *,
    num_workers: int = DEFAULT_WORKERS,
    retry_policy: RetryPolicy | None = None,
) -> Any:
    """Declare an async method as a workflow step that records one span for each execution.

    The span is named after the method, of kind ``step``, and carries the class names of the
    incoming (``received``) and returned (``returned``) events, the status, the error and the
    attempt. Use it bare or with arguments, on methods of a `TracedWorkflow`.

    Args:
        num_workers: executions of this step at the same time within one run.
        retry_policy: when a failed execution is tried again (`workflows.retry_policy`).

    Raises:
        TypeError: for a function that is not ``async def``.
        FlowError: from the step itself, at once, when it returns an event it does not declare.
            The workflow engine would drop it and sit idle until the timeout.
    """
    # `step` resolves the annotations with the local names of its caller's callers, up to two
    # frames above this one; so it is called here directly, not from a nested helper.
    if func is not None:
        traced = _traced(func, retrying=retry_policy is not None)
        return step(num_workers=num_workers, retry_policy=retry_policy)(traced)

    def decorate(inner: Step[W, P, R]) -> Any:
        traced = _traced(inner, retrying=retry_policy is not None)
        return step(num_workers=num_workers, retry_policy=retry_policy)(traced)

    return decorate


def _traced(func: Callable[..., Awaitable[Any]], *, retrying: bool) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(func):
        raise TypeError(
            f"Step {func.__qualname__} must be an `async def`: a plain function would run in a "
            "thread of its own. Move blocking work into `await runtime.in_thread(...)`."
        )
    name = func.__name__
    none_allowed = _may_return_none(func)
    declared: frozenset[Any] | None = None

    @functools.wraps(func)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        nonlocal declared
        attempt = 1
        if retrying:
            attempt += Context.get_step_context().retry_info().retry_number
        with span(name, kind="step", attempt=attempt, received=_received(args, kwargs)):
            result = await func(*args, **kwargs)
            if declared is None:
                config: StepConfig = traced._step_config  # type: ignore[attr-defined]
                declared = frozenset(config.return_types)
            _check_declared(name, declared, none_allowed, result)
            note(returned=_event_name(result))
            return result

    return traced


def _received(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    for value in (*kwargs.values(), *args):
        if isinstance(value, Event) or (isinstance(value, list) and _is_event_list(value)):
            return _event_name(value)
    return "nothing"


def _is_event_list(value: list[Any]) -> bool:
    return all(isinstance(item, Event) for item in value)


def _event_name(value: Any) -> str:
    if isinstance(value, list):
        names = sorted({type(item).__name__ for item in value})
        return f"{len(value)} x {' | '.join(names)}" if names else "0 events"
    return type(value).__name__ if value is not None else "None"


def _may_return_none(func: Callable[..., Any]) -> bool:
    """Tell whether the return annotation allows None; the engine's own record forgets it."""
    annotation = func.__annotations__.get("return")
    if isinstance(annotation, str):
        return re.search(r"\b(None|Optional)\b", annotation) is not None
    return annotation is None or type(None) in typing.get_args(annotation)


def _check_declared(name: str, declared: frozenset[Any], none_allowed: bool, result: Any) -> None:
    """Raise FlowError unless the step may return this; the engine matches exact classes."""
    for item in result if isinstance(result, list) else (result,):
        if type(item) in declared or (item is None and none_allowed):
            continue
        names = sorted(getattr(kind, "__name__", str(kind)) for kind in declared)
        raise FlowError(
            f"Step {name!r} returned {type(item).__name__}, but its annotation declares only "
            f"{', '.join(names)}. Declare it in the return annotation, and have a step accept it."
        )


async def result_of(handler: WorkflowHandler) -> Any:
    """Await a run's result so that cancelling the awaiting task stops the run and its steps.

    Awaiting the handler itself does not: workflows 2.26 then loses the step that is running,
    which goes on to its end, and leaks a task (a test shows it).
    """
    result = asyncio.ensure_future(_awaited(handler))
    result.add_done_callback(retrieve)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        await stopped(handler)
        raise


_stopping: set[asyncio.Future[None]] = set()
"""Runs being stopped; the loop itself holds a task only weakly."""


async def stopped(handler: WorkflowHandler) -> None:
    """Stop a run and wait until it has; cancelled while it waits, the run stops all the same."""
    stopping = asyncio.ensure_future(handler.cancel_run())
    _stopping.add(stopping)
    stopping.add_done_callback(_stopping.discard)
    await asyncio.shield(stopping)


async def _awaited(handler: WorkflowHandler) -> Any:
    return await handler


def retrieve(result: asyncio.Future[Any]) -> None:
    """Look at the outcome once: after a cancellation nobody else does, which asyncio would log."""
    if not result.cancelled():
        result.exception()


class TracedRun(Awaitable[Any]):
    """A `WorkflowHandler` that is awaited through `result_of`; all else is the handler's own."""

    def __init__(self, handler: WorkflowHandler) -> None:
        self._handler = handler

    def __await__(self) -> Generator[Any, Any, Any]:
        return result_of(self._handler).__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)


class SpansIfWatched:
    """The engine's dispatcher of spans, wrapping a step only where somebody takes what it tells.

    It inspects the step's signature and makes a unique id each time, 0.1 ms a step, mostly for
    nobody: mnemotrace's own spans do not come from it. Handlers may be added at any time.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def span(self, func: Callable[..., R]) -> Callable[..., R]:
        """Return the function, recorded if anybody takes spans or events."""
        return self._dispatcher.span(func) if self._is_watched() else func

    def _is_watched(self) -> bool:
        dispatcher = self._dispatcher
        while True:
            for handler in (*dispatcher.span_handlers, *dispatcher.event_handlers):
                if not isinstance(handler, (NullSpanHandler, NullEventHandler)):
                    return True
            if not dispatcher.propagate:
                return False
            dispatcher = dispatcher.parent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)


class TracedWorkflow(Workflow):
    """The base of mnemotrace's flows: a finite timeout, runs that can be cancelled, less overhead.

    Args:
        timeout: seconds one run may take.
        options: passed on to `workflows.Workflow`.

    Raises:
        ConfigurationError: for a timeout that is None, not finite or not above 0: a run that lost
            its way would never end.
    """

    def __init__(self, *, timeout: float, **options: Any) -> None:
        if (
            isinstance(timeout, bool)
            or not isinstance(timeout, (int, float))
            or not math.isfinite(timeout)
            or timeout <= 0
        ):
            raise ConfigurationError(
                f"timeout={shortened(timeout)}: a flow needs a finite number of seconds above 0."
            )
        super().__init__(timeout=timeout, **options)
        # Private API of workflows 2.26; a test asserts that the engine still looks here.
        self._dispatcher: Any = SpansIfWatched(self._dispatcher)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Start a run as `Workflow.run` does; cancelling the task that awaits it stops it."""
        return TracedRun(super().run(*args, **kwargs))

    def _get_steps(self) -> dict[str, StepFunction[..., Any]]:
        # Private API of workflows 2.26: it inspects every attribute of the instance, seven times
        # a run; a test asserts that the engine still calls it.
        version = type(self)._step_functions_version
        cached = cast(
            "tuple[int, dict[str, StepFunction[..., Any]]] | None",
            self.__dict__.get("_steps_cache"),
        )
        if cached is None or cached[0] != version:
            cached = self.__dict__["_steps_cache"] = (version, super()._get_steps())
        return cached[1]

    @classmethod
    def validate_step_returns(cls) -> dict[str, tuple[str, ...]]:
        """Check that every event a step may return is accepted by a step or ends the run.

        Returns:
            For each step, the names of the event classes it may return, sorted.

        Raises:
            FlowError: naming the step and the event that would lead nowhere.
        """
        configs = {
            name: function._step_config for name, function in cls._get_steps_from_class().items()
        }
        accepted = {kind for config in configs.values() for kind in config.accepted_events}
        declared: dict[str, tuple[str, ...]] = {}
        for name, config in configs.items():
            for kind in config.return_types:
                if kind in accepted or (isinstance(kind, type) and issubclass(kind, StopEvent)):
                    continue
                raise FlowError(
                    f"Step {name!r} of {cls.__name__} may return "
                    f"{getattr(kind, '__name__', kind)}, which no step accepts: the run would "
                    "idle until its timeout."
                )
            declared[name] = tuple(sorted(kind.__name__ for kind in config.return_types))
        return declared
