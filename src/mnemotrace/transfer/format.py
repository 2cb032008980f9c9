"""The export file: JSON Lines in UTF-8, a header, one line for each version of a record, an end.

```
{"mnemotrace": "export", "schema_version": 1, "embedder": {...}, "history": false, ...}
{"id": "...", "version": 1, "content": "...", "scope": "/a", ...}
{"mnemotrace": "end", "records": 1, "versions": 1}
```

A line of a record has the fields of `MemoryRecord`, and two more where they are needed:
``metadata_types`` says which texts in the metadata are times (by JSON pointer), and ``embedding``
is its vector. Versions of one record follow each other, the oldest first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mnemotrace.checks import counted, shortened
from mnemotrace.embedders.lexical import text_hash
from mnemotrace.errors import InvalidInputError, MnemotraceError
from mnemotrace.flows.requests import checked_text
from mnemotrace.naming import nearest
from mnemotrace.records import MemoryRecord
from mnemotrace.stores.backend import Vector
from mnemotrace.stores.points import from_payload, metadata_from_json, metadata_to_json, to_payload

from .fields import end_fault, fault, header_fault, shown, unfit, unfit_here

SCHEMA_VERSION = 1
MARK = "mnemotrace"
"""The key that tells a header and an end from a record."""
_FIELDS = frozenset(MemoryRecord.model_fields) | {"metadata_types"}
_NEEDED = ("id", "content")


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line says of the file.

    Attributes:
        embedder: the fingerprint (provider, model, dimension, canary) of the embedder that made
            the vectors; empty for an export of an empty memory.
        embeddings: lines may have vectors.
        history: retired versions are in it, too.
        scopes: the subtrees that were exported.
        written_at: when, ISO 8601.
        written_by: the version of mnemotrace.
    """

    embedder: Mapping[str, Any] = field(default_factory=dict)
    embeddings: bool = False
    history: bool = False
    scopes: tuple[str, ...] = ("/",)
    written_at: str = ""
    written_by: str = ""

    def line(self) -> str:
        """Return the first line, without a line break."""
        return _dumps(
            {
                MARK: "export",
                "schema_version": SCHEMA_VERSION,
                "written_at": self.written_at,
                "written_by": self.written_by,
                "scopes": list(self.scopes),
                "history": self.history,
                "embeddings": self.embeddings,
                "embedder": dict(self.embedder),
            }
        )


