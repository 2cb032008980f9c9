"""How many tokens a text has, counted offline."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

DEFAULT_ENCODING = "o200k_base"
"""The encoding of OpenAI's models since gpt-4o; near enough for others' to keep a budget."""

LONGEST_TOKEN = 128
"""No token stands for more characters, in any of the encodings of `_SHIPPED`."""

_SHIPPED = ("o200k_base", "o200k_harmony", "cl100k_base", "p50k_base", "p50k_edit")
"""Encodings whose tables litellm's package brings along. Others would be downloaded."""

_CACHE_VARIABLES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")

_DENSE = re.compile(
    r"[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]"
)
_PLAIN = re.compile(r"[A-Za-z \t\r\n]")
_SIGN = re.compile(r"[!-@\[-`{-~]")

_PER_TOKEN = 8
"""Characters of a token, rather too many: English has 4 to 5."""
_UNSURE = 64
"""How many tokens the cut at the end of a beginning may be worth."""

_lock = threading.Lock()
_encodings: dict[str, Any] = {}
_warned = False


def count_tokens(text: str, model: str | None = None) -> int:
    """Return the number of tokens of a text.

    Special tokens in the text, such as ``<|endoftext|>``, count as the plain text they are.

    Args:
        text: any text; "" has 0 tokens.
        model: name of a model, with or without a provider prefix; None, and any model tiktoken
            does not know, is counted with ``o200k_base``.

    Returns:
        tiktoken's count. Where its tables cannot be read, the estimate of `estimate_tokens`; that
        is logged as a warning once.
    """
    if not text:
        return 0
    encoding = _encoding(model)
    return estimate_tokens(text) if encoding is None else len(encoding.encode_ordinary(text))


def has_at_most(text: str, most: int, model: str | None = None) -> bool:
    """Tell whether a text has no more than `most` tokens, as `count_tokens` counts them.

    Of a text that is far too long only the beginning is counted, so this takes as long as `most`
    tokens do, however long the text is.

    Args:
        text: any text.
        most: the number of tokens.
        model: as for `count_tokens`.
    """
    size = _PER_TOKEN * (most + _UNSURE)
    while size < len(text) <= most * LONGEST_TOKEN:
        # A beginning may have some tokens more than the text has there, but not many.
        if count_tokens(text[:size], model) > most + _UNSURE:
            return False
        size *= 4
    return len(text) <= most * LONGEST_TOKEN and count_tokens(text, model) <= most


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has, from its characters alone, rather too many.

    0.3 per unaccented Latin letter or space, 0.7 per digit or ASCII sign, 0.9 per Han, Hangul or
    Kana character, 2 per character outside the basic plane (emoji), 0.5 per other character;
    rounded up. Against ``o200k_base`` that was 0.9 to 2.1 times the count for text in ten
    languages, code and JSON, where length / 4 was 0.15 to 1.0 times.
    """
    plain = len(_PLAIN.findall(text))
    if text.isascii():
        return math.ceil(0.3 * plain + 0.7 * (len(text) - plain))
    signs = len(_SIGN.findall(text))
    dense = len(_DENSE.findall(text))
    astral = sum(character > "\uffff" for character in text)
    other = len(text) - plain - signs - dense - astral
    return math.ceil(0.3 * plain + 0.7 * signs + 0.9 * dense + 2.0 * astral + 0.5 * other)


def _encoding(model: str | None) -> Any:
    """Return tiktoken's encoding for a model; None where it cannot be loaded."""
    key = model or ""
    if key not in _encodings:
        with _lock:
            if key not in _encodings:
                if len(_encodings) >= 64:
                    _encodings.clear()
                _encodings[key] = _load(model)
    return _encodings[key]


def _load(model: str | None) -> Any:
    with _litellm_tables():
        try:
            import tiktoken

            return tiktoken.get_encoding(_encoding_name(tiktoken, model))
        except Exception as error:  # noqa: BLE001 - a download raises whatever its client does
            _warn(error)
            return None


def _warn(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        logger.warning(
            "tiktoken's tables cannot be read (%s: %s); tokens are estimated from the number of "
            "characters. Set TIKTOKEN_CACHE_DIR to a folder that has them.",
            type(error).__name__,
            str(error)[:200],
        )


def _encoding_name(tiktoken: Any, model: str | None) -> str:
    if not model:
        return DEFAULT_ENCODING
    try:
        name: str = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return DEFAULT_ENCODING
    if name in _SHIPPED:
        return name
    return "p50k_base"  # the GPT-2 family: the same table, but for runs of spaces


@contextmanager
def _litellm_tables() -> Iterator[None]:
    """Let tiktoken read the tables in litellm's package, unless the user chose a folder.

    litellm is located, not imported, which would take seconds.
    """
    folder = _tables_folder()
    if folder is None or any(variable in os.environ for variable in _CACHE_VARIABLES):
        yield
        return
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        # litellm may have been imported meanwhile by another thread and set it for good.
        if os.environ.get("TIKTOKEN_CACHE_DIR") == str(folder):
            del os.environ["TIKTOKEN_CACHE_DIR"]


def _tables_folder() -> Path | None:
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
    return folder if folder.is_dir() else None
