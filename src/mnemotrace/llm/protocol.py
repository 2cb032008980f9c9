"""What a language model is to memory: one question, one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mnemotrace.errors import LLMError


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """One question to a language model.

    Attributes:
        purpose: what it is for, as shown in the trace: ``analyze_query``, ``consolidate``, ...
        system: the standing instruction.
        prompt: the question itself.
        schema: JSON schema the answer must fulfil; None for free text.
    """

    purpose: str
    system: str
    prompt: str
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LLMReply:
    """One answer, with what it took.

    Attributes:
        text: the answer as written by the model.
        model: name of the model that answered; empty if not known.
        tokens_in: tokens of the question; 0 if not known.
        tokens_out: tokens of the answer; 0 if not known.
        cost: in US dollars; None if not known.
        latency_ms: time the model took in milliseconds; None if not measured.
    """

    text: str
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    latency_ms: float | None = None


class TransientLLMError(LLMError):
    """A failure worth another try: rate limit, overload, a dropped connection.

    Raise it from `LLM.complete` to be asked again (`LLMService` tries twice more).
    """


class LLMTimeoutError(LLMError):
    """The model did not answer in time."""


@runtime_checkable
class LLM(Protocol):
    """A language model.

    An implementation may also have ``unavailable() -> str | None``: a cheap check without any
    connection that returns why the model cannot answer (no key set), None if nothing is known
    against it.
    """

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request.

        Raises:
            LLMUnavailableError: no key, no connection, no such model: asking again is useless.
            TransientLLMError: a failure worth another try.
            LLMError: any other failure.
        """
        ...
