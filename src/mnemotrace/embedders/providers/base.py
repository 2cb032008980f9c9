"""What the embedders of all providers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from numpy.typing import NDArray

from mnemotrace.embedders import windows

from .settings import Settings


class ProviderEmbedder:
    """An embedder made from a provider's key and config; see `mnemotrace.embedders.Embedder`.

    It can be called like a function, too. Nothing is loaded or connected to before the first text.

    Args:
        settings: the checked config.
    """

    max_batch = 1024

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.provider = settings.key
        self.model_name = str(settings.get("model_name") or settings.model)
        self.dimension: int | None = settings.get("dimensions")
        row = settings.provider
        self._batch = min(settings.get("max_batch") or 10**6, row.batch(settings.model))
        self._window = settings.get("max_characters") or row.max_characters

    @property
    def name(self) -> str:
        """Provider and model, as used in messages."""
        return f"{self.provider}/{self.model_name}"

    def check(self) -> None:
        """Make sure that it can work on this machine, but for the key.

        Raises:
            ConfigurationError: a config value is missing.
            ImportError: a library is not installed; the message has the install line.
        """
        self.settings.require()
        self.check_installed()

    def check_installed(self) -> None:
        """Make sure that the provider's library is there.

        Raises:
            ImportError: it is not; the message has the install line.
        """
        row = self.settings.provider
        if row.module is not None and not _is_installed(row.module):
            raise ImportError(
                f"The embedder {self.name} needs the Python module {row.module}, which is not "
                f"installed. Run: {row.install}"
            )

    def embed(self, texts: list[str]) -> NDArray[Any]:
        """Return the vectors of texts to be stored: (n, d) float32."""
        raise NotImplementedError

    def embed_query(self, texts: list[str]) -> NDArray[Any]:
        """Return the vectors of texts to search for: (n, d) float32."""
        raise NotImplementedError

    def __call__(self, texts: list[str]) -> NDArray[Any]:
        """Return the vectors of texts to be stored, as `embed` does."""
        return self.embed(texts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """Return each text in pieces that are short enough for the model."""
        return [windows.split(text, self._window) for text in texts]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
