"""The commands that only look: recall, list, show, tree, info."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mnemotrace.errors import RecordNotFoundError
from mnemotrace.recall_explanation import Verdict

from .fitting import row, terminal_width
from .options import (
    AsJson,
    Asker,
    AsOf,
    Categories,
    Embedder,
    IncludePrivate,
    MetadataFilter,
    MostMatches,
    NoLlm,
    Path,
    Scope,
    Since,
    Source,
    Storage,
    Until,
    Viewer,
    key_values,
    one_of,
    open_memory,
    question,
    whole_from,
)
from .output import (
    day,
    echo,
    match_lines,
    note,
    one_line,
    print_json,
    printable,
    recall_json,
    record_json,
    record_line,
    record_page,
    say,
    tree_json,
)
from .wording import worded


def recall(
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="What you want to know; - reads standard input."),
    ],
    scope: Scope = None,
    depth: Annotated[
        Literal["deep", "shallow"],
        typer.Option(
            parser=one_of("deep", "shallow"),
            metavar="deep|shallow",
            help="deep explores; shallow searches once and asks no language model.",
        ),
    ] = "deep",
    limit: MostMatches = 10,
    category: Categories = None,
    source: Source = None,
    viewer: Asker = None,
    include_private: IncludePrivate = False,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    metadata: MetadataFilter = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the steps taken, too.")] = False,
    as_json: AsJson = False,
    no_llm: NoLlm = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Print the memories that answer a query, best first."""
    conditions = key_values(metadata)
    asked = question(query)
    with open_memory(storage, llm=not no_llm, must_exist=True, embedder=embedder) as memory:
        found = memory.recall(
            asked,
            scope=scope,
            categories=category or None,
            limit=limit,
            depth=depth,
            source=source,
            viewer=viewer,
            include_private=include_private,
            since=since,
            until=until,
            as_of=as_of,
            metadata_filter=conditions,
        )
    if as_json:
        print_json(recall_json(found, trace=trace))
        return
    width = terminal_width()
    for rank, match in enumerate(found, 1):
        echo(match_lines(rank, match, width))
    if not found:
        note("Nothing found." if limit else "--limit 0 asks for no matches.")
    for gap in found.evidence_gaps:
        note(f"Not found: {one_line(gap)}")
    for error in found.errors:
        note(f"Part of the search failed: {one_line(error)}")
    if trace and found.trace:
        echo(("\n" if found else "") + found.trace.render())


def explain(
    record_id: Annotated[str, typer.Argument(metavar="ID", help="Which record.")],
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="What was asked; - reads standard input."),
    ],
    scope: Scope = None,
    depth: Annotated[
        Literal["deep", "shallow"],
        typer.Option(
            parser=one_of("deep", "shallow"),
            metavar="deep|shallow",
            help="As for recall; deep runs it again, language model included.",
        ),
    ] = "deep",
    limit: MostMatches = 10,
    category: Categories = None,
    source: Source = None,
    viewer: Asker = None,
    include_private: IncludePrivate = False,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    metadata: MetadataFilter = None,
    as_json: AsJson = False,
    no_llm: NoLlm = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Say why a recall did or did not return a record, and what would.

    An ID that no visible record has is an error, as for `show`.
    """
    conditions = key_values(metadata)
    asked = question(query)
    with open_memory(storage, llm=not no_llm, must_exist=True, embedder=embedder) as memory:
        found = memory.explain(
            asked,
            record_id,
            scope=scope,
            categories=category or None,
            limit=limit,
            depth=depth,
            source=source,
            viewer=viewer,
            include_private=include_private,
            since=since,
            until=until,
            as_of=as_of,
            metadata_filter=conditions,
        )
        unknown = found.verdict is Verdict.UNKNOWN
        who = source if viewer is None else viewer
        # Who asks in nobody's name is told of private records, here as in the explanation.
        swapped = unknown and memory.get(asked, who, include_private or who is None) is not None
    if as_json:
        print_json(found.to_json())
    elif not unknown:
        say("\n".join(map(_worded_line, str(found).split("\n"))))
    if unknown:
        raise RecordNotFoundError(_not_found(record_id, asked if swapped else None))


def _worded_line(line: str) -> str:
    """Return a line of an explanation with options for arguments; never the record's own text."""
    return worded(line) if line.startswith(("  - ", "    ")) else line


