"""Write docs/api.md from signatures and docstrings: ``python docs/make_api.py``.

`tests/test_docs_api.py` checks that the page is current and leaves nothing public out.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mnemotrace
from mnemotrace import errors
from mnemotrace.comparing import TraceComparison
from mnemotrace.doctor import examine
from mnemotrace.doctor.report import Report
from mnemotrace.events import BaseEventListener, MemoryEventBus
from mnemotrace.live import AsyncRecallStream, RecallStream, RecallUpdate
from mnemotrace.llm.configured import LLM
from mnemotrace.recall_explanation import RecallExplanation
from mnemotrace.receipts import SaveReceipt
from mnemotrace.recording import Recording
from mnemotrace.records import (
    Extraction,
    Forgotten,
    MemoryMatch,
    MemoryRecord,
    Reanalyzed,
    Recall,
    ScopeInfo,
)
from mnemotrace.replaying import Replay
from mnemotrace.stores.outbox import DeadLetter
from mnemotrace.telemetry import instrument
from mnemotrace.trace import Trace
from mnemotrace.transfer.exporting import Exported
from mnemotrace.transfer.importing import Conflict, Imported

PAGE = Path(__file__).with_name("api.md")
INTRODUCTION = Path(__file__).with_name("api_introduction.md")

METHODS: dict[str, list[str]] = {
    "Save": ["remember", "remember_many", "extract_memories"],
    "Recall": ["recall", "recall_stream", "retrieve_for", "explain"],
    "Work on records": ["get", "history", "update", "forget", "reset", "reanalyze"],
    "Look around": ["list_records", "tree", "info", "list_scopes", "list_categories"],
    "Narrow": ["scope", "slice"],
    "Pending saves": ["drain_writes", "dead_letters", "retry_dead_letters"],
    "Export and import": ["export_records", "import_records"],
}
OF_A_MEMORY = ["close", "compact", "reindex", "config", "store"]
OF_A_FLOW = [
    "memory",
    "remember",
    "recall",
    "retrieve_for",
    "extract_memories",
    "close_memory",
]
ALIKE = {
    "areplay": "replay",
    "explain": "recall",
    "export_records": "recall",
    "forget": "recall",
    "list_records": "recall",
    "recall_stream": "recall",
    "remember_many": "remember",
    "retrieve_for": "recall",
}
"""Whose words hold for an argument that a docstring leaves to another one."""
RESULTS: list[type] = [
    *(MemoryRecord, Recall, MemoryMatch, ScopeInfo, Extraction, Forgotten, Reanalyzed),
    *(SaveReceipt, DeadLetter, RecallStream, AsyncRecallStream, RecallUpdate, RecallExplanation),
    *(Exported, Imported, Conflict, Trace, Recording, Replay, TraceComparison, Report),
]
FOR_THE_WORKER = {
    "add",
    "expect",
    "expects",
    "ran",
    "progress",
    "resolve",
    "fail",
    "park",
    "keep_trace",
    "elapsed_ns",
}
"""Methods of results that mnemotrace itself calls."""


@dataclass
class Doc:
    """A docstring in its parts."""

    text: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def parsed(thing: Any) -> Doc:
    """Return the docstring of anything, in parts."""
    parts: dict[str, list[str]] = {"": []}
    name = ""
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line in ("Args:", "Returns:", "Raises:", "Attributes:", "Yields:"):
            name = line[:-1]
            parts[name] = []
        elif name and line and not line.startswith(" "):
            name = ""
            parts[""] += ["", line]
        else:
            parts[name].append(line)
    return Doc(
        text=re.sub(
            r"(?m)^(>>> .*\n?)+",
            lambda found: f"```python\n{re.sub(r'(?m)^>>> | +# doctest.*$', '', found[0])}```\n",
            "\n".join(parts[""]).strip(),
        ),
        arguments=_entries(parts.get("Args", [])),
        returns=_flowing(parts.get("Returns", parts.get("Yields", []))),
        raises=_entries(parts.get("Raises", [])),
        attributes=_entries(parts.get("Attributes", [])),
    )


def _entries(lines: list[str]) -> dict[str, str]:
    """Return the ``name: text`` entries of a section; one may name several."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        head = re.match(r"([\w, ]+): (.*)", line)
        if head and not line.startswith(" "):
            names = head[1].split(", ")
            found.update(dict.fromkeys(names, head[2]))
        elif line.strip():
            if not names:
                names = [""]
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def _flowing(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def signature(name: str, thing: Any, width: int = 96) -> str:
    """Return how something is called, a line for each argument where one line is too long."""
    called = inspect.signature(thing)
    parameters = [p for p in called.parameters.values() if p.name not in ("self", "cls")]
    words: list[str] = []
    for number, item in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if item.kind is item.KEYWORD_ONLY and before not in (
            item.KEYWORD_ONLY,
            item.VAR_POSITIONAL,
        ):
            words.append("*")
        stars = "*" if item.kind is item.VAR_POSITIONAL else ""
        stars = "**" if item.kind is item.VAR_KEYWORD else stars
        word = f"{stars}{item.name}"
        if item.annotation is not item.empty:
            word += f": {_plain(item.annotation)}"
        if item.default is not item.empty:
            word += f" = {item.default!r}"
        words.append(word)
    result = "" if called.return_annotation is called.empty else _plain(called.return_annotation)
    result = f" -> {result}" if result else ""
    line = f"{name}({', '.join(words)}){result}"
    if len(line) <= width:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def in_line(name: str, thing: Any) -> str:
    """Return how something is called, in one line."""
    return signature(name, thing, 10_000)


def _plain(annotation: Any) -> str:
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", repr(annotation))
    )


