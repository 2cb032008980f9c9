"""An installed wheel works, from its own files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Editable

pytestmark = pytest.mark.slow

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import mnemotrace
for module in pkgutil.walk_packages(mnemotrace.__path__, "mnemotrace."):
    importlib.import_module(module.name)
print(json.dumps({
    name: getattr(module, "__file__", None) or ""
    for name, module in sys.modules.items()
    if name.partition(".")[0] in ("mnemotrace", "flows", "stores")
}))
"""

SMOKE = """
from mnemotrace import Memory
with Memory(storage="store", llm=None, embedder="bundled") as memory:
    kept = memory.remember("The harbour closes at nine.", scope="/port", importance=0.5)
with Memory(storage="store", llm=None) as memory:
    (match,) = memory.recall("When does the harbour close?", limit=1)
    assert match.record.id == kept.id
    print(match.record.content)
"""


def python(installed: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with what is installed there before anything else on the path."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )


def test_every_module_imports_from_the_wheel_and_no_bare_folder_is_loaded(
    installed: Path,
) -> None:
    done = python(installed, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert {"mnemotrace.flows.recall", "mnemotrace.stores.backend", "mnemotrace.cli"} <= set(loaded)
    assert not {name.partition(".")[0] for name in loaded} & {"flows", "stores"}
    outside = [path for path in loaded.values() if not Path(path).is_relative_to(installed)]
    assert outside == []


def test_remember_and_recall_work_from_the_wheel(installed: Path) -> None:
    done = python(installed, "-c", SMOKE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The harbour closes at nine.\n"


def test_the_demo_runs_from_the_wheel(installed: Path) -> None:
    done = python(installed, "-m", "mnemotrace", "demo")
    assert done.returncode == 0, done.stderr
    assert "3 November" in done.stdout
    assert done.stderr == ""


def test_every_module_imports_from_an_sdist_that_is_installed_editable(editable: Editable) -> None:
    done = python(editable.path, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert {"mnemotrace.flows.recall", "mnemotrace.stores.backend"} <= set(loaded)
    package = editable.sources / "src" / "mnemotrace"
    assert [path for path in loaded.values() if not Path(path).is_relative_to(package)] == []
    assert (package / "flows" / "recall.py").samefile(editable.sources / "flows" / "recall.py")