@dataclass(frozen=True, slots=True)
class End:
    """What the last line says: how much there was, so that a file that was cut off is noticed."""

    records: int
    versions: int

    def line(self) -> str:
        """Return the last line, without a line break."""
        return _dumps({MARK: "end", "records": self.records, "versions": self.versions})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a record: a version, and its vector where the file has it."""

    record: MemoryRecord
    embedding: list[float] | None = None


def record_line(record: MemoryRecord, embedding: Vector | None = None) -> str:
    """Return the line of one version, without a line break."""
    data = record.model_dump(mode="json", exclude={"metadata"})
    data["metadata"], types = metadata_to_json(record.metadata)
    if types:
        data["metadata_types"] = types
    if embedding is not None:
        # The shortest number that is the same float32, not its 17 digits as a float64.
        data["embedding"] = [float(str(number)) for number in embedding]
    return _dumps(data)


def parse_line(text: bytes, number: int) -> dict[str, Any]:
    """Return what a line holds.

    Raises:
        InvalidInputError: it is not a JSON object in UTF-8; names the line.
    """
    try:
        data = json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise wrong(number, f"it is not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise wrong(number, f"it is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise wrong(number, "it is not a JSON object")
    return data


def read_header(data: Mapping[str, Any]) -> Header:
    """Return the header in the first line.

    Raises:
        InvalidInputError: it is none, or of a schema version this release does not know.
    """
    if data.get(MARK) != "export":
        raise wrong(1, f'it is not the header of an export ({{"{MARK}": "export", ...}})')
    problem = header_fault(data)
    if problem is not None:
        raise wrong(1, problem)
    version = data["schema_version"]
    if version > SCHEMA_VERSION:
        raise wrong(
            1,
            f"the file has schema version {version}, and this mnemotrace reads {SCHEMA_VERSION}; "
            "upgrade mnemotrace",
        )
    return Header(
        embedder=data.get("embedder", {}),
        embeddings=data.get("embeddings", False),
        history=data.get("history", False),
        scopes=tuple(data.get("scopes", ["/"])),
        written_at=str(data.get("written_at", "")),
        written_by=str(data.get("written_by", "")),
    )


def read_end(data: Mapping[str, Any], number: int) -> End:
    """Return the end in the last line.

    Raises:
        InvalidInputError: it is damaged.
    """
    if data.get(MARK) != "end":
        raise wrong(
            number,
            f"it is neither a record nor the end of an export: {MARK!r} must be 'end' here, not "
            f"{shown(data.get(MARK))}",
        )
    problem = end_fault(data)
    if problem is not None:
        raise wrong(number, problem)
    return End(data["records"], data["versions"])


def read_entry(data: Mapping[str, Any], number: int, header: Header) -> Entry:
    """Return the version that a line holds, in the form it has in a store.

    Raises:
        InvalidInputError: a field is wrong, missing or unknown; names the line and the field.
    """
    unknown = sorted(data.keys() - _FIELDS)
    if unknown:
        near = nearest(unknown[0], _FIELDS)
        hint = f" (did you mean {near!r}?)" if near else ""
        raise wrong(number, f"it has the unknown field {shortened(unknown[0])}{hint}")
    for name in _NEEDED:
        if name not in data:
            raise wrong(number, f"the field {name!r} is missing")
        if not isinstance(data[name], str) or not data[name]:
            raise wrong(number, unfit(name, data[name], "a text that is not empty"))
    problem = fault(data)
    if problem is not None:
        raise wrong(number, problem)
    fields = dict(data)
    embedding = fields.pop("embedding", None)
    types = fields.pop("metadata_types", {})
    try:
        checked_text(fields["content"], "the field 'content'")
        checked_text(fields["id"], "the field 'id'")
        if fields.get("metadata"):
            fields["metadata"] = metadata_from_json(fields["metadata"], types)
        record = MemoryRecord.model_validate(fields)
        record = from_payload(to_payload(record, text_hash(record.content)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        own = first["type"] == "value_error"  # in words of ours, such as those of a scope
        message = _without_outcome(first["msg"].removeprefix("Value error, "))
        told = None if own else unfit_here(name, data[name])
        raise wrong(number, told or f"the field {name!r} cannot be used: {message}") from error
    except MnemotraceError as error:
        raise wrong(number, _without_outcome(str(error))) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise wrong(
            number,
            f"the fields 'metadata' and 'metadata_types' do not fit together ({error}): "
            f"metadata_types is {shortened(types)}",
        ) from error
    if embedding is not None:
        embedding = _checked_vector(embedding, number, header)
    return Entry(record, embedding)


def _checked_vector(value: Any, number: int, header: Header) -> list[float]:
    dimension = header.embedder.get("dimension")
    if type(dimension) is not int or dimension < 1:
        raise wrong(
            number,
            "the field 'embedding' cannot be read, because the first line does not say how many "
            f"numbers a vector has: 'dimension' in its field 'embedder' is {shown(dimension)}. "
            "Take out the embeddings; the texts are then embedded anew",
        )
    if (
        not isinstance(value, list)
        or len(value) != dimension
        or not all(type(item) in (int, float) and abs(item) < 1e30 for item in value)
        or not any(value)
    ):
        wanted = f"a list of {dimension} finite numbers, not all of them 0"
        length = f" ({counted(len(value), 'number')})" if isinstance(value, list) else ""
        raise wrong(number, unfit("embedding", value, wanted) + length)
    return [float(item) for item in value]


def wrong(number: int, what: str) -> InvalidInputError:
    """Return the error for a line that cannot be imported."""
    return InvalidInputError(f"Line {number} cannot be imported: {what}. Nothing was imported.")


def _without_outcome(message: str) -> str:
    """Leave out what else did not happen, and the full stop: `wrong` says it."""
    return re.sub(
        r"[.;] *nothing was \w+(?=[.;]|$)", "", message, flags=re.IGNORECASE
    ).removesuffix(".")


def _dumps(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
