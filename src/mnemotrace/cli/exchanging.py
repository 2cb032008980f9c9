"""The commands that move or rewrite whole memories: export, import, reindex."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from mnemotrace.checks import counted
from mnemotrace.errors import ImportConflictError

from .embedding import named_embedder
from .options import (
    AsJson,
    Categories,
    Embedder,
    IncludePrivate,
    MetadataFilter,
    Scope,
    Since,
    Storage,
    Until,
    Viewer,
    key_values,
    one_of,
    open_memory,
    require_memory,
    whole_from,
)
from .output import BinaryOutput, note, one_line, print_json, progress_bar, say

if TYPE_CHECKING:
    from mnemotrace.transfer.importing import Imported

STREAM = "-"


def export(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where to; - (the default) is standard output.")
    ] = STREAM,
    scope: Scope = None,
    category: Categories = None,
    metadata: MetadataFilter = None,
    since: Since = None,
    until: Until = None,
    source: Viewer = None,
    include_private: IncludePrivate = False,
    history: Annotated[
        bool, typer.Option("--history", help="Every version, not only the current ones.")
    ] = False,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="The vectors of current versions, too.")
    ] = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Write the visible memories as JSON Lines: a header, a line for each version, an end.

    A file is replaced at once, when the export is whole, and can be read by its owner only. With
    --json, what was written is told as JSON; on standard output the export itself is the output.
    """
    conditions = key_values(metadata)
    to_stdout = file == STREAM
    target: Any = BinaryOutput() if to_stdout else Path(file)
    with (
        open_memory(storage, must_exist=True, embedder=embedder) as memory,
        progress_bar("Exporting") as progress,
    ):
        done = memory.export_records(
            target,
            scope,
            categories=category or None,
            metadata_filter=conditions,
            source=source,
            include_private=include_private,
            since=since,
            until=until,
            history=history,
            embeddings=embeddings,
            progress=progress,
        )
    if to_stdout:
        return
    if as_json:
        print_json({"file": file, "records": int(done), "versions": done.versions})
    else:
        versions = counted(done.versions, "version")
        say(f"Exported {counted(int(done), 'record')} ({versions}) to {one_line(file)}.")


def import_file(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `export` wrote; - reads standard input.")
    ],
    on_conflict: Annotated[
        Literal["error", "skip", "replace"],
        typer.Option(
            parser=one_of("error", "skip", "replace"),
            metavar="error|skip|replace",
            help="Where an id means something else here: import nothing, keep it, or replace it.",
        ),
    ] = "error",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and count; write nothing.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose private records may be replaced, too."),
    ] = None,
    include_private: Annotated[
        bool, typer.Option("--include-private", help="Anybody's private records may be, too.")
    ] = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Read what `export` wrote into a memory, with ids, versions, times and privacy as they were.

    The file is checked before anything is written. What is there already is left alone, so an
    import may be repeated, and one that was stopped goes on.
    """
    stream: IO[bytes] | Path = sys.stdin.buffer if file == STREAM else Path(file)
    with open_memory(storage, embedder=embedder) as memory, progress_bar("Importing") as progress:
        try:
            done = memory.import_records(
                stream,
                on_conflict=on_conflict,
                dry_run=dry_run,
                source=source,
                include_private=include_private,
                progress=progress,
            )
        except KeyboardInterrupt:
            note("Interrupted. What was imported so far stays; import the file again to go on.")
            raise
        except ImportConflictError as error:
            if as_json and error.result is not None:
                print_json(_import_json(error.result))
            raise
    if as_json:
        print_json(_import_json(done))
        return
    verb = "Would import" if dry_run else "Imported"
    count = counted(done.added + done.replaced + done.completed, "record")
    say(
        f"{verb} {count} ({counted(done.versions, 'version')}): "
        f"{done.added} new, {done.replaced} replaced, {done.completed} completed; "
        f"{done.unchanged} unchanged, {done.skipped} skipped."
    )
    for conflict in done.conflicts:
        note(f"Line {conflict.line}, {one_line(conflict.record_id)}: {one_line(conflict.reason)}")


def _import_json(done: Imported) -> dict[str, Any]:
    return {
        "dry_run": done.dry_run,
        "records": done.records,
        "added": done.added,
        "completed": done.completed,
        "unchanged": done.unchanged,
        "replaced": done.replaced,
        "skipped": done.skipped,
        "versions": done.versions,
        "embedded": done.embedded,
        "conflicts": [
            {
                "id": conflict.record_id,
                "line": conflict.line,
                "reason": conflict.reason,
                "replaceable": conflict.replaceable,
            }
            for conflict in done.conflicts
        ],
    }


def reindex(
    embedder: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDER",
            help="A provider's key, such as bundled or openai; or MODULE:NAME, as for --embedder.",
        ),
    ],
    batch_size: Annotated[
        int, typer.Option(parser=whole_from(1), metavar="NUMBER", help="Versions in one request.")
    ] = 256,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Re-embed every record with another embedder and use it from now on.

    Until the last step the memory stays as it was. When it is stopped, run it again: it goes on.
    """
    from mnemotrace.reindexing import reindex as reindex_store
    from mnemotrace.stores.open import open_store

    # Opened as a store: a memory would need the old embedder.
    with contextlib.closing(open_store(storage)) as store:
        require_memory(store.manifest(), storage)
    with named_embedder(embedder) as used, progress_bar("Embedding") as progress:
        count = reindex_store(storage, used, batch_size=batch_size, progress=progress)
    if as_json:
        print_json({"embedder": embedder, "versions": count})
    else:
        say(f"Embedded {counted(count, 'version')} with {one_line(embedder)}.")
