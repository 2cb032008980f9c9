"""The command that looks around: browse."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from mnemotrace.checks import counted
from mnemotrace.errors import ConfigurationError

from .options import Embedder, IncludePrivate, NoLlm, Storage, Viewer, open_memory
from .output import note


def browse(
    source: Viewer = None,
    include_private: IncludePrivate = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Neither forget records nor retry saves.")
    ] = False,
    no_llm: NoLlm = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Look around in a memory: scopes, records, history, live recalls. Keyboard only; ? helps.

    It needs a terminal and the extra tui. A folder belongs to one process at a time: while the
    browser is open, others cannot use it.
    """
    from mnemotrace.tui import require_textual

    try:
        require_textual()
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    _require_terminal()
    from mnemotrace.stores.open import default_folder
    from mnemotrace.tui.app import BrowseApp

    with open_memory(storage, llm=not no_llm, embedder=embedder) as memory:
        app = BrowseApp(
            memory,
            storage or str(default_folder() / "memory"),
            source=source,
            include_private=include_private,
            read_only=read_only,
        )
        app.run(mouse=False)
        if unsaved := app.memory.unsaved:
            note(f"Finishing {counted(unsaved, 'pending save')}…")
    if app.return_code:
        raise typer.Exit(app.return_code)


def _require_terminal() -> None:
    """Refuse to start where nobody could see the screen or press a key.

    Raises:
        ConfigurationError: a stream is not a terminal, or the terminal cannot place a cursor.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or not stream.isatty():
            raise ConfigurationError(
                f"browse needs a terminal, but {name} is not one. Run it without pipes and "
                "redirections, or use list, show, recall, tree and info there."
            )
    if os.environ.get("TERM", "") in ("dumb", "unknown"):
        raise ConfigurationError(
            f"browse cannot draw on this terminal (TERM={os.environ['TERM']}). Use another one, "
            "or list, show, recall, tree and info."
        )
