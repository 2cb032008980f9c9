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

from mnemotrace import litellm_loop
from mnemotrace.checks import shortened
from mnemotrace.errors import ConfigurationError, LLMError, LLMUnavailableError

from .instances import messages
from .keys import missing_key
from .protocol import LLMReply, LLMRequest, TransientLLMError
from .schemas import spelled_out
from .threads import call_in_thread

NO_KEY_NEEDED = "not-needed"
"""Sent as the key to a server of the user's own when there is none: the client insists on one."""


class LiteLLMModel:
    """A model behind `litellm.acompletion`.

    A JSON schema is asked for in three ways, each next one when the server rejects the request:
    ``json_schema``, ``json_object`` with the schema (llama.cpp), and none. What worked is kept for
    later requests. The schema is told in words, too, unless litellm knows that the model can be
    held to it: litellm leaves out what a provider does not take.

    Args:
        model: litellm's name for it, such as "gpt-4o-mini" or "ollama/llama3.2".
        settings: handed on to litellm: ``api_key``, ``api_base``, ``max_tokens``, ... The
            temperature is 0 unless given here, or left out where a model refuses that.
    """

    def __init__(self, model: str, **settings: Any) -> None:
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(
                f'model must be a name such as "gpt-4o-mini", not {shortened(model)}'
            )
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
        litellm = _loaded or await call_in_thread(_load)
        response, latency = await litellm_loop.run_async(self._ask(litellm, request))
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

    async def _ask(self, litellm: Any, request: LLMRequest) -> tuple[Any, float]:
        """Return litellm's response and the milliseconds it took; runs on litellm's loop."""
        await litellm_loop.in_turn()
        start = time.perf_counter()
        ways = list(_ways(request.schema))
        first = min(self._way, len(ways) - 1) if request.schema is not None else 0
        for number, way in enumerate(ways[first:], start=first):
            strict = number == 0 and _holds_to_schema(litellm, self.name)
            try:
                with litellm_loop.unlogged(litellm):
                    response = await litellm.acompletion(
                        model=self.name,
                        messages=messages(request if strict else spelled_out(request)),
                        # The service does the retries, so that they are limited and in the trace.
                        max_retries=0,
                        num_retries=0,
                        drop_params=True,
                        **(way | self._arguments()),
                    )
            except Exception as error:
                if number + 1 < len(ways) and _form_refused(litellm, error):
                    continue
                raise self._translated(litellm, error) from error
            if request.schema is not None:
                self._way = number
            return response, (time.perf_counter() - start) * 1000.0
        raise AssertionError("the loop returns or raises")

    def _arguments(self) -> dict[str, Any]:
        own_server = self._settings.get("api_base") or self._settings.get("base_url")
        if own_server and not self._settings.get("api_key") and missing_key(self.name, {}):
            return {**self._settings, "api_key": NO_KEY_NEEDED}
        return self._settings

    def _translated(self, litellm: Any, error: Exception) -> LLMError:
        """Return our error for one of litellm's."""
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if "LLM Provider NOT provided" in str(error):
            return LLMUnavailableError(
                f"litellm does not know the model {self.name}: write it as provider/model, "
                'for example "openai/gpt-4o-mini" or "ollama/llama3.2"'
            )
        if getattr(error, "status_code", None) in _REFUSED:
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


_REFUSED = (401, 402, 403, 404)
"""HTTP statuses that stay the same however often one asks: key, payment, permission, name."""


def _ways(schema: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the arguments to ask with, the strictest first; the last has nothing to refuse."""
    if schema is None:
        yield {"temperature": 0.0}
    else:
        named = {"name": str(schema.get("title") or "answer"), "schema": schema}
        for form in (
            {"type": "json_schema", "json_schema": named},
            {"type": "json_object", "schema": schema},
        ):
            yield {"temperature": 0.0, "response_format": form}
    yield {}


def _holds_to_schema(litellm: Any, model: str) -> bool:
    """Tell whether litellm's list knows this model to answer by a schema.

    litellm's own function for that asks the server, for some providers, and waits for it.
    """
    for name in (model, model.partition("/")[2]):
        known = litellm.model_cost.get(name)
        if known is not None:
            return bool(known.get("supports_response_schema"))
    return False


def _form_refused(litellm: Any, error: Exception) -> bool:
    """Whether asking in another way may help: the request's form was refused, not its content."""
    content = (litellm.ContextWindowExceededError, litellm.ContentPolicyViolationError)
    form = (litellm.BadRequestError, litellm.UnprocessableEntityError)
    known = "LLM Provider NOT provided" not in str(error)
    return known and isinstance(error, form) and not isinstance(error, content)


def _unreachable(error: BaseException) -> bool:
    """Whether no connection could be made; litellm reports that as an internal server error."""
    cause: BaseException | None = error
    for _ in range(20):  # chains may be circular
        if cause is None:
            break
        if isinstance(cause, TimeoutError):
            return False
        if isinstance(cause, OSError) or type(cause).__name__ == "ConnectError":
            return True
        cause = cause.__cause__ or cause.__context__
    return False


_loaded: Any = None
"""litellm, once it was imported; looked up without a thread from then on."""


def _load() -> Any:
    global _loaded
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # It prints help and links to standard output for every failed request.
    litellm.suppress_debug_info = True
    _loaded = litellm
    return litellm


def _cost(litellm: Any, response: Any, model: str) -> float | None:
    """Return the price in US dollars; None for models without a listed price."""
    hidden = getattr(response, "_hidden_params", None) or {}
    if "response_cost" in hidden:  # it has worked that out itself
        known = hidden["response_cost"]
        return float(known) if isinstance(known, int | float) else None
    try:
        cost = litellm.completion_cost(completion_response=response, model=model)
    except Exception:  # noqa: BLE001 - what it raises for a model without a price
        return None
    return float(cost)
