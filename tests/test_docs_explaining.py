"""docs/explaining.md is true: its programs run and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from mnemotrace.recall_explanation import Verdict

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "explaining.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(
    r"^```python runnable\n(.*?)^```\n\n```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
)


def words(text: str) -> list[str]:
    """Split an output into words; ids and measured numbers are all alike."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"[-+]?\d+\.\d+", "#", text).split()


def test_there_are_programs() -> None:
    assert len(PROGRAMS) == 3


@pytest.mark.slow  # it loads the bundled embedder
@pytest.mark.parametrize(("code", "output"), PROGRAMS, ids=["score", "record", "replay"])
def test_a_program_prints_what_is_shown(code: str, output: str) -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(code, "docs/explaining.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert words(shown.getvalue()) == words(output)


def test_every_verdict_is_in_the_table() -> None:
    table = set(
        re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)))
    )
    assert {verdict.value for verdict in Verdict} == table


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
