"""Models that the user brings as objects or functions: LangChain, LlamaIndex, CrewAI, their own."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mnemotrace.checks import kind_of
from mnemotrace.errors import LLMError

from .protocol import LLMReply, LLMRequest
from .schemas import spelled_out
from .threads import call_in_thread


class CallableLLM:
    """A function from one prompt to a text; the system text comes first in the prompt.

    It is told the JSON schema in words, for it has no other way to get it.
    """

    def __init__(self, function: Callable[[str], Any], name: str) -> None:
        self._function = function
        self.name = name

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        asked = spelled_out(request)
        prompt = f"{asked.system}\n\n{asked.prompt}" if asked.system else asked.prompt
        return reply(await _run(self._function, prompt), self.name)


class MessagesLLM:
    """A function of chat messages, as ``call`` of a CrewAI LLM or ``achat`` of LlamaIndex."""

    def __init__(self, function: Callable[[list[Any]], Any], name: str) -> None:
        self._function = function
        self.name = name

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        chat = messages(spelled_out(request))
        return reply(await _run(self._function, chat), self.name)


class LlamaIndexChat(MessagesLLM):
    """The chat of a LlamaIndex model, which takes messages of its own class."""

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        chat: list[Any] = list(messages(spelled_out(request)))
        module = sys.modules.get("llama_index.core.base.llms.types")
        if module is not None:
            chat = [module.ChatMessage(**message) for message in chat]
        return reply(await _run(self._function, chat), self.name)


class RunnableLLM:
    """A LangChain chat model, by ``ainvoke`` or ``invoke``.

    Where it has structured output, that is used; it is left out from then on when the model turns
    out not to have it.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self.name = name
        self._structured = callable(getattr(model, "with_structured_output", None))

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request."""
        if request.schema is not None and self._structured:
            try:
                bound = self._model.with_structured_output(request.schema, include_raw=True)
                return _structured(await _invoke(bound, messages(request)), self.name)
            except Exception as error:
                if not _not_supported(error):
                    raise
                self._structured = False
        return reply(await _invoke(self._model, messages(spelled_out(request))), self.name)


class BlockingLLM:
    """An object whose ``complete(request)`` is a plain method."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.name = model_name(llm)

    def unavailable(self) -> str | None:
        """Ask the object, where it knows."""
        check = getattr(self._llm, "unavailable", None)
        return check() if callable(check) else None

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request in a worker thread."""
        return reply(await _run(self._llm.complete, request), self.name)


def messages(request: LLMRequest) -> list[dict[str, str]]:
    """Return a request as chat messages."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, {"role": "user", "content": request.prompt}]


def reply(answer: Any, name: str) -> LLMReply:
    """Return what a model gave back as a reply, with the tokens where it tells them.

    Raises:
        LLMError: there is no text in it.
    """
    if isinstance(answer, LLMReply):
        return answer
    text = _text(answer)
    if text is None:
        raise LLMError(
            f"the language model {name} returned {kind_of(answer)}, where a text is needed"
        )
    tokens_in, tokens_out = _tokens(answer)
    return LLMReply(text, model=name, tokens_in=tokens_in, tokens_out=tokens_out)


def model_name(llm: Any) -> str:
    """Return the name of a model object; that of its class where it tells none."""
    metadata = getattr(llm, "metadata", None)  # of a LlamaIndex model
    for owner in (llm, metadata):
        for attribute in ("model", "model_name", "name"):
            value = getattr(owner, attribute, None)
            if isinstance(value, str) and value and value != "unknown":
                return value
    return type(llm).__name__


async def _run(function: Callable[[Any], Any], argument: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(argument)
    result = await call_in_thread(function, argument)
    return await result if inspect.isawaitable(result) else result


async def _invoke(model: Any, chat: list[dict[str, str]]) -> Any:
    ainvoke = getattr(model, "ainvoke", None)
    return await _run(ainvoke if callable(ainvoke) else model.invoke, chat)


def _structured(answer: Any, name: str) -> LLMReply:
    """Return the answer of a model with structured output: what it parsed, else what it wrote."""
    raw = answer.get("raw") if isinstance(answer, Mapping) else None
    parsed = answer.get("parsed") if isinstance(answer, Mapping) else answer
    if parsed is None:
        return reply(raw, name)
    if hasattr(parsed, "model_dump"):
        parsed = parsed.model_dump(mode="json")
    tokens_in, tokens_out = _tokens(raw)
    text = json.dumps(parsed, ensure_ascii=False, default=str)
    return LLMReply(text, model=name, tokens_in=tokens_in, tokens_out=tokens_out)


def _not_supported(error: Exception) -> bool:
    """Tell whether a model without structured output may answer in plain text."""
    form = isinstance(error, (NotImplementedError, AttributeError, TypeError, ValueError))
    return form or getattr(error, "status_code", None) in (400, 422)


def _text(answer: Any) -> str | None:
    """Return the text of an answer: of a string, a completion, a message or its parts."""
    if isinstance(answer, str):
        return answer
    message = getattr(answer, "message", None)  # LlamaIndex's chat
    for owner in (answer, message):
        for attribute in ("content", "text"):
            value = getattr(owner, attribute, None)
            if isinstance(value, str):
                return value
            if isinstance(value, list):  # parts of a message, as LangChain has for some models
                return "".join(
                    part if isinstance(part, str) else str(part.get("text", ""))
                    for part in value
                    if isinstance(part, (str, Mapping))
                )
    return None


_USAGE = (
    ("input_tokens", "output_tokens"),  # LangChain, Anthropic
    ("prompt_tokens", "completion_tokens"),  # OpenAI
    ("prompt_eval_count", "eval_count"),  # Ollama
)


def _tokens(answer: Any) -> tuple[int, int]:
    """Return the tokens of question and answer; zeros where the answer does not tell."""
    raw = getattr(answer, "raw", None)
    for place in (
        getattr(answer, "usage_metadata", None),
        getattr(answer, "usage", None),
        _part(raw, "usage"),
        raw,
        getattr(answer, "additional_kwargs", None),
        _part(getattr(answer, "response_metadata", None), "token_usage"),
    ):
        for asked, answered in _USAGE:
            counts = (_part(place, asked), _part(place, answered))
            if any(isinstance(count, int) for count in counts):
                return _count(counts[0]), _count(counts[1])
    return 0, 0


def _part(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
