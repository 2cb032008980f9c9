"""docs/cli.md is true: it has every command, every option and every exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from mnemotrace.cli.app import COMMANDS, app
from mnemotrace.cli.examples import EXAMPLES, ON_SCREEN
from mnemotrace.doctor import examine

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
EVERYWHERE = {"--help", "--json", "--storage"}
WITHOUT_EMBEDDER = {"demo", "reindex"}
"""One makes a memory of its own, the other takes an embedder as its argument."""


def row(command: str) -> str:
    [found] = re.findall(rf"^\| `{command}(?: [^`]*)?` \|.*$", PAGE, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_the_command_with_its_options(name: str) -> None:
    group = typer.main.get_command(app)
    command = group.commands[name]  # type: ignore[attr-defined]
    options = {word for p in command.params for word in p.opts if word.startswith("--")}
    everywhere = EVERYWHERE - {"--json"} if name in ON_SCREEN else EVERYWHERE
    assert everywhere - {"--help"} <= options
    text = PAGE.split("## Doctor")[1] if name == "doctor" else row(name)
    assert ("--embedder" in options) == (name not in WITHOUT_EMBEDDER)
    for option in sorted(options - EVERYWHERE - {"--embedder"}):
        assert f"`{option}" in text, option
    assert (EXAMPLES | ON_SCREEN)[name]


def test_the_page_has_every_check_of_the_doctor(tmp_path: Path) -> None:
    rows = PAGE.split("| check |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", rows))
    assert {check.name for check in examine(tmp_path / "new").checks} <= named
    assert {"manifest", "records", "pending", "dead_letters", "embedder", "lock"} <= named
