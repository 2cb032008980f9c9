"""Sync and async twins of one method, from one coroutine function.

``remember = blocking(_remember)`` and ``aremember = awaitable(_remember)`` share signature,
docstring and code. Both run the coroutine on the runtime's own loop, so neither blocks the
caller's event loop and loop-bound locks have one owner.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from .checks import counted
from .naming import meant

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
O = TypeVar("O")
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
            raise misfit(name, method, args, kwargs)
        run = shortcut(self, *args, **kwargs) if shortcut is not None else None
        try:
            begun = method(self, *args, **kwargs)
        except TypeError:  # nothing of it ran yet: the arguments do not fit
            raise misfit(name, method, args, kwargs) from None
        result: T = (run or self._runtime.run)(begun)
        return result

    return named(call, name, method)


def awaitable(method: Method[S, P, T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the method to be awaited, from any event loop."""
    name = "a" + method.__name__.removeprefix("_")
    known = keywords_of(method)

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            raise misfit(name, method, args, kwargs)
        try:
            begun = method(self, *args, **kwargs)
        except TypeError:
            raise misfit(name, method, args, kwargs) from None
        return await self._runtime.arun(begun)

    return named(call, name, method)


def direct(method: Callable[Concatenate[O, P], T]) -> Callable[Concatenate[O, P], T]:
    """Return a plain method whose wrong arguments are told as those of the others are."""
    signature = inspect.signature(method)
    name = method.__name__

    def call(self: O, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            raise misfit(name, method, args, kwargs) from None
        return method(self, *args, **kwargs)

    return named(call, name, method)


def keywords_of(method: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a method's arguments, without ``self``."""
    return frozenset(inspect.signature(method).parameters) - {"self"}


def misfit(
    name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> TypeError:
    """Return the error for arguments that a method does not take, in the words of its caller.

    Python's own would show a name with an underscore, and count ``self``.

    Args:
        name: what the method is called.
        method: it, with ``self`` as its first parameter.
        args, kwargs: what it was called with, without ``self``.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    known = [parameter.name for parameter in parameters]
    unknown = kwargs.keys() - set(known)
    if unknown:
        word = min(unknown)
        return TypeError(f"{name}() has no argument {word!r}. {meant(word, known, 'It takes')}")
    placed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) > len(placed):
        by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        most = counted(len(placed), "positional argument")
        listed = f" ({', '.join(placed)})" if placed else ""
        rest = f" Give these by name: {', '.join(by_name)}." if by_name else ""
        return TypeError(f"{name}() takes at most {most}{listed}, not {len(args)}.{rest}")
    twice = [word for word in placed[: len(args)] if word in kwargs]
    if twice:
        return TypeError(f"{name}() was given {twice[0]!r} twice, by position and by name.")
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty and p.name not in (*placed[: len(args)], *kwargs)
    ]
    return TypeError(f"{name}() needs {' and '.join(map(repr, missing))}.")


def named(call: C, name: str, method: Callable[..., Any]) -> C:
    """Return a public method under its name, with the signature and docstring of its coroutine."""
    functools.update_wrapper(call, method)
    call.__name__ = name
    call.__qualname__ = method.__qualname__.replace(method.__name__, name)
    return call
