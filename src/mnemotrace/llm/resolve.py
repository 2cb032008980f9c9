"""From what the user passes as `llm=` to an `LLM`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mnemotrace.errors import ConfigurationError, LLMError, LLMUnavailableError

from .protocol import LLM, LLMReply, LLMRequest
from .threads import call_in_thread

_PARAMETERS = (
    "temperature",
    "api_key",
    "api_base",
    "base_url",
    "api_version",
    "max_tokens",
    "top_p",
    "seed",
    "timeout",
    "organization",
    "reasoning_effort",
)
"""Attributes of a model object that are handed on to litellm where they are set."""


def resolve_llm(spec: Any) -> LLM:
    """Return the model for a specification. Nothing is imported or called yet.

    Args:
        spec: None for no model; a litellm model name such as "gpt-4o-mini" or "ollama/llama3.2"; a
            function from a prompt to a text, sync or async; an object with ``complete`` (see
            `LLM`), with ``acomplete(prompt)`` as LlamaIndex has, with ``call(messages)`` as CrewAI
            has, or with just ``model`` and settings such as ``temperature``.

    Raises:
        ConfigurationError: this cannot be used as a language model.
    """
    if spec is None:
        return NoLLM()
    if isinstance(spec, str):
        return _litellm(spec.strip(), {})
    if isinstance(spec, type):
        raise ConfigurationError(
            f"llm is the class {spec.__name__}: pass an instance, llm={spec.__name__}(...)"
        )
    # LlamaIndex models have `complete` too, but a blocking one that takes the bare prompt.
    if callable(getattr(spec, "acomplete", None)):
        return CallableLLM(spec.acomplete, _model_name(spec))
    if callable(getattr(spec, "complete", None)):
        return spec if inspect.iscoroutinefunction(spec.complete) else BlockingLLM(spec)
    if callable(getattr(spec, "call", None)):
        return MessagesLLM(spec.call, _model_name(spec))
    if callable(spec):
        return CallableLLM(spec, getattr(spec, "__qualname__", type(spec).__name__))
    if isinstance(model := getattr(spec, "model", None), str):
        settings = {name: getattr(spec, name, None) for name in _PARAMETERS}
        return _litellm(model, {name: v for name, v in settings.items() if v is not None})
    raise ConfigurationError(
        f"llm is a {type(spec).__name__}, which cannot be asked anything: pass a model name such "
        'as "gpt-4o-mini" or "ollama/llama3.2", a function from a prompt to a text, an object '
        "with `complete`, or None for no model"
    )


class NoLLM:
    """No language model: every request fails at once, so the flows go on without one."""

    name = ""
    reason = 'no language model is configured; pass llm="gpt-4o-mini", another name or a function'

    def unavailable(self) -> str:
        """Return that there is none."""
        return self.reason

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Raise LLMUnavailableError."""
        raise LLMUnavailableError(self.reason)


class CallableLLM:
    """A function from one prompt to a text; the system text comes first in the prompt."""

    def __init__(self, function: Callable[[str], Any], name: str) -> None:
        self._function = function
        self.name = name

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        prompt = f"{request.system}\n\n{request.prompt}" if request.system else request.prompt
        return _reply(await _run(self._function, prompt), self.name)


class MessagesLLM:
    """A function from chat messages to a text, as ``call`` of a CrewAI LLM."""

    def __init__(self, function: Callable[[list[dict[str, str]]], Any], name: str) -> None:
        self._function = function
        self.name = name

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        return _reply(await _run(self._function, messages(request)), self.name)


class BlockingLLM:
    """An object whose ``complete(request)`` is a plain method."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.name = _model_name(llm)

    def unavailable(self) -> str | None:
        """Ask the object, where it knows."""
        check = getattr(self._llm, "unavailable", None)
        return check() if callable(check) else None

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request in a worker thread."""
        answer = await _run(self._llm.complete, request)
        return answer if isinstance(answer, LLMReply) else _reply(answer, self.name)


def messages(request: LLMRequest) -> list[dict[str, str]]:
    """Return a request as chat messages."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, {"role": "user", "content": request.prompt}]


async def _run(function: Callable[[Any], Any], argument: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(argument)
    result = await call_in_thread(function, argument)
    return await result if inspect.isawaitable(result) else result


def _reply(answer: Any, name: str) -> LLMReply:
    if isinstance(answer, LLMReply):
        return answer
    if not isinstance(answer, str):  # LlamaIndex gives an object with `text`
        answer = getattr(answer, "text", answer)
    if not isinstance(answer, str):
        raise LLMError(
            f"the language model {name} returned {type(answer).__name__}, where a text is needed"
        )
    return LLMReply(answer, model=name)


def _model_name(llm: Any) -> str:
    for attribute in ("model", "model_name", "name"):
        value = getattr(llm, attribute, None)
        if isinstance(value, str) and value:
            return value
    return type(llm).__name__


def _litellm(model: str, settings: dict[str, Any]) -> LLM:
    from .litellm_adapter import LiteLLMModel

    if not model:
        raise ConfigurationError('llm is empty: pass a model name such as "gpt-4o-mini", or None')
    return LiteLLMModel(model, **settings)
