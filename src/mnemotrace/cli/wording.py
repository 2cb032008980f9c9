"""The library's messages in the words of the command line.

An error of the library names what its caller wrote: ``on_conflict='skip'``, ``list_records()``. Who
typed a command wrote ``--on-conflict`` and has ``mnemotrace list``. The names of the options come
from the commands themselves, so there is no list of messages to keep.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer.main

_OTHER_NAMES = {"categories": "category", "metadata_filter": "metadata", "record_ids": "record_id"}
"""Arguments of the library that another name of the command line stands for."""
_COMMANDS = {
    "export_records": "export FILE",
    "forget": "forget ID",
    "import_records": "import FILE",
    "list_records": "list",
    "reindex": "reindex EMBEDDER",
    **{name: name for name in ("explain", "info", "recall", "remember", "reset", "tree")},
    "get": "show ID",
    "history": "show ID --history",
}
"""What does what a method does."""
_PHRASES = (
    (
        re.compile(r'pass another model, for example llm="[^"]*" for a local one'),
        "add --no-llm to do without a model",
    ),
    (re.compile(r", change the record with update\(\), or "), ", or "),
    (re.compile(r"Call (memory\.reanalyze\(\)) once"), r"In Python, `\1` makes it up once"),
    (re.compile(r"\b(?:Memory\(|examine\(storage, )(\w+=\.\.\.)\)"), r"\1"),
)
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_VALUE = rf"{_QUOTED}|\[[^\[\]]*\]|\{{[^{{}}]*\}}|\.\.\.|[\w:+-]+(?:\.\w[\w:+-]*)*"
_WORDS = re.compile(
    rf"(?P<quoted>(?<!\w)(?:{_QUOTED}))"
    r"|(?<![\w/.`-])(?:(?:memory|mnemotrace)\.)?(?P<call>[a-z_]+)\([^()]*\)"
    rf"|(?<![\w/.\-])(?P<name>[a-z]+(?:_[a-z]+)*)(?P<given>=(?P<value>{_VALUE})?)"
    r"|(?<![\w/.\-])(?P<bare>[a-z]+(?:_[a-z]+)+)(?![\w(=])"
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command, or what it takes without one.

    Attributes:
        name: ``--scope``, or ``ID`` where the value stands for itself.
        metavar: what a value of it is called; empty for a switch.
        own: it is one of the command that runs.
    """

    name: str
    metavar: str = ""
    own: bool = True

    def written(self, value: str | None) -> str:
        """Return it as it is typed, with a value as a message of the library has it."""
        if not self.name.startswith("-") or value is None:
            return self.name
        try:
            given = ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a time, which has no quotes
            given = value
        if given is ... or given == [...]:
            return f"{self.name} {self.metavar}".rstrip()
        if given is None or given is False:
            return f"no {self.name}"
        if given is True:
            return self.name
        texts = [f"{self.name} {shlex.quote(text)}" for text in _texts(given)]
        return " ".join(texts) or f"no {self.name}"


_words: Callable[[], Mapping[str, Option]] = dict


@contextmanager
def speaking(app: typer.Typer, command: str | None) -> Iterator[None]:
    """Let `worded` use the words of a command while it runs; in every thread, for logs too."""
    global _words
    before, _words = _words, functools.cache(lambda: options_of(app, command))
    try:
        yield
    finally:
        _words = before


def worded(message: str) -> str:
    """Return a message of the library in the words of the command that runs."""
    return as_typed(message, _words())


def as_typed(message: str, words: Mapping[str, Option]) -> str:
    """Return a message with options instead of arguments, and commands instead of methods.

    Texts in quotes are left as they are: they are what somebody wrote. So are names that no
    option stands for.

    Args:
        message: of the library.
        words: the options there are, as `options_of` gives them.
    """
    for phrase, instead in _PHRASES:
        message = phrase.sub(instead, message)

    def worded(found: re.Match[str]) -> str:
        if found["call"]:
            command = _COMMANDS.get(found["call"])
            return f"`mnemotrace {command}`" if command else found[0]
        name = found["name"] or found["bare"]
        option = words.get(name) if name else None
        if option is None or (found["bare"] and not option.own):  # it may be a record's field
            return found[0]
        return option.written(found["value"])

    return _WORDS.sub(worded, message)


def options_of(app: typer.Typer, command: str | None) -> dict[str, Option]:
    """Return what stands for each argument of the library; a command's own before all others'.

    Args:
        app: the whole command line.
        command: the one that runs; None, or an unknown word, where there is none.
    """
    commands: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    first = [commands[command]] if command is not None and command in commands else []
    found: dict[str, Option] = {}
    for part in (*first, *commands.values()):
        for parameter in part.params:
            metavar = (parameter.metavar or "").strip("[]")
            is_option = parameter.param_type_name == "option"
            name = max(parameter.opts, key=len) if is_option else metavar
            found.setdefault(parameter.name, Option(name, metavar, part in first))
    for name, other in _OTHER_NAMES.items():
        if other in found:
            found.setdefault(name, found[other])
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{key}={item if isinstance(item, str) else json.dumps(item, default=str)}"
    elif isinstance(value, (list, tuple)):
        yield from map(str, value)
    else:
        yield str(value)
