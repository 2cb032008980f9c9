"""The JSON Schema of `Trace.to_json`, which ships with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

NAME = "trace.schema.json"


def trace_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) that every `Trace.to_json` fulfils, as a new dict."""
    text = files(__package__).joinpath(NAME).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
