"""The table of embedding providers: names, defaults, variables and limits.

Keys and config names are those of CrewAI's memory. The limits are the providers' own, as they
document them; where they count tokens, the table has a number of characters that stays below
for Korean and Chinese too, where one character is about one token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Option:
    """One config name of a provider."""

    kind: str = "text"
    """What it must be: text, count, seconds, flag, mapping or object."""
    variables: tuple[str, ...] = ()
    """Environment variables read, in this order, where the config does not have it."""
    default: Any = None
    argument: str | None = None
    """litellm's name for it; None where it is not handed on as it is."""
    required: bool = False
    secret: bool = False
    """Never written to a manifest, a message or a repr."""


@dataclass(frozen=True)
class Side:
    """What a provider is told of texts to be stored, or of texts to search for."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""


Sides = tuple[Side, Side]
"""For documents, for queries."""

ALIKE: Sides = (Side(), Side())


@dataclass(frozen=True)
class Provider:
    """One provider, as it is configured and asked."""

    title: str
    model: str
    """Config name of the model: ``model_name`` nearly everywhere."""
    options: Mapping[str, Option]
    prefix: str = ""
    """litellm's name for the provider; empty for models that run inside the process."""
    key: str | None = None
    """Config name of the key without which no request is made."""
    address: str | None = None
    """Config name of the server's address."""
    one_of: tuple[str, ...] = ()
    """Config names of which one is required."""
    trusted: tuple[str, ...] = ()
    """Hosts of the provider itself, which may be sent a key although only a store names them."""
    batch: Callable[[str], int] = lambda model: 256
    """Most texts in one request, for a model."""
    request_characters: int = 1_000_000
    """Most characters in one request, over all of its texts."""
    max_characters: int = 1500
    """Longer texts are embedded in pieces of this size."""
    sides: Callable[[str], Sides] = lambda model: ALIKE
    """How documents and queries are told apart, for a model."""
    reads_media: bool = False
    """litellm sends texts that look like a file reference as files, not as texts."""
    timeout: float = 60.0
    """Seconds for one request."""
    module: str | None = None
    """Python module it needs beyond what mnemotrace installs."""
    extra: str | None = None
    """The extra of mnemotrace that installs that module."""

    @property
    def install(self) -> str:
        """The command that installs what it needs."""
        return f'pip install "mnemotrace[{self.extra}]"'


_TUNING = {
    "timeout": Option("seconds"),
    "max_retries": Option("count", default=3),
    "max_batch": Option("count"),
    "max_characters": Option("count"),
}
_DIMENSIONS = {"dimensions": Option("count", argument="dimensions")}


def _key(*variables: str) -> dict[str, Option]:
    return {"api_key": Option(variables=variables, argument="api_key", secret=True)}


def _base(*variables: str) -> dict[str, Option]:
    return {"api_base": Option(variables=variables, argument="api_base")}


def _model(default: str) -> dict[str, Option]:
    return {"model_name": Option(default=default)}


def _input_types(document: str, query: str) -> Sides:
    return Side({"input_type": document}), Side({"input_type": query})


def _jina(model: str) -> Sides:
    # Version 2 has no adapters for tasks and refuses the field.
    if re.search(r"-v[3-9]\b", model) is None:
        return ALIKE
    return Side({"task": "retrieval.passage"}), Side({"task": "retrieval.query"})


def _google(model: str) -> Sides:
    if "gemini-embedding-2" in model:  # has no task types; it is told in the text
        return Side(prefix="title: none | text: "), Side(prefix="task: search result | query: ")
    return Side({"task_type": "RETRIEVAL_DOCUMENT"}), Side({"task_type": "RETRIEVAL_QUERY"})


def _bedrock(model: str) -> Sides:
    return _input_types("search_document", "search_query") if "cohere" in model else ALIKE


_SENTENCE_TRANSFORMERS = {
    "device": Option(),
    "normalize_embeddings": Option("flag", default=False),
    "max_batch": Option("count"),
    "max_characters": Option("count"),
}

PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "openai": Provider(
            title="OpenAI",
            prefix="openai",
            model="model_name",
            options={
                **_model("text-embedding-3-small"),
                **_key("OPENAI_API_KEY"),
                **_base("OPENAI_BASE_URL", "OPENAI_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=("api.openai.com",),
            batch=lambda model: 512,  # 2,048 are allowed, but make answers of 60 MB
            request_characters=200_000,  # 300,000 tokens
            max_characters=6000,  # 8,192 tokens
        ),
        "ollama": Provider(
            title="Ollama",
            prefix="ollama",
            model="model_name",
            options={
                **_model("mxbai-embed-large"),
                "url": Option(
                    variables=("OLLAMA_API_BASE",),
                    default="http://localhost:11434",
                    argument="api_base",
                ),
                **_DIMENSIONS,
                **_TUNING,
            },
            address="url",
            batch=lambda model: 128,
            timeout=300.0,  # the first request waits for the model to load
        ),
        "azure": Provider(
            title="Azure OpenAI",
            prefix="azure",
            model="deployment_id",
            options={
                "deployment_id": Option(required=True),
                "model_name": Option(),
                **_key("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
                "api_base": Option(
                    variables=("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
                    argument="api_base",
                    required=True,
                ),
                "api_version": Option(
                    variables=("AZURE_API_VERSION", "OPENAI_API_VERSION"),
                    default="2024-02-01",
                    argument="api_version",
                ),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=(
                ".openai.azure.com",
                ".cognitiveservices.azure.com",
                ".services.ai.azure.com",
            ),
            batch=lambda model: 512,  # 2,048 are allowed, but make answers of 60 MB
            request_characters=200_000,
            max_characters=6000,
        ),
        "google-generativeai": Provider(
            title="Google AI",
            prefix="gemini",
            model="model_name",
            options={
                **_model("gemini-embedding-001"),
                **_key("GOOGLE_API_KEY", "GEMINI_API_KEY"),
                **_base("GEMINI_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=(".googleapis.com",),
            batch=lambda model: 100,
            max_characters=2000,  # 2,048 tokens
            sides=_google,
            reads_media=True,
        ),
        "google-vertex": Provider(
            title="Google Vertex AI",
            prefix="vertex_ai",
            model="model_name",
            options={
                **_model("gemini-embedding-001"),
                "project_id": Option(
                    variables=("GOOGLE_CLOUD_PROJECT", "VERTEXAI_PROJECT"),
                    argument="vertex_project",
                    required=True,
                ),
                "location": Option(
                    variables=("GOOGLE_CLOUD_LOCATION", "VERTEXAI_LOCATION"),
                    default="us-central1",
                    argument="vertex_location",
                ),
                "credentials": Option(
                    variables=("VERTEXAI_CREDENTIALS",),
                    argument="vertex_credentials",
                    secret=True,
                ),
                **_base("VERTEXAI_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            address="api_base",
            trusted=(".googleapis.com",),
            batch=lambda model: 1 if "gemini" in model else 250,
            request_characters=15_000,  # 20,000 tokens
            max_characters=2000,
            sides=_google,
            reads_media=True,
            module="google.auth",
            extra="google-vertex",
        ),
        "cohere": Provider(
            title="Cohere",
            prefix="cohere",
            model="model_name",
            options={
                **_model("embed-english-v3.0"),
                **_key("COHERE_API_KEY", "CO_API_KEY"),
                **_base("COHERE_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=("api.cohere.com", "api.cohere.ai"),
            batch=lambda model: 96,
            sides=lambda model: _input_types("search_document", "search_query"),
            reads_media=True,
        ),
        "voyageai": Provider(
            title="Voyage AI",
            prefix="voyage",
            model="model",
            options={
                "model": Option(default="voyage-3"),
                **_key("VOYAGE_API_KEY"),
                **_base("VOYAGE_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=("api.voyageai.com", "ai.mongodb.com"),
            batch=lambda model: 512,  # 1,000
            request_characters=100_000,  # 120,000 tokens
            max_characters=16_000,  # 32,000 tokens
            sides=lambda model: _input_types("document", "query"),
        ),
        "amazon-bedrock": Provider(
            title="AWS Bedrock",
            prefix="bedrock",
            model="model_name",
            options={
                **_model("amazon.titan-embed-text-v1"),
                "region_name": Option(
                    variables=("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION"),
                    argument="aws_region_name",
                ),
                "profile_name": Option(argument="aws_profile_name"),
                "session": Option("object", secret=True),
                "aws_access_key_id": Option(argument="aws_access_key_id", secret=True),
                "aws_secret_access_key": Option(argument="aws_secret_access_key", secret=True),
                "aws_session_token": Option(argument="aws_session_token", secret=True),
                "endpoint_url": Option(
                    variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
                    argument="aws_bedrock_runtime_endpoint",
                ),
                **_DIMENSIONS,
                **_TUNING,
            },
            address="endpoint_url",
            trusted=(".amazonaws.com",),
            batch=lambda model: 96 if "cohere" in model else 1,
            max_characters=2000,  # Cohere's models there take 2,048 characters
            sides=_bedrock,
            reads_media=True,
            module="boto3",
            extra="amazon-bedrock",
        ),
        "huggingface": Provider(
            title="Hugging Face",
            model="model_name",
            options={
                **_model("sentence-transformers/all-MiniLM-L6-v2"),
                **_SENTENCE_TRANSFORMERS,
            },
            batch=lambda model: 32,
            module="sentence_transformers",
            extra="huggingface",
        ),
        "jina": Provider(
            title="Jina",
            prefix="jina_ai",
            model="model_name",
            options={
                **_model("jina-embeddings-v2-base-en"),
                **_key("JINA_API_KEY", "JINA_AI_API_KEY"),
                **_base("JINA_AI_API_BASE"),
                **_DIMENSIONS,
                **_TUNING,
            },
            key="api_key",
            address="api_base",
            trusted=("api.jina.ai",),
            batch=lambda model: 512,
            max_characters=6000,  # 8,192 tokens
            sides=_jina,
            reads_media=True,
        ),
        "watsonx": Provider(
            title="IBM watsonx",
            prefix="watsonx",
            model="model_id",
            options={
                "model_id": Option(default="ibm/slate-30m-english-rtrvr"),
                **_key("WATSONX_API_KEY", "WATSONX_APIKEY", "WX_API_KEY"),
                "url": Option(
                    variables=("WATSONX_URL", "WATSONX_API_BASE"),
                    argument="api_base",
                    required=True,
                ),
                "project_id": Option(variables=("WATSONX_PROJECT_ID",), argument="project_id"),
                "space_id": Option(variables=("WATSONX_SPACE_ID",), argument="space_id"),
                # Without it a text over the model's length, 512 tokens for most, is refused.
                "params": Option("mapping", default={"truncate_input_tokens": 512}),
                **_TUNING,
            },
            key="api_key",
            address="url",
            one_of=("project_id", "space_id"),
            trusted=(".cloud.ibm.com",),
            batch=lambda model: 512,  # 1,000
            max_characters=1000,
        ),
        "sentence-transformer": Provider(
            title="Sentence Transformers",
            model="model_name",
            options={**_model("all-MiniLM-L6-v2"), **_SENTENCE_TRANSFORMERS},
            batch=lambda model: 32,
            module="sentence_transformers",
            extra="sentence-transformer",
        ),
    }
)
"""Every provider but "custom", which is a function of the user's, and the bundled ones."""
