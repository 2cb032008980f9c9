"""Sync and async twins of one method, from one coroutine function.

``remember = blocking(_remember)`` and ``aremember = awaitable(_remember)`` share signature,
docstring and code. Both run the coroutine on the runtime's own loop, so neither blocks the
caller's event loop and loop-bound locks have one owner.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from .flows.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


class HasRuntime(Protocol):
    """Anything whose coroutines run on a runtime."""

    @property
    def _runtime(self) -> Runtime: ...


S = TypeVar("S", bound=HasRuntime)
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


Shortcut = Callable[..., "Callable[[Coroutine[Any, Any, Any]], Any] | None"]
"""Called with the object and the arguments: how to run this call, None for on the loop."""


def blocking(
    method: Method[S, P, T], shortcut: Shortcut | None = None
) -> Callable[Concatenate[S, P], T]:
    """Return the method that waits for the result.

    Args:
        method: the coroutine function.
        shortcut: says for a call whether it can do without the loop, and how.
    """
    name = method.__name__.removeprefix("_")
    known = keywords_of(method)

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            raise unknown_argument(name, kwargs.keys() - known, known)
        run = shortcut(self, *args, **kwargs) if shortcut is not None else None
        result: T = (run or self._runtime.run)(method(self, *args, **kwargs))
        return result

    return named(call, name, method)


def awaitable(method: Method[S, P, T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the method to be awaited, from any event loop."""
    name = "a" + method.__name__.removeprefix("_")
    known = keywords_of(method)

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            raise unknown_argument(name, kwargs.keys() - known, known)
        return await self._runtime.arun(method(self, *args, **kwargs))

    return named(call, name, method)


def keywords_of(method: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a method's arguments, without ``self``."""
    return frozenset(inspect.signature(method).parameters) - {"self"}


def unknown_argument(name: str, unknown: set[str], known: frozenset[str]) -> TypeError:
    """Return the error that says which argument there is instead of an unknown one."""
    word = min(unknown)
    near = difflib.get_close_matches(word, known, 1)
    hint = f" Did you mean {near[0]!r}?" if near else f" It takes: {', '.join(sorted(known))}."
    return TypeError(f"{name}() has no argument {word!r}.{hint}")


def named(call: C, name: str, method: Callable[..., Any]) -> C:
    """Return a public method under its name, with the signature and docstring of its coroutine."""
    functools.update_wrapper(call, method)
    call.__name__ = name
    call.__qualname__ = method.__qualname__.replace(method.__name__, name)
    return call
