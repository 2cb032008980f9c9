"""From what the user passes as `llm=` to an `LLM`."""

from __future__ import annotations

import inspect
from typing import Any

from mnemotrace.checks import kind_of
from mnemotrace.errors import ConfigurationError, LLMUnavailableError

from .instances import (
    BlockingLLM,
    CallableLLM,
    LlamaIndexChat,
    MessagesLLM,
    RunnableLLM,
    model_name,
)
from .protocol import LLM, LLMReply, LLMRequest

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
            function from a prompt to a text, sync or async; or an object. Of an object the first
            of these is used: LlamaIndex's ``achat`` (of chat models) or ``acomplete(prompt)``,
            LangChain's ``ainvoke(messages)`` or ``invoke``, our own ``complete(request)`` (see
            `LLM`), a ``complete(prompt)``, CrewAI's ``call(messages)``, ``chat(messages)``, or just
            ``model`` and settings such as ``temperature``.

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
    name = model_name(spec)
    if _has(spec, "acomplete"):
        metadata = getattr(spec, "metadata", None)
        if _has(spec, "achat") and getattr(metadata, "is_chat_model", False) is True:
            return LlamaIndexChat(spec.achat, name)
        return CallableLLM(spec.acomplete, name)
    if _has(spec, "ainvoke") or _has(spec, "invoke"):
        return RunnableLLM(spec, name)
    if _has(spec, "complete"):
        if _takes_prompt(spec.complete):
            return CallableLLM(spec.complete, name)
        return spec if inspect.iscoroutinefunction(spec.complete) else BlockingLLM(spec)
    if _has(spec, "call"):
        return MessagesLLM(spec.call, name)
    if _has(spec, "achat") or _has(spec, "chat"):
        return LlamaIndexChat(spec.achat if _has(spec, "achat") else spec.chat, name)
    if callable(spec):
        return CallableLLM(spec, getattr(spec, "__qualname__", name))
    if isinstance(model := getattr(spec, "model", None), str):
        settings = {name: getattr(spec, name, None) for name in _PARAMETERS}
        return _litellm(model, {name: v for name, v in settings.items() if v is not None})
    raise ConfigurationError(
        f"llm is {kind_of(spec)}, which cannot be asked anything: pass a model name such "
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


def _has(spec: Any, method: str) -> bool:
    return callable(getattr(spec, method, None))


def _takes_prompt(complete: Any) -> bool:
    """Tell whether a ``complete`` is another library's, from a prompt to a completion."""
    try:
        names = list(inspect.signature(complete).parameters)
    except (TypeError, ValueError):
        return False
    return names[:1] == ["prompt"]


def _litellm(model: str, settings: dict[str, Any]) -> LLM:
    from .litellm_adapter import LiteLLMModel

    if not model:
        raise ConfigurationError('llm is empty: pass a model name such as "gpt-4o-mini", or None')
    return LiteLLMModel(model, **settings)
