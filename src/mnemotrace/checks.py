"""Arguments of any call, checked: paths, seconds, functions.

What makes up a save or a question is checked in `mnemotrace.flows.requests`.
"""

from __future__ import annotations

import os
import threading
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
            f"{what} must be named by a path (text or pathlib.Path), not by {value!r}."
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
            f"{name} must be a number of seconds, or None for no limit, not {value!r}."
        )
    return float(max(value, 0))


def checked_function(value: Any, name: str) -> Any:
    """Return a function to call back, or None.

    Raises:
        InvalidInputError: it is neither.
    """
    if value is not None and not callable(value):
        raise InvalidInputError(f"{name} must be a function or None, not {value!r}.")
    return value
