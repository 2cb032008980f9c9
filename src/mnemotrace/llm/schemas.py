"""The JSON schema of an answer, told in words to models that cannot be held to one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from .protocol import LLMRequest


def spelled_out(request: LLMRequest) -> LLMRequest:
    """Return the request with its schema in the system text; as it is when it has none."""
    if request.schema is None:
        return request
    schema = json.dumps(_without_titles(request.schema), ensure_ascii=False, separators=(",", ":"))
    told = f"The JSON object must fulfil this JSON schema: {schema}"
    return replace(request, system=f"{request.system}\n{told}" if request.system else told)


def _without_titles(schema: Any) -> Any:
    """Leave out the titles that pydantic makes from field names: they say nothing new."""
    if isinstance(schema, dict):
        return {
            key: _without_titles(value)
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    if isinstance(schema, list):
        return [_without_titles(value) for value in schema]
    return schema