def call(
    name: str, thing: Any, *, prefix: str = "", level: int = 4, twin: bool = False
) -> Iterator[str]:
    """Yield the lines for a function or method.

    Raises:
        ValueError: an argument is documented nowhere.
    """
    doc = parsed(thing)
    yield f"{'#' * level} `{name}`\n"
    yield f"```python\n{signature(prefix + name, thing)}\n```\n"
    yield f"{doc.text}\n"
    alike = (
        parsed(getattr(mnemotrace.Memory, ALIKE[name], getattr(mnemotrace, ALIKE[name], None)))
        if name in ALIKE
        else Doc()
    )
    elsewhere: list[str] = []
    for argument in inspect.signature(thing).parameters:
        if argument in ("self", "cls"):
            continue
        if text := doc.arguments.get(argument):
            yield f"- `{argument}`: {text}"
        elif alike.arguments.get(argument):
            elsewhere.append(argument)
        else:
            raise ValueError(f"{prefix}{name}: the argument {argument!r} is documented nowhere.")
    if elsewhere:
        yield f"- `{'`, `'.join(elsewhere)}`: as in [`{ALIKE[name]}`](#{ALIKE[name]})."
    yield ""
    if doc.returns:
        yield f"**Returns:** {doc.returns}\n"
    told = [
        f"`{kind.replace(', ', '`, `')}`: {text}" if kind else text for kind, text in _raised(doc)
    ]
    if told:
        yield f"**Raises:** {' '.join(told)}\n"
    if twin:
        yield f"Async twin: `a{name}`.\n"


def _raised(doc: Doc) -> list[tuple[str, str]]:
    """Return the errors, those of one text together."""
    kinds: dict[str, list[str]] = {}
    for kind, text in doc.raises.items():
        kinds.setdefault(text, []).append(kind)
    return [(", ".join(names), text) for text, names in kinds.items()]


def fields_of(kind: type) -> dict[str, str]:
    """Return what a class says of its attributes: in its docstring, and below each of them."""
    found = dict(parsed(kind).attributes)
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for this, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(this, ast.AnnAssign) or not isinstance(this.target, ast.Name):
            continue
        name = this.target.id
        if name.startswith("_") or name == "model_config":
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[name] = _flowing(str(following.value.value).splitlines())
        found.setdefault(name, "")
    return found


def result(kind: type) -> Iterator[str]:
    """Yield the lines for a class of results.

    Raises:
        ValueError: an attribute is documented nowhere.
    """
    yield f"### {kind.__name__}\n"
    yield f"{parsed(kind).text}\n"
    members: dict[str, str] = fields_of(kind)
    calls: list[tuple[str, Any]] = []
    ours = [part for part in kind.__mro__ if part.__module__.startswith("mnemotrace")]
    for name, value in {k: v for part in ours for k, v in vars(part).items()}.items():
        if name.startswith("_") or name in FOR_THE_WORKER:
            continue
        if isinstance(value, property):
            members[name] = _flowing((inspect.getdoc(value) or "").splitlines())
        elif inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod)):
            calls.append((name, getattr(kind, name)))
    for name, text in members.items():
        if not text:
            raise ValueError(f"{kind.__name__}.{name} is documented nowhere.")
        yield f"- `{name}`: {text}"
    for name, method in calls:
        doc = parsed(method)
        given = "; ".join(f"`{key}`: {text}" for key, text in doc.arguments.items())
        text = _flowing(doc.text.splitlines())
        more = " ".join(
            part for part in (given, f"Returns: {doc.returns}" if doc.returns else "") if part
        )
        yield f"- `{in_line(name, method)}`: {text} {more}".rstrip()
    yield ""


