"""Capture: what passes between a run and its models, for whoever wants to keep it.

A run that is to be kept sets `capturing` for its context. The services of the language model and
the embedder then hand over every answer as it came. Without one they look at a context variable
and do nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from .llm.protocol import LLMReply, LLMRequest

Kind = Literal["query", "document"]
"""What a text is embedded as."""


class Capture(Protocol):
    """Sees the answers that one run gets. Called from the loop and from worker threads."""

    def began(self, now: datetime) -> None:
        """The run takes `now` as its time."""

    def known(self, request: LLMRequest) -> LLMReply | None:
        """Return the answer to a request, or raise, so that the model is not asked; else None."""

    def answered(self, request: LLMRequest, reply: LLMReply) -> None:
        """The model has answered."""

    def unanswered(self, request: LLMRequest, error: BaseException) -> None:
        """The model has failed, or the request was cancelled."""

    def vectors(self, kind: Kind, texts: Sequence[str]) -> Any:
        """Return the vectors of texts, or raise, so that nothing is embedded; else None."""

    def embedded(self, kind: Kind, texts: Sequence[str], vectors: Any) -> None:
        """The embedder has given one vector for each text: float32 of shape (n, d)."""

    def not_embedded(self, kind: Kind, texts: Sequence[str], error: BaseException) -> None:
        """The embedder has failed."""


_current: ContextVar[Capture | None] = ContextVar("mnemotrace_capture", default=None)


def capturing() -> Capture | None:
    """Return who keeps what this run gets; None when nobody does."""
    return _current.get()


@contextmanager
def capture(keeper: Capture | None) -> Iterator[None]:
    """Let `keeper` see what is answered in this block, of this context; None for nobody."""
    outside = _current.set(keeper)
    try:
        yield
    finally:
        _current.reset(outside)