def _not_found(record_id: str, swapped: str | None = None) -> str:
    """Return the message for an id that no visible record has.

    Args:
        record_id: the id.
        swapped: what was given where the query belongs, when that is the id of a record.
    """
    if swapped is not None:
        return (
            f"No record {record_id!r} is visible here, but {swapped!r} is one: the ID comes first, "
            "then the QUERY."
        )
    return (
        f"No record {record_id!r} is visible here. `mnemotrace list` shows the ids; private "
        "records need --source or --include-private."
    )


def list_records(
    scope: Scope = None,
    limit: Annotated[
        int, typer.Option(parser=whole_from(0), metavar="NUMBER", help="The most records.")
    ] = 50,
    offset: Annotated[
        int, typer.Option(parser=whole_from(0), metavar="NUMBER", help="Leave out this many.")
    ] = 0,
    category: Categories = None,
    source: Source = None,
    viewer: Asker = None,
    include_private: IncludePrivate = False,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    metadata: MetadataFilter = None,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """List memories, newest first: id, date, scope, text."""
    conditions = key_values(metadata)
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        records = memory.list_records(
            scope,
            limit + 1,
            offset,
            categories=category or None,
            metadata_filter=conditions,
            source=source,
            viewer=viewer,
            include_private=include_private,
            since=since,
            until=until,
            as_of=as_of,
        )
    more = len(records) > limit
    if as_json:
        print_json([record_json(record) for record in records[:limit]])
    else:
        width = terminal_width()
        for record in records[:limit]:
            echo(record_line(record, width))
        if not records:
            note("Nothing to list.")
    if more and limit:
        note(f"There are more; go on with --offset {offset + limit}.")


def show(
    record_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` and `recall` print.")],
    source: Viewer = None,
    include_private: IncludePrivate = False,
    history: Annotated[
        bool, typer.Option("--history", help="Every version, oldest first, and what it replaced.")
    ] = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Show one memory in full."""
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        if history:
            versions = memory.history(record_id, source, include_private)
        else:
            record = memory.get(record_id, source, include_private)
            versions = [] if record is None else [record]
    if not versions:
        raise RecordNotFoundError(_not_found(record_id))
    if as_json:
        data = [record_json(version) for version in versions]
        print_json(data if history else data[0])
    else:
        width = terminal_width()
        echo("\n\n".join(record_page(version, width) for version in versions))


def tree(
    path: Path = None,
    max_depth: Annotated[
        int, typer.Option(parser=whole_from(0), metavar="NUMBER", help="Levels below PATH.")
    ] = 3,
    source: Viewer = None,
    include_private: IncludePrivate = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Print the scopes as a tree with counts."""
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        text = memory.tree(path, max_depth, source=source, include_private=include_private)
    if as_json:
        print_json(tree_json(text))
    else:
        say(printable(text))


def info(
    path: Path = None,
    source: Viewer = None,
    include_private: IncludePrivate = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Summarise a scope and everything below it."""
    with open_memory(storage, must_exist=True, embedder=embedder) as memory:
        summary = memory.info(path, source=source, include_private=include_private)
    if as_json:
        print_json(summary.model_dump(mode="json"))
        return
    rows = (
        ("scope", summary.path),
        ("records", str(summary.record_count)),
        ("oldest", day(summary.oldest_record)),
        ("newest", day(summary.newest_record)),
        ("categories", ", ".join(summary.categories) or "-"),
        ("scopes below", ", ".join(summary.child_scopes) or "-"),
    )
    width = terminal_width()
    for name, value in rows:
        echo(row(name, one_line(value), width, 14))
