"""LLMService: what the flows ask, with a limit on how many ask at once, a timeout and retries."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import weakref
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from mnemotrace.capture import capturing
from mnemotrace.checks import kind_of
from mnemotrace.errors import LLMError, LLMUnavailableError
from mnemotrace.prompts import VERSION
from mnemotrace.trace import note, note_content, span

from .parsing import parse_json
from .protocol import LLM, LLMReply, LLMRequest, LLMTimeoutError, TransientLLMError
from .resolve import NoLLM
from .threads import call_in_thread

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)

RETRIES = 2
"""How often a request is repeated after a transient failure."""

BACKOFF = 0.5
"""Seconds before the first repetition, doubled for each further one, times 0.5 to 1.5 at random so
that parallel requests do not come back together."""

WARNINGS = 100
"""Distinct warnings remembered, to log each of them once."""


MAX_REPLY = 2_000_000
"""Characters of an answer from which it is not read: no question here has such an answer."""

LONG_REPLY = 50_000
"""Characters of an answer from which it is parsed in a thread, so that the loop goes on."""


@dataclass(slots=True)
class Patience:
    """How long one run goes on asking the model.

    A run ends in time although its model hangs: it asks no more once its time is up, once the
    model cannot be reached, or once as many requests in a row as allowed were not answered.

    Args:
        seconds: for all requests of the run together, waiting for a free place included; None for
            as long as it takes.
        timeouts: requests in a row that may go unanswered, 1 or more.
    """

    seconds: float | None = None
    timeouts: int = 1
    _begun: float = field(default_factory=time.perf_counter)
    _unanswered: int = 0
    _reason: str | None = None

    @property
    def exhausted(self) -> str | None:
        """Why nothing more is asked; None while asking is worth it."""
        if self._reason is None and self.left == 0.0:
            self._reason = f"the run had no more time for the language model ({self.seconds:g} s)"
        return self._reason

    @property
    def left(self) -> float | None:
        """Seconds left, 0 or more; None for no limit."""
        if self.seconds is None:
            return None
        return max(self.seconds - (time.perf_counter() - self._begun), 0.0)

    def answered(self) -> None:
        """Count an answer, of whatever quality: the model is there."""
        self._unanswered = 0

    def next_phase(self) -> None:
        """Ask no more when the last phase of the run ended without an answer in time."""
        if self._unanswered and self._reason is None:
            self._reason = "the language model did not answer the last requests of this run in time"

    def failed(self, error: LLMError) -> None:
        """Count a request that got no answer."""
        self._unanswered += isinstance(error, LLMTimeoutError)
        if isinstance(error, LLMUnavailableError) or self._unanswered >= self.timeouts:
            self._reason = self._reason or str(error)


class LLMService:
    """Asks a language model for validated answers.

    One service may be used from several event loops; each has its own limit.

    Args:
        llm: the model, as `resolve_llm` returns it.
        concurrency: most requests at the same time, 1 or more.
        timeout: seconds for one request, all its retries included, above 0.
    """

    def __init__(self, llm: LLM, concurrency: int = 8, timeout: float = 60.0) -> None:
        self.llm = llm
        self._concurrency = concurrency
        self._timeout = timeout
        self._limits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._warned: set[tuple[str, str]] = set()

    @property
    def configured(self) -> bool:
        """Whether there is a model at all; False for ``llm=None``."""
        return not isinstance(self.llm, NoLLM)

    def known_unavailable(self) -> str | None:
        """Return why the model cannot answer, None if nothing is known against it.

        Cheap: looks at the environment only. Something truthy means that asking is useless.
        """
        check = getattr(self.llm, "unavailable", None)
        reason = check() if callable(check) else None
        return str(reason) if reason else None

    async def ask(
        self,
        purpose: str,
        system: str,
        prompt: str,
        model: type[M],
        *,
        patience: Patience | None = None,
        retries: int = RETRIES,
    ) -> M:
        """Ask one question and return the answer as an instance of `model`.

        Every call of the model, failed ones included, becomes a span of the current trace.

        Args:
            purpose: what it is for, as shown in the trace.
            system: the standing instruction.
            prompt: the question itself.
            model: what the answer has to be.
            patience: of the run that asks; None for as long as it takes.
            retries: how often the request is repeated after a transient failure.

        Raises:
            LLMUnavailableError: there is no model, no key or no connection, or the run's patience
                is exhausted; raised at once.
            LLMTimeoutError: the model was too slow.
            LLMError: the model failed, or its answer does not fulfil `model`.
        """
        request = LLMRequest(purpose, system, prompt, _schema_of(model))
        try:
            async with asyncio.timeout(None if patience is None else patience.left):
                async with self._limit():
                    reply = await self._in_time(request, retries, patience)
        except TimeoutError as error:
            assert patience is not None
            raise LLMTimeoutError(
                f"the language model had no more time for {purpose}: its run may ask for "
                f"{patience.seconds:g} s in all; raise the run's timeout or use a faster model"
            ) from error
        note_content(answer=reply.text)
        if len(reply.text) > MAX_REPLY:
            raise LLMError(
                f"the language model's answer has {len(reply.text)} characters, more than the "
                f"{MAX_REPLY} that are read"
            )
        if len(reply.text) > LONG_REPLY:
            return await call_in_thread(parse_json, reply.text, model)
        return parse_json(reply.text, model)

    async def _in_time(
        self, request: LLMRequest, retries: int, patience: Patience | None
    ) -> LLMReply:
        """Call the model within the time for one request."""
        if patience is not None and (reason := patience.exhausted):
            raise LLMUnavailableError(reason)
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self._complete(request, retries)
        except TimeoutError as error:
            slow = LLMTimeoutError(
                f"the language model did not answer {request.purpose} within "
                f"{self._timeout:g} s; raise llm_timeout or use a faster model"
            )
            if patience is not None:
                patience.failed(slow)
            raise slow from error
        except LLMError as error:
            if patience is not None:
                patience.failed(error)
            raise
        if patience is not None:
            patience.answered()
        return reply

    def warn(self, operation: str, error: str) -> None:
        """Log that help by the model was given up; the same warning is logged once."""
        key = (operation, error)
        if key in self._warned:
            return
        if len(self._warned) >= WARNINGS:
            self._warned.clear()
        self._warned.add(key)
        logger.warning("Memory goes on without the language model for %s: %s", operation, error)

    def _limit(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        limit = self._limits.get(loop)
        if limit is None:
            limit = self._limits[loop] = asyncio.Semaphore(self._concurrency)
        return limit

    async def _complete(self, request: LLMRequest, retries: int) -> LLMReply:
        attempt = 1
        while True:
            try:
                return await self._call(request, attempt)
            except TransientLLMError:
                if attempt > retries:
                    raise
            await asyncio.sleep(BACKOFF * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
            attempt += 1

    async def _call(self, request: LLMRequest, attempt: int) -> LLMReply:
        """Call the model once, recorded in the trace, its exceptions turned into ours."""
        name = str(getattr(self.llm, "name", ""))
        with span(
            f"llm.{request.purpose}", kind="llm", attempt=attempt, model=name,
            tokens_in=0, tokens_out=0, cost=None, prompt_version=VERSION,
        ) as call:  # fmt: skip
            reply = await self._answer(request)
            note(
                model=reply.model or name,
                tokens_in=reply.tokens_in,
                tokens_out=reply.tokens_out,
                cost=reply.cost,
            )
        if call is not None and call.end_ns is not None and reply.latency_ms is not None:
            # The model's own time, without what the call waited for a thread.
            call.start_ns = max(call.start_ns, call.end_ns - int(reply.latency_ms * 1e6))
        return reply

    async def _answer(self, request: LLMRequest) -> LLMReply:
        """Ask the model, unless the answer is known; who keeps this run's answers gets it."""
        keeper = capturing()
        if keeper is None:
            return await self._complete_once(request)
        known = keeper.known(request)
        if known is not None:
            return known
        try:
            reply = await self._complete_once(request)
        except BaseException as error:
            keeper.unanswered(request, error)
            raise
        keeper.answered(request, reply)
        return reply

    async def _complete_once(self, request: LLMRequest) -> LLMReply:
        try:
            reply = await self.llm.complete(request)
        except LLMError:
            raise
        except Exception as error:
            raise _wrapped(error) from error
        except (KeyboardInterrupt, SystemExit) as error:
            # Ctrl-C comes to the main thread. Anywhere else it is the model that raises it, and
            # it would end the loop that all memories of the process run on.
            if threading.current_thread() is threading.main_thread():
                raise
            raise LLMError(f"the language model failed: {type(error).__name__}") from error
        if not isinstance(reply, LLMReply):
            raise LLMError(
                f"the language model object returned {kind_of(reply)} from `complete`, "
                "not an LLMReply"
            )
        return reply


@lru_cache(maxsize=64)
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer; not to be changed. Making one takes a millisecond."""
    return model.model_json_schema()


def _wrapped(error: Exception) -> LLMError:
    """Turn any exception into ours, worth another try where its kind or HTTP status says so."""
    status = getattr(error, "status_code", None)
    passing = isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(status, int) and (status in (408, 409, 425, 429) or status >= 500)
    )
    kind = TransientLLMError if passing else LLMError
    return kind(f"the language model failed: {type(error).__name__}: {str(error)[:300]}")
