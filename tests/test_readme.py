"""The README is true: its programs run and print what it says, its commands and links exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mnemotrace.config import MemoryConfig

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "browse.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "configuration.md",
    ROOT / "docs" / "embedders.md",
    ROOT / "docs" / "tracing.md",
    ROOT / "docs" / "explaining.md",
    ROOT / "docs" / "events.md",
    ROOT / "docs" / "telemetry.md",
    ROOT / "docs" / "cli.md",
]

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TREE = re.compile(r"[│├└─━╸\s]+")


@dataclass(frozen=True)
class Program:
    """A fenced block marked ``python runnable`` and the ``text`` block that follows it."""

    line: int
    code: str
    output: str | None


def _programs() -> list[Program]:
    fences = list(_FENCE.finditer(README))
    found = []
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence["info"].split() != ["python", "runnable"]:
            continue
        shown = following is not None and following["info"] == "text"
        line = README[: fence.start()].count("\n") + 1
        output = following["body"] if following is not None and shown else None
        found.append(Program(line, fence["body"], output))
    return found


PROGRAMS = _programs()


def _words(text: str) -> list[str]:
    """Split an output into words; measured numbers are alike, and so is every way to wrap."""
    numbers = re.sub(r"-?\d+\.\d+(e-\d+)?", "#", text)
    return _TREE.sub(" ", numbers).split()


def _run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_programs_are_found_and_every_python_block_is_one() -> None:
    blocks = [fence for fence in _FENCE.finditer(README) if fence["info"].startswith("python")]
    assert len(PROGRAMS) == len(blocks) >= 8
    assert all(program.output for program in PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"line-{program.line}")
def test_program_prints_what_the_readme_shows(program: Program, tmp_path: Path) -> None:
    printed = _run(program.code, tmp_path)
    assert program.output is not None
    assert _words(printed) == _words(program.output)


@pytest.mark.slow
def test_quick_start_stores_nothing_twice(tmp_path: Path) -> None:
    first = _run(PROGRAMS[0].code, tmp_path)
    assert _run(PROGRAMS[0].code, tmp_path) == first
    assert (tmp_path / ".mnemotrace" / "memory").is_dir()


@pytest.mark.parametrize("last_words", ["mnemotrace demo", "python -m pytest"])
def test_a_newcomer_finds_one_command_and_ci_the_same_one(last_words: str) -> None:
    [command] = re.findall(rf"^python3 -m venv .* && .*{last_words}$", README, re.MULTILINE)
    assert ".venv/bin/pip install" in command


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith(("https://", "http://")):
            assert (path.parent / target.split("#")[0]).exists(), target


def test_configuration_page_names_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    for name, field in MemoryConfig.model_fields.items():
        default = field.default
        plain = isinstance(default, float)
        shown = f"{default:g}" if plain else json.dumps(default).replace("true", "True")
        assert rows.get(name) == shown, name
    assert {"llm", "storage", "embedder", "api_key", "prefer_grpc"} <= rows.keys()


def test_map_of_the_code_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folder in ("flows", "stores", "src/mnemotrace"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name not in ("__init__.py", "__main__.py"):
                assert f"`{path.name}`" in text, path.relative_to(ROOT).as_posix()
