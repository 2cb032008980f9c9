"""EmbeddingService: one face for every kind of embedder, with every vector checked."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mnemotrace.capture import Kind, capturing
from mnemotrace.checks import counted, kind_of
from mnemotrace.errors import ConfigurationError, EmbedderError
from mnemotrace.straight import in_loop

from .fingerprint import CANARY, FIXED_TEXTS, canary_of, describe, measure, require_same

Vectors = NDArray[np.float32]
T = TypeVar("T")

CUSTOM = "custom"
"""Provider of an embedder that does not name one."""

MAX_BATCH = 256
"""Most texts handed to an embedder in one call, unless it says otherwise."""

WORKERS = 8
"""Threads that may run sync embedders of one service at the same time."""


class EmbeddingService:
    """Wraps a callable or an `Embedder` object; what the flows talk to.

    Sync embedders run in worker threads of this service's own, so that a slow one holds up neither
    the event loop nor the store. Vectors are returned as the embedder made them, of any length
    above zero; the store normalises them.

    Args:
        embedder: a function ``list[str] -> vectors`` (sync or async) or an object with ``embed``.
        provider: recorded in the manifest; default: the object's own, else "custom".
        model: recorded in the manifest; default: the object's ``model_name``, else the function's
            module and qualified name.
        max_batch: most texts per call; default: the object's own, else 256.
        config: what the manifest keeps so that the embedder can be made again; no secrets.

    Raises:
        ConfigurationError: this cannot be used as an embedder.
    """

    def __init__(
        self,
        embedder: Any,
        *,
        provider: str | None = None,
        model: str | None = None,
        max_batch: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.embedder = embedder
        self._documents, self._queries = _find_calls(embedder)
        self.provider = provider or _text_attribute(embedder, "provider") or CUSTOM
        self.model = model or _text_attribute(embedder, "model_name") or describe(embedder)
        self._dimension = _positive_attribute(embedder, "dimension")
        self._max_batch = max_batch or _positive_attribute(embedder, "max_batch") or MAX_BATCH
        self._config = config
        self._seen: dict[str, Any] | None = None
        self._fingerprint: dict[str, Any] | None = None
        self._measuring: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._executor: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def name(self) -> str:
        """Provider and model, as used in messages and traces."""
        return f"{self.provider}/{self.model}"

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None until declared by the embedder or seen for the first time."""
        return self._dimension

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts to be stored: contiguous float32 of shape (n, d).

        No texts give shape (0, d), d being 0 while it is not known.

        Raises:
            EmbedderError: the embedder raised, or returned something that is not one finite,
                non-zero vector of the known length for each text.
        """
        return await self._kept("document", self._documents, texts)

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts to search for; else as `embed_documents`."""
        return await self._kept("query", self._queries, texts)

    async def _kept(self, kind: Kind, call: _Call, texts: Sequence[str]) -> Vectors:
        """Embed texts; who keeps this run's answers gets the vectors."""
        keeper = capturing()
        if keeper is None:
            return await self._embed(call, texts)
        known: Vectors | None = keeper.vectors(kind, texts)
        if known is not None:
            return known
        try:
            vectors = await self._embed(call, texts)
        except BaseException as error:
            keeper.not_embedded(kind, texts, error)
            raise
        keeper.embedded(kind, texts, vectors)
        return vectors

    def straight_threads(self) -> Executor | None:
        """Return this service's threads if queries are known to be embedded by a plain function.

        `embed_query_and` then never waits, and may run in one of them without an event loop.
        """
        return self._workers() if self._queries.is_plain else None

    async def embed_query_and(self, text: str, use: Callable[[Vectors], T]) -> T:
        """Embed one text to search for, and use its vector without coming back in between.

        A synchronous embedder runs in a worker thread; `use`, which may block, then runs in that
        same thread, and in one of its own otherwise. That saves a change of threads, a tenth of a
        recall from a small store.

        Args:
            text: what is searched for.
            use: called with the vectors of shape (1, d); what it raises is passed on as it is.

        Raises:
            EmbedderError: as `embed_documents`; then `use` was not called.
        """
        if capturing() is not None:
            vectors = await self.embed_queries([text])
            return await self._in_worker(functools.partial(use, vectors))
        call = self._queries

        def embed_and_use() -> tuple[Any, T | None]:
            try:
                raw = _contained(call.function, [text])
            except EmbedderError:
                raise
            except Exception as error:
                raise self._failed(error, [text]) from error
            if inspect.isawaitable(raw):
                was_plain, call.is_plain = call.is_plain, False
                if was_plain:  # it may run without a loop, where nobody can await
                    if inspect.iscoroutine(raw):
                        raw.close()
                    raise self._bad("returned something to be awaited, where it returned vectors")
                return raw, None
            call.is_plain = True
            return None, use(self._checked(raw, 1, 0))

        waiting = None
        if not call.is_async:
            waiting, result = await self._in_worker(embed_and_use)
            if waiting is None:
                return cast("T", result)
        vectors = await self._embed(call, [text], begun=waiting)
        return await self._in_worker(functools.partial(use, vectors))

    async def fingerprint(self) -> dict[str, Any]:
        """Return what a store's manifest records of this embedder; plain JSON.

        Keys: ``provider``, ``model``, ``dimension``, ``canary`` (see `fingerprint.measure`),
        ``calibration`` and, where it can be made again from that, ``config``. The embedder is
        called once with a few fixed texts; the result is kept.

        Raises:
            EmbedderError: as `embed_documents`.
        """
        async with self._measure_lock():
            if self._fingerprint is None:
                vectors = await self._embed(self._documents, FIXED_TEXTS, trying=True)
                canary, calibration = measure(vectors)
                self._seen = self._recognised_by(vectors.shape[1], canary)
                self._fingerprint = {**self._seen, "calibration": calibration}
                if self._config is not None:
                    self._fingerprint["config"] = dict(self._config)
        return dict(self._fingerprint)

    async def verify(self, recorded: Mapping[str, Any]) -> None:
        """Make sure that this is the embedder a store was written with.

        A hosted embedder is called with one fixed text, since each costs; any other one as for
        `fingerprint`.

        Args:
            recorded: the fingerprint in the store's manifest.

        Raises:
            EmbedderMismatchError: it is another one; the message names both and the remedy.
            EmbedderError: as `embed_documents`.
        """
        if self._config is None:
            await self.fingerprint()
        async with self._measure_lock():
            if self._seen is None:
                vectors = await self._embed(self._documents, (CANARY,), trying=True)
                self._seen = self._recognised_by(vectors.shape[1], canary_of(vectors[0]))
        require_same(recorded, self._seen)

    def _recognised_by(self, dimension: int, canary: list[float] | None) -> dict[str, Any]:
        """Return the part of a fingerprint that tells one embedder from another."""
        return {
            "provider": self.provider,
            "model": self.model,
            "dimension": dimension,
            "canary": canary,
        }

    async def _embed(
        self,
        call: _Call,
        texts: Sequence[str],
        *,
        trying: bool = False,
        begun: Awaitable[Any] | None = None,
    ) -> Vectors:
        """Return the checked vectors.

        Args:
            trying: the texts are those of `fingerprint`, of which some may be unknown words to the
                embedder: a vector of zeros is no fault.
            begun: a call for the only chunk that was made already.
        """
        parts = []
        for start in range(0, len(texts), self._max_batch):
            chunk = list(texts[start : start + self._max_batch])
            try:
                raw = await (begun or self._call(call, chunk))
            except EmbedderError:
                raise
            except Exception as error:
                raise self._failed(error, chunk, trying) from error
            parts.append(self._checked(raw, len(chunk), start, trying))
        if not parts:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    async def _call(self, call: _Call, texts: list[str]) -> Any:
        if call.is_async:
            return await call.function(texts)
        result = await self._in_worker(functools.partial(_contained, call.function, texts))
        return await result if inspect.isawaitable(result) else result

    async def _in_worker(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread of this service, with the caller's context variables."""
        if not in_loop():  # this is one of them, see `straight_threads`
            return work()
        run = functools.partial(contextvars.copy_context().run, work)
        return await asyncio.get_running_loop().run_in_executor(self._workers(), run)

    def _failed(self, error: Exception, texts: list[str], trying: bool = False) -> EmbedderError:
        """Return what to raise for an exception of the embedder."""
        return EmbedderError(
            f"the embedder {self.name}{_tried_with(len(texts) if trying else 0)} failed on "
            f"{counted(len(texts), 'text')}: "
            f"{type(error).__name__}: {str(error)[:300]}. Check the embedder and try again; "
            "nothing was changed."
        )

    def _measure_lock(self) -> asyncio.Lock:
        """Return the lock that makes parallel first uses pay for one fingerprint only."""
        loop = asyncio.get_running_loop()
        if self._measuring is None or self._measuring[0] is not loop:
            self._measuring = (loop, asyncio.Lock())
        return self._measuring[1]

    def _workers(self) -> ThreadPoolExecutor:
        # A forked child inherits the pool but not its threads, so it needs one of its own.
        if self._executor is None or self._executor[0] != os.getpid():
            pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="mnemotrace-embed")
            self._executor = (os.getpid(), pool)
        return self._executor[1]

    def _checked(self, raw: Any, expected: int, offset: int, trying: bool = False) -> Vectors:
        """Turn one answer of the embedder into (n, d) float32, or say what is wrong with it."""
        try:
            return self._vectors(raw, expected, offset, trying)
        except _UnusableError as error:
            raise self._bad(str(error), expected if trying else 0) from error.__cause__

    def _vectors(self, raw: Any, expected: int, offset: int, allow_zero: bool) -> Vectors:
        """Do the work of `_checked`.

        Raises:
            _UnusableError: what the embedder did.
        """
        if isinstance(raw, np.ndarray) and raw.ndim == 2 and raw.dtype.kind == "f":
            rows: Any = raw
            self._counted(raw, expected)
        else:
            rows = self._rows(raw, expected, offset)
        wanted = self._dimension or len(rows[0])
        for number, row in enumerate(rows, start=offset + 1):
            if len(row) == 0:
                raise _UnusableError(f"returned an empty vector for text {number}")
            if len(row) != wanted:
                known = "returns" if self._dimension else "returned first"
                raise _UnusableError(
                    f"returned a vector of length {len(row)} for text {number}, where it {known} "
                    f"vectors of length {wanted}"
                )
        # Always a copy: an embedder may use its buffer again. Numbers beyond float32 become
        # infinite, which is reported as such.
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float32, order="C")
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            raise _UnusableError(
                "returned a vector with NaN or infinite values for text "
                f"{offset + 1 + int(np.argmin(finite))}"
            )
        nonzero = vectors.any(axis=1)
        if not (allow_zero or nonzero.all()):
            raise _UnusableError(
                "returned a vector of zeros, which has no direction, for text "
                f"{offset + 1 + int(np.argmin(nonzero))}"
            )
        self._dimension = wanted
        return vectors

    def _rows(self, raw: Any, expected: int, offset: int) -> list[Vectors]:
        """Split an answer into its vectors, after checking their number."""
        if raw is None or isinstance(raw, str | bytes | Mapping):
            raise _UnusableError(f"returned {kind_of(raw)}, not a list of vectors")
        try:
            items = list(raw)
        except TypeError:
            raise _UnusableError(f"returned {kind_of(raw)}, not a list of vectors") from None
        self._counted(items, expected)
        rows = []
        for number, item in enumerate(items, start=offset + 1):
            try:
                with np.errstate(over="ignore"):
                    row = np.asarray(item, dtype=np.float32)
            except (TypeError, ValueError, RuntimeError):
                raise _UnusableError(f"returned something not numeric for text {number}") from None
            if row.ndim != 1:
                raise _UnusableError(
                    f"returned an array of shape {row.shape} for text {number}, not a vector"
                )
            rows.append(row)
        return rows

    def _counted(self, items: Any, expected: int) -> None:
        if len(items) != expected:
            flat = len(items) > 0 and np.ndim(items[0]) == 0
            hint = ", or a flat list of numbers" if flat else ""
            raise _UnusableError(
                f"returned {counted(len(items), 'vector')} for {counted(expected, 'text')}{hint}"
            )

    def _bad(self, what: str, tried: int = 0) -> EmbedderError:
        return EmbedderError(
            f"the embedder {self.name}{_tried_with(tried)} {what}. It must return a list with one vector for each text, "
            "in the order of the texts: finite numbers, not all zero, and all vectors of one length. "
            "Nothing was changed."
        )


