"""An embedder that a command line names: a provider's key, or something of a module of yours.

Only what the person types names code. A store that was written with such an embedder records its
name to tell it in a message; nothing is ever imported because a store says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

from mnemotrace.errors import ConfigurationError


@contextmanager
def named_embedder(name: str | None) -> Iterator[Any]:
    """Give what `Memory` takes as ``embedder=``; modules of the current directory can be imported.

    Args:
        name: ``module:name``, the name being that of a function or an object, with dots for what
            is inside of one; or a provider's key; None for the embedder the store was written with.

    Raises:
        typer.BadParameter: it has a colon, but is not of this form.
        ConfigurationError: there is no such thing, or the module cannot be imported.
    """
    if name is None or ":" not in name:
        yield name
        return
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise typer.BadParameter(
            f"{name!r} is not MODULE:NAME, such as my_embedder:embed, nor a provider's key.",
            param_hint="'--embedder'",
        )
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        # Named until the command ends: the module may import others when it is called.
        yield _found(name, module, path)
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _found(name: str, module: str, path: str) -> Any:
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"--embedder {name} cannot be used: importing {module} failed with "
            f"{type(error).__name__}: {error}. Modules are looked for in the current directory and "
            "where Python finds all others."
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ConfigurationError(
                f"--embedder {name} cannot be used: {error}. Name a function or an object of the "
                "module."
            ) from error
    if isinstance(found, type):
        raise ConfigurationError(
            f"--embedder {name} names a class. Name a function, or an object of that class that "
            "the module makes."
        )
    return found
