"""From what the user passes as `embedder=` to an `EmbeddingService`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from mnemotrace.errors import ConfigurationError

from .bundled import BundledEmbedder
from .protocol import EmbedderSpec
from .service import CUSTOM, EmbeddingService
from .wordllama import WordLlamaEmbedder

OFFLINE = {"bundled": BundledEmbedder, "wordllama": WordLlamaEmbedder}
"""Providers that need nothing but their name."""

HOSTED = (
    "openai",
    "ollama",
    "azure",
    "google-generativeai",
    "google-vertex",
    "cohere",
    "voyageai",
    "amazon-bedrock",
    "huggingface",
    "jina",
    "watsonx",
    "sentence-transformer",
)
"""Provider keys of CrewAI's memory that are known here but not served yet."""

_WORKS_NOW = (
    'What works now: embedder="bundled" (the default: offline, multilingual), "wordllama" '
    "(offline, English), or your own function from a list of texts to a list of vectors"
)


def resolve_embedder(
    spec: EmbedderSpec | EmbeddingService | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> EmbeddingService:
    """Return the service for an embedder specification. Nothing is loaded or called yet.

    Args:
        spec: None; "bundled" or "wordllama"; ``{"provider": ..., "config": {...}}``; a function
            ``list[str] -> vectors``, sync or async; an object with ``embed``; or a service.
        recorded: fingerprint in the store's manifest, None for a new store. It decides for
            ``spec=None``: a store is opened with the embedder it was written with, and a new one
            gets the bundled model.

    Raises:
        ConfigurationError: the specification is wrong, names a provider that is not served, or is
            None for a store that was written with a custom embedder.
    """
    if isinstance(spec, EmbeddingService):
        return spec
    if spec is None:
        return _from_record(recorded) if recorded else _offline("bundled")
    if isinstance(spec, str):
        return _from_provider(spec, {})
    if isinstance(spec, Mapping):
        return _from_mapping(spec)
    return EmbeddingService(spec)


def _from_record(recorded: Mapping[str, Any]) -> EmbeddingService:
    provider = str(recorded.get("provider"))
    if provider in OFFLINE:
        return _offline(provider)
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
        raise ConfigurationError(f"embedder config must be a dict, not a {type(config).__name__}")
    return _from_provider(spec["provider"], config or {})


def _from_provider(provider: Any, config: Mapping[str, Any]) -> EmbeddingService:
    if provider == CUSTOM:
        _only(provider, config, {"embedding_callable"})
        if config.get("embedding_callable") is None:
            raise ConfigurationError(
                'embedder provider "custom" needs config {"embedding_callable": your_function}'
            )
        return EmbeddingService(config["embedding_callable"])
    if provider in OFFLINE:
        _only(provider, config, set())
        return _offline(provider)
    if provider in HOSTED:
        raise ConfigurationError(
            f'embedder provider "{provider}" is not served in this release: hosted providers are '
            f"served from the next release. {_WORKS_NOW}"
        )
    known = (*OFFLINE, CUSTOM, *HOSTED)
    near = difflib.get_close_matches(str(provider).lower(), known, n=1, cutoff=0.0)
    raise ConfigurationError(
        f"unknown embedder provider {provider!r}; did you mean {near[0]!r}? {_WORKS_NOW}"
    )


def _only(provider: str, config: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(map(str, config)) - known)
    if unknown:
        takes = ", ".join(sorted(known)) or "no config"
        raise ConfigurationError(
            f'embedder provider "{provider}" takes {takes}; unknown here: {", ".join(unknown)}'
        )


def _offline(provider: str) -> EmbeddingService:
    return EmbeddingService(OFFLINE[provider]())
