"""Options that several commands share, and the memory they open."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer

from mnemotrace.errors import InvalidInputError, StoreError
from mnemotrace.memory import DEFAULT_LLM, Memory
from mnemotrace.stores.backend import Manifest
from mnemotrace.stores.open import default_folder

from .embedding import named_embedder

DEFAULT_PLACE = "$MNEMOTRACE_STORAGE_DIR/memory, else ./.mnemotrace/memory"


def parse_time(value: str) -> datetime:
    """Read an ISO 8601 date or time; without a zone it is UTC."""
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise typer.BadParameter(
            f"{value!r} is not a date or time such as 2025-09-30 or 2025-09-30T18:00+09:00."
        ) from None


def parse_share(value: str | float) -> float:
    """Read a number from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:  # nor NaN
        raise typer.BadParameter(f"{value!r} is not a number from 0 to 1, such as 0.8.")
    return number


def whole_from(least: int) -> Callable[[str | int], int]:
    """Return what reads a whole number that is not less than this."""

    def parse(value: str | int) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise typer.BadParameter(f"{value!r} is not a whole number, {least} or more.")
        return number

    return parse


def one_of(*names: str) -> Callable[[str], str]:
    """Return what reads one of these words."""

    def parse(value: str) -> str:
        if value not in names:
            known = f"{', '.join(names[:-1])} or {names[-1]}"
            raise typer.BadParameter(f"{value!r} is not known here. Use {known}.")
        return value

    return parse


Storage = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help=f"Folder of the memory, or the URL of a Qdrant server. Default: {DEFAULT_PLACE}.",
    ),
]
Embedder = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="An embedder of your own: a function or object of a module, which is imported and "
        "run; or a provider's key. Default: the one the memory was written with.",
    ),
]
NoLlm = Annotated[bool, typer.Option("--no-llm", help="Never ask a language model, key or no key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Scope = Annotated[str | None, typer.Option(metavar="PATH", help="Only this scope and below.")]
Path = Annotated[str | None, typer.Argument(metavar="[PATH]", help="A scope; all when left out.")]
Categories = Annotated[
    list[str] | None,
    typer.Option("--category", metavar="NAME", help="Only with this category; may be repeated."),
]
Source = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only from this source; its private records are visible."),
]
Viewer = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="Whose private records are visible too."),
]
Asker = Annotated[
    str | None,
    typer.Option(
        "--viewer",
        metavar="NAME",
        help="Whose private records are visible beside the public ones; leaves out nothing.",
    ),
]
IncludePrivate = Annotated[
    bool, typer.Option("--include-private", help="Everybody's private records, too.")
]
MetadataFilter = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="Only with this value; may be repeated."),
]
Since = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="Only created then or later."),
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="Only created before."),
]
AsOf = Annotated[
    datetime | None,
    typer.Option("--as-of", parser=parse_time, metavar="TIME", help="As the memory stood then."),
]
MostMatches = Annotated[
    int, typer.Option(parser=whole_from(0), metavar="NUMBER", help="The most matches.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def open_memory(
    storage: str | None,
    *,
    llm: bool = False,
    must_exist: bool = False,
    embedder: str | None = None,
) -> Iterator[Memory]:
    """Open the memory of a command, and close it.

    Args:
        storage: a folder or a URL.
        llm: let the default language model help; without a key it does not.
        must_exist: refuse a place that holds no memory yet; nothing is created there.
        embedder: as `embedding.named_embedder` takes it.

    Raises:
        StoreError: there is no memory and `must_exist` is set.
        ConfigurationError: the embedder cannot be used, or the memory needs one to be named.
    """
    with (
        named_embedder(embedder) as used,
        Memory(llm=DEFAULT_LLM if llm else None, storage=storage, embedder=used) as memory,
    ):
        if must_exist:
            memory.drain_writes()  # what an earlier process left counts too
            require_memory(memory.store.manifest(), storage)
        yield memory


def require_memory(manifest: Manifest | None, storage: str | None) -> None:
    """Refuse a place that holds no memory yet.

    Raises:
        StoreError: it has no manifest.
    """
    if manifest is None:
        default = f"the default place {(default_folder() / 'memory').absolute()} ({DEFAULT_PLACE})"
        place = storage or default
        raise StoreError(
            f"There is no memory at {place}. Remember something first, or name another "
            "place with --storage."
        )


def key_values(pairs: Sequence[str] | None) -> dict[str, Any] | None:
    """Return ``KEY=VALUE`` options as a dict; a value that is JSON is read as such.

    Raises:
        typer.BadParameter: for an option without ``=`` or without a key.
    """
    if not pairs:
        return None
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(
                f'{pair!r} is not KEY=VALUE, such as topic=kiln, size=3 or \'tags=["a", "b"]\'.',
                param_hint="'--metadata'",
            )
        try:
            found[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[key.strip()] = value
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Go on only with --yes or a person's yes; a script without --yes is a wrong command line."""
    if yes:
        return
    if not typer.get_text_stream("stdin").isatty():
        raise typer.BadParameter("Nobody can be asked here. Add --yes to go ahead.")
    typer.confirm(question, abort=True, err=True)


def question(query: str) -> str:
    """Return the query of a command; ``-`` stands for what is piped in."""
    return stdin_text().strip() if query == "-" else query


def stdin_text() -> str:
    """Return what is piped in; it must be UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"Standard input is not UTF-8 text (byte {error.start}). Convert it first; nothing was "
            "stored."
        ) from error