def _tried_with(texts: int) -> str:
    """Say that texts were not the user's; nothing for none."""
    return f", tried with {counted(texts, 'short text')} of mnemotrace's own," if texts else ""


class _UnusableError(Exception):
    """Says what an embedder returned that cannot be used."""


class _Call:
    """One way to call an embedder."""

    __slots__ = ("function", "is_async", "is_plain")

    def __init__(self, function: Callable[[list[str]], Any], is_async: bool = False) -> None:
        self.function = function
        self.is_async = is_async or _is_async(function)
        self.is_plain = False
        """Whether it is known to return vectors, not something to be awaited."""


def _contained(function: Callable[[list[str]], Any], texts: list[str]) -> Any:
    """Call a function; what would end the loop or never reach it becomes an ordinary exception."""
    try:
        return function(texts)
    except StopIteration as error:  # a future refuses to carry it, and its awaiter waits for ever
        raise RuntimeError("StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _is_async(function: Any) -> bool:
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


def _find_calls(embedder: Any) -> tuple[_Call, _Call]:
    """Return how to embed documents and how to embed queries."""
    if isinstance(embedder, type):
        raise ConfigurationError(
            f"embedder is the class {embedder.__name__}: pass an instance, "
            f"embedder={embedder.__name__}(...)"
        )
    documents = _method(embedder, "aembed") or _method(embedder, "embed")
    if documents is None:
        if not callable(embedder):
            raise ConfigurationError(
                f"embedder is {kind_of(embedder)} without an `embed` method: pass a "
                "function from a list of texts to a list of vectors (for example the object's "
                "own method: embedder=model.embed_documents), an object with `embed`, "
                'or "bundled"'
            )
        return _Call(embedder), _Call(embedder)
    queries = _method(embedder, "aembed_query") or _method(embedder, "embed_query")
    return documents, queries or documents


def _method(embedder: Any, name: str) -> _Call | None:
    method = getattr(embedder, name, None)
    return _Call(method) if callable(method) else None


def _text_attribute(embedder: Any, name: str) -> str | None:
    value = getattr(embedder, name, None)
    return value if isinstance(value, str) and value else None


def _positive_attribute(embedder: Any, name: str) -> int | None:
    value = getattr(embedder, name, None)
    if value is None or callable(value):
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(
            f"the embedder's `{name}` is {value!r}: it must be a whole number above 0"
        )
    return int(value)