def page() -> str:
    """Return the whole page."""
    text = re.sub(r"(?<!`)``(?!`)", "`", "\n".join(_lines()))  # reStructuredText's own code
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.read_text("utf-8")
    memory = mnemotrace.Memory
    yield "## Memory\n"
    yield f"```python\n{signature('Memory', memory)}\n```\n"
    yield f"{parsed(memory).text}\n"
    for name, text in parsed(memory).arguments.items():
        yield f"- `{name}`: {text}"
    yield "\nEach setting with default and effect: [configuration.md](configuration.md).\n"
    for title, names in METHODS.items():
        yield f"### {title}\n"
        for name in names:
            twin = hasattr(memory, f"a{name}")
            yield from call(name, getattr(memory, name), prefix="memory.", twin=twin)
    yield "### Of a whole memory only\n"
    for name in OF_A_MEMORY:
        value = getattr(memory, name)
        if isinstance(value, property):
            yield f"#### `{name}`\n\n{inspect.getdoc(value)}\n"
        else:
            yield from call(name, value, prefix="memory.", twin=True)
    yield "## MemoryScope and MemorySlice\n"
    views: list[type] = [mnemotrace.MemoryScope, mnemotrace.MemorySlice]
    for view in views:
        yield f"`{view.__name__}`: {inspect.getdoc(view)}\n"
    yield "- `MemoryScope.path`: the scope it is a view of."
    yield "- `MemoryScope.subscope(path)`: a view of a subtree below it, as `scope(path)`."
    yield "- `MemorySlice.scopes`, `MemorySlice.read_only`: as they were given.\n"
    yield "## What comes back\n"
    for kind in RESULTS:
        yield from result(kind)
    yield "## Flow and MemoryMixin\n"
    mixins: list[type] = [mnemotrace.Flow, mnemotrace.MemoryMixin]
    for mixin in mixins:
        doc = parsed(mixin)
        yield f"`{mixin.__name__}`: {doc.text}\n"
        for name, text in doc.arguments.items():
            yield f"- `{name}`: {text}"
        yield ""
    for name in OF_A_FLOW:
        value = getattr(mnemotrace.Flow, name)
        more = f" Async twin: `a{name}`." if hasattr(mnemotrace.Flow, f"a{name}") else ""
        shown = f"self.{name}" if isinstance(value, property) else in_line(f"self.{name}", value)
        yield f"- `{shown}`: {_flowing((inspect.getdoc(value) or '').splitlines())}{more}"
    yield f"- `flow.run(...)`: {_flowing(parsed(mnemotrace.Flow.run).text.splitlines())}\n"
    yield "## Functions\n"
    for name in ("reindex", "record", "replay", "areplay", "compare", "progress"):
        yield from call(name, getattr(mnemotrace, name), prefix="mnemotrace.", level=3)
    yield from call("instrument", instrument, prefix="mnemotrace.telemetry.", level=3)
    yield from call("examine", examine, prefix="mnemotrace.doctor.", level=3)
    yield "## Models and events\n"
    others: list[tuple[type, bool]] = [
        (LLM, False),
        (MemoryEventBus, True),
        (BaseEventListener, True),
    ]
    for other, with_methods in others:
        doc = parsed(other)
        yield f"### {other.__name__}\n\n{doc.text}\n"
        for name, text in doc.arguments.items():
            yield f"- `{name}`: {text}"
        for name, method in vars(other).items() if with_methods else ():
            if inspect.isfunction(method) and not name.startswith("_"):
                yield f"- `{in_line(name, method)}`: {_flowing(parsed(method).text.splitlines())}"
        yield ""
    yield "`mnemotrace.event_bus` is the bus of this process. Every event with its attributes:\n[events.md](events.md).\n"
    yield "## Errors\n"
    yield f"```text\n{_tree()}\n```\n"


def _tree() -> str:
    """Return the tree of errors at the top of their module."""
    lines = (errors.__doc__ or "").splitlines()
    first = lines.index("MnemotraceError")
    return "\n".join(lines[first : lines.index("", first)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
