"""The commands that change a memory: remember, forget, reset."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from mnemotrace.checks import counted
from mnemotrace.errors import RecordNotFoundError
from mnemotrace.records import Forgotten

from .fitting import terminal_width
from .options import (
    AsJson,
    Categories,
    Embedder,
    IncludePrivate,
    MetadataFilter,
    NoLlm,
    Scope,
    Source,
    Storage,
    Yes,
    confirm,
    key_values,
    open_memory,
    parse_share,
    parse_time,
    stdin_text,
)
from .output import echo, print_json, record_json, record_line, say


def remember(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to remember; - reads standard input.")
    ],
    scope: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where it goes; inferred when left out.")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A label; may be repeated; inferred when left out."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Your own data; may be repeated."),
    ] = None,
    importance: Annotated[
        float | None,
        typer.Option(parser=parse_share, metavar="0..1", help="0 to 1; inferred when left out."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who or what this comes from.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Only its source may recall it.")
    ] = False,
    created_at: Annotated[
        datetime | None,
        typer.Option(parser=parse_time, metavar="TIME", help="When it was said; now by default."),
    ] = None,
    valid_from: Annotated[
        datetime | None,
        typer.Option(
            parser=parse_time,
            metavar="TIME",
            help="From when on it holds, not recalled before; when it was said by default.",
        ),
    ] = None,
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            parser=parse_time, metavar="TIME", help="From when on it is not recalled any more."
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The conversation this is the next turn of."),
    ] = None,
    record_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An id of your own.")
    ] = None,
    as_json: AsJson = False,
    no_llm: NoLlm = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Remember a text and print the record it became."""
    values = key_values(metadata)
    content = stdin_text().removesuffix("\n").removesuffix("\r") if text == "-" else text
    with open_memory(storage, llm=not no_llm, embedder=embedder) as memory:
        record = memory.remember(
            content,
            scope=scope,
            categories=category or None,
            metadata=values,
            importance=importance,
            source=source,
            private=private,
            created_at=created_at,
            valid_from=valid_from,
            expires_at=expires_at,
            record_id=record_id,
            session=session,
        )
    if as_json:
        print_json(record_json(record))
    else:
        echo(record_line(record, terminal_width()))


def forget(
    record_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="These records.")
    ] = None,
    scope: Scope = None,
    category: Categories = None,
    older_than: Annotated[
        datetime | None,
        typer.Option(parser=parse_time, metavar="TIME", help="Only created before this."),
    ] = None,
    metadata: MetadataFilter = None,
    source: Source = None,
    include_private: IncludePrivate = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="Keep them in history instead of erasing them.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Forget the memories that meet every criterion.

    At least one criterion is needed; `reset` empties everything.
    """
    criteria = (record_ids, scope, category, older_than, metadata, source)
    if not any(criteria):
        raise typer.BadParameter(
            "Say what to forget: an ID, --scope, --category, --older-than, --metadata or "
            "--source. `mnemotrace reset` empties everything."
        )
    conditions = key_values(metadata)
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        confirm("Forget the memories that meet these criteria?", yes=yes)
        gone = memory.forget(
            scope=scope,
            categories=category or None,
            older_than=older_than,
            metadata_filter=conditions,
            record_ids=record_ids or None,
            source=source,
            include_private=include_private,
            erase=not retire,
        )
    if record_ids and not gone:
        raise RecordNotFoundError(
            f"No visible record meets the criteria with id {', '.join(record_ids)}; nothing was "
            "forgotten. Private records need --source or --include-private."
        )
    if as_json:
        print_json(_forgotten_json(gone))
    else:
        say(_count("Forgot", gone))


def reset(
    scope: Scope = None,
    yes: Yes = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Erase all memories, private ones too."""
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        confirm(f"Erase every memory in {scope or '/'}, private ones included?", yes=yes)
        gone = memory.reset(scope)
    if as_json:
        print_json(_forgotten_json(gone))
    else:
        say(_count("Erased", gone))


def _forgotten_json(gone: Forgotten) -> dict[str, Any]:
    return {
        "forgotten": int(gone),
        "versions": gone.versions,
        "erased": gone.erased,
        "record_ids": list(gone.record_ids),
    }


def _count(verb: str, number: int) -> str:
    return f"{verb} {counted(int(number), 'record')}."
