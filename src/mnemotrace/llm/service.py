"""LLMService: what the flows ask, with a limit on how many ask at once, a timeout and retries."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import weakref
from typing import TypeVar

from pydantic import BaseModel

from mnemotrace.errors import LLMError
from mnemotrace.prompts import VERSION
from mnemotrace.trace import note_content, record_llm_call

from .parsing import parse_json
from .protocol import LLM, LLMReply, LLMRequest, TransientLLMError
from .resolve import NoLLM

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)

RETRIES = 2
"""How often a request is repeated after a transient failure."""

BACKOFF = 0.5
"""Seconds before the first repetition, doubled for each further one, times 0.5 to 1.5 at random so
that parallel requests do not come back together."""

WARNINGS = 100
"""Distinct warnings remembered, to log each of them once."""


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

    async def ask(self, purpose: str, system: str, prompt: str, model: type[M]) -> M:
        """Ask one question and return the answer as an instance of `model`.

        Every call of the model, failed ones included, becomes a span of the current trace.

        Raises:
            LLMUnavailableError: there is no model, no key or no connection; raised at once.
            LLMError: the model failed, was too slow, or its answer does not fulfil `model`.
        """
        request = LLMRequest(purpose, system, prompt, model.model_json_schema())
        async with self._limit():
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._complete(request)
            except TimeoutError as error:
                raise LLMError(
                    f"the language model did not answer {purpose} within {self._timeout:g} s; "
                    "raise llm_timeout or use a faster model"
                ) from error
        note_content(answer=reply.text)
        return parse_json(reply.text, model)

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

    async def _complete(self, request: LLMRequest) -> LLMReply:
        attempt = 1
        while True:
            try:
                return await self._call(request, attempt)
            except TransientLLMError:
                if attempt > RETRIES:
                    raise
            await asyncio.sleep(BACKOFF * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
            attempt += 1

    async def _call(self, request: LLMRequest, attempt: int) -> LLMReply:
        """Call the model once, recorded in the trace, its exceptions turned into ours."""
        start = time.perf_counter()
        reply = LLMReply("", model=str(getattr(self.llm, "name", "")))
        failure: BaseException | None = None
        try:
            answer = await self.llm.complete(request)
            if not isinstance(answer, LLMReply):
                raise LLMError(
                    f"the language model object returned {type(answer).__name__} from `complete`, "
                    "not an LLMReply"
                )
            reply = answer
            return reply
        except LLMError as error:
            failure = error
            raise
        except Exception as error:
            failure = _wrapped(error)
            raise failure from error
        except BaseException as error:
            failure = error
            raise
        finally:
            took = reply.latency_ms
            if took is None:
                took = (time.perf_counter() - start) * 1000.0
            record_llm_call(
                request.purpose,
                reply.model,
                reply.tokens_in,
                reply.tokens_out,
                reply.cost,
                took,
                attempt=attempt,
                error=failure,
                prompt_version=VERSION,
            )


def _wrapped(error: Exception) -> LLMError:
    """Turn any exception into ours, worth another try where its kind or HTTP status says so."""
    status = getattr(error, "status_code", None)
    passing = isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(status, int) and (status in (408, 409, 425, 429) or status >= 500)
    )
    kind = TransientLLMError if passing else LLMError
    return kind(f"the language model failed: {type(error).__name__}: {str(error)[:300]}")
