"""Any model litellm serves, by its name.

litellm is imported at the first request: its import takes seconds. Unless the user has set
``LITELLM_LOCAL_MODEL_COST_MAP`` themselves, it is told to use the price list it ships instead of
downloading one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from mnemotrace.errors import LLMError, LLMUnavailableError

from .keys import missing_key
from .protocol import LLMReply, LLMRequest, TransientLLMError
from .resolve import messages
from .threads import call_in_thread

NO_KEY_NEEDED = "not-needed"
"""Sent as the key to a server of the user's own when there is none: the client insists on one."""


class LiteLLMModel:
    """A model behind `litellm.acompletion`.

    A JSON schema is asked for in three ways, each next one when the server rejects the request:
    ``json_schema``, ``json_object`` with the schema (llama.cpp), and none. What worked is kept for
    later requests.

    Args:
        model: litellm's name for it, such as "gpt-4o-mini" or "ollama/llama3.2".
        settings: handed on to litellm: ``api_key``, ``api_base``, ``max_tokens``, ... The
            temperature is 0 unless given here; models that refuse it are asked without.
    """

    def __init__(self, model: str, **settings: Any) -> None:
        self.name = model
        self._settings = settings
        self._way = 0

    def unavailable(self) -> str | None:
        """Return which environment variable is missing, None if nothing is."""
        variable = missing_key(self.name, self._settings)
        if variable is None:
            return None
        return (
            f"the model {self.name} needs a key: set {variable}, or pass another model, for "
            'example llm="ollama/llama3.2" for a local one'
        )

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Answer one request; see `LLM.complete` for the errors."""
        if reason := self.unavailable():
            raise LLMUnavailableError(reason)
        litellm = await call_in_thread(_load)
        start = time.perf_counter()
        response = await self._ask(litellm, request)
        latency = (time.perf_counter() - start) * 1000.0
        try:
            text = response.choices[0].message.content
        except (AttributeError, IndexError) as error:
            raise LLMError(f"the model {self.name} answered without a message") from error
        usage = getattr(response, "usage", None)
        return LLMReply(
            text=text or "",
            model=str(getattr(response, "model", None) or self.name),
            tokens_in=int(getattr(usage, "prompt_tokens", 0) or 0),
            tokens_out=int(getattr(usage, "completion_tokens", 0) or 0),
            cost=_cost(litellm, response, self.name),
            latency_ms=latency,
        )

    async def _ask(self, litellm: Any, request: LLMRequest) -> Any:
        ways = list(_ways(request.schema))
        first = min(self._way, len(ways) - 1)
        for number, way in enumerate(ways[first:], start=first):
            try:
                response = await litellm.acompletion(
                    model=self.name,
                    messages=messages(request),
                    # The service does the retries, so that they are limited and in the trace.
                    max_retries=0,
                    num_retries=0,
                    drop_params=True,
                    **way,
                    **self._arguments(),
                )
            except Exception as error:
                if number + 1 < len(ways) and _rejected(litellm, error):
                    continue
                raise self._translated(litellm, error) from error
            if request.schema is not None:
                self._way = number
            return response
        raise AssertionError("the loop returns or raises")

    def _arguments(self) -> dict[str, Any]:
        arguments = {"temperature": 0.0, **self._settings}
        own_server = arguments.get("api_base") or arguments.get("base_url")
        if own_server and missing_key(self.name, {}) and not arguments.get("api_key"):
            arguments["api_key"] = NO_KEY_NEEDED
        return arguments

    def _translated(self, litellm: Any, error: Exception) -> LLMError:
        """Return our error for one of litellm's."""
        what = f"{type(error).__name__}: {str(error)[:300]}"
        refused = (
            litellm.AuthenticationError,
            litellm.PermissionDeniedError,
            litellm.NotFoundError,
            litellm.LiteLLMUnknownProvider,
            litellm.PaymentRequiredError,
        )
        if isinstance(error, refused):
            return LLMUnavailableError(
                f"the model {self.name} cannot be used; check its name and key: {what}"
            )
        if _unreachable(error):
            return LLMUnavailableError(
                f"the server of the model {self.name} cannot be reached: {what}"
            )
        passing = (
            litellm.RateLimitError,
            litellm.Timeout,
            litellm.ServiceUnavailableError,
            litellm.BadGatewayError,
            litellm.InternalServerError,
        )
        kind = TransientLLMError if isinstance(error, passing) else LLMError
        return kind(f"the model {self.name} failed: {what}")


def _ways(schema: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield how to ask for an answer, the strictest first."""
    if schema is not None:
        name = str(schema.get("title") or "answer")
        yield {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": schema},
            }
        }
        yield {"response_format": {"type": "json_object", "schema": schema}}
    yield {}


def _rejected(litellm: Any, error: Exception) -> bool:
    """Whether asking in another way may help: the request's form was refused, not its content."""
    content = (
        litellm.ContextWindowExceededError,
        litellm.ContentPolicyViolationError,
        litellm.LiteLLMUnknownProvider,
        litellm.PaymentRequiredError,
    )
    form = (litellm.BadRequestError, litellm.UnprocessableEntityError)
    return isinstance(error, form) and not isinstance(error, content)


def _unreachable(error: BaseException) -> bool:
    """Whether no connection could be made; litellm reports that as an internal server error."""
    seen = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, ConnectionRefusedError | OSError) or type(cause).__name__ in (
            "ConnectError",
            "ClientConnectorError",
        ):
            return not isinstance(cause, TimeoutError)
        cause = cause.__cause__ or cause.__context__
    return False


def _load() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # It prints help and links to standard output for every failed request.
    litellm.suppress_debug_info = True
    return litellm


def _cost(litellm: Any, response: Any, model: str) -> float | None:
    """Return the price in US dollars; None for models without a listed price."""
    try:
        cost = litellm.completion_cost(completion_response=response, model=model)
    except Exception:  # noqa: BLE001 - what it raises for a model without a price
        return None
    return float(cost) if cost else None
