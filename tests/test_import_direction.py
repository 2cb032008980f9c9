"""Imports point one way, from the things that know most to the things that know least."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "mnemotrace"

# Lowest first. A name stands for a module or for a whole folder of `mnemotrace`. A module may
# import its own layer and those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "checks", "naming", "scopes", "quoting", "records", "config"),
    (
        "scoring",
        "trace",
        "trace_views",
        "events",
        "tokens",
        "facts",
        "receipts",
        "language",
        "litellm_loop",
        "straight",
    ),
    ("capture", "comparing"),
    ("chunks", "entries", "scope_tree"),
    ("stores", "embedders", "llm", "prompts"),
    ("explanation",),
    ("flows",),
    (
        *(
            "accesses",
            "core",
            "curation",
            "reanalysis",
            "discovery",
            "explaining",
            "obstacles",
            "recall_explanation",
            "recording",
            "replaying",
            "saving",
            "tape",
            "twins",
            "live",
            "reach",
            "transfer",
            "views",
            "reindexing",
            "memory",
        ),
        *("mnemotrace", "testing"),
    ),
    ("chat",),
    ("integrations", "cli", "tui", "demo", "doctor", "telemetry", "__main__"),
)

# Inside one layer, these must not know each other.
STRANGERS = {
    ("stores", "embedders"),
    ("stores", "llm"),
    ("stores", "prompts"),
    ("embedders", "llm"),
    ("llm", "embedders"),
}

# Imports made inside a function, on first use, against the direction. Each needs a reason.
ON_FIRST_USE = {
    ("mnemotrace.records", "entries"),  # Recall.format
    ("mnemotrace.records", "trace_views"),  # a result shown in a notebook
    ("mnemotrace.trace_views.path", "flows"),  # a drawing shows the steps of the real workflow
    ("mnemotrace.records", "explanation"),  # MemoryMatch.explain
    ("mnemotrace.flows.flow", "memory"),  # MemoryMixin opens a default Memory when none is given
}


@dataclass(frozen=True)
class Import:
    module: str
    """The importing module, such as ``mnemotrace.flows.recall``."""
    target: str
    line: int
    deferred: bool
    """Made inside a function, not when the module is loaded."""


def unit(module: str) -> str:
    """The folder or module of `mnemotrace` that a module belongs to; the package is its own."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def level(name: str) -> int:
    for index, layer in enumerate(LAYERS):
        if name in layer:
            return index
    raise AssertionError(
        f"mnemotrace.{name} is in no layer. Add it to LAYERS in {Path(__file__).name}."
    )


def modules(package: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name; the symlinked folders are followed."""
    found: dict[str, Path] = {}
    folders = [(package, "mnemotrace")]
    while folders:
        folder, name = folders.pop()
        for path in sorted(folder.iterdir()):
            if path.is_dir() and (path / "__init__.py").exists():
                folders.append((path, f"{name}.{path.name}"))
            elif path.suffix == ".py":
                found[name if path.stem == "__init__" else f"{name}.{path.stem}"] = path
    return found


def imports(module: str, source: str, known: set[str], *, is_package: bool) -> Iterator[Import]:
    """Yield what a module imports from `mnemotrace`; imports for type checking do not count."""

    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.orelse:
                yield from visit(statement, deferred)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "mnemotrace":
                    yield Import(module, alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:kept], *base.split(".")]).rstrip(".")
            if base.split(".")[0] == "mnemotrace":
                for alias in node.names:
                    named = f"{base}.{alias.name}"
                    yield Import(module, named if named in known else base, node.lineno, deferred)
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(source), False)


def violation(item: Import) -> str | None:
    """Say what is wrong with an import; None when it points the right way."""
    source, target = unit(item.module), unit(item.target)
    if source == target or (item.deferred and (item.module, target) in ON_FIRST_USE):
        return None
    place = f"{item.module}:{item.line} imports {item.target}"
    if level(target) > level(source):
        return f"{place}: {source} (layer {level(source)}) may not know {target} ({level(target)})"
    if (source, target) in STRANGERS:
        return f"{place}: {source} and {target} do not know each other"
    return None


def check(source: str, module: str, known: set[str], *, is_package: bool = False) -> list[str]:
    found = imports(module, source, known, is_package=is_package)
    return [text for text in map(violation, found) if text is not None]


def test_imports_point_from_upper_layers_to_lower_ones_only() -> None:
    found = modules(PACKAGE)
    assert {"mnemotrace.flows", "mnemotrace.stores.backend"} <= set(found)
    wrong: list[str] = []
    for module, path in found.items():
        level(unit(module))
        source = path.read_text(encoding="utf-8")
        wrong += check(source, module, set(found), is_package=path.stem == "__init__")
    assert not wrong, "\n".join(wrong)


def test_the_root_folders_are_the_installed_ones() -> None:
    root = PACKAGE.parents[1]
    for name in ("flows", "stores"):
        assert (PACKAGE / name).resolve() == root / name


KNOWN = {"mnemotrace", "mnemotrace.flows.recall", "mnemotrace.stores.qdrant", "mnemotrace.trace"}


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("mnemotrace.stores.qdrant", "from mnemotrace.flows.recall import RecallFlow", True),
        ("mnemotrace.stores.qdrant", "from mnemotrace.flows import recall", True),
        ("mnemotrace.stores.qdrant", "import mnemotrace.flows.recall", True),
        ("mnemotrace.stores.qdrant", "from mnemotrace import Memory", True),
        ("mnemotrace.stores.qdrant", "def f():\n    from mnemotrace.flows import recall", True),
        ("mnemotrace.stores.qdrant", "from mnemotrace.embedders import service", True),
        ("mnemotrace.records", "from .trace import Trace", True),
        ("mnemotrace.records", "if TYPE_CHECKING:\n    from .trace import Trace", False),
        ("mnemotrace.records", "def f():\n    from .entries import entry", False),
        ("mnemotrace.records", "from .tokens import count_tokens", True),
        ("mnemotrace.flows.recall", "from mnemotrace.stores.qdrant import QdrantStore", False),
        ("mnemotrace.flows.flow", "def f():\n    from mnemotrace.memory import Memory", False),
        ("mnemotrace.flows.recall", "def f():\n    from mnemotrace.memory import Memory", True),
        ("mnemotrace.flows.recall", "from .evidence import RecallRun", False),
        ("mnemotrace.memory", "from . import trace", False),
        ("mnemotrace.cli.app", "from mnemotrace import Memory", False),
        ("mnemotrace.stores.qdrant", "import flowspeed, pathlib", False),
    ],
)
def test_the_check_tells_a_wrong_import_from_a_right_one(
    module: str, source: str, wrong: bool
) -> None:
    assert bool(check(source, module, KNOWN)) is wrong


def test_a_module_in_no_layer_is_named() -> None:
    with pytest.raises(AssertionError, match=r"mnemotrace\.novelty is in no layer"):
        level("novelty")
