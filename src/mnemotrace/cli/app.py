"""The command line: its commands, and how errors become exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from mnemotrace import __version__
from mnemotrace.errors import MnemotraceError

from . import browsing, reading, writing
from .options import Storage
from .output import one_line

app = typer.Typer(
    name="mnemotrace",
    help="Agent memory you can trace. Every command takes --help.",
    epilog="Exit codes: 0 done, 1 an error (one line on stderr), 2 a wrong command line.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def demo(storage: Storage = None) -> None:
    """Remember a transcript, recall from it, show the steps.

    The transcript is of meetings in English, Korean and Chinese. No network and no key are
    needed. Without --storage, everything is gone afterwards.
    """
    from mnemotrace.demo import run_demo

    run_demo(storage)


COMMANDS: tuple[Callable[..., Any], ...] = (
    writing.remember,
    reading.recall,
    reading.list_records,
    reading.show,
    reading.tree,
    reading.info,
    browsing.browse,
    writing.forget,
    writing.reset,
)
for command in COMMANDS:
    app.command(command.__name__.removesuffix("_records"))(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 an error, 2 a wrong command line.

    Args:
        arguments: the words after the command's name; those of this process when None.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets an escape instead of a crash.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(None if arguments is None else list(arguments), prog_name="mnemotrace")
    except MnemotraceError as error:
        typer.echo(f"mnemotrace: {one_line(str(error) or type(error).__name__)}", err=True)
        raise SystemExit(1) from None
