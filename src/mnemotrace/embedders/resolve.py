"""From what the user passes as `embedder=` to an `EmbeddingService`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mnemotrace.checks import kind_of, shortened
from mnemotrace.errors import ConfigurationError
from mnemotrace.naming import nearest

from .bundled import (
    CONDENSED,
    BundledEmbedder,
    CondensedBundledEmbedder,
    WholeBundledEmbedder,
)
from .e5 import E5Embedder
from .protocol import Embedder, EmbedderSpec
from .providers.base import ProviderEmbedder
from .providers.make import make, remake
from .providers.settings import check_names
from .providers.table import PROVIDERS
from .service import CUSTOM, EmbeddingService
from .wordllama import WordLlamaEmbedder

OFFLINE = {"bundled": BundledEmbedder, "wordllama": WordLlamaEmbedder, "e5": E5Embedder}
"""Providers that need nothing but their name."""

NAMES = (*OFFLINE, *PROVIDERS, CUSTOM)
"""Every provider key."""

DEFAULT_KEY = "OPENAI_API_KEY"
"""A new store uses OpenAI's embeddings where this variable is set, else the bundled model."""


def resolve_embedder(
    spec: EmbedderSpec | EmbeddingService | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> EmbeddingService:
    """Return the service for an embedder specification. Nothing is loaded or called yet.

    Args:
        spec: None; a provider's key; ``{"provider": ..., "config": {...}}``; a function
            ``list[str] -> vectors``, sync or async; an object with ``embed``; or a service.
        recorded: fingerprint in the store's manifest, None for a new store. It decides for
            ``spec=None``: a store is opened with the embedder it was written with. A new one gets
            OpenAI's text-embedding-3-small where the environment has a key for it, else the
            bundled model.

    Raises:
        ConfigurationError: the specification is wrong, names an unknown provider, or is None for a
            store that was written with a custom embedder.
        ImportError: the provider's library is not installed; the message has the install line.
    """
    if isinstance(spec, EmbeddingService):
        return spec
    if spec is None:
        if recorded:
            return _from_record(recorded)
        return _from_provider("openai" if os.environ.get(DEFAULT_KEY) else "bundled", {})
    if isinstance(spec, str):
        return _from_provider(spec, {})
    if isinstance(spec, Mapping):
        return _from_mapping(spec)
    return _service(spec)


def build_embedder(spec: Mapping[str, Any] | str) -> Embedder:
    """Return an embedder for ``Memory(embedder=...)``, or to be called with a list of texts.

    Args:
        spec: ``{"provider": ..., "config": {...}}``, or a provider's key.

    Raises:
        ConfigurationError: the specification is wrong, or names an unknown provider.
        ImportError: the provider's library is not installed; the message has the install line.
    """
    if not isinstance(spec, Mapping | str):
        raise ConfigurationError(
            'an embedder is built from {"provider": ..., "config": {...}} or a provider\'s key, '
            f"not from {kind_of(spec)}"
        )
    embedder: Embedder = resolve_embedder(spec).embedder
    return embedder


def _service(embedder: Any) -> EmbeddingService:
    if isinstance(embedder, ProviderEmbedder):
        return EmbeddingService(embedder, config=embedder.settings.recorded())
    return EmbeddingService(embedder)


def _from_record(recorded: Mapping[str, Any]) -> EmbeddingService:
    provider = str(recorded.get("provider"))
    if provider == "bundled" and recorded.get("dimension") == WholeBundledEmbedder.dimension:
        return EmbeddingService(WholeBundledEmbedder())
    if provider == "bundled" and str(recorded.get("model")).partition("@")[0].endswith(CONDENSED):
        return EmbeddingService(CondensedBundledEmbedder())
    if provider in OFFLINE:
        return _offline(provider)
    config = recorded.get("config")
    if provider in PROVIDERS and isinstance(config, Mapping):
        return _service(remake(provider, config))
    raise ConfigurationError(
        f"this store was written with the embedder {provider}/{recorded.get('model')} "
        f"({recorded.get('dimension')} dimensions), which cannot be rebuilt from its name: pass it "
        "again, Memory(embedder=...), or re-embed every record with "
        "mnemotrace.reindex(storage, embedder)"
    )


def _from_mapping(spec: Mapping[str, Any]) -> EmbeddingService:
    unknown = set(spec) - {"provider", "config"}
    if unknown or "provider" not in spec:
        raise ConfigurationError(
            'embedder must look like {"provider": "custom", "config": {...}}, with those two keys '
            f"only; this one has {sorted(map(str, spec)) or 'none'}"
        )
    config = spec.get("config")
    if config is not None and not isinstance(config, Mapping):
        raise ConfigurationError(f"embedder config must be a dict, not {kind_of(config)}")
    return _from_provider(spec["provider"], config or {})


def _from_provider(provider: Any, config: Mapping[str, Any]) -> EmbeddingService:
    if provider == CUSTOM:
        check_names(provider, config, ["embedding_callable"])
        if config.get("embedding_callable") is None:
            raise ConfigurationError(
                'embedder provider "custom" needs config {"embedding_callable": your_function}'
            )
        return _service(config["embedding_callable"])
    if provider in OFFLINE:
        check_names(provider, config, [])
        return _offline(provider)
    if provider in PROVIDERS:
        return _service(make(provider, config))
    near = nearest(provider, NAMES) if isinstance(provider, str) else None
    hint = f"; did you mean {near!r}? There" if near else ". There"
    raise ConfigurationError(
        f"unknown embedder provider {shortened(provider)}{hint} are {', '.join(NAMES)}, and any "
        "function from a list of texts to a list of vectors"
    )


def _offline(provider: str) -> EmbeddingService:
    return EmbeddingService(OFFLINE[provider]())
