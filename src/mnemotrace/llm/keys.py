"""Whether the key of a hosted model is there, told without importing litellm or connecting."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "xai": ("XAI_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "fireworks_ai": (
        "FIREWORKS_API_KEY",
        "FIREWORKS_AI_API_KEY",
        "FIREWORKSAI_API_KEY",
        "FIREWORKS_AI_TOKEN",
    ),
    "together_ai": (
        "TOGETHERAI_API_KEY",
        "TOGETHER_API_KEY",
        "TOGETHER_AI_API_KEY",
        "TOGETHER_AI_TOKEN",
    ),
}
"""Where litellm looks for a provider's key. Providers with other ways to sign in (Azure, Bedrock,
Vertex) and local ones are left out: nothing is known about them before they are asked."""

_BARE = (
    (re.compile(r"(gpt-|chatgpt-|o\d)", re.IGNORECASE), "openai"),
    (re.compile(r"claude", re.IGNORECASE), "anthropic"),
)
"""Names that litellm knows without a prefix, and their provider."""

_ELSEWHERE = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE")}
"""Variables that send a provider's requests to a server of the user's own, which needs no key."""


def provider_of(model: str) -> str | None:
    """Return the provider of a litellm model name; None where the name does not tell."""
    prefix, slash, _ = model.partition("/")
    if slash:
        return prefix.lower()
    for pattern, provider in _BARE:
        if pattern.match(model):
            return provider
    return None


def missing_key(model: str, settings: Mapping[str, Any]) -> str | None:
    """Return which variable must be set for this model to answer.

    Args:
        model: as litellm takes it.
        settings: what is passed with the model; an ``api_key``, or an address of its own, counts.

    Returns:
        None when a key is found or nothing is known about the provider.
    """
    provider = provider_of(model)
    names = KEYS.get(provider or "", ())
    if not names or any(os.environ.get(name) for name in names):
        return None
    if any(settings.get(name) for name in ("api_key", "api_base", "base_url")):
        return None
    if any(os.environ.get(name) for name in _ELSEWHERE.get(provider or "", ())):
        return None
    litellm = sys.modules.get("litellm")
    if any(getattr(litellm, name, None) for name in ("api_key", f"{provider}_key")):
        return None
    return names[0]
