"""The command line, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mnemotrace.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run one command in the test's own folder; a command that went well says nothing on stderr."""

    def run(*words: str, code: int = 0) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(words)
        captured = capsys.readouterr()
        outcome = Outcome(int(left.value.code or 0), captured.out, captured.err)
        assert outcome.code == code, outcome
        assert "Traceback" not in outcome.err
        return outcome

    return run


@pytest.fixture
def remember(cli: Cli) -> Callable[..., str]:
    """Remember a text with no language model; returns its id."""

    def run(text: str, *words: str) -> str:
        done = cli("remember", text, "--no-llm", "--json", *words)
        assert done.err == ""
        return str(done.json["id"])

    return run
