"""One embedding request through litellm, and its many failures told apart.

litellm is imported at the first request: its import takes seconds. Unless the user has set
``LITELLM_LOCAL_MODEL_COST_MAP`` themselves, it is told to use the price list it ships instead of
downloading one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from mnemotrace import litellm_loop
from mnemotrace.errors import EmbedderError

from .hosted import Reply, TransientError
from .settings import Settings
from .table import Side


class LiteLLMRequests:
    """Asks the model of one provider; see `hosted.Requests`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = f"{settings.key}/{settings.get('model_name') or settings.model}"

    async def prepare(self) -> None:
        """Import litellm; its import takes seconds.

        Raises:
            EmbedderError: there is no key.
        """
        await asyncio.to_thread(self._prepare)

    async def __call__(self, texts: list[str], side: Side, timeout: float) -> Reply:
        """Make one request and return its vectors in the order of the texts.

        Raises:
            TransientError: it failed in a way that may pass.
            EmbedderError: it was refused, or the answer cannot be read.
        """
        return await litellm_loop.run_async(self._make(texts, side, timeout))

    async def _make(self, texts: list[str], side: Side, timeout: float) -> Reply:
        # In a thread, because credentials may be read from files and services.
        litellm, arguments = await asyncio.to_thread(self._prepare)
        try:
            with litellm_loop.unlogged(litellm):
                response = await litellm.aembedding(
                    input=texts,
                    timeout=timeout,
                    # The embedder does the retries, so that they are limited and told.
                    max_retries=_NO_RETRIES,
                    num_retries=0,
                    **arguments,
                    **side.arguments,
                )
        except Exception as error:
            raise self._translated(error) from error
        return Reply(
            self._in_order(response, len(texts)),
            tokens=int(getattr(getattr(response, "usage", None), "prompt_tokens", 0) or 0),
            cost=(getattr(response, "_hidden_params", None) or {}).get("response_cost"),
        )

    def _prepare(self) -> tuple[Any, dict[str, Any]]:
        settings = self._settings
        arguments = settings.arguments()
        arguments["model"] = f"{settings.provider.prefix}/{settings.model}"
        if (finish := _FINISH.get(settings.key)) is not None:
            finish(settings, arguments)
        return _load(), arguments

    def _in_order(self, response: Any, expected: int) -> list[Any]:
        """Return the vectors by their index fields."""
        rows = list(getattr(response, "data", None) or [])
        if len(rows) != expected:
            return rows  # the caller says how many there are
        numbers = [row["index"] for row in rows]
        if sorted(numbers) != list(range(expected)):
            raise EmbedderError(
                f"the embedder {self._name} numbered its {expected} vectors {numbers[:20]}: it is "
                "not known which belongs to which text. Nothing was changed."
            )
        rows.sort(key=lambda row: int(row["index"]))
        try:  # here, where it holds up nobody
            return [np.asarray(row["embedding"], dtype=np.float32) for row in rows]
        except (TypeError, ValueError):
            return [row["embedding"] for row in rows]  # the caller says what is wrong with them

    def _translated(self, error: Exception) -> EmbedderError:
        """Return our error for one of litellm's."""
        what = self._settings.censor(" ".join(str(error).partition("Traceback")[0].split())[:300])
        status = getattr(error, "status_code", None)
        causes = list(_chain(error))
        if any(type(cause).__name__ == "UnsupportedParamsError" for cause in causes):
            return EmbedderError(  # status 500, and nothing was sent
                f"the embedder {self._name} cannot be asked like that: {what}. Check its config; "
                "nothing was changed."
            )
        if any(isinstance(cause, _UNREADABLE) for cause in causes):
            return EmbedderError(
                f"the answer of the embedder {self._name} cannot be read: {what}. Check the "
                "address and the model; nothing was changed."
            )
        if any(_is_connection(cause) for cause in causes) and status not in (408, 429):
            return TransientError(
                f"the server of the embedder {self._name} cannot be reached{self._place()}: {what}"
            )
        if status in (401, 403):
            return EmbedderError(
                f"the embedder {self._name} refused the credentials{self._credentials()}: {what}. "
                "Nothing was changed."
            )
        passing = status in (408, 409, 425, 429) or (isinstance(status, int) and status >= 500)
        if passing and "insufficient_quota" not in str(error):
            return TransientError(
                f"the embedder {self._name} failed with status {status}: {what}",
                _retry_after(error),
            )
        return EmbedderError(
            f"the embedder {self._name} refused the request (status {status}): {what}. Check its "
            "config; nothing was changed."
        )

    def _place(self) -> str:
        address = self._settings.get(self._settings.provider.address or "")
        return f" at {address}" if address else ""

    def _credentials(self) -> str:
        row = self._settings.provider
        if row.key is None:
            return ""
        variables = " or ".join(row.options[row.key].variables)
        return f' (config "{row.key}" or {variables})'


class _GivenZero(int):
    """A zero that counts as given: litellm takes a plain 0 for "not given, so 2"."""

    def __bool__(self) -> bool:
        return True


_NO_RETRIES = _GivenZero(0)

_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What litellm runs into when an answer does not have the form it expects."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from."""
    cause: BaseException | None = error
    for _ in range(20):  # chains may be circular
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_connection(cause: BaseException) -> bool:
    return isinstance(cause, ConnectionError) or type(cause).__name__ in (
        "ClientConnectorError",  # aiohttp
        "ConnectError",  # httpx
    )


def _retry_after(error: Exception) -> float | None:
    """Return how many seconds the server asks to wait; None when it does not say."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return float(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        return None


def _load() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # It prints help and links to standard output for every failed request.
    litellm.suppress_debug_info = True
    return litellm


def _ollama(settings: Settings, arguments: dict[str, Any]) -> None:
    """Take the server's address from the address of its embedding call."""
    address = arguments["api_base"].rstrip("/")
    for path in ("/api/embeddings", "/api/embed", "/api"):
        address = address.removesuffix(path)
    arguments["api_base"] = address


def _openai(settings: Settings, arguments: dict[str, Any]) -> None:
    """Let every model take `dimensions`: litellm only knows OpenAI's own names."""
    arguments["allowed_openai_params"] = ["dimensions"]


def _cohere(settings: Settings, arguments: dict[str, Any]) -> None:
    """Complete the address: litellm wants the whole one of the call."""
    if "api_base" in arguments:
        address = arguments["api_base"].rstrip("/")
        if not address.endswith("/embed"):
            address = address.removesuffix("/v2").removesuffix("/v1") + "/v2/embed"
        arguments["api_base"] = address


def _watsonx(settings: Settings, arguments: dict[str, Any]) -> None:
    arguments.update(settings.get("params"))


def _bedrock(settings: Settings, arguments: dict[str, Any]) -> None:
    """Take region and credentials from a boto3 session."""
    session = settings.get("session")
    if session is None:
        if "aws_region_name" in arguments:
            return
        import boto3

        session = boto3.Session(profile_name=settings.get("profile_name"))
    elif (credentials := session.get_credentials()) is not None:
        frozen = credentials.get_frozen_credentials()
        arguments["aws_access_key_id"] = frozen.access_key
        arguments["aws_secret_access_key"] = frozen.secret_key
        if frozen.token:
            arguments["aws_session_token"] = frozen.token
    if session.region_name:
        arguments.setdefault("aws_region_name", session.region_name)


_FINISH = {
    "openai": _openai,
    "ollama": _ollama,
    "cohere": _cohere,
    "watsonx": _watsonx,
    "amazon-bedrock": _bedrock,
}
"""What a provider's arguments need beyond the table."""
