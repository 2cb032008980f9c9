"""Models behind a server: batches, parallel requests and retries around one request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mnemotrace import litellm_loop
from mnemotrace.checks import counted
from mnemotrace.embedders import windows
from mnemotrace.errors import EmbedderError
from mnemotrace.trace import note, span

from .base import ProviderEmbedder
from .settings import Settings
from .table import Side

PARALLEL = 8
"""Most requests of one call that are under way at the same time."""

BACKOFF = 0.5
"""Seconds before the first retry; doubled for each next one, and taken by half to one and a half
times at random, so that many clients do not come back together."""

MAX_WAIT = 60.0
"""Longest wait, in seconds, that a server may ask for; a longer one is a failure."""

MEDIA = ("data:", "files/", "gs://", "https://generativelanguage.googleapis.com/")
"""Beginnings of a text that litellm takes for a file for some providers."""


class TransientError(EmbedderError):
    """A request failed in a way that may pass: worth another try."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Reply:
    """The answer to one request: one vector per text, in their order, and what it took."""

    vectors: list[Any]
    tokens: int = 0
    cost: float | None = None


class Requests(Protocol):
    """Makes one request at a time to a provider."""

    async def prepare(self) -> None:
        """Load and find what requests need; not counted as time of a request.

        Raises:
            EmbedderError: there is no key.
        """
        ...

    async def __call__(self, texts: list[str], side: Side, timeout: float) -> Reply:
        """Make one request, which may take `timeout` seconds.

        Raises:
            TransientError: it failed in a way that may pass.
            EmbedderError: it was refused, or the answer cannot be read.
        """
        ...


class HostedEmbedder(ProviderEmbedder):
    """A provider's model behind a server.

    A long text is embedded in pieces and gets their mean, weighted by length. Requests carry as
    many texts as the provider takes; several are under way at once. One that fails in a passing
    way (no connection, timeout, rate limit, fault of the server) is made again.

    Args:
        settings: the checked config.
        ask: makes the requests.
    """

    def __init__(self, settings: Settings, ask: Requests) -> None:
        super().__init__(settings)
        self._ask = ask
        self._retries: int = settings.get("max_retries")
        self._timeout: float = settings.get("timeout") or settings.provider.timeout
        self._document, self._query = settings.provider.sides(settings.model)

    async def aembed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to be stored: (n, d) float32.

        Raises:
            EmbedderError: no key, the request was refused, or failed again and again, or the
                answer is not one vector of one length per text.
        """
        return await self._embed(texts, self._document)

    async def aembed_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to search for; else as `aembed`."""
        return await self._embed(texts, self._query)

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to be stored; else as `aembed`, which does not block."""
        return litellm_loop.run(self.aembed(texts))

    def embed_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts to search for; else as `aembed_query`."""
        return litellm_loop.run(self.aembed_query(texts))

    async def _embed(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        self.check_installed()
        await self._ask.prepare()
        groups = self._pieces(texts)
        pieces = [self._worded(piece, side) for group in groups for piece in group]
        gate = asyncio.Semaphore(PARALLEL)

        async def send(batch: list[str]) -> Reply:
            async with gate:
                return await self._persistently(batch, side)

        replies = await _all_or_nothing([send(batch) for batch in self._batches(pieces)])
        rows = [vector for reply in replies for vector in reply.vectors]
        if not rows:
            return np.empty((0, self.dimension or 0), dtype=np.float32)
        return windows.join(self._matrix(rows), groups)

    def _worded(self, piece: str, side: Side) -> str:
        if self.settings.provider.reads_media and piece.startswith(MEDIA):
            piece = f" {piece}"
        return side.prefix + piece

    def _batches(self, pieces: Sequence[str]) -> Iterator[list[str]]:
        """Yield the pieces in order, in groups that one request may carry."""
        batch: list[str] = []
        room = self.settings.provider.request_characters
        for piece in pieces:
            if batch and (len(batch) >= self._batch or len(piece) > room):
                yield batch
                batch, room = [], self.settings.provider.request_characters
            batch.append(piece)
            room -= len(piece)
        if batch:
            yield batch

    async def _persistently(self, batch: list[str], side: Side) -> Reply:
        """Make one request, again where it failed in a passing way."""
        attempt = 1
        while True:
            try:
                return await self._once(batch, side, attempt)
            except TransientError as error:
                wait = BACKOFF * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                if attempt > self._retries or (error.retry_after or 0.0) > MAX_WAIT:
                    times = "once" if attempt == 1 else f"{attempt} times"
                    raise EmbedderError(
                        f"{error} (tried {times}). Nothing was changed; try again later."
                    ) from error
                await asyncio.sleep(max(wait, error.retry_after or 0.0))
            attempt += 1

    async def _once(self, batch: list[str], side: Side, attempt: int) -> Reply:
        with span("embed.request", kind="embed", attempt=attempt, texts=len(batch)):
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._ask(batch, side, self._timeout)
            except TimeoutError as error:
                raise TransientError(
                    f"the embedder {self.name} did not answer within {self._timeout:g} seconds"
                ) from error
            note(model=self.name, tokens_in=reply.tokens, cost=reply.cost)
        if len(reply.vectors) != len(batch):
            raise EmbedderError(
                f"the embedder {self.name} returned "
                f"{counted(len(reply.vectors), 'vector')} for {counted(len(batch), 'text')}, where "
                "each text needs one. Nothing was changed; try again, or use another model."
            )
        return reply

    def _matrix(self, rows: list[Any]) -> NDArray[np.float32]:
        try:
            vectors = [np.asarray(row, dtype=np.float32) for row in rows]
        except (TypeError, ValueError) as error:
            raise EmbedderError(
                f"the embedder {self.name} returned something that is not a vector of numbers. "
                "Nothing was changed."
            ) from error
        shapes = sorted({vector.shape for vector in vectors})
        if len(shapes) != 1 or len(shapes[0]) != 1:
            lengths = ", ".join("x".join(map(str, shape)) for shape in shapes)
            raise EmbedderError(
                f"the embedder {self.name} returned vectors of different lengths: {lengths}. "
                "Nothing was changed."
            )
        return np.stack(vectors)


async def _all_or_nothing(requests: Sequence[Awaitable[Reply]]) -> list[Reply]:
    """Return all results in order; at the first failure the other requests are given up."""
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
