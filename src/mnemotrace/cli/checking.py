"""The command that looks for what is wrong: doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemotrace.checks import counted

from .embedding import named_embedder
from .fitting import HANG, is_narrow, row, terminal_width
from .options import AsJson, Embedder, Storage
from .output import echo, one_line, print_json, say
from .wording import worded

COLUMN = 23
"""Where messages begin on a wide terminal."""
_MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM", "unknown": "unknown"}


def doctor(
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask a hosted embedder, which costs a request.")
    ] = False,
    as_json: AsJson = False,
    embedder: Embedder = None,
    storage: Storage = None,
) -> None:
    """Check a memory and what it runs on, and say what is wrong; nothing is changed.

    Exit codes: 0 healthy, 1 something is wrong, 3 nothing is wrong in what could be checked, but
    part of it could not be, for instance because another process has the memory open.
    """
    from mnemotrace.doctor import examine

    with named_embedder(embedder) as used:
        report = examine(storage, embedder=used, network=not offline)
    if as_json:
        print_json(report.to_json())
        raise typer.Exit(report.exit_code)
    width = terminal_width()
    for check in report.checks:
        heading = f"{_MARKS[check.status]:<8} {check.name:<13}"
        echo(row(heading, one_line(worded(check.message)), width, COLUMN))
        if check.remedy and check.status != "ok":
            echo(
                row(
                    HANG,
                    one_line(worded(check.remedy)),
                    width,
                    len(HANG) if is_narrow(width) else COLUMN,
                )
            )
    say(f"\n{one_line(report.place)}: {report.status}, {counted(len(report.problems), 'problem')}.")
    raise typer.Exit(report.exit_code)
