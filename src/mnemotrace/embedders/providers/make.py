"""From a provider's key and config to its embedder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import ProviderEmbedder
from .hosted import HostedEmbedder
from .litellm_adapter import LiteLLMRequests
from .local import SentenceTransformerEmbedder
from .settings import Settings
from .table import PROVIDERS


def make(key: str, config: Mapping[str, Any]) -> ProviderEmbedder:
    """Return the embedder for a config of the user's. Nothing is loaded or called yet.

    Raises:
        ConfigurationError: a config name is unknown or missing, or a value of the wrong kind.
        ImportError: the provider's library is not installed; the message has the install line.
    """
    embedder = _embedder(Settings(key, PROVIDERS[key], config))
    embedder.check()
    return embedder


def remake(key: str, recorded: Mapping[str, Any]) -> ProviderEmbedder:
    """Return the embedder for a config that a store's manifest recorded.

    What is missing on this machine is told when the embedder is first used, so that the rest of
    the store can be used without it.

    Raises:
        ConfigurationError: a config name is unknown, or a value of the wrong kind.
    """
    return _embedder(Settings(key, PROVIDERS[key], recorded, from_store=True))


def _embedder(settings: Settings) -> ProviderEmbedder:
    if settings.provider.prefix:
        return HostedEmbedder(settings, LiteLLMRequests(settings))
    return SentenceTransformerEmbedder(settings)
