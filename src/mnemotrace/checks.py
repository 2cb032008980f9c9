"""Arguments of any call, checked: paths, seconds, truth values; and how messages name what was given.

What makes up a save or a question is checked in `mnemotrace.flows.requests`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import InvalidInputError


def checked_path(value: Any, what: str) -> Path:
    """Return the path of a file.

    Args:
        value: text or a path object.
        what: what the file is, to begin the message with.

    Raises:
        InvalidInputError: it is neither, or blank, or no path the file system can have.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidInputError(
            f"{what} must be named by a path (text or pathlib.Path), not by {shortened(value)}."
        )
    if not text.strip() or not encodable(text):
        raise InvalidInputError(f"{what} cannot be at {text!r}, which is not a path.")
    return Path(text)


def encodable(text: str) -> bool:
    """Tell whether a text can be a path: no NUL, nothing that the file system cannot encode."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def checked_seconds(value: Any, name: str) -> float | None:
    """Return how long to wait, in seconds; None, or more than a clock can count, is for ever.

    Raises:
        InvalidInputError: it is neither None nor a number.
    """
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and value > threading.TIMEOUT_MAX:
        return None
    if not number or not value <= threading.TIMEOUT_MAX:  # NaN is neither more nor less
        raise InvalidInputError(
            f"{name} must be a number of seconds, or None for no limit, not {shortened(value)}."
        )
    return float(max(value, 0))


def checked_budget(value: Any, name: str) -> int | None:
    """Return how many tokens a text may have; None for no bound.

    Raises:
        InvalidInputError: it is neither None nor a whole number of at least 1.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(
            f"{name} must be a whole number of tokens, 1 or more, or None for no bound, not "
            f"{shortened(value)}."
        )
    return value


def checked_function(value: Any, name: str) -> Any:
    """Return a function to call back, or None.

    Raises:
        InvalidInputError: it is neither.
    """
    if value is not None and not callable(value):
        raise InvalidInputError(f"{name} must be a function or None, not {shortened(value)}.")
    return value


def checked_flag(value: Any, name: str, error: type[InvalidInputError] = InvalidInputError) -> bool:
    """Return a truth value. Nothing else passes for one: ``"no"`` would be true.

    Raises:
        error: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise error(f"{name} must be True or False, not {shortened(value)}.")
    return value


def checked_word(value: Any, name: str, words: Sequence[str]) -> Any:
    """Return one of some words.

    Raises:
        InvalidInputError: it is none of them.
    """
    if not isinstance(value, str) or value not in words:
        known = f"{', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
        raise InvalidInputError(f"{name} must be {known}, not {shortened(value)}.")
    return value


def kind_of(value: Any) -> str:
    """Return what a value is, with its article, for a message: "an int", "a dict", "None"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{_article(name.lstrip('_'))} {name}"


def _article(name: str) -> str:
    """Return the article that a name takes when it is read aloud."""
    if name[:2].isupper() and len(name) > 1:  # its first letter is said as one: an HTTPError
        return "an" if name[0] in "AEFHILMNORSX" else "a"
    start = name.lower()
    vowel = start.startswith(("a", "e", "i", "o")) and not start.startswith(("eu", "one"))
    return "an" if vowel or (start.startswith("un") and not start.startswith("uni")) else "a"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "1 text", "2 texts".

    Args:
        count: how many.
        noun: of one.
        plural: of several, where it is not `noun` with an s.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def shortened(value: Any, most: int = 60) -> str:
    """Return the `repr` of a value for a message, of at most about so many characters.

    What has none, such as a number of ten thousand digits, is named by its kind.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  code of any object
        return kind_of(value)
    return text if len(text) <= most else f"{text[:most]}..."
