"""The command that looks for what is wrong: doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import AsJson, Storage
from .output import echo, one_line, print_json

_MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM", "unknown": "unknown"}


def doctor(
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask a hosted embedder, which costs a request.")
    ] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Check a memory and what it runs on, and say what is wrong; nothing is changed.

    Exit codes: 0 healthy, 1 something is wrong, 3 nothing is wrong in what could be checked, but
    part of it could not be, for instance because another process has the memory open.
    """
    from mnemotrace.doctor import examine

    report = examine(storage, network=not offline)
    if as_json:
        print_json(report.to_json())
        raise typer.Exit(report.exit_code)
    for check in report.checks:
        echo(f"{_MARKS[check.status]:<8} {check.name:<13} {one_line(check.message)}")
        if check.remedy and check.status != "ok":
            echo(f"{'':<22} {one_line(check.remedy)}")
    echo(f"\n{one_line(report.place)}: {report.status}, {len(report.problems)} problem(s).")
    raise typer.Exit(report.exit_code)
