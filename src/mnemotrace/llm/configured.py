"""A model by name with settings of its own."""

from __future__ import annotations

from .litellm_adapter import LiteLLMModel


class LLM(LiteLLMModel):
    """A language model with settings of its own, for `Memory(llm=...)`.

    >>> memory = Memory(llm=LLM(model="gpt-4o", temperature=0.2))        # doctest: +SKIP
    >>> local = LLM("openai/qwen3", api_base="http://localhost:8000/v1")

    Nothing is imported or connected before it is asked.

    Args:
        model: as litellm names it, such as "gpt-4o" or "ollama/llama3.2".
        settings: handed on to litellm with every request: ``temperature``, ``api_key``,
            ``api_base``, ``max_tokens``, ...

    Raises:
        ConfigurationError: the model is not a name.
    """
