"""OpenTelemetry's names for what mnemotrace records.

The ``gen_ai.*`` names are those of the semantic conventions for generative AI, which are in
development: https://github.com/open-telemetry/semantic-conventions-genai. Everything they have no
name for is under ``mnemotrace.*``.
"""

from __future__ import annotations

from mnemotrace.llm.keys import provider_of

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
OUTPUT_TYPE = "gen_ai.output.type"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
RECORD_COUNT = "gen_ai.memory.record.count"
QUERY_TEXT = "gen_ai.memory.query.text"
RECORDS = "gen_ai.memory.records"
ERROR_TYPE = "error.type"
OTHER_ERROR = "_OTHER"
DB_SYSTEM = "db.system.name"
DB_OPERATION = "db.operation.name"
DB_ROWS = "db.response.returned_rows"

PREFIX = "mnemotrace."

RUNS = {"recall": "search_memory", "encode": "upsert_memory", "reanalyze": "update_memory"}
"""The operations of the conventions that our runs are; an extraction has none."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bucket bounds of durations: a recall takes milliseconds, with a model seconds."""
MODEL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96,
                 81.92)  # fmt: skip
"""Those that the conventions advise for calls of a model."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Likewise for tokens."""
HITS = (0, 1, 2, 5, 10, 20, 50, 100)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_PROVIDERS = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "google-generativeai": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Our and litellm's words for a provider, where the conventions have another one."""
UNNAMED = "custom"
"""The provider of a function or an object of the user's own."""


def provider_and_model(name: str) -> tuple[str, str]:
    """Split a name such as ``anthropic/claude-3`` into the conventions' provider and the model."""
    provider = provider_of(name)
    if provider is None:
        return UNNAMED, name
    model = name.partition("/")[2] or name
    return _PROVIDERS.get(provider, provider), model


def error_type(error: str | None) -> str:
    """Return the exception's type from how a span tells an error; ``_OTHER`` without one."""
    return error.partition(":")[0] if error else OTHER_ERROR
