"""From what a language model wrote to a validated value.

Models wrap JSON in fences, explain it, think aloud first, leave a comma too many. All of that is
forgiven. An answer that is cut off or does not fit the schema is not: nothing inside it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Never, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from mnemotrace.errors import LLMError

M = TypeVar("M", bound=BaseModel)

_CANDIDATES = 1000
"""Parts of one answer that are tried at most."""

_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_START = re.compile(r'\{(?=\s*["}])|\[(?=\s*(?:["\[{\]\-\d]|true|false|null))')
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])', re.DOTALL)


def parse_json(text: str, model: type[M]) -> M:
    """Return the first JSON value in `text` that fulfils `model`.

    The whole text is tried first, then each outermost object or array in it, from left to right;
    never one inside another, which would be half an answer. JSON that was written as a JSON
    string, or as the only item of a list, counts as the answer.

    Args:
        text: the reply as the language model wrote it.
        model: what it has to be.

    Raises:
        LLMError: the text is empty, has no JSON, is cut off, or nothing in it fulfils `model`. The
            message names the fields at fault and never quotes the reply.
    """
    thoughts = _THINKING.match(text)
    text = text[thoughts.end() if thoughts else 0 :].strip().lstrip("\ufeff")
    if not text:
        raise LLMError("the language model's answer is empty")
    problem = "has no JSON in it"
    for candidate in islice(_candidates(text), _CANDIDATES):
        if candidate is None:
            problem = "is cut off in the middle of its JSON"
            break
        try:
            value = _load(candidate)
        except (ValueError, RecursionError):
            continue
        if not (candidate.isascii() and "\\u" not in candidate) and not _is_text(value):
            problem = "holds lone surrogates, which are not text"
            continue
        value = _unwrapped(value, model)
        if _is_foreign(value, model):
            problem = f"does not fit {model.__name__}: it has none of its fields"
            continue
        try:
            return model.model_validate(value)
        except ValidationError as error:
            problem = f"does not fit {model.__name__}: {_faults(error)}"
        except RecursionError:
            problem = f"does not fit {model.__name__}: it is nested too deeply"
    raise LLMError(f"the language model's answer {problem}")


def _candidates(text: str) -> Iterator[str | None]:
    """Yield the whole text, then each outermost bracketed part; None for one that never ends."""
    yield text
    position = 0
    while start := _START.search(text, position):
        end = _end(text, start.start())
        if end is None:
            yield None
            return
        if end - start.start() < len(text):
            yield text[start.start() : end]
        position = end


def _end(text: str, start: int) -> int | None:
    """Return the position after the bracket that closes the one at `start`."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if match[0] in "{[":
            depth += 1
        elif match[0] in "}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def _load(candidate: str) -> Any:
    try:
        return json.loads(candidate, strict=False, parse_constant=_refuse)
    except json.JSONDecodeError:
        without = _STRING_OR_COMMA.sub(lambda match: match[1] or "", candidate)
        return json.loads(without, strict=False, parse_constant=_refuse)


def _is_text(value: Any) -> bool:
    """Tell whether every string in a value can be stored and sent."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unwrapped(value: Any, model: type[BaseModel]) -> Any:
    if issubclass(model, RootModel):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = _load(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0]
    return value


def _is_foreign(value: Any, model: type[BaseModel]) -> bool:
    """Tell whether an object has something to say, but nothing that was asked for."""
    return isinstance(value, dict) and bool(value) and not value.keys() & model.model_fields.keys()


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


def _faults(error: ValidationError) -> str:
    """Say which fields are wrong and how, without their content."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [
        f"{'.'.join(map(str, fault['loc'])) or 'the value'}: {fault['msg']}" for fault in faults
    ]
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3])[:400] + more
