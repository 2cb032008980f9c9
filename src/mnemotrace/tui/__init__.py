"""The screen of ``mnemotrace browse``: look around in a memory, keyboard only.

It needs the extra ``tui``; `require_textual` says so with the install line.
"""

from __future__ import annotations

from importlib.util import find_spec

INSTALL = 'pip install "mnemotrace[tui]"'


def require_textual() -> None:
    """Check that the screen can be drawn; nothing is imported.

    Raises:
        ImportError: textual is not installed; the message has the install line.
    """
    if find_spec("textual") is None:
        raise ImportError(f"Browsing needs textual, which is not installed. Run: {INSTALL}")
