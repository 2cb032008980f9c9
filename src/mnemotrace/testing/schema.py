"""From a JSON schema to the smallest value that fulfils it, for fakes that must answer anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_NESTED = 20


def example(schema: Mapping[str, Any]) -> Any:
    """Return a plain value that fulfils a JSON schema as pydantic writes them.

    Defaults and nulls are taken where the schema allows them, lists are as short as it allows,
    numbers are 0.5 (1 for whole ones) or the nearest allowed, texts are ``text``. Properties that
    are not required are left out.

    Raises:
        ValueError: the schema refers to itself without an end, or to something it does not hold.
    """
    return _value(schema, schema.get("$defs") or {}, 0)


def _value(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    if depth > _MOST_NESTED:
        raise ValueError("the schema is nested too deeply for an example")
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name not in definitions:
            raise ValueError(f"the schema refers to {schema['$ref']!r}, which it does not hold")
        return _value(definitions[name], definitions, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if options := schema.get(key):
            plain = next((option for option in options if option.get("type") == "null"), options[0])
            return _value(plain, definitions, depth + 1)
    if options := schema.get("allOf"):
        return _value(options[0], definitions, depth + 1)
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind == "object" or "properties" in schema:
        known = schema.get("properties") or {}
        return {
            name: _value(known.get(name) or {}, definitions, depth + 1)
            for name in schema.get("required") or ()
        }
    if kind == "array":
        item = schema.get("items") or {}
        return [_value(item, definitions, depth + 1)] * int(schema.get("minItems") or 0)
    if kind in ("number", "integer"):
        return _number(schema, whole=kind == "integer")
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    return _text(schema)


def _number(schema: Mapping[str, Any], *, whole: bool) -> float | int:
    value = 1.0 if whole else 0.5
    step = 1.0 if whole else 1e-6
    if "minimum" in schema:
        value = max(value, schema["minimum"])
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        value = schema["exclusiveMinimum"] + step
    if "maximum" in schema:
        value = min(value, schema["maximum"])
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        value = schema["exclusiveMaximum"] - step
    return int(value) if whole else float(value)


_TEXTS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "http://127.0.0.1/",
    "email": "a@example.org",
}


def _text(schema: Mapping[str, Any]) -> str:
    text = _TEXTS.get(str(schema.get("format")), "text")
    return text.ljust(int(schema.get("minLength") or 0), "x")
