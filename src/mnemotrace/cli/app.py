"""The command line: its commands, and how what goes wrong becomes an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TextIO, cast

import typer

from mnemotrace import __version__
from mnemotrace.errors import MnemotraceError

from . import browsing, checking, exchanging, reading, writing
from .examples import epilog
from .options import AsJson, Storage
from .output import (
    OutputClosedError,
    TextOutput,
    logs_on_stderr,
    note,
    one_line,
    print_json,
)
from .wording import speaking, worded

FAILED = 1
INTERRUPTED = 130
CLOSED_PIPE = 141
"""As a shell reports a program that wrote to a pipe nobody reads any more."""

app = typer.Typer(
    name="mnemotrace",
    help="Agent memory you can trace. Every command takes --help.",
    epilog="Exit codes: 0 done, 1 an error (one line on stderr), 2 a wrong command line, "
    "130 interrupted, 141 nobody reads the output any more. `doctor` has its own.",
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


def demo(as_json: AsJson = False, storage: Storage = None) -> None:
    """Remember a transcript, recall from it, show the steps.

    The transcript is of meetings in English, Korean and Chinese. No network and no key are
    needed. Without --storage, everything is gone afterwards.
    """
    from mnemotrace.demo import demo_data, run_demo

    if as_json:
        print_json(demo_data(storage))
    else:
        run_demo(storage, cast(TextIO, TextOutput()))


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "remember": writing.remember,
    "recall": reading.recall,
    "explain": reading.explain,
    "list": reading.list_records,
    "show": reading.show,
    "tree": reading.tree,
    "info": reading.info,
    "browse": browsing.browse,
    "forget": writing.forget,
    "reset": writing.reset,
    "export": exchanging.export,
    "import": exchanging.import_file,
    "reindex": exchanging.reindex,
    "doctor": checking.doctor,
}
for name, command in COMMANDS.items():
    app.command(name, epilog=epilog(name))(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: the words after the command's name; those of this process when None.

    Raises:
        SystemExit: always; 0 done, 1 an error, 2 a wrong command line, 130 after Ctrl-C, 141 when
            nobody reads the output any more, and what `doctor` found.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets an escape instead of a crash.
            stream.reconfigure(errors="backslashreplace")
    typed = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in typed if word in COMMANDS), None)
    with speaking(app, command), logs_on_stderr():
        code = _run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED_PIPE
    if code == CLOSED_PIPE:
        _drop_output()
    raise SystemExit(code)


def _run(arguments: Sequence[str] | None) -> int:
    stdout = sys.stdout
    try:
        app(None if arguments is None else list(arguments), prog_name="mnemotrace")
    except SystemExit as leaving:
        if sys.stdout is not stdout:  # typer puts another one there when nobody reads it
            sys.stdout = stdout
            return CLOSED_PIPE
        return leaving.code if isinstance(leaving.code, int) else 0
    except (OutputClosedError, BrokenPipeError):
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (MnemotraceError, ImportError, TimeoutError) as error:
        note(f"mnemotrace: {one_line(worded(str(error)) or type(error).__name__)}")
        return FAILED
    return 0


def _drop_output() -> None:
    """Send what is left to be written nowhere, so that Python's own flush at exit says nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # it is no real file, and so no pipe
    finally:
        os.close(nowhere)
