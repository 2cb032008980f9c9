"""A language model for tests that answers from a script."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from mnemotrace.errors import LLMError
from mnemotrace.llm.protocol import LLMReply, LLMRequest

Answer = str | Mapping[str, Any] | BaseModel | BaseException | LLMReply
"""A text, what becomes JSON, an exception to raise, or a whole reply."""

Script = (
    Answer
    | Sequence[Answer]
    | Callable[[LLMRequest], Answer]
    | Callable[[LLMRequest], Awaitable[Answer]]
)


class ScriptedLLM:
    """A language model that answers each purpose as told, without any network.

    >>> llm = ScriptedLLM({"query_analysis": {"sub_queries": ["port of the API"]}})

    A list is answered from in order, one entry a request; when it is used up, the model fails with
    an LLMError. Anything else answers every request of its purpose.

    Attributes:
        requests: every `LLMRequest` so far, in order, also those that failed.
        delay: seconds each answer takes.
        running: requests being answered now.
        most_running: the most there were at the same time.

    Args:
        script: for each purpose a text, a dict or pydantic model (sent as JSON), an exception,
            a list of those, or a function of the request, sync or async, that returns one.
        default: the same, for purposes that are not in `script`; None makes them fail.
        delay: seconds each answer takes.
        model: the name reported with each answer.
    """

    def __init__(
        self,
        script: Mapping[str, Script] | None = None,
        *,
        default: Script | None = None,
        delay: float = 0.0,
        model: str = "scripted",
    ) -> None:
        self.name = model
        self.requests: list[LLMRequest] = []
        self.delay = delay
        self.running = 0
        self.most_running = 0
        self._script = {purpose: _queue(answer) for purpose, answer in (script or {}).items()}
        self._default = None if default is None else _queue(default)

    def asked(self, purpose: str) -> list[LLMRequest]:
        """Return the requests of one purpose so far, in order; [] if there were none."""
        return [request for request in self.requests if request.purpose == purpose]

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer from the script.

        Raises:
            LLMError: the script has no answer for this request.
            BaseException: the exception in the script.
        """
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            answer = self._next(request)
            if self.delay:
                await asyncio.sleep(self.delay)
            if callable(answer) and not isinstance(answer, BaseModel):
                answer = answer(request)
                if inspect.isawaitable(answer):
                    answer = await answer
        finally:
            self.running -= 1
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, LLMReply):
            return answer
        text = _text(answer)
        words = len(f"{request.system} {request.prompt}".split())
        return LLMReply(text, model=self.name, tokens_in=words, tokens_out=len(text.split()))

    def _next(self, request: LLMRequest) -> Any:
        script = self._script.get(request.purpose, self._default)
        if script is None:
            raise LLMError(f"the script has no answer for {request.purpose!r}")
        if isinstance(script, list):
            if not script:
                raise LLMError(f"the script has no further answer for {request.purpose!r}")
            return script.pop(0)
        return script


def _queue(script: Any) -> Any:
    return list(script) if isinstance(script, Sequence) and not isinstance(script, str) else script


def _text(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    return json.dumps(answer, ensure_ascii=False)
